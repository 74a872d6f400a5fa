"""The command line as a user meets it: a process with arguments, three streams and an exit code.

Not here: what agents do; the models follow scripts that lie in the current directory as a module.
"""

import json
import os
import signal
import subprocess
import sys
import threading

import pytest
from _command_line import HOME, KEYS, CommandLine, Ended

import minagent
from minagent.cli import main
from minagent.testing import ScriptedServer, calls, says


@pytest.fixture
def cli(tmp_path):
    return CommandLine(tmp_path)


def test_a_prompt_is_answered_on_stdout_and_told_of_on_stderr(cli):
    """The answer is all there is on stdout; the tool call is a note."""
    ended = cli("run", "17 + 25?", "--model", "scripted:adding", "--tool", "scripted:add")
    assert (ended.code, ended.out) == (0, "It is 42.\n")
    assert ended.err == "minagent: add(a=17, b=25) -> 42\n"


def test_quiet_leaves_the_notes_out(cli):
    """Nothing is on stderr when all is well."""
    ended = cli("run", "17 + 25?", "--model", "scripted:adding", "--tool", "scripted:add", "--quiet")
    assert (ended.code, ended.out, ended.err) == (0, "It is 42.\n", "")


def test_streamed_text_of_each_step_has_its_line(cli):
    """--stream shows the text of all steps."""
    ended = cli("run", "17 + 25?", "--model", "scripted:adding", "--tool", "scripted:add", "--stream")
    assert (ended.code, ended.out) == (0, "Let me see.\nIt is 42.\n")


@pytest.mark.parametrize("more", [(), ("--stream",)])
def test_json_is_the_whole_output_and_nothing_else(cli, more):
    """stdout is one JSON object, what streams goes to stderr."""
    ended = cli("run", "17 + 25?", "--model", "scripted:adding", "--tool", "scripted:add", "--json", *more)
    output = json.loads(ended.out)
    assert ended.code == 0
    assert output["text"] == "It is 42."
    assert output["tool_calls"][0]["args"] == {"a": 17, "b": 25}
    assert ("It is 42." in ended.err) == bool(more)


def test_the_prompt_comes_from_stdin(cli):
    """A dash reads it, bytes that are no UTF-8 included."""
    ended = cli("run", "-", "--model", "scripted:echoing", stdin="Grüße".encode() + b"\xff")
    assert (ended.code, ended.out) == (0, "['Grüße\N{REPLACEMENT CHARACTER}']\n")


def test_an_empty_prompt_is_refused(cli):
    """Nothing is asked for nothing."""
    ended = cli("run", "-", "--model", "scripted:echoing", stdin=b" \n")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == "minagent: the prompt is empty; expected a text on stdin\n"


def test_options_reach_the_agent(cli):
    """Instructions are the system text, and --max-steps ends a run that goes in circles."""
    assert cli("run", "x", "--model", "scripted:told", "--instructions", "Be kind.").out == "Be kind.\n"
    ended = cli("run", "x", "--model", "scripted:looping", "--tool", "scripted:add", "--max-steps", "2")
    assert ended.code == 0
    assert ended.err.splitlines()[1:] == ["minagent: add(a=1, b=2) -> 3",
                                          "minagent: ended with finish_reason 'max-steps'"]


def test_a_deadline_has_its_exit_code(cli):
    """124, as of the command `timeout`."""
    ended = cli("run", "x", "--model", "scripted:hanging", "--deadline", "0.2")
    assert (ended.code, ended.out) == (124, "")
    assert ended.err.startswith("minagent: stopped: ") and "deadline" in ended.err


def test_a_run_that_waits_for_a_person_has_its_exit_code(cli):
    """3; with --runs the run is kept and named, without the snapshot is in the JSON."""
    ended = cli("run", "x", "--model", "scripted:approving", "--tool", "scripted:pay", "--runs", "kept")
    assert ended.code == 3
    assert ended.err.splitlines()[0] == "minagent: may pay(amount=3) run?"
    assert ended.err.splitlines()[1].startswith("minagent: the run waits for a decision: run ")
    assert len(ended.err.splitlines()) == 3
    ended = cli("run", "x", "--model", "scripted:approving", "--tool", "scripted:pay", "--json")
    assert ended.code == 3
    assert json.loads(ended.out)["snapshot"]


def test_a_kept_run_goes_on_elsewhere(cli):
    """The last note is the line of Python that does it; model and tools are the caller's to fill in."""
    ended = cli("run", "x", "--model", "scripted:approving", "--tool", "scripted:pay", "--runs", "kept")
    _, told, line = ended.err.splitlines()[-1].partition("go on in Python: ")
    assert told and "runs=JsonFileRuns('kept')" in line
    line = line.replace("model=...", "model=scripted.approving").replace("tools=[...]", "tools=[scripted.pay]")
    code = ("from minagent import Agent, Approve; from minagent.runs import JsonFileRuns; import scripted; "
            "print(%s.text)" % line)
    done = subprocess.run([sys.executable, "-c", code], cwd=str(cli.folder), env=dict(os.environ, PYTHONPATH=HOME),
                          stdout=subprocess.PIPE, timeout=60, check=True)
    assert done.stdout == b"Done.\n" or done.stdout == b"Done.\r\n"


FAILURES = [("limited", 75, "slow down"), ("locked", 1, "the key is wrong"), ("broken", 1, "KeyError: 'inner'")]


@pytest.mark.parametrize("model, code, told", FAILURES)
def test_a_failure_is_one_line_and_an_exit_code(cli, model, code, told):
    """What may work later is 75, everything else 1; no traceback unless --debug."""
    ended = cli("run", "x", "--model", "scripted:" + model)
    assert (ended.code, ended.out, ended.err) == (code, "", "minagent: %s\n" % told)
    ended = cli("run", "x", "--model", "scripted:" + model, "--debug")
    assert ended.code == code
    assert "Traceback" in ended.err and ended.err.endswith("minagent: %s\n" % told)


def test_a_failure_with_json_prints_what_the_run_had_come_to(cli):
    """The error is in it, and on stderr."""
    ended = cli("run", "x", "--model", "scripted:locked", "--json")
    assert ended.code == 1
    assert json.loads(ended.out)["error"]["message"] == "the key is wrong"
    assert ended.err == "minagent: the key is wrong\n"


MODEL = ("--model", "scripted:echoing")
WRONG = [
    ((), "the following arguments are required: COMMAND"),
    (("run",), "the following arguments are required: prompt"),
    (("rum", "x"), "invalid choice: 'rum'"),
    (("run", "x", "--bogus"), "unrecognized arguments: --bogus"),
    (("run", "x", "--max-steps", "0"), "'0' is not a whole number of 1 or more"),
    (("run", "x", "--deadline", "soon"), "'soon' is not a number of seconds above 0"),
    (("run", "x", "--tool", "scripted"), "expected MODULE:FUNCTION"),
    (("run", "x", "--tool", "nowhere.at:all"), "there is no module 'nowhere'"),
    (("run", "x", "--tool", "scripted.deeper:all"), "there is no module 'scripted.deeper'"),
    (("run", "x", "--tool", "scripted:ad"), "scripted has no 'ad'; did you mean 'add'?"),
    (("run", "x", "--tool", "scripted:number"), "a tool is 5; expected a function or a Tool"),
    (("run", "x", "--tool", "needing:tool"), "importing needing needs the module 'not_there'"),
    (("run", "x", "--tool", "failing:tool"), "importing failing raised ValueError: no config"),
    (("run", "x", "--model", "scripted:nomodel"), "scripted has no 'nomodel'"),
]


@pytest.fixture
def inside(cli, monkeypatch, capsys):
    """Return a function that runs a command in this process; for what ends before any work."""
    monkeypatch.chdir(cli.folder)
    monkeypatch.syspath_prepend(str(cli.folder))
    before = set(sys.modules)

    def call(*arguments):
        code = main(list(arguments))
        told = capsys.readouterr()
        return Ended(code, told.out.encode(), told.err.encode())

    yield call
    for name in set(sys.modules) - before:
        if name.split(".")[0] in ("scripted", "needing", "failing"):
            del sys.modules[name]


@pytest.mark.parametrize("arguments, told", WRONG)
def test_a_wrong_call_is_refused_with_a_sentence(cli, inside, arguments, told):
    """One line on stderr, nothing on stdout, exit code 2."""
    (cli.folder / "needing.py").write_text("import not_there\n")
    (cli.folder / "failing.py").write_text("raise ValueError('no config')\n")
    ended = inside(*arguments, *(() if "--model" in arguments or not arguments[1:] else MODEL))
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err and ended.err.count("\n") == 1 and ended.err.startswith("minagent: ")


@pytest.mark.parametrize("command", [("run", "x"), ("chat",)])
@pytest.mark.parametrize("folder", ["scripted.py", "scripted.py/deeper", "/proc/none"])
def test_a_folder_for_runs_that_cannot_be_made_is_a_wrong_call(cli, command, folder):
    """Said before anything is asked, also where the system calls it not found."""
    if folder == "/proc/none" and not sys.platform.startswith("linux"):
        pytest.skip("only there is a /proc in which nothing can be made")
    ended = cli(*command, *MODEL, "--runs", folder)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("minagent: --runs %s: the folder cannot be made: " % folder)
    assert ended.err.count("\n") == 1


def test_tools_of_the_current_folder_are_found_by_the_installed_script(cli, tmp_path_factory):
    """A console script has its own folder on the path, and not the one where it is called."""
    script = tmp_path_factory.mktemp("bin") / "command.py"
    script.write_text("import sys\nfrom minagent.cli import main\nsys.exit(main())\n")
    ended = cli("run", "x", "--model", "scripted:adding", "--tool", "scripted:add", script=(str(script),))
    assert (ended.code, ended.out) == (0, "It is 42.\n")


def test_tools_may_be_attributes_of_classes(cli):
    """The name after the colon may have dots."""
    ended = cli("run", "x", "--model", "scripted:told", "--tool", "scripted:Box.held")
    assert ended.code == 0


def test_the_version_is_told(inside):
    """With the name of the program."""
    ended = inside("--version")
    assert (ended.code, ended.out.split()) == (0, ["minagent", minagent.__version__])


@pytest.mark.parametrize("arguments", [("--help",), ("run", "--help"), ("chat", "--help"), ("doctor", "--help")])
def test_help_is_no_error(inside, arguments):
    """It goes to stdout."""
    ended = inside(*arguments)
    assert (ended.code, ended.err) == (0, "")
    assert "usage:" in ended.out


# Streams that are not a terminal in UTF-8.

ASCII = {"LC_ALL": "C", "LANG": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}


@pytest.mark.parametrize("env", [{"LC_ALL": "C", "LANG": "C"}, ASCII])
def test_a_locale_of_ascii_gets_utf_8(cli, env):
    """Neither the prompt nor the answer is spoilt."""
    ended = cli("run", "x", "--model", "scripted:foreign", env=env)
    assert (ended.code, ended.out) == (0, "Grüße, \u4f60\u597d \U0001f600\n")
    ended = cli("run", "Grüße".encode(), "--model", "scripted:echoing", env=env)
    assert (ended.code, ended.out) == (0, "['Grüße']\n")


def test_an_encoding_that_lacks_a_character_gets_an_escape(cli):
    """Better than no answer."""
    ended = cli("run", "x", "--model", "scripted:foreign", env={"PYTHONIOENCODING": "latin-1"})
    assert ended.code == 0
    assert ended.raw.rstrip() == "Grüße, \\u4f60\\u597d \\U0001f600".encode("latin-1")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("more", [(), ("--stream",), ("--json",)])
def test_a_reader_who_leaves_ends_the_program_quietly(cli, more, unbuffered):
    """As with `head`: exit code 141 and no traceback."""
    process = cli.start("run", "x", "--model", "scripted:long", "--quiet", *more,
                        env={"PYTHONUNBUFFERED": unbuffered})
    process.stdin.close()
    process.stdout.read(5)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), err) == (141, b"")


def test_a_reader_who_was_never_there_is_noticed_too(cli):
    """A short answer fails only when it is flushed, and the interpreter flushes once more at its end."""
    process = cli.start("run", "x", "--model", "scripted:rude", stdin=subprocess.DEVNULL)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()
    assert (process.wait(60), err) == (141, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX here")
@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("more", [(), ("--stream",)])
def test_a_signal_stops_the_run_and_is_the_exit_code(cli, number, code, more):
    """The run is left as it stands, in a store where there is one, and it can be resumed."""
    process = cli.start("run", "x", "--model", "scripted:slow", "--tool", "scripted:sleep", "--runs", "kept", *more,
                        stdin=subprocess.DEVNULL)
    wait_for_journal(cli.folder / "kept")
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code
    assert b"Traceback" not in err
    from minagent.runs import JsonFileRuns

    [head] = JsonFileRuns(str(cli.folder / "kept")).list()
    assert head["status"] == "interrupted"


def wait_for_journal(folder):
    """Wait until a journal below a folder has a started tool call."""
    tick = threading.Event()
    for _ in range(600):
        for path in folder.glob("*/*/journal.jsonl"):
            lines = path.read_bytes().splitlines()
            if any(b'"started"' in line and b"tool-calls" in line for line in lines):
                return
        tick.wait(0.05)
    raise AssertionError("no tool call was started")


def test_a_terminal_is_not_commanded_by_a_model(cli):
    """Control characters of an answer reach a file, but no terminal."""
    pty = pytest.importorskip("pty", reason="pseudo-terminals are POSIX")
    main, side = pty.openpty()
    try:
        process = cli.start("run", "x", "--model", "scripted:rude", stdout=side)
        process.communicate(b"", timeout=60)
        assert os.read(main, 1000) == b"a]0;titleb\r\n"
    finally:
        os.close(main), os.close(side)
    assert cli("run", "x", "--model", "scripted:rude").out == "a\x1b]0;title\x07b\n"


# doctor


def test_the_doctor_tells_versions_and_names_of_keys_but_no_values(cli):
    """What a bug report needs, and nothing that must not be in one."""
    env = {"OPENAI_API_KEY": "sk-secret", "GROQ_API_KEY": "gsk-secret", "MISTRAL_API_KEY": ""}
    for more in ((), ("--json",)):
        ended = cli("doctor", *more, env=env)
        assert ended.code == 0
        assert "secret" not in ended.out + ended.err
        assert "OPENAI_API_KEY" in ended.out and "GROQ_API_KEY" in ended.out and "MISTRAL" not in ended.out
    found = json.loads(ended.out)
    assert found["keys"] == ["GROQ_API_KEY", "OPENAI_API_KEY"]
    assert found["minagent"] == minagent.__version__
    assert found["python"].startswith("%d.%d." % sys.version_info[:2])
    assert found["requests"] and found["urllib3"] and found["jsonschema"]


def test_the_doctor_knows_where_the_local_model_comes_from(cli):
    """From the extra, or from a server that the environment names, whose URL is not told."""
    ended = cli("doctor", env={"MINAGENT_LOCAL_URL": "http://user:secret@127.0.0.1:1"})
    assert "local model: a server named by the environment\n" in ended.out and "secret" not in ended.out
    found = json.loads(cli("doctor", "--json", env={"MINAGENT_LOCAL_URL": ""}).out)["local"]
    assert set(found) == {"server", "weights", "url_is_set"} and found["url_is_set"] is False


def test_the_doctor_says_to_install_the_extra_from_where_the_package_came():
    """Never by the name alone, which an index may know as something else."""
    from minagent.cli.doctor import told_of_local

    told = told_of_local({"server": None, "weights": None, "url_is_set": False})
    assert told.startswith("not installed (") and 'pip install "/path/to/minagent[local]"' in told


def test_the_doctor_examines_a_store(cli):
    """A folder that can be made is fine, a file is a problem, and nothing is left behind."""
    assert cli("doctor", "--runs", "new/runs").code == 0
    (cli.folder / "old").mkdir()
    assert cli("doctor", "--runs", "old").code == 0
    assert list((cli.folder / "old").iterdir()) == [] and not (cli.folder / "new").exists()
    ended = cli("doctor", "--runs", "scripted.py", "--json")
    assert ended.code == 1
    assert "is no folder" in json.loads(ended.out)["problems"][0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only there is a /proc in which nothing can be made")
def test_the_doctor_tries_whether_a_store_can_be_made(cli):
    """Permissions alone would let an almighty user believe it."""
    ended = cli("doctor", "--runs", "/proc/none")
    assert ended.code == 1
    assert "it does not exist and cannot be made in /proc: " in ended.out


@pytest.mark.unprivileged
def test_the_doctor_notices_a_store_that_cannot_be_written(cli):
    """Before a run does."""
    (cli.folder / "shut").mkdir(mode=0o500)
    for folder in ("shut", "shut/deeper"):
        ended = cli("doctor", "--runs", folder)
        assert ended.code == 1
        assert "PROBLEM: runs cannot be kept in" in ended.out


# Which model.


def test_the_model_follows_the_keys_that_are_set():
    """The table decides, its first variable that is set; without any it is the local model."""
    from minagent.cli.loading import DEFAULT_MODELS, default_model

    assert default_model({}) == ("local", None)
    assert default_model({"OPENAI_API_KEY": ""}) == ("local", None)
    assert default_model({"GROQ_API_KEY": "x", "MISTRAL_API_KEY": "y"})[1] == "MISTRAL_API_KEY"
    for variable, model in DEFAULT_MODELS:
        assert default_model({variable: "x"}) == (model, variable)
    assert sorted(KEYS) == sorted(variable for variable, _ in DEFAULT_MODELS)


def test_the_default_models_are_of_the_providers_whose_keys_they_follow():
    """Otherwise a key would choose a model that does not take it."""
    from minagent.cli.loading import DEFAULT_MODELS
    from minagent.llm.resolve import SERVERS

    for variable, model in DEFAULT_MODELS:
        assert SERVERS[model.split("/")[0]].key_variable == variable
    needing = {server.key_variable for name, server in SERVERS.items() if server.needs_key and name != "azure"}
    assert needing == {variable for variable, _ in DEFAULT_MODELS}


def test_the_chosen_model_is_told_and_asked_over_the_wire(cli):
    """One request for each step, and a note on why this model; the key never shows."""
    with ScriptedServer.openai_chat([calls("add", a=17, b=25), says("It is 42.")]) as server:
        env = {"LLAMACPP_BASE_URL": server.url + "/v1"}
        ended = cli("run", "17 + 25?", "--model", "llamacpp/small", "--tool", "scripted:add", env=env)
    assert (ended.code, ended.out) == (0, "It is 42.\n")
    assert [request.json["model"] for request in server.requests] == ["small", "small"]
    assert server.requests[1].json["messages"][-1]["content"] == "42"


def test_a_key_chooses_the_model_and_nobody_sees_it(cli):
    """The note names the variable; here the provider cannot be reached."""
    env = {"GROQ_API_KEY": "gsk-secret", "HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "", "no_proxy": ""}
    ended = cli("run", "x", "--deadline", "20", env=env)
    assert ended.code == 75
    assert ended.err.splitlines()[0] == (
        "minagent: model groq/openai/gpt-oss-20b (GROQ_API_KEY is set; --model chooses another)")
    assert "secret" not in ended.out + ended.err
