"""docs/architecture.md, held against one real run: the calls and records it lists; the table of docs/processors.md.

Not here: the floors (`test_house`).
"""

import inspect
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import minagent
from minagent import Agent, OpenAIChat, Processor, tool
from minagent.processors.base import HOOKS
from minagent.runs import MemoryRuns
from minagent.testing import ScriptedModel, ScriptedServer, calls, says

pytestmark = pytest.mark.checkout

PACKAGE = Path(minagent.__file__).resolve().parent
PAGE = Path(__file__).resolve().parent.parent / "docs" / "architecture.md"


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def every_hook():
    """Return a processor that overrides every hook and lets everything through."""
    passing = {name: (lambda self, value, *rest: value) for name in HOOKS if name not in ("tools", "process_api_error")}
    return type("Passing", (Processor,), passing)()


def one_generate():
    """Run one generate with one tool call; return (functions called in order, records)."""
    runs, called = MemoryRuns(), []

    def profile(frame, event, arg):
        if event == "call":
            called.append((frame.f_code.co_filename, frame.f_code.co_name))

    with ScriptedServer.openai_chat([calls("add", a=1, b=2), says("It is 3.")]) as server:
        model = OpenAIChat("scripted", base_url=server.url + "/v1")
        agent = Agent("architecture", model=model, tools=[add], processors=[every_hook()], runs=runs)
        before = sys.getprofile()
        sys.setprofile(profile)
        try:
            out = agent.generate("1 + 2?")
        finally:
            sys.setprofile(before)
    assert out.text == "It is 3."
    return [_named(*call) for call in called], runs.read(out.run_id)


def _named(file, function):
    try:
        return "%s: %s" % (Path(file).resolve().relative_to(PACKAGE).as_posix(), function)
    except ValueError:
        return "outside"


@pytest.fixture(scope="module")
def happened():
    return one_generate()


def fenced(kind):
    """Return the lines of the page's block of that kind."""
    [block] = re.findall(r"^```%s\n(.*?)^```" % kind, PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return block.splitlines()


def documented():
    """Return the documented calls, comments aside."""
    return [re.match(r"\s*([\w/]+\.py: \w+)(?:  .*)?$", line).group(1) for line in fenced("calls")]


def first_wrong(lines, called):
    """Return the first line that did not happen after the ones before it, or None if all did."""
    rest = iter(called)
    return next((line for line in lines if line not in rest), None)


def test_the_path_of_a_generate_is_as_documented(happened):
    """Every line of the page happened, in this order."""
    called, _ = happened
    lines = documented()
    assert len(lines) > 40
    missing = sorted(set(lines) - set(called))
    assert not missing, "on the page, but not called: %s" % ", ".join(missing)
    wrong = first_wrong(lines, called)
    assert wrong is None, "%s was not called after what stands before it" % wrong


def test_a_wrong_line_would_be_noticed(happened):
    """A name that does not exist, and any two of the page's neighbours that trade places where it matters."""
    called, _ = happened
    lines = documented()
    assert first_wrong([*lines[:5], "agent/agent.py: generated", *lines[5:]], called) == "agent/agent.py: generated"
    for moved in ("loop/review.py: review", "loop/tool_call.py: execute", "agent/run.py: drive"):
        at = lines.index(moved)
        swapped = [*lines[:at], lines[at + 1], moved, *lines[at + 2:]]
        assert first_wrong(swapped, called) is not None, "%s could stand one line lower" % moved
    assert first_wrong([*lines, lines[0]], called) == lines[0]


def test_the_files_on_the_page_exist(happened):
    """Those of the prose, too."""
    named = set(re.findall(r"`([\w/]+\.py)", PAGE.read_text(encoding="utf-8")))
    root = PAGE.parent.parent
    assert named and not [name for name in named if not ((PACKAGE / name).exists() or (root / name).exists())]


def test_the_records_of_a_run_are_as_documented(happened):
    """Path and status of each record, exactly."""
    _, records = happened
    found = [("%s %s" % (record["status"], record["path"])).split() for record in records]
    assert found == [line.split() for line in fenced("records")]


def test_the_table_of_hooks_is_that_of_the_class():
    """Every hook with its parameters, and nothing else; and everything that a context offers."""
    from minagent.processors.base import ProcessorContext

    text = (PAGE.parent / "processors.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| `(\w+)\(([^)]*)\)` \|", text, re.MULTILINE))
    assert listed == {name: ", ".join(list(inspect.signature(getattr(Processor, name)).parameters)[1:])
                      for name in HOOKS}
    offered = {name for name in dir(ProcessorContext) if not name.startswith("_")}
    [named] = re.findall(r"^`ctx` has `([^`]+)`", text, re.MULTILINE)
    assert offered == set(named.split(", ")) | set(re.findall(r"^\* `ctx\.(\w+)", text, re.MULTILINE))


class Discreet(Processor):
    """Takes a word out of texts, whole answers and results."""

    def process_output_stream(self, chunk, ctx):
        return chunk._replace(payload=dict(chunk.payload, text="a b")) if chunk.type == "text-delta" else chunk

    def process_llm_response(self, response, ctx):
        parts = [replace(part, args={"a": 500, "b": 1}) if part.type == "tool-call" else part
                 for part in response.message.parts]
        return response.replace(message=replace(response.message, parts=tuple(parts)))

    def process_tool_result(self, result, ctx):
        return replace(result, output="hidden")


def test_the_journal_holds_what_the_page_says():
    """Text after the stream hook, arguments and results before the hooks that change them."""
    runs = MemoryRuns()
    model = ScriptedModel([says("secret") + calls("add", a=1000, b=234), says("secret")])
    out = Agent("where", model=model, tools=[add], processors=[Discreet()], runs=runs).generate("x")
    kept = json.dumps(runs.read(out.run_id))
    assert "secret" not in kept and "1000" in kept and "501" in kept
    assert out.tool_calls[0].args == {"a": 500, "b": 1}
    assert out.tool_results[0].output == "hidden" and '"output": 501' not in json.dumps(out.to_dict())
