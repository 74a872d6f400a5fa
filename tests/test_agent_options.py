"""What a call may say: input, options, their ranges, and what is refused before anything is done.

Not here: what the options do in the loop (test_agent_loop, test_doors, test_processors).
"""

import json

import pytest

from minagent import Agent, Approve, FilePart, Limits, Message, ToolCallPart, tool
from minagent.agent.options import GenerateOptions
from minagent.errors import ConfigError, UnknownOption
from minagent.runs import MemoryRuns
from minagent.testing import ScriptedModel, calls, says

DONE = says("Done.")


def agent(**options):
    return Agent("a", model=ScriptedModel([DONE], loop=True), runs=MemoryRuns(), **options)


def refused(given, error=ConfigError, match=None, messages="Go.", **options):
    """Both generate and stream refuse it in the caller's thread; no run was made and no model asked."""
    made = agent(**options)
    for start in (made.generate, made.stream):
        with pytest.raises(error, match=match):
            start(messages, **given)
    assert not made.runs.list() and not made._defaults["model"].requests


# Input.


NOTHING = [
    "", "  ", "\n\t", [], (), None, b"Go.", 5, 0, {}, [""], ["", " "], [None], [5], [b"x"], True, object(), [[]],
    Message.user(""), [Message.user(" ")], {"content": "x"}, {"role": "nobody", "content": "x"},
    {"role": ["user"], "content": "x"}, {"role": "user"}, {"role": "user", "content": ""},
    {"role": "user", "content": []}, {"role": "user", "content": 5}, {"role": "user", "content": [{"type": "odd"}]},
    {"role": "user", "content": [{"type": "text"}]}, {"role": "user", "content": ["x"]},
    {"role": "assistant", "tool_calls": [{"id": "x"}]}, {"role": "assistant", "tool_calls": 5},
    {"role": "user", "parts": [{"type": "odd"}]}, {"role": "user", "parts": 5},
]


@pytest.mark.parametrize("nothing", NOTHING)
def test_input_that_says_nothing_or_is_none_is_refused(nothing):
    """Empty texts, empty lists, bytes, numbers and malformed dicts are a ConfigError."""
    refused({}, messages=nothing)


@pytest.mark.parametrize("messages, said", [
    ("Go.", [("user", "Go.")]), (["One.", "Two."], [("user", "One."), ("user", "Two.")]),
    (Message.user("Go."), [("user", "Go.")]),
    ([Message.system("Be brief."), "Go."], [("system", "Be brief."), ("user", "Go.")]),
    ({"role": "user", "content": "Go."}, [("user", "Go.")]),
    ([{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Go."}]}],
     [("system", "Be brief."), ("user", "Go.")])])
def test_input_may_be_texts_messages_or_dicts(messages, said):
    """Each form comes to the model as the same messages."""
    made = agent()
    made.generate(messages)
    assert [(item.role, item.text) for item in made._defaults["model"].requests[0].messages] == said


def test_dicts_of_other_sdks_with_calls_files_and_results_are_understood():
    """Tool calls, their results, images and files in OpenAI's form."""
    made = agent()
    made.generate([
        {"role": "user", "content": [{"type": "text", "text": "Look."},
                                     {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}}]},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}]},
        {"role": "tool", "tool_call_id": "c", "content": "ok"}, "And now?"])
    first, second, third, _ = made._defaults["model"].requests[0].messages
    assert first.parts[1] == FilePart("image/png", data="QQ==")
    assert second.parts == (ToolCallPart("c", "f", {"a": 1}, '{"a": 1}'),)
    assert (third.role, third.tool_results[0].call_id, third.tool_results[0].output) == ("tool", "c", "ok")


def test_a_conversation_goes_on_without_memory():
    """messages=out.messages + [...]: history is sent, ids and times stay, only the new part is new."""
    made = agent()
    first = made.generate("One.")
    second = made.generate([*first.messages, "Two."])
    assert [item.text for item in second.messages] == ["One.", "Done.", "Two.", "Done."]
    assert second.messages[:2] == first.messages and [item.text for item in second.response_messages] == ["Done."]
    assert len({item.id for item in second.messages}) == 4


# Names of options.


@pytest.mark.parametrize("name, hint", [
    ("max_step", "did you mean 'max_steps'"), ("temprature", "did you mean 'temperature'"), ("xyzzy", "for generate$"),
    ("max_tokens", "use max_output_tokens"), ("max_turns", "use max_steps"), ("timeout", "use deadline"),
    ("system_prompt", "use instructions"), ("session_id", "use thread_id"), ("message_history", "use messages"),
    ("stream", "use agent.stream"), ("max_retries", "use retries"), ("guardrails", "use processors"),
    ("context_variables", "use deps"), ("abort_signal", "use agent.cancel"), ("stop", "use stop_sequences")])
def test_an_option_that_does_not_exist_is_refused_with_the_nearest(name, hint):
    """Misspelt names and those of other SDKs are told what they are called here."""
    refused({name: 1}, UnknownOption, "unknown option %r.*%s" % (name, hint))


def test_the_agent_and_resume_refuse_unknown_options_too():
    """With their own names in the message; a value of generate that resume does not take is one."""
    with pytest.raises(UnknownOption, match="for Agent"):
        Agent("a", model="x", temprature=1)
    with pytest.raises(UnknownOption, match="for resume"):
        agent().resume("run-1", temperature=1)


# Values of options.


WRONG = {
    "max_steps": [0, -1, 2.5, True, "3", [1]], "final_answer_at_max_steps": [1, "yes"], "stop_when": [5, "done"],
    "limits": [5, "10", {"max_tokens": 5}, {"max_tool_calls": 0}, [1]], "deadline": [0, -1, "5", True, float("inf"),
                                                                           float("nan")],
    "temperature": [-0.1, "hot", True, float("nan"), float("inf")], "top_p": [-0.1, 1.1, "x", True],
    "max_output_tokens": [0, -1, 1.5, True], "stop_sequences": ["stop", [5], 5], "seed": [-1, 1.5, True],
    "reasoning_effort": [5], "provider_options": [5, "x", [1], {"a": object()}], "retries": [-1, 1.5, True],
    "thread_id": [5], "resource_id": [5], "run_id": [5, "UPPER", "a/b", "", "x" * 65, "-a"],
    "request_context": [5, [1], {"a": object()}], "processors": [5, "x", [5]], "max_processor_retries": [-1, 1.5, True],
    "require_tool_approval": ["yes", 1], "tool_concurrency": [0, -1, True, 2.5],
    "tool_timeout": [0, -1, "5", True], "background_wait": ["no", 5], "on_step": [5], "on_chunk": [5],
    "metadata": [5, {"a": object()}], "active_tools": ["add", [5], 5],
    "tool_choice": ["any", 5, {"name": 5}, {}, ["auto"]],
    "instructions": [5], "system": [5], "context": [5, [5]], "model": [5, [], "nosuch/model", [None]],
    "tools": [5, "x", [5]],
}


@pytest.mark.parametrize("name, value", [(name, value) for name in WRONG for value in WRONG[name]])
def test_a_value_out_of_range_is_refused_before_anything_is_done(name, value):
    """The message names the option; nothing is recorded and no model is asked."""
    refused({name: value}, match=None if name in ("run_id", "model", "tools") else "(?i)" + name)


@pytest.mark.parametrize("name, value", [(name, value) for name in WRONG for value in WRONG[name]
                                         if name not in ("run_id", "model", "context")])
def test_the_agents_defaults_are_checked_alike(name, value):
    """A wrong default is refused when the agent is made."""
    with pytest.raises(ConfigError):
        Agent("a", **{"model": "x", name: value})


@pytest.mark.parametrize("options", [{"max_recoveries": -1}, {"max_recoveries": "x"}, {"on_unknown_outcome": "guess"},
                                     {"executor": 5}, {"background_executor": "x"}, {"thread_wrapper": 5},
                                     {"on_suspend": 5}, {"name": ""}, {"name": 5}])
def test_the_agents_own_options_are_checked(options):
    """Those that are no options of a call."""
    with pytest.raises(ConfigError):
        Agent(**dict({"name": "a", "model": "x"}, **options))


@pytest.mark.parametrize("options", [{"max_iterations": 0}, {"max_iterations": True}, {"max_iterations": "1"},
                                     {"max_recoveries": -1}, {"max_recoveries": "x"}, {"max_steps": 0},
                                     {"deadline": 0}, {"limits": 5}, {"request_context": 5}, {"on_step": 5},
                                     {"stop_when": 5}])
def test_options_of_resume_are_checked_before_the_run_is_touched(options):
    """The run is neither owned nor decided, and can be resumed."""
    made, run_id = waiting()
    before = made.runs.read(run_id)
    with pytest.raises(ConfigError):
        made.resume(run_id, **options)
    assert made.runs.read(run_id) == before and made.runs.status(run_id) == "waiting"


def waiting(**options):
    @tool(require_approval=True)
    def refund() -> str:
        return "ok"

    made = Agent("a", model=ScriptedModel([calls("refund"), DONE], by_step=True), tools=[refund], runs=MemoryRuns())
    return made, made.generate("Go.", **options).run_id


@pytest.mark.parametrize("wrong", [{"max_total_tokens": 0}, {"max_total_tokens": 1.5}, {"max_tool_calls": True},
                                   {"max_cost_usd": 0}, {"max_cost_usd": "5"}, {"max_cost_usd": float("nan")},
                                   {"max_cost_usd": float("inf")}, {"max_cost_usd": True}])
def test_limits_are_checked(wrong):
    """Whole numbers of 1 or more, and money above 0."""
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)


def test_none_stands_for_not_given():
    """Every option of a call may be None."""
    made = agent(temperature=0.5, deadline=60)
    names = [name for name in GenerateOptions.__annotations__ if name != "model"]
    assert made.generate("Go.", **dict.fromkeys(names)).text == "Done."
    assert "temperature" not in made._defaults["model"].requests[0].frame.settings


def test_an_agent_without_a_model_says_so():
    """At the call, and not when it is made; it names what to pass."""
    with pytest.raises(ConfigError, match='agent .a. has no model; pass model='):
        Agent("a").generate("Go.")


# What goes out.


def test_options_come_to_the_model():
    """Instructions, system, context, settings, tool choice and tools make the request."""
    @tool
    def add(a: int) -> int:
        """Add."""
        return a

    made = agent(instructions="Be brief.", temperature=0.5, tools=[add])
    settings = {"top_p": 0.9, "max_output_tokens": 100, "seed": 7, "stop_sequences": ["END"],
                "reasoning_effort": "low", "provider_options": {"x": 1}}
    made.generate("Go.", system="Be kind.", context=["It rains."], tool_choice={"name": "add"}, **settings)

    request = made._defaults["model"].requests[0]
    assert request.frame.system == "Be brief.\n\nBe kind."
    assert [item.text for item in request.messages] == ["It rains.", "Go."]
    assert request.frame.settings == dict(settings, temperature=0.5)
    assert request.frame.tool_choice == {"name": "add"} and [spec.name for spec in request.frame.tools] == ["add"]


def test_context_is_sent_and_never_stored():
    """It is in every request and in no message of the output."""
    @tool
    def add(a: int) -> int:
        """Add."""
        return a

    model = ScriptedModel([calls("add", a=1), DONE])
    output = Agent("a", model=model, tools=[add]).generate("Go.", context=["It rains."])
    assert [request.messages[0].text for request in model.requests] == ["It rains."] * 2
    assert "It rains." not in json.dumps(output.to_dict())


def test_instructions_model_and_tools_may_depend_on_the_request():
    """Callables get the request's context, also on resume."""
    seen = []

    def of(what, value):
        def made(request_context):
            seen.append((what, request_context))
            return value

        return made

    @tool(require_approval=True)
    def refund() -> str:
        return "ok"

    model = ScriptedModel([calls("refund"), DONE], by_step=True)
    made = Agent("a", model=of("model", model), tools=of("tools", [refund]), runs=MemoryRuns(),
                 instructions=of("instructions", "Be brief."))
    first = made.generate("Go.", request_context={"tenant": 7})
    assert {what for what, context in seen if context == {"tenant": 7}} == {"model", "tools", "instructions"}
    del seen[:]
    assert made.resume(first.run_id, Approve()).text == "Done."
    assert model.requests[1].frame.system == "Be brief."
    assert {what for what, context in seen if context == {"tenant": 7}} == {"model", "tools"}


@pytest.mark.parametrize("options", [{"active_tools": ["nosuch"]}, {"tool_choice": {"name": "nosuch"}}])
def test_a_chosen_tool_that_does_not_exist_is_named(options):
    """With the names of those that do."""
    made = agent(tools=[tool(name="add")(lambda: 1)])
    with pytest.raises(ConfigError, match="'nosuch'.*add"):
        made.generate("Go.", **options)


def test_an_agent_can_be_described():
    """As JSON, without keys or live objects."""
    made = agent(instructions="Be brief.", tools=[tool(name="add")(lambda: 1)], max_steps=3)
    described = made.describe()
    assert json.loads(json.dumps(described)) == described
    assert (described["name"], described["options"]["max_steps"]) == ("a", 3)
    assert [item["name"] for item in described["tools"]] == ["add"]


def test_an_agent_is_a_context_manager():
    """close() may be called more than once."""
    with agent() as made:
        assert made.generate("Go.").text == "Done."
    made.close()
