"""From a name such as "groq/llama-3.3-70b" to a model.

Servers are rows of a table; there is no code for any of them.  Not here: lists of fallbacks and models that
are functions, which belong to the agent.
"""

from __future__ import annotations

from typing import Any, Dict

from ..errors import ConfigError, did_you_mean
from .base import LanguageModel
from .openai_chat import OPENAI, OpenAIChat, Server
from .openai_chat_request import Dialect

#: A name before the slash -> the server.
SERVERS: Dict[str, Server] = {
    # The Responses API is a later issue; until then this name means Chat Completions too.
    "openai": OPENAI,
    "openai-chat": OPENAI,
    "azure": Server("azure", "", "AZURE_OPENAI_API_KEY", "api-key", url_variable="AZURE_OPENAI_ENDPOINT",
                    url_path="/openai/v1", dialect=OPENAI.dialect),
    "groq": Server("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "mistral": Server("mistral", "https://api.mistral.ai/v1", "MISTRAL_API_KEY",
                      dialect=Dialect(short_call_ids=True)),
    "deepseek": Server("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY",
                       dialect=Dialect(must_reason=True)),
    "xai": Server("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
    "openrouter": Server("openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "together": Server("together", "https://api.together.xyz/v1", "TOGETHER_API_KEY"),
    "fireworks": Server("fireworks", "https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "cerebras": Server("cerebras", "https://api.cerebras.ai/v1", "CEREBRAS_API_KEY",
                       dialect=Dialect(max_tokens_key="max_completion_tokens")),
    "ollama": Server("ollama", "http://localhost:11434/v1", "OLLAMA_API_KEY", needs_key=False,
                     url_variable="OLLAMA_BASE_URL"),
    "llamacpp": Server("llamacpp", "http://localhost:8080/v1", "LLAMA_API_KEY", needs_key=False,
                       url_variable="LLAMACPP_BASE_URL"),
    "vllm": Server("vllm", "http://localhost:8000/v1", "VLLM_API_KEY", needs_key=False,
                   url_variable="VLLM_BASE_URL"),
    "lmstudio": Server("lmstudio", "http://localhost:1234/v1", "LM_API_TOKEN", needs_key=False,
                       url_variable="LMSTUDIO_BASE_URL"),
}


def resolve(model: Any) -> LanguageModel:
    """Return the model of a name, or a model as it is.

    Parameters:
        model: "provider/model" (the model's name may hold slashes), "local", "local/..." or a
            `LanguageModel`.

    Raises:
        ConfigError: If it is something else, or there is no such provider.
    """
    if isinstance(model, LanguageModel):
        return model
    if not isinstance(model, str):
        raise ConfigError('model is %r; expected a name such as "openai/gpt-5-mini" or a LanguageModel' % (model,))
    provider, _, name = model.partition("/")
    if provider == "local":
        from .local import LocalModel

        return LocalModel(name) if name else LocalModel()
    server = SERVERS.get(provider)
    if server is None:
        known = sorted([*SERVERS, "local"])
        raise ConfigError('model is %r; %r is no provider%s; expected "provider/model" with one of %s'
                          % (model, provider, did_you_mean(provider, known), ", ".join(known)))
    if not name:
        raise ConfigError('model is %r; the name of the model is missing, expected "%s/..."' % (model, provider))
    return OpenAIChat(name, server=server, display_name=model)
