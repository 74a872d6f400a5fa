"""model="local": what it asks of its server, and what it says where there is none.

Whether the model is of any use is measured in `test_local_answers`.
"""

import os
import subprocess
import sys

import pytest

from minagent.errors import ConfigError, UnknownOption
from minagent.llm import local
from minagent.llm.base import Frame, ModelCall, ModelRequest
from minagent.llm.local import LocalModel
from minagent.messages import Message
from minagent.testing import ScriptedServer
from minagent.tools import ToolSpec


def ask(model, text="Hi?", tools=(), **settings):
    request = ModelRequest(Frame("local", "", tuple(tools), "auto", settings), [Message.user(text)])
    return [part for parts in model.do_stream(request, ModelCall(retries=0)) for part in parts]


def test_a_server_of_ones_own_is_asked_where_the_variable_says(monkeypatch):
    """MINAGENT_LOCAL_URL is read at each call, with or without /v1; nothing is started."""
    model = LocalModel()
    with ScriptedServer.openai_chat(["One.", "Two."]) as first, ScriptedServer.openai_chat(["Three."]) as second:
        for url in (first.url, first.url + "/v1/", second.url):
            monkeypatch.setenv("MINAGENT_LOCAL_URL", url)
            ask(model)

    assert [len(first.requests), len(second.requests)] == [2, 1]
    assert {request.path for request in first.requests} == {"/v1/chat/completions"}
    assert "log" not in model.describe()


def test_a_proxy_is_not_asked_for_the_local_server(monkeypatch):
    """Hosts with a proxy seldom except loopback from it."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with ScriptedServer.openai_chat(["Yes."]) as server:
        monkeypatch.setenv("MINAGENT_LOCAL_URL", server.url)
        ask(LocalModel())

    assert len(server.requests) == 1


def test_its_requests_are_made_for_a_base_model(monkeypatch):
    """Greedy, repeatable, short, and stopped before it asks itself a next question; a request may ask otherwise."""
    with ScriptedServer.openai_chat(["x"], loop=True) as server:
        monkeypatch.setenv("MINAGENT_LOCAL_URL", server.url)
        ask(LocalModel())
        ask(LocalModel(seed=7, provider_options={"top_k": 1}), temperature=0.5, max_output_tokens=9)
        first, second = [request.json for request in server.requests]

    assert first["temperature"] == 0 and first["cache_prompt"] is False and first["max_tokens"] == 256
    assert "\nQuestion:" in first["stop"]
    assert (second["temperature"], second["max_tokens"], second["seed"]) == (0.5, 9, 7)
    assert second["top_k"] == 1 and second["cache_prompt"] is False


def test_its_tools_are_emulated(monkeypatch):
    """The server is asked for JSON, not for tools."""
    with ScriptedServer.openai_chat(['{"tool": "clock", "arguments": {}}']) as server:
        monkeypatch.setenv("MINAGENT_LOCAL_URL", server.url)
        parts = ask(LocalModel(), tools=[ToolSpec("clock", "Tell the time.")])

    assert [payload["tool_name"] for type, payload in parts if type == "tool-call"] == ["clock"]
    assert "tools" not in server.requests[0].json
    assert server.requests[0].json["response_format"]["type"] == "json_schema"


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    """And what else there is, which matters most where the extra does not exist."""
    monkeypatch.delenv("MINAGENT_LOCAL_URL", raising=False)
    monkeypatch.setitem(sys.modules, local.SERVER_MODULE, None)

    with pytest.raises(ConfigError) as caught:
        ask(LocalModel())
    message = str(caught.value)
    if sys.platform.startswith("linux") and sys.version_info >= (3, 10):
        assert "minagent[local]" in message and local.SERVER_MODULE in message
    else:
        assert "Python 3.10" in message
    for other in ("ollama/", "llamacpp/", "MINAGENT_LOCAL_URL"):
        assert other in message


def test_other_machines_are_named(monkeypatch):
    """The extra is empty there, so installing it would not help."""
    monkeypatch.delenv("MINAGENT_LOCAL_URL", raising=False)
    monkeypatch.setattr(sys, "platform", "win32")

    with pytest.raises(ConfigError, match="needs Linux on x86_64 and Python 3.10"):
        ask(LocalModel())


def test_there_is_one_local_model():
    """Others run in servers of their own, and the error says which."""
    with pytest.raises(ConfigError, match="ollama/llama3"):
        LocalModel("llama3")


def test_wrong_settings_are_refused_before_any_call():
    """As for every model."""
    with pytest.raises(UnknownOption, match="temperature"):
        LocalModel(temprature=1)


def test_half_of_the_processors_compute(monkeypatch):
    """Threads of the server wait by spinning, so the host program needs processors of its own."""
    found = []
    for count in (None, 1, 2, 4, 64):
        monkeypatch.setattr(os, "cpu_count", lambda count=count: count)
        found.append(local.threads())

    assert found == [1, 1, 1, 2, 4]


def test_the_template_comes_with_the_package():
    """It is data of the package, read so that a zip will do."""
    assert b"add_generation_prompt" in local.template()


def test_the_command_line_knows_one_word():
    """Anything else is answered with the usage."""
    done = subprocess.run([sys.executable, "-m", "minagent.llm.local", "stop"], capture_output=True, text=True,
                          cwd=package_root())

    assert done.returncode == 2
    assert "serve" in done.stderr


def package_root():
    """The folder from which the package can be imported."""
    import minagent

    depth = minagent.__name__.count(".") + 2
    path = os.path.abspath(minagent.__file__)
    for _ in range(depth):
        path = os.path.dirname(path)
    return path
