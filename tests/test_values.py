"""Values travel as JSON and come back equal: messages, results, chunks, decisions; sums of usage; error families.

Not here: how values come about.
"""

import json
from dataclasses import FrozenInstanceError, fields, is_dataclass

import pytest
from _trees import drawn
from hypothesis import given
from hypothesis import strategies as st

from minagent import (
    Agent,
    Answer,
    Approve,
    Chunk,
    Decline,
    FilePart,
    FullOutput,
    Message,
    ReasoningPart,
    StepResult,
    Suspension,
    TextPart,
    Tool,
    ToolCallPart,
    ToolResultPart,
    Tripwire,
    Usage,
    errors,
    tool,
)
from minagent.agent.options import HINTS, GenerateOptions
from minagent.chunks import CHUNK_TYPES, LAST_TYPES
from minagent.errors import ConfigError, InvalidDecision, RunNotFinished, UnknownOption
from minagent.llm.base import Frame, ModelRequest
from minagent.loop.limits import Limits
from minagent.messages import part_from_dict
from minagent.results import decision_to_dict
from minagent.tools import ToolPolicy, as_tool

META = {"openai-chat": {"signature": "ab==", "n": [1, {"x": None}]}}
CALL = ToolCallPart("c1", "add", {"a": 1, "b": [None, "ü"]}, '{"a":1}', META)
RESULT = ToolResultPart("c1", "add", {"sum": 3}, content=(TextPart("A cat."), FilePart("image/png", data="QQ==")))
PARTS = [
    TextPart("Hi."), TextPart(""), TextPart("Hi.", META), ReasoningPart("Hm."), ReasoningPart("", "sig", "enc", META),
    FilePart("image/png", data="QQ=="), FilePart("image/png", url="https://example.com/a.png", filename="a.png"),
    CALL, ToolCallPart("c", "n"), ToolCallPart("c", "n", {}), ToolCallPart("c", "n", None, "{broken"),
    ToolCallPart("c", "n", {}, "{}", provider_executed=True), RESULT, ToolResultPart("c", "n", None),
    ToolResultPart("c", "n", "oh", True, "exception"), ToolResultPart("c", "n", 0), ToolResultPart("c", "n", False),
    ToolResultPart("c", "n", ""), ToolResultPart("c", "n", [], provider_metadata=META),
]
STEP = StepResult(2, "Hi.", "Hm.", (CALL,), (RESULT,), "tool-calls", Usage(1, 2, 1), 0.5, "m", 2, ("careful",), 1.0,
                  2.0, True, ("note", {"x": 1}))
VALUES = [
    Usage(), Usage(0, 0), Usage(1, 2, 3, 4, 5), Usage(1, None, partial=True),
    Tripwire("tokens"), Tripwire("processor", "no", "guard", "process_input", True, {"rule": 7}),
    Suspension("s1"),
    Suspension("s1", "c1", "add", "approval", {"a": 1}, {"q": 1}, {"type": "integer"}, "x", ("a", "b"), 1.0, 2.0),
    STEP, StepResult(1), Limits(), Limits(1, 0.5, 3),
    Message("assistant"), Message.user("Hi.", [FilePart("image/png", data="QQ==")]), Message.system("Be."),
    Message.assistant("Hi.", [CALL]), Message.tool([RESULT]), Message("user", (TextPart("x"),), "m1", 1.5, {"k": [1]}),
]


def through_json(data):
    return json.loads(json.dumps(data))


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.type)
def test_parts_come_back_equal(part):
    """By the class and by the type in the dict; nothing empty is written, opaque bags are kept as they are."""
    data = part.to_dict()
    assert type(part).from_dict(through_json(data)) == part == part_from_dict(through_json(data))
    assert data["type"] == part.type
    assert not [name for name, value in data.items() if value is None and name != "output"]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_values_come_back_equal(value):
    """to_dict is plain JSON and from_dict its inverse."""
    data = value.to_dict()
    assert through_json(data) == data
    assert type(value).from_dict(through_json(data)) == value


@pytest.mark.parametrize("value", [*PARTS[:1], *VALUES[:1], STEP, FullOutput(), Frame(), ModelRequest(Frame(), ())],
                         ids=lambda value: type(value).__name__)
def test_values_are_immutable(value):
    """Assigning to a field is refused."""
    assert is_dataclass(value)
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, 1)


TEXTS = st.text(max_size=8)
JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=6)
DRAWN_PARTS = st.one_of(
    st.builds(TextPart, TEXTS), st.builds(ReasoningPart, TEXTS, st.none() | st.text(min_size=1)),
    st.builds(ToolCallPart, TEXTS, TEXTS, st.none() | st.dictionaries(TEXTS, JSON), TEXTS),
    st.builds(ToolResultPart, TEXTS, TEXTS, JSON, st.booleans()))


@drawn(60)
@given(st.sampled_from(["user", "assistant", "tool", "system"]), st.lists(DRAWN_PARTS, max_size=4), JSON)
def test_any_message_comes_back_equal(role, parts, value):
    """Drawn parts, drawn JSON."""
    message = Message(role, tuple(parts), metadata={"value": value})
    assert Message.from_dict(through_json(message.to_dict())) == message


def test_what_a_message_may_be_is_checked():
    """Roles and part types that do not exist, and a file that is nothing or two things."""
    for wrong in (lambda: Message("nobody"), lambda: part_from_dict({"type": "odd"}), lambda: part_from_dict({}),
                  lambda: FilePart("image/png"), lambda: FilePart("image/png", data="QQ==", url="https://example.com")):
        with pytest.raises(ConfigError):
            wrong()


def test_a_file_is_read_from_a_path(tmp_path):
    """The media type is guessed from the name, or told."""
    path = tmp_path / "a.png"
    path.write_bytes(b"\x89PNG")
    part = FilePart.from_path(path)
    assert (part.media_type, part.filename, part.to_bytes()) == ("image/png", "a.png", b"\x89PNG")
    other = tmp_path / "thing.qqq"
    other.write_bytes(b"x")
    with pytest.raises(ConfigError, match="media_type="):
        FilePart.from_path(other)
    assert FilePart.from_path(str(other), "text/plain").media_type == "text/plain"
    with pytest.raises(OSError):
        FilePart.from_path(tmp_path / "none.png")


def test_a_message_tells_its_text_reasoning_calls_and_results():
    """Calls that the provider ran itself are not asked of us."""
    own = ToolCallPart("c2", "search", {}, provider_executed=True)
    message = Message("assistant", (ReasoningPart("Hm."), TextPart("Hi "), CALL, own, TextPart("there.")))
    assert (message.text, message.reasoning, message.tool_calls) == ("Hi there.", "Hm.", [CALL])
    assert Message.tool([RESULT]).tool_results == [RESULT]
    recorded = message.recorded("m1", 5.0)
    assert (recorded.id, recorded.created_at) == ("m1", 5.0) and recorded.recorded("m2", 6.0) == recorded


# Usage.


@pytest.mark.parametrize("one, other, total", [
    (Usage(1, 2), Usage(3, 4), Usage(4, 6)), (Usage(None, 2), Usage(3, None), Usage(3, 2, partial=True)),
    (Usage(), Usage(), Usage(partial=True)), (Usage(0, 0), Usage(5, 6, 1), Usage(5, 6, 1)),
    (Usage(1, 1, partial=True), Usage(1, 1), Usage(2, 2, partial=True)),
    (Usage(1, 1, None, 3), Usage(1, 1, 2, 4, 5), Usage(2, 2, 2, 7, 5))])
def test_usage_adds_what_is_known_and_says_what_is_not(one, other, total):
    """None + 3 is 3, and the sum says that it is partial."""
    assert one + other == total == other + one


def test_the_total_of_usage_is_input_and_output():
    """Reasoning and cache are parts of them; None only if both are unknown."""
    assert [Usage(1, 2, 2, 1).total_tokens, Usage(None, 2).total_tokens, Usage().total_tokens] == [3, 2, None]


# Decisions.


@pytest.mark.parametrize("decision, data", [
    (Approve(), {"type": "approve"}), (Approve({"a": 1}, "ann"), {"type": "approve", "args": {"a": 1}, "by": "ann"}),
    (Approve({}), {"type": "approve", "args": {}}), (Decline(), {"type": "decline"}),
    (Decline("no"), {"type": "decline", "reason": "no"}), (Answer(None), {"type": "answer", "value": None}),
    (Answer(0), {"type": "answer", "value": 0}), (Answer(""), {"type": "answer", "value": ""})])
def test_decisions_travel_as_json(decision, data):
    """An answer keeps its value, also None and empty text; empty arguments are arguments."""
    assert decision_to_dict(decision) == data
    assert decision_to_dict(through_json(data)) == data


@pytest.mark.parametrize("wrong", [True, None, "approve", {"type": "odd"}, {}, 5, Approve])
def test_what_is_no_decision_is_told(wrong):
    """With what there is."""
    with pytest.raises(InvalidDecision, match="Approve"):
        decision_to_dict(wrong)


# FullOutput and chunks.


@pytest.mark.parametrize("reason", ["stop", "length", "content-filter", "max-steps"])
def test_an_output_that_has_finished_may_be_gone_on_with(reason):
    """Like raise_for_status()."""
    output = FullOutput(finish_reason=reason)
    assert output.raise_unless_finished() is output


@pytest.mark.parametrize("reason", ["suspended", "tripwire", "cancelled", "error"])
def test_an_output_that_has_not_finished_raises(reason):
    """The error has the output, the run's id and the reason."""
    output = FullOutput(finish_reason=reason, run_id="run-1", tripwire=Tripwire("tokens", "too many"))
    with pytest.raises(RunNotFinished, match="run-1.*%s.*too many" % reason) as raised:
        output.raise_unless_finished()
    assert raised.value.output is output and raised.value.run_id == "run-1"


def test_an_output_omits_what_is_empty_and_keeps_a_false_object():
    """to_dict is JSON; an object of 0 or [] is there, None is not."""
    assert FullOutput(text="x", run_id="r").to_dict() == {"text": "x", "finish_reason": "stop", "run_id": "r",
                                                          "usage": {"input_tokens": 0, "output_tokens": 0}}
    for value in (0, [], False, "", {}):
        assert FullOutput(object=value).to_dict()["object"] == value
    data = FullOutput(steps=(STEP,), messages=[Message.user("x")], suspensions=(Suspension("s"),),
                      tripwire=Tripwire("cost"), files=(FilePart("image/png", data="QQ=="),)).to_dict()
    assert through_json(data) == data


def test_a_chunk_is_json_whatever_is_in_it():
    """Values that have to_dict are written by it, exceptions as type and message."""
    chunk = Chunk("error", "run-1", 2, {"error": ValueError("oh"), "step": STEP}, 7)
    data = chunk.to_dict()
    assert data["payload"]["error"] == {"type": "ValueError", "message": "oh"} and through_json(data) == data
    assert set(LAST_TYPES) <= set(CHUNK_TYPES)


# Tools.


def test_a_tool_is_still_the_function():
    """With and without arguments to the decorator; methods and partials as well."""
    import functools

    @tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers.

        Args:
            a: The first.
        """
        return a + b

    class Bank:
        def __init__(self, balance):
            self.balance = balance

        @tool(effect="read")
        def show(self, currency: str = "EUR") -> str:
            """Show the balance."""
            return "%d %s" % (self.balance, currency)

        def plain(self, n: int) -> int:
            """A method."""
            return self.balance + n

    assert add(1) == 3 and add.name == "add" and add.spec.description == "Add two numbers."
    assert add.spec.parameters["required"] == ["a"] and add.policy.effect == "once"
    bank = Bank(5)
    assert bank.show() == "5 EUR" and bank.show.spec.name == "show" and "self" not in bank.show.spec.parameters[
        "properties"]
    assert as_tool(bank.plain).call({"n": 2}, None) == 7
    partial = as_tool(functools.partial(bank.plain, n=3))
    assert partial.name == "plain"
    assert add.renamed("plus").name == "plus"
    assert json.loads(json.dumps(add.spec.to_dict())) == add.spec.to_dict()


def test_a_tool_may_be_given_by_its_schema():
    """No signature is read then."""
    made = Tool(lambda **args: args, name="any", description="Anything.",
                parameters={"type": "object", "properties": {"a": {"type": "integer"}}})
    assert made.call({"a": 1}, None) == {"a": 1} and made.problems({"a": "x"})[0][0] == "$.a"
    assert made.digest != Tool(lambda **args: args, name="any", parameters={"type": "object"}).digest


@pytest.mark.parametrize("policy", [{"effect": "odd"}, {"timeout": 0}, {"timeout": -1}, {"retries": -1},
                                    {"max_calls": 0}, {"isolation": "odd"}, {"on_unknown_outcome": "guess"}])
def test_a_policy_is_checked(policy):
    """The message names what is wrong."""
    with pytest.raises(ConfigError, match=next(iter(policy))):
        ToolPolicy(**policy)


def test_an_unknown_option_of_a_tool_is_told():
    """With the nearest."""
    with pytest.raises(UnknownOption, match="did you mean 'require_approval'"):
        tool(requires_approval=True)


@pytest.mark.parametrize("name", ["with space", "x" * 65, "", "ü", "a.b"])
def test_a_name_that_no_provider_takes_is_refused(name):
    """1 to 64 letters, digits, - and _."""
    with pytest.raises(ConfigError):
        Agent("a", model="x", tools=[Tool(lambda: 1, name=name or " ")])._defaults["tools"][0].spec  # noqa: B018


# Errors.


def all_errors():
    found = [errors.MinagentError]
    for cls in found:
        found.extend(cls.__subclasses__())
    return [cls for cls in found if cls.__module__ == errors.__name__]


def test_all_errors_are_of_one_family_and_no_signal_is():
    """except MinagentError catches every error; except Exception catches no signal."""
    assert all(issubclass(cls, Exception) for cls in all_errors()) and len(all_errors()) > 25
    for cls in (errors.Suspend, errors.Abort, errors.Cancelled, errors.LimitReached):
        assert issubclass(cls, errors.Signal) and not issubclass(cls, Exception)
    assert issubclass(errors.ConfigError, ValueError) and issubclass(errors.RunNotFound, LookupError)


def test_every_error_says_what_to_do():
    """Each class has a docstring of its own, and starts without run and output."""
    for cls in all_errors():
        assert cls.__doc__ and cls.__doc__ not in [base.__doc__ for base in cls.__mro__[1:]], cls
        assert cls.run_id is None and cls.output is None


def test_signals_have_an_order():
    """Among parallel calls cancel wins over abort, abort over a limit, and that over a suspension."""
    ranks = [cls.rank for cls in (errors.Suspend, errors.LimitReached, errors.Abort, errors.Cancelled)]
    assert ranks == sorted(set(ranks))


def test_hints_name_options_that_exist():
    """A hint for another SDK's name leads to an option, and shadows none."""
    known = set(GenerateOptions.__annotations__) | {"messages"}
    for name, hint in HINTS.items():
        assert name not in known
        assert any(word.strip(",.") in known for word in hint.replace("(", " ").split()) or "agent." in hint or (
            "model object" in hint), hint
