"""The examples, run as somebody runs them: with scripted models, and the first two with the local model.

Not here: the workflow example without agents (`test_engine_example`).
"""

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from _command_line import HOME

from minagent import Agent, LanguageModel, Processor
from minagent.runs import JsonFileRuns, MemoryRuns
from minagent.testing import ScriptedModel, ScriptedServer, calls, fails, says

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.fixture
def example():
    """Return a function that loads an example by its file's name."""

    def load(name):
        spec = importlib.util.spec_from_file_location("example_" + name, str(EXAMPLES / (name + ".py")))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    return load


@pytest.fixture
def local_model():
    """Return the name of the local model where there is one: from the extra, or at MINAGENT_LOCAL_URL."""
    from minagent.cli.doctor import local

    found = local(os.environ)
    if not (found["url_is_set"] or (found["server"] and found["weights"])):
        pytest.skip("no local model: neither is the extra `local` installed nor MINAGENT_LOCAL_URL set")
    return "local"


def by_hand(script, *arguments, cwd, env=None, code=0):
    """Run an example as a script and return what it printed."""
    done = subprocess.run([sys.executable, str(EXAMPLES / script), *arguments], cwd=str(cwd), timeout=120,
                          env=dict(os.environ, PYTHONPATH=HOME, **env or {}), stdout=subprocess.PIPE)
    assert done.returncode == code
    return done.stdout.decode("utf-8").replace("\r\n", "\n")


# quickstart


def test_quickstart(example, capsys):
    """The answer and what it took."""
    out = example("quickstart").main(ScriptedModel([says("Paris.")]))
    assert out.text == "Paris."
    assert capsys.readouterr().out == "Paris.\n(stop after 1 step, 15 tokens)\n"


def test_quickstart_by_hand(tmp_path):
    """With the name of a model as its argument, over HTTP."""
    with ScriptedServer.openai_chat([says("Paris.")]) as server:
        printed = by_hand("quickstart.py", "llamacpp/any", cwd=tmp_path, env={"LLAMACPP_BASE_URL": server.url + "/v1"})
    assert printed.startswith("Paris.\n")


@pytest.mark.service
@pytest.mark.local_model
def test_quickstart_on_the_local_model(example, local_model):
    """A real answer; which one is the small model's business."""
    out = example("quickstart").main(local_model)
    assert out.finish_reason == "stop"
    assert out.text.strip()


# tools


@pytest.mark.service
@pytest.mark.local_model
def test_tools_on_the_local_model(example, local_model):
    """It calls the tool with the two numbers and tells the result; one of three tries is enough for its size."""
    tools = example("tools")
    outs = (tools.main(local_model) for _ in range(3))
    assert any([call.args for call in out.tool_calls] == [{"a": 17, "b": 25}] and "42" in out.text for out in outs)


def test_tools(example, capsys):
    """The call and its result are shown."""
    out = example("tools").main(ScriptedModel([calls("add", a=17, b=25), says("It is 42.")]))
    assert out.text == "It is 42."
    assert capsys.readouterr().out == "It is 42.\n  add({'a': 17, 'b': 25}) = 42\n"


def test_a_tool_of_the_example_corrects_the_model(example):
    """A ToolError is the error result, word for word."""
    tools = example("tools")
    model = ScriptedModel([calls("lookup_order", order=9), calls("lookup_order", order=8), says("A kettle.")])
    out = tools.make_agent(model).generate("What is order 8?")
    assert [error.output for error in out.tool_errors] == ["there is no order 9; orders are: 7, 8"]
    assert out.tool_results[0].output["item"] == "kettle"


def test_a_refund_above_the_limit_waits_for_a_person(example):
    """Up to the limit nobody is asked."""
    tools, bank = example("tools"), []
    deps = {"bank": bank, "free_up_to": 10}
    model = ScriptedModel([calls("refund", order=7, amount=5), says("Done.")])
    assert tools.make_agent(model).generate("Refund 5.", deps=deps).text == "Done."
    model = ScriptedModel([calls("refund", order=7, amount=24.5), says("Done.")])
    out = tools.make_agent(model).generate("Refund all.", deps=deps)
    assert out.finish_reason == "suspended"
    assert [(order, amount) for _, order, amount in bank] == [(7, 5)]


# streaming


def test_streaming(example, capsys):
    """Text, calls and results in their order."""
    model = ScriptedModel([says("Let me look.") + calls("get_weather", city="Paris"), says("Rain.")])
    out = example("streaming").main(model=model)
    assert out.text == "Rain."
    assert capsys.readouterr().out == (
        "Let me look.[get_weather {'city': 'Paris'}]\n[= rain in Paris]\nRain.\n(stop)\n")


class Talker(LanguageModel):
    """A model that talks until its run is cancelled.

    Attributes:
        started: Set when it was asked.
        stopped: Set when it was stopped.
    """

    provider = model = "talker"

    def __init__(self):
        self.started, self.stopped = threading.Event(), threading.Event()

    def do_stream(self, request, call):
        tick = threading.Event()
        self.started.set()
        try:
            yield [("text-start", {"id": "0"})]
            while True:
                call.check()
                yield [("text-delta", {"id": "0", "text": "word "})]
                tick.wait(0.002)
        finally:
            self.stopped.set()


def test_what_is_not_read_is_not_asked_for(example):
    """Leaving the stream early cancels the run."""
    model = Talker()
    assert example("streaming").first_words("Talk.", model) == "word word word word "
    assert model.stopped.wait(20)


# approval


def in_another_process(code, folder):
    """Run code that may import the two scripts, and return (exit code, what was printed)."""
    start = "import sys; sys.path.insert(0, %r)\nfrom minagent.testing import ScriptedModel, calls, says\n"
    done = subprocess.run([sys.executable, "-c", start % str(EXAMPLES / "approval") + code], cwd=str(folder),
                          env=dict(os.environ, PYTHONPATH=HOME), stdout=subprocess.PIPE, timeout=120)
    return done.returncode, done.stdout.decode("utf-8").replace("\r\n", "\n")


ASK = "import ask; sys.exit(ask.main(model=ScriptedModel([calls('refund', order=7, amount=24.5)])))"
DECIDE = "import decide; sys.exit(decide.main(%r, ScriptedModel([says('It is done.')])))"
GO_ON = "import decide; decide.make_agent('local').resume(%r)"


def test_a_refund_is_asked_for_in_one_process_and_approved_in_another(tmp_path):
    """Neither knows the other's memory; the tool runs once, after the yes."""
    code, printed = in_another_process(ASK, tmp_path)
    assert code == 3
    assert re.match(r"run \w+ waits: may refund run with {'order': 7, 'amount': 24.5}\?\n$", printed)
    code, printed = in_another_process(DECIDE % "", tmp_path)
    assert (code, printed.splitlines()[-1]) == (0, "1 waiting")
    assert in_another_process(DECIDE % "yes", tmp_path) == (0, "It is done.\n")
    assert in_another_process(DECIDE % "yes", tmp_path) == (0, "0 waiting\n")
    [run] = JsonFileRuns(str(tmp_path / "var" / "runs")).list()
    assert run["status"] == "finished"


def test_a_declined_refund_never_runs(tmp_path):
    """The model is told the reason."""
    in_another_process(ASK, tmp_path)
    reading = "import decide; m = ScriptedModel([says('A pity.')]); decide.main('too much', m); " \
              "print(m.requests[-1].messages[-1].parts[0].output)"
    assert in_another_process(reading, tmp_path) == (0, "A pity.\ndeclined: too much\n")


ASK_TWICE = "import ask; m = ScriptedModel([calls(('refund', {'order': 7, 'amount': 1}), " \
            "('refund', {'order': 8, 'amount': 2}))]); sys.exit(ask.main(model=m))"


def test_of_a_run_that_asks_twice_the_first_question_is_decided_first(tmp_path):
    """And the run says that it still waits, until the second one is decided."""
    assert in_another_process(ASK_TWICE, tmp_path)[0] == 3
    code, printed = in_another_process(DECIDE % "", tmp_path)
    assert [line.split(": ")[1] for line in printed.splitlines()[:-1]] == ["refund {'order'"] * 2
    assert "'order': 7" in printed.splitlines()[0] and "'order': 8" in printed.splitlines()[1]
    code, printed = in_another_process("import decide; sys.exit(decide.main('yes', ScriptedModel([])))", tmp_path)
    assert code == 3 and printed.endswith(" still waits for 1 more\n")
    [left] = JsonFileRuns(str(tmp_path / "var" / "runs")).suspensions()
    assert left["args"] == {"order": 8, "amount": 2}
    assert in_another_process(DECIDE % "too much", tmp_path) == (0, "It is done.\n")


# flask


@pytest.fixture
def sse(example):
    pytest.importorskip("flask", reason="flask is not installed; the extra `test` brings it")
    return example("flask_sse")


def parsed(body):
    """Server-sent events as (name, data)."""
    return re.findall(r"id: \d+\nevent: (.+)\ndata: (.+)\n\n", body)


def test_a_flask_view_streams_events(sse):
    """With the headers that keep proxies from holding them back."""
    model = ScriptedModel([calls("get_weather", city="Paris"), says("Rain.")])
    response = sse.create_app(model).test_client().post("/ask", data={"question": "Weather in Paris?"})
    assert response.headers["Content-Type"].startswith("text/event-stream")
    assert response.headers["Cache-Control"] == "no-cache"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert "Content-Length" not in response.headers
    events = parsed(response.get_data(as_text=True))
    assert ("tool-call", '{"tool_name": "get_weather", "args": {"city": "Paris"}, "step": 1}') in events
    assert ("tool-result", '{"tool_name": "get_weather", "output": "rain in Paris", "step": 1}') in events
    assert "".join(json.loads(data)["text"] for name, data in events if name == "text-delta") == "Rain."
    assert events[-1] == ("finish", '{"reason": "stop"}')


def test_a_flask_view_refuses_an_empty_question_before_it_streams(sse):
    """Options and input are checked in the request's thread."""
    response = sse.create_app(ScriptedModel([])).test_client().post("/ask")
    assert response.status_code == 400


def test_a_flask_view_ends_its_stream_with_an_error_event(sse):
    """Its kind and the run's id, nothing of its inside."""
    app = sse.create_app(ScriptedModel([fails(_refusal())]))
    body = app.test_client().post("/ask", data={"question": "x"}).get_data(as_text=True)
    (first, _), (name, data) = parsed(body)
    assert (first, name) == ("step-start", "error")
    assert json.loads(data)["error"] == "AuthenticationFailed" and "key" not in data


def _refusal():
    from minagent.errors import AuthenticationFailed

    return AuthenticationFailed("the key sk-1 is wrong")


def left_standing(body):
    """Return what a browser shows in the end if it does what the example says."""
    steps = {}
    for name, text in parsed(body):
        data = json.loads(text)
        if name in ("step-start", "tripwire"):
            steps[data["step"]] = ""
        elif name == "text-delta":
            steps[data["step"]] += data["text"]
    return "|".join(steps.values())


class Picky(Processor):
    """Rejects answers with the word once they are whole."""

    def process_llm_response(self, response, ctx):
        if "swordfish" in response.message.text:
            ctx.abort("not the word swordfish", retry=True)
        return response


@pytest.mark.parametrize("answers, shown", [
    (["It is swordfish.", "I must not say."], "Let me look.|I must not say."),
    (["It is swordfish.", "Still swordfish."], "Let me look.|"),
])
def test_a_browser_can_discard_what_was_rejected(sse, answers, shown):
    """Whether another answer follows or the run ends there; the reason stays on this side."""
    model = ScriptedModel([says("Let me look.") + calls("get_weather", city="Paris")] + [says(a) for a in answers])
    app = sse.create_app(model, processors=[Picky()], max_processor_retries=1)
    body = app.test_client().post("/ask", data={"question": "x"}).get_data(as_text=True)
    assert left_standing(body) == shown
    assert "not the word" not in body
    assert "It is swordfish." in "".join(json.loads(data).get("text", "") for _, data in parsed(body))


def test_a_client_that_leaves_cancels_its_run(sse):
    """Over a real connection: the next piece cannot be sent, so the run is stopped and kept as interrupted."""
    import socket

    from werkzeug.serving import make_server

    model, runs = Talker(), MemoryRuns()
    server = make_server("127.0.0.1", 0, sse.create_app(model, runs=runs), threaded=True)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        with socket.create_connection(("127.0.0.1", server.server_port), timeout=20) as client:
            client.sendall(b"POST /ask HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-www-form-urlencoded\r\n"
                           b"Content-Length: 10\r\n\r\nquestion=x")
            seen = b""
            while b"event: text-delta" not in seen:
                seen += client.recv(4096)
            assert not model.stopped.is_set()
        assert model.stopped.wait(20)
        assert _settled(runs) == "interrupted"
    finally:
        server.shutdown()
        serving.join(20)
        server.server_close()


@pytest.fixture
def kept(monkeypatch):
    """Keep the streams of a test: one that is dropped cancels its run by itself."""
    streams, stream = [], Agent.stream

    def keeping(self, *args, **options):
        streams.append(stream(self, *args, **options))
        return streams[-1]

    monkeypatch.setattr(Agent, "stream", keeping)
    yield streams
    for left in streams:
        left.close()


def test_a_response_that_was_never_read_cancels_its_run(sse, kept):
    """The server closes it, and the generator has not even begun: only `call_on_close` can have done it."""
    model, runs = Talker(), MemoryRuns()
    app = sse.create_app(model, runs=runs)
    with app.test_request_context("/ask", method="POST", data={"question": "x"}):
        response = app.full_dispatch_request()
        assert model.started.wait(20)
        response.close()
    assert model.stopped.wait(5)
    assert _settled(runs) == "interrupted"


def test_events_that_are_left_cancel_their_run(sse, kept):
    """Whoever serves them, without a word of Flask's: only `with stream` can have done it."""
    model, runs = Talker(), MemoryRuns()
    events = sse.events(Agent("left", model=model, runs=runs).stream("x"))
    assert b"event: step-start" in next(events)
    assert model.started.wait(20)
    events.close()
    assert model.stopped.wait(5)
    assert _settled(runs) == "interrupted"


def _settled(runs):
    """The status of the only run once nobody works on it any more."""
    [head] = runs.list()
    _until(lambda: runs.status(head["run_id"]) != "running")
    return runs.status(head["run_id"])


# django


@pytest.fixture
def view(example, monkeypatch):
    pytest.importorskip("django", reason="django is not installed; the extra `test` brings it")
    module = example("django_view")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.configure()
    import django

    django.setup()
    return module


def posted(view, model, monkeypatch, **fields):
    from django.test import RequestFactory

    agent = Agent("django", model=model, tools=[view.add], thread_wrapper=view.close_connections)
    monkeypatch.setattr(view, "agent", agent)
    response = view.ask(RequestFactory().post("/ask", fields))
    return response.status_code, json.loads(response.content)


def test_a_django_view_answers(view, monkeypatch):
    """As JSON, with the run's id."""
    model = ScriptedModel([calls("add", a=17, b=25), says("It is 42.")])
    status, body = posted(view, model, monkeypatch, question="17 + 25?")
    assert (status, body["text"], body["finish_reason"]) == (200, "It is 42.", "stop")
    assert body["run_id"]


def test_a_django_view_closes_the_connections_of_tool_threads(view, monkeypatch):
    """Two calls run in threads, and each is wrapped."""
    from django.db import connections

    closed = []
    monkeypatch.setattr(connections, "close_all", lambda: closed.append(threading.current_thread().name))
    model = ScriptedModel([calls(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), says("3 and 7.")])
    status, body = posted(view, model, monkeypatch, question="x")
    assert (status, body["text"]) == (200, "3 and 7.")
    assert threading.main_thread().name not in closed


def test_a_django_view_tells_what_went_wrong(view, monkeypatch):
    """An empty question is the caller's fault, a provider that refuses is not."""
    assert posted(view, ScriptedModel([]), monkeypatch, question="")[0] == 400
    status, body = posted(view, ScriptedModel([fails(_refusal())]), monkeypatch, question="x")
    assert (status, body["error"]) == (503, "AuthenticationFailed")


def test_the_django_example_is_a_project(tmp_path):
    """By hand: its settings pass Django's own check."""
    pytest.importorskip("django", reason="django is not installed; the extra `test` brings it")
    by_hand("django_view.py", "check", cwd=tmp_path)


# cron


@pytest.fixture
def cron(example, tmp_path, monkeypatch):
    """Return a function that starts the script with a model and returns its exit code."""
    module = example("cron")
    for name in ("one", "two"):
        (tmp_path / (name + ".txt")).write_text("The %s teapot is broken." % name, encoding="utf-8")
    monkeypatch.chdir(tmp_path)

    def start(model, *files):
        return module.main(list(files) or ["one.txt", "two.txt"], model=model)

    return start


def test_a_second_start_does_nothing_twice(cron, capsys):
    """It prints the same, and no model is asked."""
    model = ScriptedModel([says("First."), says("Second.")])
    assert cron(model) == 0
    printed = capsys.readouterr().out
    assert printed == "one.txt: First.\ntwo.txt: Second.\n"
    assert cron(ScriptedModel([])) == 0
    assert capsys.readouterr().out == printed


def test_a_failed_item_does_not_keep_the_others_from_being_done(cron, capsys):
    """Exit code 1; the next start asks again for what failed, and for nothing else."""
    assert cron(ScriptedModel([fails(_refusal()), says("Second.")])) == 1
    assert capsys.readouterr().out == "two.txt: Second.\n"
    assert cron(ScriptedModel([says("First.")])) == 0
    assert capsys.readouterr().out == "one.txt: First.\ntwo.txt: Second.\n"


def test_a_file_that_cannot_be_read_is_one_line_and_the_others_are_done(cron, capsys, tmp_path):
    """Missing, or no UTF-8; exit code 1."""
    (tmp_path / "bytes.txt").write_bytes(b"\xff")
    assert cron(ScriptedModel([says("Second.")]), "gone.txt", "bytes.txt", "two.txt") == 1
    out, err = capsys.readouterr()
    assert out == "two.txt: Second.\n"
    assert [line.split(": ")[:2] for line in err.splitlines()] == [
        ["gone.txt", "cannot be read"], ["bytes.txt", "cannot be read"]]


def test_what_may_work_later_has_its_exit_code(cron):
    """75: the job comes again."""
    from minagent.errors import Overloaded

    assert cron(ScriptedModel([fails(Overloaded("busy")), says("Second.")])) == 75


def test_an_item_that_another_process_works_on_is_left_to_it(cron, capsys):
    """75 as well, and nothing is done twice."""
    hold, held = threading.Event(), threading.Event()

    def answer(request):
        held.set()
        return says("First.", gate=hold)

    other = threading.Thread(target=cron, args=(ScriptedModel(answer), "one.txt"))
    other.start()
    try:
        assert held.wait(20)
        assert cron(ScriptedModel([]), "one.txt") == 75
    finally:
        hold.set()
        other.join(20)
    assert cron(ScriptedModel([]), "one.txt") == 0


def test_the_cron_script_by_hand(tmp_path):
    """With files and the name of a model, over HTTP; a wrong call is 2."""
    (tmp_path / "one.txt").write_text("Broken.", encoding="utf-8")
    with ScriptedServer.openai_chat([says("A teapot.")]) as server:
        env = {"LLAMACPP_BASE_URL": server.url + "/v1"}
        printed = by_hand("cron.py", "--model", "llamacpp/any", "one.txt", cwd=tmp_path, env=env)
    assert printed == "one.txt: A teapot.\n"
    by_hand("cron.py", cwd=tmp_path, code=2)


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX here")
def test_a_terminated_cron_script_goes_on_at_its_next_start(tmp_path):
    """143, and the run that was cut off is finished then."""
    (tmp_path / "one.txt").write_text("Broken.", encoding="utf-8")
    never = threading.Event()
    with ScriptedServer.openai_chat([says("Never.", gate=never), says("A teapot.")]) as server:
        env = {"LLAMACPP_BASE_URL": server.url + "/v1"}
        process = subprocess.Popen([sys.executable, str(EXAMPLES / "cron.py"), "--model", "llamacpp/any", "one.txt"],
                                   cwd=str(tmp_path), env=dict(os.environ, PYTHONPATH=HOME, **env))
        _until(lambda: server.requests)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
        assert _statuses(tmp_path) == ["interrupted"]
        never.set()
        assert by_hand("cron.py", "--model", "llamacpp/any", "one.txt", cwd=tmp_path, env=env) == "one.txt: A teapot.\n"
    assert _statuses(tmp_path) == ["finished"]


def _until(condition):
    tick = threading.Event()
    for _ in range(600):
        if condition():
            return
        tick.wait(0.05)
    raise AssertionError("it never came to that")


def _statuses(folder):
    return [head["status"] for head in JsonFileRuns(str(folder / "var" / "runs")).list()]
