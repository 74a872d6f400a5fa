"""The README, held against what it talks about: its two commands, its Python, its tables and its links.

Not here: running the commands (`.ci/run` does, in fresh environments).
"""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

from minagent import Agent, LanguageModel
from minagent.testing import ScriptedModel, calls, says

ROOT = Path(__file__).resolve().parent.parent

pytestmark = pytest.mark.checkout


@pytest.fixture(scope="module")
def readme():
    return (ROOT / "README.md").read_text(encoding="utf-8")


# The commands.


@pytest.fixture
def commands(gate_script, readme):
    """Return the two blocks, as the gate gets them."""
    return gate_script("readme").blocks(readme)[:2]


def test_the_first_command_installs_and_asks_for_something_that_needs_a_tool(commands):
    """It makes `.venv`, installs the local model and ends in a prompt with two numbers and a tool."""
    *install, prompt = commands[0].replace("\\\n", " ").strip().splitlines()
    assert any("-m venv .venv" in line for line in install)
    assert any("[local]" in line for line in install)
    words = shlex.split(prompt)
    assert "minagent" in words[0] and words[1] == "run"
    assert len(re.findall(r"\d+", words[2])) == 2
    module, _, function = words[words.index("--tool") + 1].partition(":")
    spec = importlib.util.spec_from_file_location("readme_tool", str(ROOT / (module.replace(".", "/") + ".py")))
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert getattr(loaded, function).spec.examples


def test_the_second_command_runs_the_tests(commands):
    """It installs the test extra and calls pytest."""
    assert "[test]" in commands[1]
    assert "pytest" in commands[1]


# The Python.

#: What the model says in each of the blocks, in order.
TURNS = [
    [calls("stock", item="teapot"), says("Yes, there are 7.")],
    [says("Sadly not.")],
    [],  # brings its own model
    [],
    [calls("refund", order=7, amount=24.5)],
    [says("It is refunded.")],
    [says("Both are refunded.")],
    [says("I never do."), says("I am afraid not.")],
    [says("It is swordfish."), says("I must not say.")],
    [says("Ask ann.lee@example.org today.")] * 2,
]


def python_blocks(text):
    return re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def promised(block):
    """Return what the comments behind `print` say that it prints."""
    return re.findall(r"^\s*print\(.*\) +# (.*)$", block, re.MULTILINE)


def test_the_python_of_the_readme_does_what_it_says(readme, monkeypatch, tmp_path, capsys):
    """Block after block in one session, with a scripted model for every name; each comment is what is printed."""
    script, asked = [], []

    def resolve(name):
        asked.append(name)
        return ScriptedModel(lambda request: script.pop(0))

    monkeypatch.setattr("minagent.llm.resolve.resolve", resolve)
    monkeypatch.chdir(tmp_path)
    blocks, session = python_blocks(readme), {}
    assert len(blocks) == len(TURNS)
    for block, turns in zip(blocks, TURNS):
        script[:] = turns
        exec(compile(block, "README.md", "exec"), session)
        printed = capsys.readouterr().out.splitlines()
        assert not promised(block) or printed == promised(block)
        assert script == [], "a turn of the model was not asked for"
    assert printed and set(asked) == {"openai/gpt-5-mini"}
    holds_back_what_may_go_on(session["NoAddresses"])


def holds_back_what_may_go_on(redacting):
    """Wherever chunks end, and without changing anything else."""
    for size in (1, 2, 5, 1000):
        model = Pieces("\nAsk  ann@example.org,\nor bo.b@x.example. Bye", size)
        out = Agent("pieces", model=model, processors=[redacting()]).generate("x")
        assert out.text == "\nAsk  [address],\nor [address]. Bye"
        assert out.reasoning == out.text


class Pieces(LanguageModel):
    """A model that says a text in pieces of some characters, as reasoning and as text."""

    provider = model = "pieces"

    def __init__(self, text, size):
        self.pieces = [text[start:start + size] for start in range(0, len(text), size)]

    def do_stream(self, request, call):
        for kind in ("reasoning", "text"):
            yield [(kind + "-start", {"id": kind})]
            for piece in self.pieces:
                yield [(kind + "-delta", {"id": kind, "text": piece})]
            yield [(kind + "-end", {"id": kind})]
        yield [("finish", {"finish_reason": "stop"})]


def test_a_false_comment_would_be_noticed():
    """What stands behind a print is compared, also within a loop."""
    assert promised("print(1)   # 1\nfor x in y:\n    print(x, end='')\n    print(x)  # a b\n") == ["1", "a b"]


# The tables and the rest.


def rows(readme, heading):
    """Return the names in the first column of the table below a heading."""
    section = readme.split("\n## %s\n" % heading)[1].split("\n## ")[0]
    firsts = re.findall(r"^\| (.*?) \| ", section, re.MULTILINE)
    return [name for first in firsts for name in re.findall(r"`(\w+)`", first)]


def test_the_table_of_options_is_complete(readme):
    """Every option of generate, and nothing else."""
    from minagent import GenerateOptions

    assert sorted(rows(readme, "Options")) == sorted(GenerateOptions.__annotations__)


def test_the_table_of_tools_has_what_works(readme):
    """Every option of @tool but those that are refused so far."""
    from minagent.tools import ToolPolicy

    known = set(ToolPolicy.__dataclass_fields__) - {"isolation", "exclusive", "max_calls"}
    assert set(rows(readme, "Tools")) == known | {"name", "description", "examples"}


def test_the_providers_on_the_page_are_those_that_resolve(readme):
    """In the sentence that lists them."""
    from minagent.llm.resolve import SERVERS

    [sentence] = re.findall(r'Models are named `"provider/model"`: (.*?)\. ', readme.replace("\n", " "))
    assert set(re.findall(r"`([\w-]+)`", sentence)) | {"openai-chat"} == set(SERVERS) | {"local"}


def test_the_links_lead_somewhere(readme):
    """Files of this repository, and headings of this page."""
    headings = {re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-")
                for line in re.findall(r"^#+ (.*)$", readme, re.MULTILINE)}
    targets = [target for target in re.findall(r"\]\(([^)]+)\)", readme) if not target.startswith("https://")]
    assert len(targets) > 5
    for target in targets:
        assert (target[1:] in headings) if target.startswith("#") else (ROOT / target).exists(), target


def test_the_exit_codes_on_the_page_are_those_of_the_program(readme):
    """As far as a caller needs them."""
    from minagent.cli import exits

    section = readme.split("\n## The command line\n")[1].split("\n## ")[0]
    for code in (exits.DONE, exits.FAILED, exits.USAGE, exits.WAITING, exits.LATER, exits.DEADLINE,
                 exits.INTERRUPTED, exits.TERMINATED):
        assert re.search(r"\b%d\b" % code, section)


def test_nobody_is_told_to_install_the_bare_name():
    """An index may know it as something else: extras are installed from where the package came."""
    files = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.py"),
             *(ROOT / "minagent").rglob("*.py")]
    assert len(files) > 50
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert not re.search(r"pip install (-\S+ )*['\"]?minagent", text), file
