"""Names of models: which server, which key, and what is wrong with a wrong one."""

import pytest

from minagent.errors import AuthenticationFailed, ConfigError, ModelUnreachable
from minagent.llm.base import Frame, ModelCall, ModelRequest
from minagent.llm.openai_chat import OpenAIChat
from minagent.llm.resolve import SERVERS, resolve
from minagent.messages import Message
from minagent.testing import ScriptedModel, ScriptedServer, says

ASKED = ModelRequest(Frame(), [Message.user("hi")])


def test_a_model_is_returned_as_it_is():
    """Whoever has an object already gets it back."""
    made = ScriptedModel([says("x")])
    assert resolve(made) is made


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_every_provider_leads_to_a_model(name):
    """The rest of the name, slashes and all, is the model's."""
    model = resolve(name + "/org/some-model:free")
    assert isinstance(model, OpenAIChat) and model.model == "org/some-model:free"
    assert model.provider == SERVERS[name].provider


@pytest.mark.parametrize("name", sorted(name for name in SERVERS if SERVERS[name].needs_key))
def test_a_missing_key_names_its_variable_when_a_call_is_made(name, monkeypatch):
    """Making the model asks for nothing; calling it does, before anything is sent."""
    monkeypatch.delenv(SERVERS[name].key_variable, raising=False)
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "http://127.0.0.1:1")
    model = resolve(name + "/m")
    with pytest.raises(AuthenticationFailed, match="^%s/m needs .*%s" % (name, SERVERS[name].key_variable)):
        list(model.do_stream(ASKED, ModelCall(retries=0)))


def test_local_servers_need_no_key_and_can_be_elsewhere(monkeypatch):
    """The address comes from the environment of the call."""
    model = resolve("ollama/llama3")
    monkeypatch.delenv("OLLAMA_API_KEY", raising=False)
    with ScriptedServer.openai_chat([says("Hello.")]) as server:
        monkeypatch.setenv("OLLAMA_BASE_URL", server.url + "/v1/")
        list(model.do_stream(ASKED, ModelCall()))
        asked = server.requests[0]
    assert asked.path == "/v1/chat/completions" and "authorization" not in asked.headers


@pytest.mark.parametrize("name", sorted(name for name in SERVERS if not SERVERS[name].needs_key))
def test_a_local_server_that_is_not_there_is_asked_about_by_name(name, monkeypatch):
    """The message names the program, its address and the variable that moves it."""
    with ScriptedServer([]) as server:
        pass
    monkeypatch.setenv(SERVERS[name].url_variable, server.url + "/v1")
    with pytest.raises(ModelUnreachable) as caught:
        list(resolve(name + "/m").do_stream(ASKED, ModelCall(retries=0)))
    told = "is %s running at %s? check the environment variable %s" % (name, server.url, SERVERS[name].url_variable)
    assert told in str(caught.value) and "%s/m at " % name in str(caught.value)


def test_the_local_model_is_named_and_closed_like_the_others(monkeypatch):
    """Its connections end with `close`, and its errors bear the name that was asked for."""
    model = resolve("local")
    with ScriptedServer.openai_chat([says("x")], loop=True) as server:
        monkeypatch.setenv("MINAGENT_LOCAL_URL", server.url)
        for _ in range(2):
            list(model.do_stream(ASKED, ModelCall()))
            model.close()
    assert server.connections == 2
    with pytest.raises(ModelUnreachable, match="connection to local/gemma-3-270m at"):
        list(model.do_stream(ASKED, ModelCall(retries=0)))


def test_azure_takes_its_address_and_a_bare_key_from_the_environment(monkeypatch):
    """No address is a mistake that names the variable."""
    model = resolve("azure/deployment")
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "k")
    monkeypatch.delenv("AZURE_OPENAI_ENDPOINT", raising=False)
    with pytest.raises(ConfigError, match="AZURE_OPENAI_ENDPOINT"):
        list(model.do_stream(ASKED, ModelCall()))
    with ScriptedServer.openai_chat([says("Hello.")]) as server:
        monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", server.url)
        list(model.do_stream(ASKED, ModelCall()))
        asked = server.requests[0]
    assert (asked.path, asked.headers["api-key"]) == ("/openai/v1/chat/completions", "k")
    assert "authorization" not in asked.headers


@pytest.mark.parametrize("wrong, words", [
    ("grok/4", "did you mean 'groq'"), ("gpt-5", 'expected "provider/model"'), ("groq/", "name of the model"),
    ("groq", "name of the model"), ("", "no provider"), (None, "expected a name"), (5, "expected a name"),
])
def test_a_wrong_name_is_refused_with_what_was_expected(wrong, words):
    """The nearest provider, or the form of a name, is told."""
    with pytest.raises(ConfigError, match=words):
        resolve(wrong)
