"""`Emulated`: tools for a model whose server has none.

The tools are written into the system text with worked examples, and the model fills a JSON Schema that is
the union of "call this tool with these arguments" and "answer with this text"; what it wrote is turned back
into parts (`emulation_answer`).  Earlier calls and results become plain turns of the conversation, one call a
turn, so that the model reads what it is asked to write.  What is not here: making schemas fit for a grammar
(`grammar`), and checking arguments (the loop does, against the whole schema).
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

from ..errors import ConfigError
from ..messages import FilePart, Message, Part, TextPart, ToolCallPart, ToolResultPart
from ..tools import ToolSpec
from .base import Frame, LanguageModel, ModelCall, ModelRequest, StreamPart
from .emulation_answer import AnswerReader
from .grammar import for_grammar, sketch

#: Stands for the unknown result of a worked example: to be copied, and like nothing that a model knows.
EXAMPLE_RESULT = "k3-x9"


class Emulated(LanguageModel):
    """A model that calls tools by filling a JSON Schema.  Safe to share between threads, like the inner model.

    A model too small for the instruction alone needs tools with `examples`.  One answer is one call or one
    text; a task of several calls takes several steps.

    Parameters:
        model: The inner model.  Its server should enforce response_format; one that does not is
            understood too as far as the model keeps to what it was told.
    """

    def __init__(self, model: LanguageModel):
        self.inner = model
        self.provider = model.provider
        self.model = model.model
        self.must_stream = model.must_stream

    def do_stream(self, request: ModelRequest, call: ModelCall) -> Iterator[List[StreamPart]]:
        """See `LanguageModel`."""
        task = Task(request)
        reader = AnswerReader(task.answer_kind)
        stream = self.inner.do_stream(task.inner_request(), call)
        try:
            for parts in stream:
                made = [part for type, payload in parts for part in reader.feed(type, payload)]
                if made:
                    yield made
        finally:
            getattr(stream, "close", lambda: None)()

    def describe(self) -> Dict[str, Any]:
        return dict(self.inner.describe(), emulated_tools=True)


class Task:
    """What a request asks for, told in words and a schema.

    Attributes:
        answer_kind: "plain" (no schema of ours), "text" or "json": what stands under ``answer``.
    """

    def __init__(self, request: ModelRequest):
        self._request = request
        self._tools = request.frame.tools
        asked = request.response_format
        self._asked: Any = asked["schema"] if asked and "schema" in asked else None
        emulating = bool(self._tools) or any(_of_tools(message) for message in request.messages)
        self.answer_kind = "plain" if not emulating else "text" if self._asked is None else "json"

    def inner_request(self) -> ModelRequest:
        """Return the request to the inner model: no tools, plain turns."""
        frame = self._request.frame
        inner = Frame(frame.model, self._system(), (), "auto", frame.settings)
        if self.answer_kind == "plain":
            return ModelRequest(inner, self._request.messages, self._plain_format())
        format = {"name": "answer", "schema": self._schema(), "strict": True}
        return ModelRequest(inner, plain_turns(self._request.messages), format)

    def _plain_format(self) -> Optional[Mapping[str, Any]]:
        if self._asked is None:
            return self._request.response_format
        return dict(self._request.response_format or {}, schema=for_grammar(self._asked))

    def _system(self) -> str:
        texts = [self._request.frame.system]
        if self.answer_kind == "plain" and self._asked is not None:
            texts.append("Answer in JSON: " + sketch(self._asked))
        if self._tools:
            texts.append(tools_text(self._tools, "text" if self._asked is None else sketch(self._asked)))
        return "\n\n".join([text for text in texts if text])

    def _schema(self) -> Dict[str, Any]:
        choice = self._request.frame.tool_choice
        alternatives = [_call_schema(spec) for spec in _allowed(self._tools, choice)]
        if choice in ("auto", "none") or not self._tools:
            answer = {"type": "string"} if self._asked is None else for_grammar(self._asked)
            alternatives.append(_object(answer=answer))
        return alternatives[0] if len(alternatives) == 1 else {"anyOf": alternatives}


def _of_tools(message: Message) -> bool:
    return any(isinstance(part, (ToolCallPart, ToolResultPart)) for part in message.parts)


def _allowed(tools: Sequence[ToolSpec], choice: Any) -> List[ToolSpec]:
    if choice == "none":
        return []
    if not isinstance(choice, Mapping):
        return list(tools)
    chosen = [spec for spec in tools if spec.name == choice.get("name")]
    if not chosen:
        raise ConfigError("tool_choice names the tool %r; the request has %s" % (
            choice.get("name"), ", ".join([spec.name for spec in tools]) or "no tools"))
    return chosen


def _object(**members: Any) -> Dict[str, Any]:
    return {"type": "object", "properties": members, "required": list(members), "additionalProperties": False}


def _call_schema(spec: ToolSpec) -> Dict[str, Any]:
    arguments = for_grammar(spec.parameters) if spec.parameters.get("properties") else _object()
    return _object(tool={"type": "string", "enum": [spec.name]}, arguments=arguments)


def tools_text(tools: Sequence[ToolSpec], answer: str) -> str:
    """Return what the model is told of its tools: how to call, which there are, one exchange for each example.

    Parameters:
        answer: What an answer looks like, "text" or the sketch of a schema.
    """
    head = ('To call a tool, answer {"tool": name, "arguments": {...}}; otherwise answer {"answer": %s}.\nTools:'
            % answer)
    examples = [_worked(spec, args) for spec in tools for args in spec.examples]
    return "\n".join([head, *[_listed(spec) for spec in tools]] + (["", *examples] if examples else []))


def _listed(spec: ToolSpec) -> str:
    members = spec.parameters.get("properties") or {}
    kinds = for_grammar(spec.parameters).get("properties") or {}
    lines = ["- %s(%s): %s" % (spec.name, ", ".join(["%s: %s" % (name, sketch(kinds[name])) for name in members]),
                               spec.description)]
    for name, member in members.items():
        if isinstance(member, Mapping) and member.get("description"):
            lines.append("    %s: %s" % (name, member["description"]))
    return "\n".join(lines)


def _worked(spec: ToolSpec, args: Mapping[str, Any]) -> str:
    """An exchange from question to answer; the question is made of the description and the arguments.

    Call and answer have labels of their own: to a small model the next label is half of the decision.
    """
    asks = spec.description.split("\n")[0].rstrip(".:") or spec.name.replace("_", " ")
    values = ", ".join([_text(value) for value in args.values()])
    return "Question: %s\nAction: %s\nResult: %s\nAnswer: %s" % (
        asks + (": " + values if values else ""), _call_text(spec.name, args), EXAMPLE_RESULT,
        _answer_text("The result is %s." % EXAMPLE_RESULT))


def _call_text(name: str, args: Any) -> str:
    return json.dumps({"tool": name, "arguments": args}, ensure_ascii=False)


def _answer_text(text: str) -> str:
    return json.dumps({"answer": text}, ensure_ascii=False)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def plain_turns(messages: Sequence[Message]) -> List[Message]:
    """Return the conversation without calls and results: as turns of text that say the same.

    The calls of one message become one exchange each, in order, as if they had been made one by one.
    """
    turns: List[Message] = []
    for index, message in enumerate(messages):
        if message.role == "assistant":
            turns += _assistant_turns(message, _results_after(messages, index))
        elif message.role == "tool":
            orphans = [part for part in message.tool_results if not _called_before(messages, index, part)]
            turns += [_result_turn(part) for part in orphans]
        else:
            turns.append(message)
    return turns


def _results_after(messages: Sequence[Message], index: int) -> Dict[str, ToolResultPart]:
    results: Dict[str, ToolResultPart] = {}
    for message in messages[index + 1:]:
        if message.role == "assistant":
            break
        results.update({part.call_id: part for part in message.tool_results})
    return results


def _called_before(messages: Sequence[Message], index: int, result: ToolResultPart) -> bool:
    for message in reversed(messages[:index]):
        if message.role == "assistant":
            return any(call.call_id == result.call_id for call in message.tool_calls)
    return False


def _assistant_turns(message: Message, results: Mapping[str, ToolResultPart]) -> List[Message]:
    calls = message.tool_calls
    if not calls:
        return [Message.assistant(_answer_text(message.text))] if message.text else []
    turns: List[Message] = []
    said = message.text + "\n" if message.text else ""
    for call in calls:
        args = call.args if call.args is not None else call.raw_args
        turns.append(Message.assistant(said + _call_text(call.name, args)))
        said = ""
        if call.call_id in results:
            turns.append(_result_turn(results[call.call_id]))
    return turns


def _result_turn(result: ToolResultPart) -> Message:
    text, files = _said(result)
    return Message.user("Result: %s%s" % ("error: " if result.is_error else "", text), files)


def _said(result: ToolResultPart) -> Tuple[str, List[FilePart]]:
    parts: Sequence[Part] = result.content
    files = [part for part in parts if isinstance(part, FilePart)]
    if files:
        return "\n".join([part.text for part in parts if isinstance(part, TextPart)]), files
    return _text(result.output), []
