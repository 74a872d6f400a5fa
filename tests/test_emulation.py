"""Tools for models that have none: what the inner model is told and how its answers are read."""

import json

import pytest

from minagent.errors import ConfigError
from minagent.llm.base import Frame, LanguageModel, ModelCall, ModelRequest
from minagent.llm.emulation import Emulated
from minagent.llm.emulation_answer import AnswerReader
from minagent.messages import FilePart, Message, ReasoningPart, TextPart, ToolCallPart, ToolResultPart
from minagent.results import Usage
from minagent.tools import ToolSpec

ADD = ToolSpec("add", "Add two numbers.", {
    "type": "object", "required": ["a", "b"],
    "properties": {"a": {"type": "integer", "description": "First."}, "b": {"type": "integer"}}}, ({"a": 7, "b": 9},))
CLOCK = ToolSpec("clock", "Tell the time.")
PERSON = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


class Writes(LanguageModel):
    """A model that writes given texts, piece by piece, and keeps what it was asked."""

    provider = "inner"
    model = "tiny"

    def __init__(self, *pieces, **finish):
        self.pieces = pieces
        self.finish = dict({"finish_reason": "stop", "raw_finish_reason": "stop", "usage": Usage(3, 4), "model": "tiny",
                            "response_id": "r1", "warnings": [], "cost_usd": None}, **finish)
        self.requests = []
        self.closed = False

    def do_stream(self, request, call):
        self.requests.append(request)
        try:
            yield [("text-start", {"id": "t"})]
            for piece in self.pieces:
                yield [("text-delta", {"id": "t", "text": piece})]
            yield [("text-end", {"id": "t", "provider_metadata": {"inner": 1}}), ("finish", dict(self.finish))]
        finally:
            self.closed = True


def request(*messages, tools=(ADD,), choice="auto", system="", **members):
    return ModelRequest(Frame("tiny", system, tuple(tools), choice), list(messages) or [Message.user("Hi?")], **members)


def answered(model, asked=None):
    """The parts that come out, in one list."""
    stream = Emulated(model).do_stream(asked or request(), ModelCall(stream=True))
    return [part for parts in stream for part in parts]


def said(parts):
    return "".join([payload["text"] for type, payload in parts if type == "text-delta"])


def called(parts):
    return [(payload["tool_name"], payload["args"]) for type, payload in parts if type == "tool-call"]


def asked_of(asked):
    """The request that reaches the inner model."""
    model = Writes('{"answer": "x"}')
    answered(model, asked)
    return model.requests[0]


def test_a_call_in_json_becomes_a_call_with_an_id():
    """What fills the schema's call alternative is a tool call, told as a server with tools would tell it."""
    parts = answered(Writes('{"tool": "add", ', '"arguments": {"a": 1, "b": 2}}'))

    assert [type for type, _ in parts] == ["tool-call-input-streaming-start", "tool-call-delta",
                                           "tool-call-input-streaming-end", "tool-call", "finish"]
    assert called(parts) == [("add", {"a": 1, "b": 2})]
    assert json.loads(parts[3][1]["raw_args"]) == {"a": 1, "b": 2}
    assert parts[3][1]["call_id"].startswith("call_")
    assert parts[-1][1]["finish_reason"] == "tool-calls"


def test_two_answers_have_calls_of_different_ids():
    """Ids do not repeat over the steps of a conversation."""
    first, second = [answered(Writes('{"tool": "add", "arguments": {}}'))[3][1]["call_id"] for _ in range(2)]

    assert first != second


def test_an_answer_is_shown_while_it_is_written():
    """The text inside the JSON comes out as it comes in, with nothing of the JSON around it."""
    pieces = ['{"ans', 'wer": "Sun', "ny, ", "21", '."}']
    parts = answered(Writes(*pieces))

    assert [payload["text"] for type, payload in parts if type == "text-delta"] == ["Sun", "ny, ", "21", "."]
    assert [type for type, _ in parts][0] == "text-start"
    assert [type for type, _ in parts][-2:] == ["text-end", "finish"]
    assert parts[-1][1]["finish_reason"] == "stop"


@pytest.mark.parametrize("text", ['say "hi"\n\tand \\ bye', "naïve 😀 \u2028", "😀", "", "a/b \x7f", "line\r\n"])
@pytest.mark.parametrize("ascii", [True, False])
def test_escapes_are_decoded_wherever_the_text_is_cut(text, ascii):
    """Every cut of the JSON into single characters gives the same text, escapes and surrogate pairs included."""
    written = json.dumps({"answer": text}, ensure_ascii=ascii)

    assert said(answered(Writes(*written))) == text
    assert said(answered(Writes(written))) == text


def test_half_a_surrogate_pair_is_a_replacement_character():
    """Text that comes out can always be encoded."""
    assert said(answered(Writes('{"answer": "a\\ud83d b"}'))) == "a\ufffd b"


def test_json_in_a_fence_is_understood():
    """Many models cannot write JSON without a fence around it."""
    parts = answered(Writes('```json\n{"tool": "add", "arguments": {"a": 1, "b": 2}}\n```'))

    assert called(parts) == [("add", {"a": 1, "b": 2})]
    assert said(answered(Writes('```\n{"answer": "Yes."}\n```'))) == "Yes."


@pytest.mark.parametrize("text", ["I cannot do that.", "{not json", '{"other": 1}', "[1, 2]", '{"tool": 5}'])
def test_what_does_not_fit_the_schema_is_text(text):
    """A model whose server forces nothing is taken at its word."""
    parts = answered(Writes("  " + text[:3], text[3:] + "\n"))

    assert said(parts) == text
    assert parts[-1][1]["finish_reason"] == "stop"


def test_prose_is_shown_while_it_is_written():
    """Prose is recognised by its first letter."""
    parts = answered(Writes("I ", "cannot ", "do that."))

    assert [payload["text"] for type, payload in parts if type == "text-delta"] == ["I", " cannot", " do that."]


def test_what_follows_a_call_is_dropped():
    """A base model goes on and makes up the result; only the real one counts."""
    parts = answered(Writes('{"tool": "add", "arguments": {"a": 1, "b": 2}}\nResult: 4\nAnswer: {"answer": "4"}'))

    assert called(parts) == [("add", {"a": 1, "b": 2})]
    assert said(parts) == ""


def test_a_call_that_was_cut_is_no_call_and_no_text():
    """The answer says that its length ended it, and a warning says what was lost."""
    parts = answered(Writes('{"tool": "add", "argu', finish_reason="length"))

    assert [type for type, _ in parts] == ["finish"]
    assert parts[0][1]["finish_reason"] == "length"
    assert "cut inside a tool call" in parts[0][1]["warnings"][0]


def test_a_text_that_was_cut_is_kept_as_far_as_it_goes():
    """What was shown stays, and the finish reason is length."""
    parts = answered(Writes('{"answer": "It is \\', finish_reason="length"))

    assert said(parts) == "It is "
    assert parts[-1][1]["finish_reason"] == "length"


def test_arguments_that_are_no_object_are_left_to_the_loop():
    """The loop tells the model what is wrong with them; here nothing is repaired."""
    parts = answered(Writes('{"tool": "add", "arguments": "1 and 2"}'))

    assert called(parts) == [("add", None)]
    assert parts[3][1]["raw_args"] == '"1 and 2"'


def test_usage_passes_through_and_metadata_does_not():
    """Tokens are the inner model's; what it wants echoed would never reach it again."""
    reader = AnswerReader("text")

    assert reader.feed("reasoning-end", {"id": "r", "provider_metadata": {"x": 1}}) == [("reasoning-end", {"id": "r"})]
    parts = answered(Writes('{"answer": "x"}'))
    assert parts[-1][1]["usage"] == Usage(3, 4)
    assert not any("provider_metadata" in payload for _, payload in parts)


def test_the_plain_request_gives_the_same_parts():
    """One list instead of many."""
    model = Emulated(Writes('{"answer": ', '"Yes."}'))
    parts = [part for parts in model.do_stream(request(), ModelCall()) for part in parts]

    assert said(parts) == "Yes."


def test_leaving_early_closes_the_inner_stream():
    """An answer that nobody wants must not keep its connection."""
    model = Writes('{"answer": "', "a", "b", '"}')
    stream = Emulated(model).do_stream(request(), ModelCall(stream=True))
    next(stream)
    stream.close()

    assert model.closed


def test_the_inner_model_has_no_tools_but_reads_about_them():
    """Names, arguments and their descriptions are in the system text, behind the caller's own."""
    inner = asked_of(request(tools=[ADD, CLOCK], system="Be brief."))

    assert inner.frame.tools == ()
    assert inner.frame.system.startswith("Be brief.\n\n")
    assert "- add(a: integer, b: integer): Add two numbers.\n    a: First.\n" in inner.frame.system
    assert "\n- clock(): Tell the time.\n" in inner.frame.system


def test_each_example_becomes_a_worked_exchange():
    """Question, call, result, answer: what a model continues without any training for tools."""
    system = asked_of(request()).frame.system

    assert 'Question: Add two numbers: 7, 9\nAction: {"tool": "add", "arguments": {"a": 7, "b": 9}}\nResult: ' in system
    assert system.endswith('"}')


def alternatives(asked):
    """What the inner model may write: names of tools, "answer"."""
    schema = asked_of(asked).response_format["schema"]
    found = [item["properties"] for item in schema.get("anyOf", [schema])]
    return [item["tool"]["enum"][0] if "tool" in item else "answer" for item in found]


def test_the_choice_of_a_tool_is_the_choice_of_alternatives():
    """auto: any call or an answer; none: an answer; required: a call; a name: that call."""
    both = [ADD, CLOCK]

    assert alternatives(request(tools=both)) == ["add", "clock", "answer"]
    assert alternatives(request(tools=both, choice="none")) == ["answer"]
    assert alternatives(request(tools=both, choice="required")) == ["add", "clock"]
    assert alternatives(request(tools=both, choice={"name": "clock"})) == ["clock"]


def test_another_call_is_possible_after_a_result():
    """A task of several steps needs both alternatives at every step."""
    assert alternatives(request(*CONVERSATION)) == ["add", "answer"]


def test_a_choice_of_a_tool_that_is_not_there_is_an_error():
    """The message names what there is."""
    with pytest.raises(ConfigError, match="'sub'.*add"):
        asked_of(request(choice={"name": "sub"}))


CONVERSATION = (
    Message.user("2+3 and 4+5?"),
    Message("assistant", (ReasoningPart("hm"), TextPart("Let me see."), ToolCallPart("c1", "add", {"a": 2, "b": 3}),
                          ToolCallPart("c2", "add", None, "{broken"))),
    Message.tool([ToolResultPart("c2", "add", "no JSON", is_error=True), ToolResultPart("c1", "add", {"sum": 5})]),
    Message.assistant("Done."),
)


def test_calls_and_results_become_turns_of_text():
    """Calls of one message are told one by one, each with its result, in the form the model is to write."""
    turns = [(message.role, message.text) for message in asked_of(request(*CONVERSATION)).messages]

    assert turns == [
        ("user", "2+3 and 4+5?"),
        ("assistant", 'Let me see.\n{"tool": "add", "arguments": {"a": 2, "b": 3}}'),
        ("user", 'Result: {"sum": 5}'),
        ("assistant", '{"tool": "add", "arguments": "{broken"}'),
        ("user", "Result: error: no JSON"),
        ("assistant", '{"answer": "Done."}')]


def test_ids_that_repeat_in_later_steps_do_not_mix_up_results():
    """A call's result is the one before the next answer."""
    def step(value):
        return [Message.assistant("", [ToolCallPart("c", "add", {"a": value})]),
                Message.tool([ToolResultPart("c", "add", value)])]

    turns = asked_of(request(Message.user("Go."), *step(1), *step(2))).messages

    assert [message.text for message in turns if message.role == "user"] == ["Go.", "Result: 1", "Result: 2"]


def test_a_result_without_its_call_is_still_told():
    """A history that was trimmed may begin with one."""
    turns = asked_of(request(Message.tool([ToolResultPart("c9", "add", 7)]), Message.user("And now?"))).messages

    assert [message.text for message in turns] == ["Result: 7", "And now?"]


def test_files_of_a_result_go_with_it():
    """A picture that a tool made is a file of the turn."""
    picture = FilePart("image/png", data="AAAA")
    result = ToolResultPart("c", "shot", "see file", content=(TextPart("Here."), picture))
    turns = asked_of(request(Message.user("Go."), Message.assistant("", [ToolCallPart("c", "shot", {})]),
                             Message.tool([result]))).messages

    assert turns[-1].parts == (TextPart("Result: Here."), picture)


def test_without_tools_the_model_is_asked_as_it_is():
    """No schema and no instruction; only the space around the answer goes."""
    model = Writes(" The sky", " is blue.", "\n")
    parts = answered(model, request(tools=[]))

    assert said(parts) == "The sky is blue."
    assert model.requests[0].response_format is None
    assert model.requests[0].frame.system == ""


def test_a_history_of_calls_is_told_even_when_the_tools_are_gone():
    """The model answers in the form in which it reads its earlier answers."""
    assert alternatives(request(*CONVERSATION, tools=[])) == ["answer"]


def test_a_schema_of_the_caller_is_what_an_answer_must_be():
    """Beside tools it stands under "answer", and the answer's text is its JSON."""
    asked = request(response_format={"name": "person", "schema": PERSON, "strict": True})
    model = Writes('{"answer": {"name"', ': "Ann {}}"', "} ", "}\n")

    assert json.loads(said(answered(model, asked))) == {"name": "Ann {}}"}
    answer = model.requests[0].response_format["schema"]["anyOf"][1]["properties"]["answer"]
    assert answer["properties"] == PERSON["properties"]


@pytest.mark.parametrize("value", [{"a": {"b": {}}}, [], "text", 5, {"s": "}}"}, [{"x": [{}]}]])
def test_json_under_answer_comes_out_whole_wherever_it_is_cut(value):
    """Only the last brace belongs to the object around it."""
    asked = request(response_format={"name": "any", "schema": {}, "strict": True})
    written = json.dumps({"answer": value})

    assert json.loads(said(answered(Writes(*written), asked))) == value
    assert json.loads(said(answered(Writes(written), asked))) == value


def test_a_schema_without_tools_is_told_in_words_too():
    """Enforced JSON is only good if the model knows what is asked."""
    inner = asked_of(request(tools=[], response_format={"name": "person", "schema": PERSON, "strict": True}))

    assert inner.frame.system == 'Answer in JSON: {"name": string}'
    assert inner.response_format["name"] == "person"
    assert inner.response_format["schema"]["properties"] == PERSON["properties"]


def test_it_passes_for_the_inner_model():
    """Name, provider and prices are those of the model that answers."""
    model = Emulated(Writes())

    assert (model.provider, model.model) == ("inner", "tiny")
    assert model.describe() == {"provider": "inner", "model": "tiny", "emulated_tools": True}
