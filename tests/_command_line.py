"""Runs the command line as a process, in a folder with scripted models and tools in a module `scripted`."""

import os
import subprocess
import sys
from pathlib import Path

import minagent

#: What `import minagent` needs on the path of a process that runs elsewhere.
HOME = str(Path(minagent.__file__).resolve().parents[len(minagent.__name__.split("."))])

SCRIPTED = '''
import threading, time
from minagent import ToolContext, tool
from minagent.errors import AuthenticationFailed, RateLimited
from minagent.testing import ScriptedModel, calls, fails, says

def model(*turns):
    return ScriptedModel(turns, by_step=True)

adding = model(says("Let me see.") + calls("add", a=17, b=25), says("It is 42."))
looping = ScriptedModel([calls("add", a=1, b=2)], loop=True)
echoing = ScriptedModel(lambda request: says(repr([message.text for message in request.messages])))
told = ScriptedModel(lambda request: says(request.frame.system))
approving = model(calls("pay", amount=3), says("Done."))
asking = model(calls("ask"), says("Thank you."))
rude = model(says("a\\x1b]0;title\\x07b"))
foreign = model(says("Grüße, \\u4f60\\u597d \\U0001f600"))
limited = model(fails(RateLimited("slow down")))
locked = model(fails(AuthenticationFailed("the key is wrong")))
broken = model(fails(KeyError("inner")))
hanging = model(says("never", gate=threading.Event()))
slow = model(calls("sleep"), says("Late."))
long = ScriptedModel(lambda request: says("words " * 100000))

@tool(examples=[{"a": 1, "b": 2}])
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b

@tool(require_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid %d" % amount

@tool
def ask(ctx: ToolContext) -> str:
    """Ask a person."""
    return "said %r" % (ctx.suspend("which colour?", {"type": "string"}),)

@tool
def sleep(ctx: ToolContext) -> str:
    """Wait until told to stop."""
    while not ctx.cancelled:
        time.sleep(0.01)
    return "stopped"

class Box:
    @staticmethod
    def held() -> int:
        """Return 7."""
        return 7

number = 5
'''

KEYS = ("OPENAI_API_KEY", "OPENROUTER_API_KEY", "MISTRAL_API_KEY", "DEEPSEEK_API_KEY", "GROQ_API_KEY",
        "CEREBRAS_API_KEY", "TOGETHER_API_KEY", "FIREWORKS_API_KEY", "XAI_API_KEY")


class CommandLine:
    """Runs commands in a folder that has a module `scripted`."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "scripted.py").write_text(SCRIPTED, encoding="utf-8")

    def start(self, *arguments, env=None, script=("-m", "minagent"), **options):
        environ = {name: value for name, value in os.environ.items() if name not in KEYS}
        environ.update({"PYTHONPATH": HOME, "PYTHONIOENCODING": "", "PYTHONDONTWRITEBYTECODE": "1"}, **env or {})
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, *script, *arguments], cwd=str(self.folder), env=environ,
                                **dict(pipes, **options))

    def __call__(self, *arguments, stdin=b"", **options):
        with self.start(*arguments, **options) as process:
            out, err = process.communicate(stdin, timeout=60)
        return Ended(process.returncode, out, err)


class Ended:
    """What a command left: its exit code and texts."""

    def __init__(self, code, out, err):
        self.code, self.raw = code, out
        self.out, self.err = out.decode("utf-8", "replace"), err.decode("utf-8")

    def __repr__(self):
        return "exit code %d\n%s\n%s" % (self.code, self.out, self.err)
