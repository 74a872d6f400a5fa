"""Hostile input over a real connection: what a user, a model or a tool may get wrong, and what the model is told."""

import json

import pytest

from minagent import Agent, OpenAIChat, tool
from minagent.errors import ConfigError, UnknownOption
from minagent.testing import ScriptedServer, call, calls, says


@tool
def charge(order: int, amount: float) -> str:
    """Charge a card."""
    return "charged %d" % order


@tool(effect="read")
def odd() -> object:
    """Return what is no JSON."""
    return {"items": [1, {"owner": object()}]}


@tool(effect="read")
def big() -> str:
    """Return five megabytes."""
    return "begin" + "x" * 5_000_000 + "end"


def served(*turns):
    return ScriptedServer.openai_chat([*turns, says("Done.")])


def asked(server, **options):
    """An agent that asks the server."""
    model = OpenAIChat("m", base_url=server.url + "/v1", api_key="k")
    return Agent("till", model=model, tools=[charge, odd, big], **options)


def results(server, request=1):
    """The tool messages of a request, by call id."""
    return {item["tool_call_id"]: item["content"] for item in server.requests[request].json["messages"]
            if item["role"] == "tool"}


@pytest.mark.parametrize("mode", ["generate", "stream"])
@pytest.mark.parametrize("prompt", ["", "  ", [], None, b"x"])
def test_an_empty_prompt_is_refused_before_anything_is_sent(prompt, mode):
    """Nothing goes out, and the message says what a prompt may be."""
    with served() as server:
        with pytest.raises(ConfigError, match="expected"):
            getattr(asked(server), mode)(prompt)
        assert server.requests == []


def test_a_misspelt_option_is_refused_before_anything_is_sent():
    """The nearest option is named."""
    with served() as server:
        with pytest.raises(UnknownOption, match="did you mean 'max_steps'"):
            asked(server).generate("hi", max_step=3)
        assert server.requests == []


def test_two_tools_of_one_name_are_refused_before_anything_is_sent():
    """By the agent, and by a call."""
    twin = tool(name="charge")(lambda order: order)
    with served() as server:
        with pytest.raises(ConfigError, match="two tools are named 'charge'"):
            asked(server).generate("hi", tools=[charge, twin])
        assert server.requests == []


def test_a_result_that_is_no_json_is_that_call_s_error():
    """The model is told where in the value it is; the run goes on."""
    with served(calls("odd")) as server:
        out = asked(server).generate("go")

        assert out.text == "Done." and out.tool_errors[0].kind == "exception"
        (told,) = results(server).values()
        assert "$.items[1].owner" in told and "object" in told


def test_five_megabytes_are_cut_for_the_model_and_can_be_read_on():
    """The request stays small, and the tool to read on is offered from then on only."""
    with served(calls("big"), calls("read_tool_result", call_id="call_1_1", offset=5_000_000)) as server:
        out = asked(server).generate("go")

        assert out.text == "Done."
        names = [[each["function"]["name"] for each in request.json["tools"]] for request in server.requests]
        assert names[0] == ["charge", "odd", "big"] and names[1][-1] == names[2][-1] == "read_tool_result"
        (told,) = results(server).values()
        assert told.startswith("begin") and told.endswith("end") and len(told) < 64 * 1024
        assert "characters cut" in told
        read = list(results(server, 2).values())[-1]
        assert "end" in read and len(read) < 64 * 1024


@pytest.mark.parametrize("raw, kind", [
    ('{"order": 7, "amount": ', "invalid-json"),
    ("seven", "invalid-json"),
    ("[7, 1]", "invalid-json"),
    ('{"order": "seven", "amount": 1}', "invalid-args"),
    ('{"order": true, "amount": 1}', "invalid-args"),
    ('{"order": 7}', "invalid-args"),
    ('{"order": 7, "amount": 1, "extra": 2}', "invalid-args"),
    ("", "invalid-args"),
])
def test_arguments_that_do_not_fit_never_reach_the_tool(raw, kind):
    """The model is told why, and its own text goes back to it unchanged."""
    with served(calls(call("charge", raw_args=raw))) as server:
        out = asked(server).generate("go")

        assert out.text == "Done." and [error.kind for error in out.tool_errors] == [kind]
        assert not out.tool_results and "charge" in list(results(server).values())[0]
        sent = server.requests[1].json["messages"]
        (echoed,) = [item["tool_calls"][0]["function"]["arguments"] for item in sent if item.get("tool_calls")]
        assert echoed == (raw or "{}")


@pytest.mark.parametrize("ids", [("same", "same"), ("", ""), (None, "call_1")])
def test_calls_of_one_id_or_of_none_are_all_run_and_all_answered(ids):
    """Each has an id of its own by the time it is sent back."""
    pair = [call("charge", {"order": number, "amount": 1}, call_id=id) for number, id in enumerate(ids, 1)]
    with served(calls(*pair)) as server:
        out = asked(server).generate("go")

        assert [result.output for result in out.tool_results] == ["charged 1", "charged 2"]
        asked_for = [each["id"] for item in server.requests[1].json["messages"] for each in item.get("tool_calls", ())]
        assert len(set(asked_for)) == 2 and all(asked_for)
        assert results(server) == dict(zip(asked_for, ["charged 1", "charged 2"]))


def test_a_lone_surrogate_does_not_stop_a_run():
    """Text that UTF-8 cannot write goes out and comes back as a replacement."""
    with served(calls(call("charge", raw_args=json.dumps({"order": "\ud800", "amount": 1})))) as server:
        assert asked(server).generate("half a pair: \ud83d").text == "Done."
