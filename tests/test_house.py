"""The plan of the house, measured: floors, cycles, what an import does, how long things are.

The plan is docs/architecture.md; this table is its checked form. A new file gets its place here first.
"""

import ast
import json
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.checkout

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "minagent"

# Bottom to top. A module imports only from what stands before it, here and inside a package. A package's own
# __init__ stands at its end. Whoever has to move a name here changes the plan, not the test.
FLOORS = (
    ("ground", (
        ("errors",),
        ("_lazy",),
        ("schema", "paths", "encode", "docstrings", "hints", "annotations", "records", "types", "convert",
         "function", "document", "fits", "reasons", "validate"),
        ("_util",),
    )),
    ("vocabulary", (("messages",), ("chunks",), ("results",), ("tools",))),
    ("machines", (
        ("workflow", "nodes", "entries", "gathering", "engine", "journal"),
        ("runs", "ids", "records", "standing", "decisions", "listing", "base", "null", "memory", "files", "locks",
         "inbox", "file_lease", "json_files", "sqlite"),
        ("llm", "base", "wire", "failures", "connection", "sse", "exchange", "transport",
         "openai_chat_request", "openai_chat_answer", "openai_chat", "openai_responses", "anthropic_messages",
         "gemini_generate", "grammar", "emulation_answer", "emulation", "prices", "local_keeper",
         "local_server", "local", "resolve"),
        ("memory", "base", "in_memory", "sqlite", "recall"),
        ("mcp", "client", "stdio", "http", "tools"),
    )),
    ("processors", (
        ("processors", "base", "runner", "memory", "skills", "browser_context", "caching",
         "structured_output", "limits", "history", "guardrails", "recovery"),
    )),
    ("loop", (
        ("loop", "state", "stop_conditions", "executor", "limits", "scope", "answer", "call_context",
         "tool_result", "background", "tool_call", "model_call", "review", "mapping", "agentic_execution",
         "agentic_loop", "stream", "loop"),
    )),
    ("agent", (
        ("agent", "openai_messages", "history", "options", "output", "model_loop", "prepare_stream.memory_step",
         "prepare_stream.tools_step", "prepare_stream.input_processors_step",
         "prepare_stream.map_results_step", "prepare_stream.output_processors_step", "prepare_stream.workflow",
         "prepare_stream", "live", "run", "opening", "agent"),
    )),
    ("front door", (("__init__",), ("testing",), ("toolbox",), ("cli",), ("__main__",))),
)

# Every exception by name, with its reason. One that no longer is one is a failure.
EXCUSED_IMPORTS = {}  # "importing.module > imported.module": reason
EXCUSED_DYNAMIC_IMPORTS = {  # "module": reason
    "_lazy": "it is what makes the names of a package front lazy, each from a table in that package",
    "cli.loading": "the user names a module after --tool and --model",
    "llm.local": "the two packages of the extra `local` are named once, in its constants",
}
LONG_FUNCTIONS = {}  # "module:function": reason
WIDE_FUNCTIONS = {  # "module:function": reason
    "tools:tool": "the options of @tool are keywords that editors complete; a bag of options would hide them",
}
LONG_FILES = {}  # "module": reason

# What the front door promises. Each must come from the place named, on first use and not before.
PUBLIC = {
    "minagent": ("Agent", "tool", "ToolContext", "Approve", "Decline", "Answer", "Limits", "Message",
                 "Processor", "has_tool_call", "OpenAIChat"),
    "minagent.runs": ("MemoryRuns", "JsonFileRuns"),
    "minagent.testing": ("ScriptedModel", "FrozenClock", "inline"),
    "minagent.workflow": ("Step", "Workflow", "Branch", "ForEach", "DoWhile"),
}


def storeys():
    """Return every planned module's name with its height."""
    names = []
    for _, rooms in FLOORS:
        for room in rooms:
            names.extend("%s.%s" % (room[0], part) for part in room[1:])
            names.append(room[0])
    return {name: height for height, name in enumerate(names)}


HEIGHT = storeys()


def modules():
    """Return the package's modules as {dotted name without the package's own: path}."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        if parts[-1] == "__init__" and len(parts) > 1:
            parts = parts[:-1]
        found[".".join(parts)] = path
    return found


MODULES = modules()
TREES = {name: ast.parse(path.read_text(encoding="utf-8"), str(path)) for name, path in MODULES.items()}


def height(name):
    """Return a module's height in the plan; a file of a front-door package stands where its package does."""
    while name and name not in HEIGHT:
        name = name.rpartition(".")[0]
    return HEIGHT.get(name)


def imported(name):
    """Return the package's own modules that a module imports, wherever in it the import stands."""
    is_package = MODULES[name].name == "__init__.py"
    found = set()
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.ImportFrom) and node.level:
            found.update(targets(name, is_package, node))
    return found


def targets(name, is_package, node):
    """Return the modules that one relative `from … import …` reaches."""
    base = [] if name == "__init__" else name.split(".")
    up = node.level - (1 if is_package else 0)
    base = base[:len(base) - up] if up else base
    module = ".".join(base + (node.module.split(".") if node.module else []))
    for alias in node.names:
        below = "%s.%s" % (module, alias.name) if module else alias.name
        yield below if below in MODULES else module or "__init__"


def functions():
    """Return ("module:function", node) for every function, methods with their class."""
    for name, tree in TREES.items():
        yield from _functions(name, tree, "")


def _functions(name, node, prefix):
    for child in ast.iter_child_nodes(node):
        named = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if named and not isinstance(child, ast.ClassDef):
            yield "%s:%s%s" % (name, prefix, child.name), child
        yield from _functions(name, child, prefix + child.name + "." if named else prefix)


def lines(node):
    """Return a function's length, docstring included, decorators not."""
    return node.end_lineno - node.lineno + 1


def parameters(node):
    """Return how many parameters a function has, `self` and `cls` aside."""
    plain = [a.arg for a in node.args.posonlyargs + node.args.args]
    if plain[:1] in (["self"], ["cls"]):
        plain = plain[1:]
    return len(plain) + len(node.args.kwonlyargs) + bool(node.args.vararg) + bool(node.args.kwarg)


def beyond(found, excused, what):
    """Fail for what is beyond the measure and not excused, and for an excuse that nothing needs."""
    unexplained = sorted("%s (%s)" % (name, value) for name, value in found.items() if name not in excused)
    stale = sorted(set(excused) - set(found))
    assert not unexplained, "%s: %s" % (what, "; ".join(unexplained))
    assert not stale, "excused as %s, but no longer so: %s" % (what, ", ".join(stale))


def test_every_module_has_a_place_in_the_plan():
    """A file that the table does not name belongs nowhere yet."""
    homeless = [name for name in MODULES if name not in HEIGHT and name.split(".")[0] not in _open_rooms()]
    assert not homeless, "no place in FLOORS: %s" % ", ".join(homeless)


def _open_rooms():
    """Return the front-door packages, whose files are peers and need no order of their own."""
    return {room[0] for room in FLOORS[-1][1]}


def test_imports_only_go_down():
    """A module imports from lower floors and from what stands before it on its own."""
    up = {}
    for name in MODULES:
        for other in imported(name):
            if other != name and None not in (height(other), height(name)) and not below(other, name):
                up["%s > %s" % (name, other)] = "upward"
    beyond(up, EXCUSED_IMPORTS, "imports that go up")


def below(other, name):
    """Say whether `other` may be imported by `name`."""
    if height(other) == height(name):  # two files of one front-door package
        return other != name
    return height(other) < height(name)


def test_there_is_no_cycle():
    """No module reaches itself, counting imports inside functions."""
    graph = {name: imported(name) - {name} for name in MODULES}
    rest = dict(graph)
    while rest:
        free = [name for name, needs in rest.items() if not any(n in rest for n in needs)]
        assert free, "these modules import each other in a circle: %s" % ", ".join(sorted(rest))
        for name in free:
            del rest[name]


def test_the_package_never_calls_itself_by_name():
    """Imports are relative, so that a copy in another package never reaches the installed one."""
    absolute = []
    for name, tree in TREES.items():
        for node in ast.walk(tree):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            absolute.extend("%s:%d" % (name, node.lineno) for n in names if n.split(".")[0] == "minagent")
    assert not absolute, "absolute imports of the package itself: %s" % ", ".join(absolute)


def test_imports_by_string_are_listed():
    """`import_module` hides an import from this plan."""
    found = {}
    for name, tree in TREES.items():
        for node in ast.walk(tree) if MODULES[name].name != "__init__.py" else ():
            called = getattr(node, "func", None)
            if getattr(called, "attr", getattr(called, "id", "")) in ("import_module", "__import__"):
                found[name] = "line %d" % node.lineno
    beyond(found, EXCUSED_DYNAMIC_IMPORTS, "modules that import by string")


def test_every_module_says_what_it_is_for():
    """A module opens with a docstring."""
    silent = [name for name, tree in TREES.items() if not ast.get_docstring(tree)]
    assert not silent, "no docstring: %s" % ", ".join(silent)


def test_functions_are_short():
    """The median function has under 10 lines and none has over 60."""
    sizes = {name: lines(node) for name, node in functions()}
    assert statistics.median(sizes.values()) < 10
    beyond({name: "%d lines" % n for name, n in sizes.items() if n > 60}, LONG_FUNCTIONS,
           "functions over 60 lines")


def test_functions_take_few_parameters():
    """No function has over 9 parameters."""
    wide = {name: "%d parameters" % parameters(node) for name, node in functions() if parameters(node) > 9}
    beyond(wide, WIDE_FUNCTIONS, "functions over 9 parameters")


def test_files_are_short():
    """No file has over 400 lines."""
    sizes = {name: path.read_text(encoding="utf-8").count("\n") for name, path in MODULES.items()}
    beyond({name: "%d lines" % n for name, n in sizes.items() if n > 400}, LONG_FILES, "files over 400 lines")


def python(*arguments, cwd=ROOT):
    """Run a fresh interpreter without it leaving anything in the checkout, and return what it printed."""
    command = [sys.executable, "-B"] + list(arguments)
    done = subprocess.run(command, cwd=str(cwd), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def watched_import(names, package=PACKAGE, cwd=ROOT):
    """Import modules in a fresh interpreter and return what happened meanwhile."""
    script = str(Path(__file__).with_name("import_watch.py"))
    return json.loads(python(script, str(package), json.dumps(names), cwd=cwd).splitlines()[-1])


def test_an_import_does_nothing():
    """Importing every module opens no file or socket, starts no thread, reads no environment."""
    names = ["minagent" if name == "__init__" else "minagent." + name for name in MODULES]
    happened = watched_import(names)
    assert happened["seen"] == []
    assert happened["threads"] == 1


def test_an_import_does_not_load_the_dependencies():
    """requests and jsonschema come on first use, and asyncio never."""
    names = ["minagent" if name == "__init__" else "minagent." + name for name in MODULES]
    assert watched_import(names)["heavy"] == []


def test_the_watch_sees_what_it_forbids(tmp_path):
    """A module that does all the forbidden things at import is caught at each of them."""
    package = tmp_path / "busy"
    package.mkdir()
    (package / "data.txt").write_text("x")
    (package / "__init__.py").write_text(
        "import os, socket, subprocess, sys, threading\n"
        "open(os.path.join(os.path.dirname(__file__), 'data.txt')).close()\n"
        "socket.socket().close()\n"
        "os.environ.get('HOME'), os.getenv('PATH')\n"
        "threading.Thread(target=int).start()\n"
        "subprocess.call([sys.executable, '-c', ''])\n"
        "import asyncio\n")
    happened = watched_import(["busy"], package, tmp_path)
    seen = " ".join(happened["seen"])
    for what in ("open ", "socket.", "environment 'HOME'", "environment 'PATH'", "thread ", "subprocess."):
        assert what in seen, "%s not in %s" % (what, seen)
    assert happened["heavy"] == ["asyncio"]


@pytest.mark.parametrize("module", sorted(PUBLIC))
def test_the_promised_names_are_there(module):
    """Every name that the documentation promises can be imported from where it says, and is listed there."""
    code = "import %s as m\nassert set(%r) <= set(dir(m))\nfor name in %r: getattr(m, name)"
    python("-c", code % (module, PUBLIC[module], PUBLIC[module]))


def test_the_front_door_is_lazy():
    """`import minagent` loads no room of the house but what makes names lazy; a name loads the room it lives in."""
    python("-c", "import sys, minagent\n"
                 "rooms = [name for name in sys.modules if name.startswith('minagent.') and '_lazy' not in name]\n"
                 "assert not rooms, rooms\n"
                 "minagent.Agent\n"
                 "assert 'minagent.agent.agent' in sys.modules\n")
