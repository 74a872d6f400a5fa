"""Recorded traffic of many servers, read over a real socket: what we read is what was meant."""

import json

import pytest

from minagent.errors import ModelError
from minagent.llm.base import Frame, ModelCall, ModelRequest
from minagent.llm.openai_chat import OpenAIChat
from minagent.messages import Message
from minagent.testing import Reply, ScriptedServer

#: Fewer than these would mean that the test looked at nothing.
CASES, EXCHANGES = 167, 249
DROPPED = ("content-length", "transfer-encoding", "connection", "content-encoding", "content-type")


def cases(folder):
    for path in sorted((folder / "openai_chat").glob("*.json")):
        yield json.loads(path.read_text(encoding="utf-8"))


def reply(response, streamed, size):
    """The recorded answer, sent in chunks of `size` bytes, or as one."""
    recorded = {name.lower(): value for name, value in (response.get("headers") or {}).items()}
    headers = {name: str(value) for name, value in recorded.items() if name not in DROPPED}
    body = response["body"].encode("utf-8", "surrogatepass")
    kind = recorded.get("content-type", "application/json")
    if not streamed:
        return Reply(body, response["status"], headers, kind)
    chunks = [body[start:start + size] for start in range(0, len(body), size)] if size else [body]
    return Reply(chunks, response["status"], headers, kind)


def read(model, streamed):
    """What a model says, in the terms of the recordings."""
    found = {"text": "", "reasoning_text": "", "tool_calls": [], "citations": []}
    request = ModelRequest(Frame(), [Message.user("hi")])
    for parts in model.do_stream(request, ModelCall(stream=streamed, retries=0)):
        for kind, payload in parts:
            if kind == "text-delta":
                found["text"] += payload["text"]
            elif kind == "reasoning-delta":
                found["reasoning_text"] += payload["text"]
            elif kind == "tool-call":
                found["tool_calls"].append(payload)
            elif kind == "source":
                found["citations"].append(payload["value"]["url"])
            elif kind == "finish":
                found["end"] = payload
    return found


def wanted_finish(expect):
    """The expected finish in our words: calls decide, and a complete answer without a word has stopped."""
    if expect["tool_calls"]:
        return "tool-calls"
    return (expect["finish"] or "stop").replace("_", "-")


def compare(expect, found):
    """Yield every difference, as a sentence."""
    pairs = [("text", expect["text"] or expect["refusal"] or "", found["text"]),
             ("reasoning", expect["reasoning_text"], found["reasoning_text"]),
             ("calls", [(call["name"], call["args"]) for call in expect["tool_calls"]],
              [(call["tool_name"], call["args"]) for call in found["tool_calls"]]),
             ("ids", [call["id"] for call in expect["tool_calls"] if call["id"]],
              [call["call_id"] for call, its in zip(found["tool_calls"], expect["tool_calls"]) if its["id"]]),
             ("finish", wanted_finish(expect), found["end"]["finish_reason"]),
             ("citations", expect["citations"], found["citations"]),
             ("model", expect["model"] or "asked", found["end"]["model"]),
             ("id", expect["response_id"] or None, found["end"]["response_id"])]
    usage = expect["usage"] or {}
    for name in ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens", "cache_write_tokens"):
        if name in usage or name != "cache_write_tokens":
            pairs.append((name, usage.get(name), getattr(found["end"]["usage"], name)))
    return ["%s is %r, expected %r" % (name, got, wanted) for name, wanted, got in pairs if got != wanted]


def differences(exchange, size=0):
    expect, streamed = exchange["expect"], bool(exchange["stream"])
    with ScriptedServer([reply(exchange["response"], streamed, size)]) as server:
        model = OpenAIChat("asked", server.url, "key")
        try:
            found = read(model, streamed)
        except ModelError as error:
            wanted = expect.get("error")
            if wanted is None:
                return ["raised %r" % error]
            pairs = [("status", wanted["status"], error.status),
                     ("code", None if wanted["code"] is None else str(wanted["code"]), error.code),
                     ("message", True, wanted["message"] in str(error))]
            return ["error's %s is %r, expected %r (%s)" % (name, got, should, error)
                    for name, should, got in pairs if got != should]
    if expect.get("error"):
        return ["no error, expected %r" % expect["error"]]
    return compare(expect, found)


def test_every_recorded_answer_is_read_as_it_was_meant(recordings):
    """Text, reasoning, calls, finish, usage, sources and errors of all recorded Chat exchanges."""
    wrong, count, seen = [], 0, 0
    for case in cases(recordings):
        seen += 1
        for number, exchange in enumerate(case["exchanges"]):
            count += 1
            wrong += ["%s[%d] %s" % (case["id"], number, what) for what in differences(exchange)]
    print("%d cases, %d exchanges" % (seen, count))
    assert not wrong, "\n".join(wrong)
    assert (seen, count) >= (CASES, EXCHANGES)


def test_streams_are_read_the_same_byte_by_byte(recordings):
    """Where a stream is cut makes no difference; one of each provider, and all that are short."""
    wrong, providers = [], set()
    for case in cases(recordings):
        for exchange in case["exchanges"]:
            if not exchange["stream"]:
                continue
            if case["provider"] in providers and len(exchange["response"]["body"]) > 2000:
                continue
            if len(exchange["response"]["body"]) < 12_000:
                providers.add(case["provider"])
                wrong += ["%s %s" % (case["id"], what) for what in differences(exchange, 1)]
    assert not wrong, "\n".join(wrong)
    assert len(providers) >= 8


@pytest.mark.parametrize("ends", ["\r\n", "\r"])
def test_streams_are_read_the_same_with_other_line_ends(recordings, ends):
    """CRLF and CR, with comments between the events."""
    wrong = []
    for case in cases(recordings):
        exchange = case["exchanges"][0]
        if exchange["stream"] and len(exchange["response"]["body"]) < 20_000:
            body = exchange["response"]["body"].replace("\r\n", "\n")
            body = body.replace("\n\n", "\n\n: keep-alive\n\n").replace("\n", ends)
            changed = dict(exchange, response=dict(exchange["response"], body=body))
            wrong += ["%s %s" % (case["id"], what) for what in differences(changed, 997)]
    assert not wrong, "\n".join(wrong)
