"""What OpenAIChat sends: every kind of message and setting, and bytes that are made once."""

import json

import pytest

from minagent.errors import ConfigError
from minagent.llm.base import Frame, ModelCall, ModelRequest
from minagent.llm.openai_chat import OpenAIChat
from minagent.llm.openai_chat_request import BodyWriter, Dialect
from minagent.llm.resolve import SERVERS
from minagent.messages import FilePart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from minagent.testing import Reply, ScriptedServer
from minagent.tools import ToolSpec

ADD = ToolSpec("add", "Adds.", {"type": "object", "properties": {"a": {"type": "integer"}}})
OPENAI = Dialect("max_completion_tokens", None)


def body(request, stream=False, dialect=OPENAI, defaults=None, parallel=None, provider="p"):
    return json.loads(BodyWriter(provider, "m", dialect, defaults or {}, parallel).body(request, stream))


def messages(*given, **settings):
    return body(ModelRequest(Frame(), list(given)), **settings)["messages"]


def test_a_request_without_anything_is_a_model_and_messages():
    """Only what was set is sent: unknown fields are errors at some servers."""
    assert body(ModelRequest(Frame(), [Message.user("hi")])) == {
        "model": "m", "messages": [{"role": "user", "content": "hi"}]}


def test_settings_are_sent_under_the_wires_names():
    """Ours on the left, theirs on the right; the request wins over the model's defaults."""
    frame = Frame("x", "Be brief.", (ADD,), {"name": "add"}, {
        "temperature": 0, "max_output_tokens": 5, "stop_sequences": ["x"], "seed": 3, "top_p": None,
        "reasoning_effort": "low"})
    sent = body(ModelRequest(frame, []), stream=True, defaults={"temperature": 1, "top_p": 0.5}, parallel=False)
    assert sent == {
        "model": "m", "temperature": 0, "stop": ["x"], "seed": 3, "reasoning_effort": "low", "top_p": 0.5,
        "max_completion_tokens": 5, "stream": True, "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": {
            "name": "add", "description": "Adds.", "parameters": ADD.parameters}}],
        "tool_choice": {"type": "function", "function": {"name": "add"}}, "parallel_tool_calls": False,
        "messages": [{"role": "system", "content": "Be brief."}]}


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_tool_choice_and_parallel_control_go_only_with_tools(choice):
    """Without tools they are errors at OpenAI."""
    assert "tool_choice" not in body(ModelRequest(Frame(tool_choice=choice), []), parallel=True)
    sent = body(ModelRequest(Frame(tools=(ADD,), tool_choice=choice), []))
    assert sent.get("tool_choice", "auto") == choice


def test_provider_options_come_last_and_win():
    """They are merged into the body; those under the provider's name are for it alone."""
    frame = Frame(settings={"temperature": 0, "provider_options": {
        "temperature": 2, "logit_bias": {}, "p": {"store": False}}})
    sent = body(ModelRequest(frame, []), defaults={"provider_options": {"store": True, "user": "u"}})
    assert (sent["temperature"], sent["logit_bias"], sent["store"], sent["user"]) == (2, {}, False, "u")
    assert "p" not in sent


def test_an_answer_in_json_is_asked_for_by_its_schema():
    """response_format becomes json_schema, unless the caller wrote one of their own."""
    wanted = {"name": "point", "schema": {"type": "object"}, "strict": True}
    assert body(ModelRequest(Frame(), [], wanted))["response_format"] == {"type": "json_schema", "json_schema": wanted}
    own = Frame(settings={"provider_options": {"response_format": {"type": "text"}}})
    raw = BodyWriter("p", "m", OPENAI, {}, None).body(ModelRequest(own, [], wanted), False)
    assert raw.count(b"response_format") == 1 and json.loads(raw)["response_format"] == {"type": "text"}


def test_files_become_content_parts():
    """Images by data or URL, audio, and everything else as a file with a name."""
    sent = messages(Message.user("look", [
        FilePart("image/png", data="AA=="), FilePart("image/png", url="http://x/y.png"),
        FilePart("audio/mpeg", data="BB=="), FilePart("application/pdf", data="CC==", filename="a.pdf")]))
    assert sent[0]["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}},
        {"type": "image_url", "image_url": {"url": "http://x/y.png"}},
        {"type": "input_audio", "input_audio": {"data": "BB==", "format": "mp3"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,CC=="}}]
    with pytest.raises(ConfigError, match="pass the data"):
        messages(Message.user("", [FilePart("application/pdf", url="http://x/a.pdf")]))


def test_calls_go_back_as_they_came():
    """The arguments are the text that the model wrote; a message of calls has no text, or an empty one."""
    call = ToolCallPart("c1", "add", {"a": 1}, '{ "a":1 }')
    made = Message.assistant("", [call, ToolCallPart("c2", "add", {"a": 2})])
    wanted = [{"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{ "a":1 }'}},
              {"id": "c2", "type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}]
    assert messages(made) == [{"role": "assistant", "content": None, "tool_calls": wanted}]
    assert messages(made, dialect=Dialect())[0]["content"] == ""
    assert messages(Message.assistant("Sure.", [call]))[0]["content"] == "Sure."
    assert messages(Message.assistant("")) == [{"role": "assistant", "content": ""}]


def test_results_are_text_and_errors_say_so():
    """Strings as they are, other values as JSON, errors with the word before them."""
    sent = messages(Message.tool([
        ToolResultPart("c1", "f", "plain"), ToolResultPart("c2", "f", {"ä": [1, None]}),
        ToolResultPart("c3", "f", None), ToolResultPart("c4", "f", "boom", True, "exception")]))
    assert [item["content"] for item in sent] == ["plain", '{"ä":[1,null]}', "null", "Error: boom"]
    assert [item["tool_call_id"] for item in sent] == ["c1", "c2", "c3", "c4"]


def test_files_of_results_follow_in_a_message_of_the_user():
    """Tool messages hold text only; all of them come first, then the files, each with its call."""
    image = FilePart("image/png", data="AA==")
    sent = messages(Message.tool([ToolResultPart("c1", "shot", "see file", content=(image,)),
                                  ToolResultPart("c2", "f", "x")]))
    assert [item["role"] for item in sent] == ["tool", "tool", "user"]
    assert sent[2]["content"][0]["text"] == "Files in the result of shot (call c1):"
    assert sent[2]["content"][1]["type"] == "image_url"


def test_system_messages_at_the_beginning_are_one():
    """Some chat templates take one only; a later one stays where it is."""
    frame = Frame(system="A")
    sent = body(ModelRequest(frame, [Message.system("B"), Message.user("x"), Message.system("C")]))["messages"]
    assert sent == [{"role": "system", "content": "A\n\nB"}, {"role": "user", "content": "x"},
                    {"role": "system", "content": "C"}]


def test_what_a_provider_sent_to_be_echoed_goes_to_it_alone():
    """Reasoning and signatures return in their own fields to the provider that sent them."""
    mine = {"p": {"reasoning_details": [{"type": "reasoning.encrypted", "data": "x"}], "field": "reasoning_content"}}
    call = ToolCallPart("c", "f", {}, "{}", {"p": {"extra_content": {"google": {"thought_signature": "s"}}}})
    made = Message("assistant", (ReasoningPart("hm", provider_metadata=mine), TextPart("a"), call))
    sent = messages(made)[0]
    assert sent["reasoning_content"] == "hm" and sent["reasoning_details"] == mine["p"]["reasoning_details"]
    assert sent["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "s"}}
    other = messages(made, provider="other")[0]
    assert set(other) == {"role", "content", "tool_calls"} and "extra_content" not in other["tool_calls"][0]


def test_dialects_differ_where_servers_do():
    """DeepSeek wants reasoning_content beside calls, Mistral ids of nine letters and digits."""
    call, result = ToolCallPart("call_1", "f", {}), ToolResultPart("call_1", "f", "x")
    deepseek = messages(Message.assistant("", [call]), dialect=SERVERS["deepseek"].dialect)[0]
    assert deepseek["reasoning_content"] == "" and deepseek["content"] == ""
    sent = messages(Message.assistant("", [call]), Message.tool([result]), dialect=SERVERS["mistral"].dialect)
    short = sent[0]["tool_calls"][0]["id"]
    assert len(short) == 9 and short.isalnum() and sent[1]["tool_call_id"] == short
    kept = messages(Message.assistant("", [ToolCallPart("abcDEF123", "f", {})]),
                    dialect=SERVERS["mistral"].dialect)
    assert kept[0]["tool_calls"][0]["id"] == "abcDEF123"
    sent = body(ModelRequest(Frame(settings={"max_output_tokens": 9}), []), dialect=SERVERS["groq"].dialect)
    assert sent["max_tokens"] == 9


def test_a_streamed_answer_goes_back_as_the_provider_sent_it():
    """Read from the wire, put into a message, through JSON, and out again."""
    call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}, "extra_content": {"x": 1}}
    details = [{"type": "reasoning.text", "index": 0, "text": "a"},
               {"type": "reasoning.text", "index": 0, "text": "b", "signature": "s"}]
    events = [{"choices": [{"index": 0, "delta": delta, "finish_reason": word}]} for delta, word in (
        ({"reasoning_content": "h", "reasoning_details": details[:1]}, None),
        ({"reasoning_content": "m", "reasoning_details": details[1:]}, None),
        ({"tool_calls": [call]}, None), ({}, "tool_calls"))]
    with ScriptedServer([Reply.sse(events), Reply.sse(events)]) as server:
        model = OpenAIChat("m", server.url, "k")
        first = ModelRequest(Frame(), [Message.user("x")])
        parts = [part for batch in model.do_stream(first, ModelCall(stream=True)) for part in batch]
        answer = Message.from_dict(json.loads(json.dumps(assembled(parts).to_dict())))
        list(model.do_stream(first.replace(messages=[*first.messages, answer]), ModelCall(stream=True)))
        sent = server.requests[1].json["messages"][1]
    assert sent["reasoning_content"] == "hm" and sent["tool_calls"][0]["extra_content"] == {"x": 1}
    assert sent["reasoning_details"] == [{"type": "reasoning.text", "index": 0, "text": "ab", "signature": "s"}]


def assembled(parts):
    """The message that parts make."""
    text = "".join([payload["text"] for kind, payload in parts if kind == "reasoning-delta"])
    found = [ReasoningPart(text, provider_metadata=payload["provider_metadata"])
             for kind, payload in parts if kind == "reasoning-end"]
    found += [ToolCallPart(payload["call_id"], payload["tool_name"], payload["args"], payload["raw_args"],
                           payload.get("provider_metadata")) for kind, payload in parts if kind == "tool-call"]
    return Message("assistant", tuple(found))


def test_a_message_is_encoded_once():
    """The bytes stay with the message: another request, another model of the same kind, finds them there."""
    made = Message.user("hi")
    first = BodyWriter("p", "m", OPENAI, {}, None)
    first.body(ModelRequest(Frame(), [made]), False)
    kept = made.__dict__["_wire"]
    assert list(kept.values()) == [b'{"role":"user","content":"hi"}']
    kept[next(iter(kept))] = b'{"role":"user","content":"kept"}'
    other = BodyWriter("p", "other", OPENAI, {}, None)
    assert b"kept" in other.body(ModelRequest(Frame(system="new"), [made, Message.user("x")]), True)
    assert b"kept" not in BodyWriter("q", "m", OPENAI, {}, None).body(ModelRequest(Frame(), [made]), False)
    assert made == Message.user("hi") and "_wire" not in made.to_dict()


def test_a_frame_is_encoded_once():
    """The same frame is the same bytes; streamed and plain differ."""
    frame, writer = Frame(system="S", tools=(ADD,)), BodyWriter("p", "m", OPENAI, {}, None)
    plain = writer.body(ModelRequest(frame, []), False)
    assert writer.body(ModelRequest(frame, []), False) == plain != writer.body(ModelRequest(frame, []), True)
    assert len(frame.__dict__["_wire"]) == 2


def test_bodies_are_the_same_whatever_was_sent_before():
    """Histories that grow, shrink, change in the middle or alternate are joined as if each were the first."""
    history = [Message.user("m%d" % index) for index in range(6)]
    changed = [*history[:2], Message.user("other"), *history[3:]]
    shared = BodyWriter("p", "m", OPENAI, {}, None)
    for wanted in (history[:1], history[:3], history, history[:2], changed, history, [], changed[:4], history):
        request = ModelRequest(Frame(), list(wanted))
        assert shared.body(request, False) == BodyWriter("p", "m", OPENAI, {}, None).body(request, False)
        assert [item["content"] for item in json.loads(shared.body(request, False))["messages"]] == [
            message.text for message in wanted]


def test_a_step_costs_what_is_new_in_it():
    """Ten times the history is not ten times the work: the old messages are not even looked into."""
    class Watched(tuple):
        reads = 0

        def __iter__(self):
            Watched.reads += 1
            return super().__iter__()

    writer, history = BodyWriter("p", "m", OPENAI, {}, None), []
    for step in range(50):
        message = Message.user("m%d" % step)
        object.__setattr__(message, "parts", Watched(message.parts))
        history.append(message)
        before = Watched.reads
        writer.body(ModelRequest(Frame(), list(history)), False)
        assert Watched.reads - before <= 3
