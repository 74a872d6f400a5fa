"""OpenAIChat over the wire: what hostile and well-behaved servers send, and what is made of it."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from minagent._util import CancelToken, Deadline
from minagent.errors import (
    AuthenticationFailed,
    BadRequest,
    BadResponse,
    Cancelled,
    ContentFiltered,
    LimitReached,
    ModelError,
    Overloaded,
    RateLimited,
    TruncatedStream,
    UnknownOption,
)
from minagent.llm.base import Frame, ModelCall, ModelRequest
from minagent.llm.openai_chat import OPENAI, OpenAIChat, Server
from minagent.llm.resolve import SERVERS
from minagent.messages import Message
from minagent.results import Usage
from minagent.testing import Reply, ScriptedModel, ScriptedServer, call, calls, fails, says

ASKED = ModelRequest(Frame(), [Message.user("hi")])


def model(server, **options):
    return OpenAIChat("m", server.url + "/v1", "key", **dict({"retry_wait": 0.001}, **options))


def ask(model, request=ASKED, **members):
    return [part for parts in model.do_stream(request, ModelCall(**members)) for part in parts]


def answered(message=None, finish="stop", **members):
    """The parts of a plain answer."""
    choice = {"index": 0, "message": dict({"role": "assistant"}, **(message or {})), "finish_reason": finish}
    with ScriptedServer([Reply.json(dict({"id": "c1", "model": "m1", "choices": [choice]}, **members))]) as server:
        return ask(model(server))


def chunk(delta, finish=None, **members):
    return dict({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}, **members)


def streamed(*events, **members):
    """The parts of a streamed answer."""
    with ScriptedServer([Reply.sse(list(events), **members)]) as server:
        return ask(model(server), stream=True, retries=0)


def text_of(parts, kind="text"):
    return "".join([payload["text"] for name, payload in parts if name == kind + "-delta"])


def calls_of(parts):
    return [payload for name, payload in parts if name == "tool-call"]


def joined(parts):
    """Parts with neighbouring deltas joined: what is the same however it was cut."""
    found = []
    for kind, payload in parts:
        key = "args_text" if kind == "tool-call-delta" else "text" if kind.endswith("-delta") else None
        if key and found and found[-1][0] == kind and found[-1][1].get("id") == payload.get("id") and \
                found[-1][1].get("call_id") == payload.get("call_id"):
            found[-1][1][key] += payload[key]
        else:
            found.append((kind, dict(payload)))
    return found


@pytest.mark.parametrize("turn", [
    says("Hello ä \u2028 \U0001f600."),
    says("It is 5.", reasoning="Two and three.", usage=Usage(20, 9, 4, 7)),
    says("Let me add.") + calls(("add", {"a": 1, "b": "ü"}), ("add", {"a": 2}), call("now")),
    says("Too lo", finish_reason="length"),
    says("", finish_reason="content-filter"),
], ids=["text", "reasoning", "calls", "length", "filter"])
def test_streamed_plain_and_scripted_say_the_same(turn):
    """One turn, three ways: the parts are equal but for where the text is cut."""
    with ScriptedServer.openai_chat([turn], loop=True) as server:
        plain = ask(model(server))
        stream = ask(model(server), stream=True)
    assert joined(plain) == joined(stream)
    scripted = joined(ask(ScriptedModel([turn]), stream=True))
    for mine, theirs in zip(without_ids(plain), without_ids(scripted)):
        assert mine == theirs
    assert plain[-1][1]["usage"] == turn.usage and plain[-1][1]["finish_reason"] == turn.finish


def without_ids(parts):
    """What two models of one script must agree on."""
    kept = []
    for kind, payload in joined(parts):
        if kind.startswith("tool-call-") or kind.endswith(("-start", "-end")):
            continue
        gone = ("id", "call_id", "model", "response_id", "raw_finish_reason")
        kept.append((kind, {key: value for key, value in payload.items() if key not in gone}))
    return sorted(kept, key=lambda item: item[0])


# Calls, as hostile servers write them.

def fragment(arguments=None, **members):
    function = {key: members.pop(key) for key in ("name",) if key in members}
    if arguments is not None:
        function["arguments"] = arguments
    return dict(members, function=function)


@pytest.mark.parametrize("fragments, wanted", [
    ([fragment("", index=0, id="a", name="f"), fragment('{"x"', index=0), fragment(": 1}", index=0)],
     [("f", {"x": 1})]),
    ([fragment('{"x": 1}', id="a", name="f"), fragment('{"x": 2}', id="b", name="f")],
     [("f", {"x": 1}), ("f", {"x": 2})]),
    ([fragment('{"x"', id="a", name="f"), fragment(": 1}")], [("f", {"x": 1})]),
    ([fragment('{"x": 1}', index=0, id="a", name="f"), fragment('{"x": 2}', index=0, id="b", name="g")],
     [("f", {"x": 1}), ("g", {"x": 2})]),
    ([fragment('{"x": 1}', index=0, name="f"), fragment('{"x": 2}', index=0, name="f")],
     [("f", {"x": 1}), ("f", {"x": 2})]),
    ([fragment('{"x": 1}', index=0, id="", name="f"), fragment('{"x": 2}', index=1, id="", name="f")],
     [("f", {"x": 1}), ("f", {"x": 2})]),
    ([fragment("{", index=0, id="s", name="f"), fragment("{}", index=1, id="s", name="g"),
      fragment("}", index=0, id="s")], [("f", {}), ("g", {})]),
    ([fragment('{"x"', index=0, id="a", name="f"), fragment(": 1}", index=0, id="a", name="f")],
     [("f", {"x": 1})]),
    ([fragment({"x": 1}, index=0, id="a", name="f")], [("f", {"x": 1})]),
    ([fragment(None, index=0, id="a", name="f")], [("f", {})]),
    ([fragment('"{\\"x\\": 1}"', index=0, id="a", name="f")], [("f", {"x": 1})]),
    ([fragment("null", index=0, id="a", name="f")], [("f", {})]),
    ([fragment('{"x": ', index=0, id="a", name="f")], [("f", None)]),
    ([fragment("[1]", index=0, id="a", name="f")], [("f", None)]),
    ([fragment('{"x": NaN}', index=0, id="a", name="f")], [("f", None)]),
    ([fragment("[" * 100_000, index=0, id="a", name="f")], [("f", None)]),
    ([{"index": 0, "id": "a"}, None, 5], [("", {})]),
], ids=["openai", "no-index", "no-index-no-id", "one-index", "one-index-no-ids", "empty-ids", "same-id",
        "all-repeated", "object", "none", "twice-encoded", "null", "broken", "list", "nan", "deep", "no-function"])
def test_calls_are_told_apart_and_their_arguments_read(fragments, wanted):
    """By index, by id, by name; each call has an id of its own, and broken arguments are None beside their text."""
    parts = streamed(*[chunk({"tool_calls": [item]}) for item in fragments], chunk({}, "tool_calls"))
    found = calls_of(parts)
    assert [(item["tool_name"], item["args"]) for item in found] == wanted
    ids = [item["call_id"] for item in found]
    assert len(set(ids)) == len(ids) and all(ids)
    started = [payload["call_id"] for kind, payload in parts if kind == "tool-call-input-streaming-start"]
    assert started == ids and parts[-1][1]["finish_reason"] == "tool-calls"


def test_raw_arguments_are_kept_as_they_were_written():
    """What the model wrote goes back to it unchanged, spaces and all."""
    parts = answered({"content": None, "tool_calls": [{"id": "a", "function": {
        "name": "f", "arguments": '{ "x" : 1.0 }'}}]})
    assert calls_of(parts)[0]["raw_args"] == '{ "x" : 1.0 }' and calls_of(parts)[0]["args"] == {"x": 1.0}


def test_plain_calls_without_ids_are_different_calls():
    """Twice the same id, none and null: four calls with four ids."""
    made = [{"id": id, "function": {"name": "f", "arguments": "{}"}} for id in ("s", "s", "", None)]
    found = calls_of(answered({"tool_calls": made}, finish="stop"))
    assert len({item["call_id"] for item in found}) == 4 and found[0]["call_id"] == "s"


def test_calls_count_whatever_the_finish_word_is():
    """Servers say "stop" or nothing though tools are called; we say tool-calls."""
    made = {"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    for word in ("stop", "tool_calls", None, "", "length", "weird"):
        assert answered(made, finish=word)[-1][1]["finish_reason"] == "tool-calls"


@pytest.mark.parametrize("word, wanted", [("stop", "stop"), ("eos", "stop"), ("length", "length"),
                                          ("content_filter", "content-filter"), (None, "stop"), ("", "stop"),
                                          ("banana", "other"), ("error", "error")])
def test_finish_words_are_translated(word, wanted):
    """The word itself is kept beside ours."""
    end = answered({"content": "x"}, finish=word)[-1][1]
    assert (end["finish_reason"], end["raw_finish_reason"]) == (wanted, word or None)


# Streams, and how they end.

def test_a_stream_without_its_finish_word_is_truncated():
    """Neither a finish word nor [DONE]: the answer is not complete, and that is an error."""
    with pytest.raises(TruncatedStream):
        streamed(chunk({"content": "Hel"}), done=False)
    with pytest.raises(TruncatedStream):
        streamed(chunk({"content": "Hel"}), done=False, end="disconnect")
    with pytest.raises(TruncatedStream):
        streamed({"usage": {"prompt_tokens": 1}, "choices": []})


def test_done_is_only_a_hint():
    """A finish word without [DONE] is an end, [DONE] without a finish word too; what follows it is not read."""
    assert text_of(streamed(chunk({"content": "a"}), chunk({}, "stop"), done=False)) == "a"
    parts = streamed(chunk({"content": "a"}), b"data: [DONE]\n\n", chunk({"content": "b"}))
    assert text_of(parts) == "a" and parts[-1][1]["finish_reason"] == "stop"


def test_a_stream_is_over_with_done_and_its_connection_is_kept():
    """A server that goes on holding the connection is not waited for; one that ends is asked again on it."""
    silent = threading.Event()
    with ScriptedServer([Reply.sse([chunk({"content": "a"}, "stop"), b"data: [DONE]\n\n", silent])]) as server:
        start = time.monotonic()
        assert text_of(ask(model(server), stream=True)) == "a"
        assert time.monotonic() - start < 2
    with ScriptedServer.openai_chat([says("x")], loop=True) as server:
        made = model(server)
        for stream in (True, True, False, True):
            ask(made, stream=stream)
    assert server.connections == 1


def test_usage_is_read_wherever_it_comes():
    """With the finish chunk, after it, twice, growing, or in x_groq; the last one counts."""
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    end = chunk({}, "stop")
    for events in ([dict(end, usage=usage)], [end, {"choices": [], "usage": usage}],
                   [dict(end, usage={"prompt_tokens": 1}), {"choices": [], "usage": usage}],
                   [dict(end, x_groq={"usage": usage})]):
        assert streamed(chunk({"content": "a"}), *events)[-1][1]["usage"] == Usage(3, 2)
    assert streamed(end)[-1][1]["usage"] == Usage()


def test_a_connection_that_breaks_after_the_finish_word_loses_only_the_usage():
    """The text is whole; a warning tells that the numbers are not."""
    parts = streamed(chunk({"content": "all"}), chunk({}, "stop"), done=False, end="disconnect")
    assert text_of(parts) == "all" and "usage" in parts[-1][1]["warnings"][0]


def test_an_answer_in_plain_json_to_a_streamed_request_is_read():
    """Some servers ignore the wish for a stream."""
    body = {"choices": [{"index": 0, "message": {"content": "Hello."}, "finish_reason": "stop"}]}
    with ScriptedServer([Reply.json(body)]) as server:
        assert text_of(ask(model(server), stream=True)) == "Hello."


def test_only_the_first_choice_is_read_and_none_is_skipped():
    """Chunks without choices and with others are no error."""
    other = {"choices": [{"index": 1, "delta": {"content": "no"}, "finish_reason": "length"}]}
    parts = streamed({"choices": []}, {"choices": None}, chunk({"content": "yes"}), other, chunk({}, "stop"))
    assert text_of(parts) == "yes" and parts[-1][1]["finish_reason"] == "stop"


def test_reasoning_is_read_under_each_of_its_names():
    """reasoning_content, reasoning, both at once, and Mistral's lists."""
    assert text_of(answered({"content": "x", "reasoning_content": "R"}), "reasoning") == "R"
    assert text_of(answered({"content": "x", "reasoning": "R"}), "reasoning") == "R"
    assert text_of(answered({"content": "x", "reasoning": "R", "reasoning_content": "R"}), "reasoning") == "R"
    mixed = [{"type": "thinking", "thinking": [{"type": "text", "text": "R"}]}, {"type": "text", "text": "x"}]
    parts = answered({"content": mixed})
    assert (text_of(parts, "reasoning"), text_of(parts)) == ("R", "x")


def test_texts_and_reasoning_have_a_start_and_an_end_each():
    """Blocks are closed before the next one starts, and ids differ."""
    parts = streamed(chunk({"reasoning": "a"}), chunk({"content": "b"}), chunk({"reasoning": "c"}),
                     chunk({"content": "d"}), chunk({}, "stop"))
    kinds = [kind for kind, _ in parts[:-1]]
    assert kinds == ["reasoning-start", "reasoning-delta", "reasoning-end",
                     "text-start", "text-delta", "text-end"] * 2
    assert len({payload["id"] for _, payload in parts[:-1]}) == 4


def test_a_refusal_is_the_text_with_a_warning():
    """The model's words are shown, not lost."""
    parts = answered({"content": None, "refusal": "I will not."})
    assert text_of(parts) == "I will not." and "refused" in parts[-1][1]["warnings"][0]


def test_sources_and_cost_are_read():
    """Annotations, citations beside the answer, and the price that some servers report."""
    parts = answered({"content": "x", "annotations": [{"type": "url_citation", "url_citation": {
        "url": "http://a/", "title": "A"}}]}, citations=["http://b/", "http://a/"], usage={"cost": 0.5})
    assert [payload["value"] for kind, payload in parts if kind == "source"] == [
        {"type": "url", "url": "http://b/"}, {"type": "url", "url": "http://a/", "title": "A"}]
    assert parts[-1][1]["cost_usd"] == 0.5


# Errors.

@pytest.mark.parametrize("body, error", [
    ({"error": {"message": "too fast", "type": "rate_limit_error"}}, RateLimited),
    ({"error": {"message": "try later", "code": 502}}, Overloaded),
    ({"error": {"message": "no", "code": "content_filter"}}, ContentFiltered),
    ({"error": {"message": "bad tool", "code": "tool_use_failed", "type": "invalid_request_error"}}, BadRequest),
    ({"error": "something"}, ModelError),
    ({"choices": [{"index": 0, "error": {"message": "upstream", "code": 500}}]}, Overloaded),
])
@pytest.mark.parametrize("stream", [False, True])
def test_an_error_inside_a_200_is_an_error(body, error, stream):
    """At the top, or at the choice; alone, or after some text."""
    replies = [Reply.sse([chunk({"content": "a"}), body]), Reply.sse([body])] if stream else [Reply.json(body)]
    for reply in replies:
        with ScriptedServer([reply]) as server, pytest.raises(error) as caught:
            ask(model(server), stream=stream, retries=0)
        assert type(caught.value) is error and caught.value.status == 200


@pytest.mark.parametrize("body", [b"<html>hello</html>", b"[1, 2]", b'{"choices": []}', b"\xff\xfe", b"null",
                                  b"[" * 100_000])
def test_a_200_that_is_no_answer_is_a_bad_response(body):
    """HTML, lists and no choices are told with what came instead."""
    with ScriptedServer([Reply(body)]) as server, pytest.raises(BadResponse):
        ask(model(server), retries=0)


def test_a_broken_event_is_a_bad_response():
    """Half of a JSON object as a whole event is the server's fault."""
    with pytest.raises(BadResponse, match="no JSON"):
        streamed(b'data: {"choices": [\n\n')


def test_scripted_failures_arrive_as_themselves():
    """What a script `fails` with after some text is what the client raises."""
    for error in (RateLimited("x"), Overloaded("x"), AuthenticationFailed("x"), BadRequest("x"),
                  ContentFiltered("x"), TruncatedStream("x")):
        with ScriptedServer.openai_chat([fails(error, after="Hel")]) as server:
            with pytest.raises(type(error)) as caught:
                ask(model(server), stream=True, retries=0)
        assert type(caught.value) is type(error)


def test_retries_end_with_the_answer():
    """A refusal and a reset before it are not seen by the caller."""
    told = []
    turns = [fails(RateLimited("x")), fails(TruncatedStream("x")), says("ok")]
    with ScriptedServer.openai_chat(turns) as server:
        parts = ask(model(server), on_retry=lambda *news: told.append(news))
    assert text_of(parts) == "ok" and [attempt for attempt, _, _ in told] == [1, 2]


def test_a_call_can_be_cancelled_and_timed_out_in_the_middle():
    """Parts that came are kept by the caller; then the call's own signal is raised."""
    body = [chunk({"content": "Hel"}), threading.Event()]
    cancel, seen = CancelToken(), []
    with ScriptedServer([Reply.sse(body), Reply.sse(body)]) as server:
        with pytest.raises(Cancelled):
            for parts in model(server).do_stream(ASKED, ModelCall(stream=True, cancel=cancel)):
                seen += parts
                cancel.cancel()
        with pytest.raises(LimitReached, match="deadline"):
            ask(model(server), stream=True, deadline=Deadline(0.2))
    assert text_of(seen) == "Hel"


# Keys and addresses.

def test_the_key_is_read_when_a_call_is_made(monkeypatch):
    """From the environment of that moment; without one, the server is not even asked."""
    with ScriptedServer.openai_chat([says("x")], loop=True) as server:
        made = OpenAIChat("m", server=Server(base_url=server.url))
        for key in ("first", "second"):
            monkeypatch.setenv("OPENAI_API_KEY", key)
            ask(made, retries=0)
        monkeypatch.delenv("OPENAI_API_KEY")
        with pytest.raises(AuthenticationFailed, match="set the environment variable OPENAI_API_KEY or"):
            ask(made)
        found = [request.headers.get("authorization") for request in server.requests]
    assert found == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize("known", [None, SERVERS["groq"], OPENAI])
def test_the_key_of_the_environment_goes_to_no_address_that_a_caller_chose(known, monkeypatch):
    """It belongs to the server that it is named after; elsewhere the key is api_key or none."""
    for name in ("OPENAI_API_KEY", "GROQ_API_KEY"):
        monkeypatch.setenv(name, "sk-secret")
    with ScriptedServer.openai_chat([says("x")], loop=True) as server:
        for base_url in (server.url, lambda context: server.url):
            made = OpenAIChat("m", base_url, server=known)
            if known is None:
                ask(made)
            else:
                with pytest.raises(AuthenticationFailed, match="has none; pass api_key="):
                    ask(made)
            ask(OpenAIChat("m", base_url, "own", server=known))
        found = [request.headers.get("authorization") for request in server.requests]
    assert found == ([None, "Bearer own"] if known is None else ["Bearer own"]) * 2
    assert "sk-secret" not in repr([request.headers for request in server.requests])


@pytest.mark.parametrize("base_url", [None, "https://api.openai.com/v1", "https://api.openai.com/v1/"])
def test_the_key_of_the_environment_is_for_openai_however_it_is_spelt(base_url, monkeypatch):
    """Its own address, written out, is no other address."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(AuthenticationFailed, match="OPENAI_API_KEY"):
        ask(OpenAIChat("m", base_url))


def test_key_address_and_headers_may_depend_on_the_request():
    """A function of the request's context, or provider_options; these never reach the body or a record."""
    with ScriptedServer.openai_chat([says("x")], loop=True) as server:
        made = OpenAIChat("m", lambda context: server.url + "/" + context["tenant"],
                          lambda context: "key-of-" + context["tenant"], headers={"x-a": "1"})
        ask(made, request_context={"tenant": "ann"})
        frame = Frame(settings={"provider_options": {"api_key": "own", "headers": {"x-b": "2"}, "user": "u"}})
        ask(made, ASKED.replace(frame=frame), request_context={"tenant": "bob"})
        first, second = server.requests
    assert (first.path, first.headers["authorization"]) == ("/ann/chat/completions", "Bearer key-of-ann")
    assert (second.headers["authorization"], second.headers["x-a"], second.headers["x-b"]) == ("Bearer own", "1", "2")
    assert second.json["user"] == "u" and b"own" not in second.raw
    assert frame.to_dict()["settings"] == {"provider_options": {"user": "u"}}


def test_a_key_shows_itself_nowhere():
    """Neither the model, nor its attributes, nor an error print it."""
    made = OpenAIChat("m", "http://127.0.0.1:1/v1", "sk-very-secret", retry_wait=0.001)
    assert "sk-very-secret" not in repr(made) + repr(vars(made)) + repr(made.describe())
    with pytest.raises(ModelError) as caught:
        ask(made)
    assert "sk-very-secret" not in repr(caught.value) + repr(caught.value.__cause__)


def test_the_address_may_carry_a_query():
    """As Azure's older addresses do."""
    with ScriptedServer.openai_chat([says("x")]) as server:
        ask(OpenAIChat("m", server.url + "/deployments/d?api-version=1", "k"))
        assert server.requests[0].path == "/deployments/d/chat/completions?api-version=1"


def test_a_closed_model_keeps_no_connection():
    """After `close` the server sees the end of the connection, and a next call opens another."""
    with ScriptedServer.openai_chat([says("x")], loop=True) as server:
        made = model(server)
        for _ in range(2):
            ask(made)
            made.close()
    assert server.connections == 2


def test_unknown_settings_are_refused():
    """A misspelt setting is told at once, with the nearest that exists."""
    with pytest.raises(UnknownOption, match="temperature"):
        OpenAIChat("m", temprature=1)


def test_many_threads_share_a_model():
    """Twenty threads stream from one object, each its own conversation."""
    def turn(body):
        return says("You said " + body["messages"][-1]["content"])

    with ScriptedServer.openai_chat(turn) as server:
        made = model(server)

        def converse(number):
            request = ModelRequest(Frame(), [Message.user("n%d" % number)])
            return text_of(ask(made, request, stream=bool(number % 2))) == "You said n%d" % number

        with ThreadPoolExecutor(20) as pool:
            assert all(pool.map(converse, range(100)))


def test_lone_surrogates_do_not_stop_a_conversation():
    """Half a character in a message is sent as its escape."""
    with ScriptedServer.openai_chat([says("x")]) as server:
        ask(model(server), ModelRequest(Frame(system="\udc00"), [Message.user("a\ud800b")]))
        assert json.loads(server.requests[0].raw)["messages"][1]["content"] == "a\ud800b"
