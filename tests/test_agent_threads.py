"""Threads and hosts: many threads and one agent, event loops, nesting, contextvars, hung tools, interrupts.

Not here: streams (test_agent_streams) and the engine's own threads (test_engine_threads).
"""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import pytest

from minagent import Agent, Processor, tool
from minagent.loop.executor import DaemonExecutor
from minagent.runs import JsonFileRuns, MemoryRuns
from minagent.testing import ScriptedModel, ScriptedServer, calls, inline, says

try:
    from minagent.llm.openai_chat import OpenAIChat
except ImportError:
    OpenAIChat = None

DONE = says("Done.")


@tool(effect="read")
def double(n: int) -> int:
    """Double."""
    return 2 * n


def echo(request):
    """Call the tool with the number asked for, twice at once, then say what came back."""
    if request.messages[-1].role == "user":
        n = int(request.messages[-1].text)
        return calls(("double", {"n": n}), ("double", {"n": n + 1}))
    return says("%d and %d" % tuple(part.output for part in request.messages[-1].tool_results))


SHARED = Agent("shared", model=ScriptedModel(echo), tools=[double])


def started(before):
    """Threads of ours that were not there before."""
    return [thread for thread in threading.enumerate() if thread not in before and "minagent" in thread.name]


def assert_no_thread_is_left(before):
    for thread in started(before):
        thread.join(10)
        assert not thread.is_alive(), "%s is left" % thread.name


# One agent, many threads.


def in_threads(work, count=8):
    came, barrier = [], threading.Barrier(count)

    def run(index):
        barrier.wait(10)
        try:
            came.extend(work(index))
        except BaseException as error:
            came.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return came


def test_one_agent_serves_eight_threads():
    """8 threads × 10 calls on one module-level agent: 80 of 80, no result in another one's output."""
    def work(index):
        return [(n, SHARED.generate(str(n)).text) for n in range(100 * index, 100 * index + 10)]

    before = threading.enumerate()
    came = in_threads(work)

    assert sorted(came) == [(n, "%d and %d" % (2 * n, 2 * n + 2)) for index in range(8)
                            for n in range(100 * index, 100 * index + 10)]
    assert_no_thread_is_left(before)


def test_one_agent_with_a_store_serves_eight_threads(tmp_path):
    """The same with every run on disk, half of them streamed."""
    agent = Agent("shared", model=ScriptedModel(echo), tools=[double], runs=JsonFileRuns(str(tmp_path)))

    def work(index):
        for n in range(100 * index, 100 * index + 3):
            if n % 2:
                with agent.stream(str(n)) as stream:
                    yield n, stream.output.text
            else:
                yield n, agent.generate(str(n)).text

    came = in_threads(work)

    assert sorted(came) == [(n, "%d and %d" % (2 * n, 2 * n + 2)) for index in range(8)
                            for n in range(100 * index, 100 * index + 3)]
    assert len(agent.runs.list(status="finished")) == 24


@pytest.mark.skipif(OpenAIChat is None, reason="there is no OpenAIChat")
def test_one_agent_serves_eight_threads_over_the_wire():
    """80 of 80 against a keep-alive server; every thread keeps its own connection."""
    def turn(body):
        last = body["messages"][-1]
        if last["role"] == "user":
            return calls("double", n=int(last["content"]))
        return says("it is " + last["content"])

    with ScriptedServer.openai_chat(turn) as server:
        agent = Agent("wire", model=OpenAIChat("m", base_url=server.url + "/v1", api_key="k"), tools=[double])
        came = in_threads(lambda index: [(n, agent.generate(str(n)).text) for n in range(10 * index, 10 * index + 10)])
        agent.close()

    assert sorted(came) == [(n, "it is %d" % (2 * n)) for n in range(80)]
    assert len(server.requests) == 160 and server.connections <= 16


# Event loops.


def test_it_works_inside_a_running_event_loop():
    """In a coroutine, as in a notebook; it blocks and never touches the loop."""
    async def view():
        return SHARED.generate("4").text, SHARED.stream("5").output.text

    assert asyncio.run(view()) == ("8 and 10", "10 and 12")


def test_it_works_after_a_closed_event_loop():
    """A thread whose loop somebody closed."""
    def work():
        loop = asyncio.new_event_loop()
        asyncio.set_event_loop(loop)
        loop.close()
        came.append(SHARED.generate("4").text)
        asyncio.set_event_loop(None)

    came = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join(10)
    assert came == ["8 and 10"]


# Nesting.


def nested(depth, executor=None):
    """An agent whose tool calls an agent whose tool ..., two calls at once on every level."""
    if depth == 0:
        return Agent("leaf", model=ScriptedModel(lambda request: says("leaf")), executor=executor)
    inner = nested(depth - 1, executor)

    @tool
    def ask(n: int) -> str:
        """Ask the agent below."""
        return "(%s)" % inner.generate("Go.").text

    def turn(request):
        if request.messages[-1].role == "user":
            return calls(("ask", {"n": 1}), ("ask", {"n": 2}))
        return says(" ".join(part.output for part in request.messages[-1].tool_results))

    return Agent("level%d" % depth, model=ScriptedModel(turn), tools=[ask], executor=executor)


LEAVES = "(((leaf) (leaf)) ((leaf) (leaf))) (((leaf) (leaf)) ((leaf) (leaf)))"


@pytest.mark.parametrize("workers", [None, 1, 2])
def test_three_levels_of_generate_inside_tools(workers):
    """Parallel calls on each level, also on one shared executor with a single worker: no deadlock."""
    executor = ThreadPoolExecutor(workers) if workers else None
    try:
        came = []
        thread = threading.Thread(target=lambda: came.append(nested(3, executor).generate("Go.").text), daemon=True)
        thread.start()
        thread.join(30)
        assert came == [LEAVES], "deadlock" if not came else ""
    finally:
        if executor is not None:
            executor.shutdown()


def test_an_executor_that_works_at_once_will_do():
    """inline() runs each call where it is submitted."""
    assert nested(2, inline()).generate("Go.").text == "((leaf) (leaf)) ((leaf) (leaf))"


# Contextvars and threads of calls.


REQUEST = ContextVar("REQUEST")


def test_contextvars_are_visible_everywhere():
    """In parallel tools, in a tool with a timeout, in hooks, in the background, and under stream()."""
    seen = []

    def look(where):
        seen.append((where, REQUEST.get(None)))
        return where

    made = [tool(name=name)(_looking(look, name)) for name in ("one", "two", "three")]
    made.append(tool(name="timed", timeout=30)(_looking(look, "timed")))
    made.append(tool(name="later", background=True)(_looking(look, "later")))

    class Looking(Processor):
        def process_llm_response(self, response, ctx):
            look("hook")
            return response

    names = ["one", "two", "three", "timed", "later"]
    for streamed in (False, True):
        model = ScriptedModel([calls(*[(name, {}) for name in names]), calls("one"), DONE, DONE, DONE])
        agent = Agent("a", model=model, tools=made, processors=[Looking()])
        token = REQUEST.set("mine %s" % streamed)
        del seen[:]
        output = agent.stream("Go.").output if streamed else agent.generate("Go.")
        REQUEST.reset(token)
        assert not output.tool_errors
        assert {where for where, _ in seen} == {*names, "hook"}
        assert {value for _, value in seen} == {"mine %s" % streamed}


def _looking(look, name):
    def run() -> str:
        return look(name)

    return run


def where_calls_run(count, streamed=False, **options):
    """Threads in which calls ran, and the one that drove the run."""
    ran = []

    @tool
    def here(n: int) -> int:
        """Say where."""
        ran.append(threading.current_thread())
        return n

    class Driving(Processor):
        def process_llm_response(self, response, ctx):
            driving.append(threading.current_thread())
            return response

    driving = []
    agent = Agent("a", model=ScriptedModel([calls(*[("here", {"n": n}) for n in range(count)]), DONE]), tools=[here],
                  processors=[Driving()])
    output = agent.stream("Go.", **options).output if streamed else agent.generate("Go.", **options)
    assert output.text == "Done." and len(ran) == count
    return set(ran), driving[0]


@pytest.mark.parametrize("streamed", [False, True], ids=["generate", "stream"])
def test_a_lone_call_runs_in_the_thread_that_drives_the_run(streamed):
    """Under generate that is the caller's; tool_concurrency=1 keeps several calls there as well."""
    for count, options in ((1, {}), (4, {"tool_concurrency": 1})):
        ran, driving = where_calls_run(count, streamed, **options)
        assert ran == {driving}
        assert (driving is threading.current_thread()) == (not streamed)


def test_several_calls_run_in_threads():
    """At most tool_concurrency at once."""
    ran, _ = where_calls_run(4)
    assert threading.current_thread() not in ran

    at_once, most, lock = [], [], threading.Lock()

    @tool
    def busy(n: int) -> int:
        """Be busy."""
        with lock:
            at_once.append(n)
            most.append(len(at_once))
        time.sleep(0.005)
        with lock:
            at_once.remove(n)
        return n

    agent = Agent("a", model=ScriptedModel([calls(*[("busy", {"n": n}) for n in range(12)]), DONE]), tools=[busy])
    assert len(agent.generate("Go.", tool_concurrency=3).tool_results) == 12
    assert max(most) <= 3


def test_a_thread_wrapper_runs_round_every_thread_of_tools():
    """For parallel calls, for calls with a timeout and in the background: begun and ended once for each thread."""
    log = []

    def wrapper(work):
        log.append(("begin", threading.get_ident()))
        work()
        log.append(("end", threading.get_ident()))

    made = [double, tool(name="timed", timeout=30)(lambda: 1), tool(name="later", background=True)(lambda: 1)]
    turns = [calls(("double", {"n": 1}), ("double", {"n": 2}), ("timed", {}), ("later", {})), DONE, DONE, DONE]
    before = threading.enumerate()
    Agent("a", model=ScriptedModel(turns), tools=made, thread_wrapper=wrapper).generate("Go.")
    assert_no_thread_is_left(before)
    assert [what for what, _ in log].count("begin") == [what for what, _ in log].count("end") >= 3


@pytest.mark.parametrize("wrapper, told", [(lambda work: 1 / 0, "ZeroDivisionError"),
                                           (lambda work: None, "must call work"),
                                           (lambda work: (work(), 1 / 0), "ZeroDivisionError")])
def test_a_thread_wrapper_that_fails_does_not_hang_the_run(wrapper, told, caplog):
    """It is logged, and what no thread took up is done in the caller's."""
    came = []

    def work():
        agent = Agent("a", model=ScriptedModel([calls(("double", {"n": 1}), ("double", {"n": 2})), DONE]),
                      tools=[double], thread_wrapper=wrapper)
        try:
            came.append(agent.generate("Go."))
        except Exception as error:
            came.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(20)
    assert came, "the run hangs"
    assert [part.output for part in came[0].tool_results] == [2, 4]
    while told not in caplog.text:  # a thread may end after the run
        thread.join(0.001)


# The executor.


def test_an_abandoned_job_gives_its_place_to_the_next():
    """One worker, one hung job: the next job runs as soon as the first is abandoned."""
    executor, gate = DaemonExecutor(1), threading.Event()
    begun = threading.Event()
    hung = executor.submit(lambda: (begun.set(), gate.wait(30)))
    assert begun.wait(10)
    following = executor.submit(lambda: "ran")
    executor.abandon(hung)
    assert following.result(10) == "ran"
    gate.set()
    executor.shutdown()
    with pytest.raises(RuntimeError, match="shut down"):
        executor.submit(lambda: 1)


def test_jobs_that_nobody_began_can_be_cancelled_at_shutdown():
    """cancel_futures works as the library's own executor has it."""
    executor, gate, begun = DaemonExecutor(1), threading.Event(), threading.Event()
    executor.submit(lambda: (begun.set(), gate.wait(30)))
    assert begun.wait(10)
    waiting = executor.submit(lambda: 1)
    executor.shutdown(wait=False, cancel_futures=True)
    gate.set()
    assert waiting.cancelled()


# Hung tools.


class Hung:
    """A tool that hangs until it is let go."""

    def __init__(self, **policy):
        self.go, self.begun, self.ended = threading.Event(), threading.Event(), threading.Event()
        self.told = []

        @tool(**policy)
        def hang(ctx) -> str:
            """Hang."""
            self.begun.set()
            self.go.wait(30)
            self.told.append(ctx.cancelled)
            self.ended.set()
            return "late"

        self.tool = hang


@pytest.fixture
def hung():
    made = Hung(timeout=0.1)
    yield made
    made.go.set()


def test_a_hung_tool_with_a_timeout_is_given_up_in_time(hung):
    """The model gets a timeout result at once; the tool is told; its late result is dropped and noted."""
    model = ScriptedModel([calls(("hang", {}), ("double", {"n": 2})), calls("let_go"), DONE])
    runs = MemoryRuns()

    @tool
    def let_go() -> str:
        """Let the hung tool go, and wait for it."""
        hung.go.set()
        assert hung.ended.wait(10)
        return "let go"

    begun = time.monotonic()
    output = Agent("a", model=model, tools=[hung.tool, double, let_go], runs=runs).generate("Go.", run_id="run-1")

    assert time.monotonic() - begun < 5
    assert [part.kind for part in output.tool_errors] == ["timeout"] and "0.1 seconds" in output.tool_errors[0].output
    assert [part.output for part in output.tool_results] == [4, "let go"] and hung.told == [True]
    assert "'late'" not in str(output.messages)


def test_a_lone_hung_tool_is_given_up_too(hung):
    """A call with a timeout never runs in the caller's thread; tool_timeout does the same for all tools."""
    output = Agent("a", model=ScriptedModel([calls("hang"), DONE]), tools=[hung.tool]).generate("Go.")
    assert output.tool_errors[0].kind == "timeout"
    other = Hung()
    agent = Agent("a", model=ScriptedModel([calls("hang"), DONE]), tools=[other.tool])
    output = agent.generate("Go.", tool_timeout=0.1)
    other.go.set()
    assert output.tool_errors[0].kind == "timeout"


def test_a_call_whose_time_passed_before_its_thread_began_is_never_made():
    """The model was told that it did not finish; it does not begin afterwards."""
    gate, ran = threading.Event(), []

    def wrapper(work):
        assert gate.wait(30)
        work()

    made = tool(name="slow", timeout=0.05)(lambda: ran.append(1))
    before = threading.enumerate()
    agent = Agent("a", model=ScriptedModel([calls("slow"), DONE]), tools=[made], thread_wrapper=wrapper)
    output = agent.generate("Go.")
    gate.set()
    assert_no_thread_is_left(before)
    assert output.tool_errors[0].kind == "timeout" and not ran


def test_no_thread_is_left_after_timed_and_parallel_calls():
    """Idle threads end with the run; a hung one when its tool does."""
    before, made = threading.enumerate(), Hung(timeout=0.05)
    agent = Agent("a", model=ScriptedModel([calls(("hang", {}), ("double", {"n": 1}), ("double", {"n": 2})), DONE]),
                  tools=[made.tool, double])
    agent.generate("Go.")
    made.go.set()
    assert_no_thread_is_left(before)


def test_a_deadline_gives_up_a_hung_parallel_tool():
    """What ended is kept; the run stops with a deadline tripwire soon after, and can be resumed."""
    made = Hung(effect="idempotent")
    runs = MemoryRuns()
    agent = Agent("a", model=ScriptedModel([calls(("hang", {}), ("double", {"n": 2})), DONE], by_step=True),
                  tools=[made.tool, double], runs=runs)
    begun = time.monotonic()

    output = agent.generate("Go.", run_id="run-1", deadline=0.2)

    assert time.monotonic() - begun < 10
    assert (output.finish_reason, output.tripwire.kind) == ("tripwire", "deadline")
    assert [part.output for part in output.tool_results] == [4] and runs.status("run-1") == "interrupted"
    made.go.set()
    output = agent.resume("run-1", deadline=60)
    assert output.text == "Done." and [part.output for part in output.tool_results] == ["late", 4]


def test_a_cancel_gives_up_a_hung_parallel_tool():
    """The tool is told through ctx.cancelled and gets its grace."""
    made = Hung()
    model = ScriptedModel([calls(("hang", {}), ("double", {"n": 2})), DONE])
    agent = Agent("a", model=model, tools=[made.tool, double])
    came = []
    thread = threading.Thread(target=lambda: came.append(agent.generate("Go.", run_id="run-1")))
    thread.start()
    assert made.begun.wait(10)
    agent.cancel("run-1")
    made.go.set()
    thread.join(10)
    assert came[0].finish_reason == "cancelled" and made.told == [True]
    assert came[0].tool_results[0].output == "late", "what ended in its grace is kept"


HUNG_SCRIPT = """
    import threading
    from minagent import Agent, tool
    from minagent.testing import ScriptedModel, calls, says

    @tool(timeout=0.1)
    def hang() -> str:
        "Hang."
        threading.Event().wait()

    @tool
    def fine() -> str:
        "Return."
        return "fine"

    turns = [calls(("hang", {}), ("fine", {}), ("hang", {})), says("Done.")]
    print(Agent("a", model=ScriptedModel(turns), tools=[hang, fine]).generate("Go.").text)
"""


def test_a_script_with_a_hung_tool_exits():
    """The interpreter does not wait for abandoned threads."""
    env = dict(os.environ, PYTHONPATH=os.pathsep.join(path for path in sys.path if path))
    command = [sys.executable, "-c", textwrap.dedent(HUNG_SCRIPT)]
    done = subprocess.run(command, env=env, timeout=60, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Done.\n"), done.stderr


# Interrupts.


def interrupted(agent, **options):
    """The run was left by a KeyboardInterrupt, is not owned any more, and goes on."""
    with pytest.raises(KeyboardInterrupt):
        agent.generate("Go.", run_id="run-1", **options)
    assert agent.runs.status("run-1") == "interrupted"
    return agent.resume("run-1")


@pytest.mark.parametrize("count", [1, 3])
def test_an_interrupt_in_a_tool_leaves_the_run_resumable(count):
    """In the caller's thread and in a thread of parallel calls: recorded, closed, raised on."""
    first = []

    @tool(effect="idempotent")
    def touchy(n: int) -> int:
        """Be interrupted once."""
        if n == 0 and not first:
            first.append(1)
            raise KeyboardInterrupt
        return n

    agent = Agent("a", model=ScriptedModel([calls(*[("touchy", {"n": n}) for n in range(count)]), DONE], by_step=True),
                  tools=[touchy], runs=MemoryRuns())
    before = threading.enumerate()

    output = interrupted(agent)

    assert [part.output for part in output.tool_results] == list(range(count))
    assert_no_thread_is_left(before)


@pytest.mark.parametrize("type", ["start", "step-start", "text-delta", "tool-call", "tool-result", "step-finish"])
def test_an_interrupt_in_on_chunk_leaves_the_run_resumable(type):
    """Whichever chunk is shown when the key is hit, also the very first one."""
    first = []

    def on_chunk(chunk):
        if chunk.type == type and not first:
            first.append(1)
            raise KeyboardInterrupt

    agent = Agent("a", model=ScriptedModel([says("Well. ") + calls("double", n=2), DONE], by_step=True), tools=[double],
                  runs=MemoryRuns())

    output = interrupted(agent, on_chunk=on_chunk)

    assert output.text == "Done." and [part.output for part in output.tool_results] == [4]
    assert len([item for item in output.messages if item.role == "assistant"]) == 2


def test_an_interrupt_at_the_last_chunk_changes_nothing():
    """The run has finished by then."""
    def on_chunk(chunk):
        if chunk.type == "finish":
            raise KeyboardInterrupt

    agent = Agent("a", model=ScriptedModel([DONE]), runs=MemoryRuns())
    with pytest.raises(KeyboardInterrupt):
        agent.generate("Go.", run_id="run-1", on_chunk=on_chunk)
    assert agent.runs.status("run-1") == "finished"


def test_an_interrupt_while_a_record_is_kept_lets_the_run_go():
    """Where signals strike most often, because it waits for the disk."""
    class Touchy(MemoryRuns):
        def create(self, run_id, record):
            lease = super().create(run_id, record)
            keep = lease.append

            def append(record):
                if record["path"].endswith("prepare-tools"):
                    raise KeyboardInterrupt
                keep(record)

            lease.append = append
            return lease

    agent = Agent("a", model=ScriptedModel([DONE]), runs=Touchy())
    assert interrupted(agent).text == "Done."
