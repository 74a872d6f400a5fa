"""`OpenAIChat`: OpenAI's Chat Completions API, as OpenAI and dozens of compatible servers speak it.

Here the parts meet: the address and the key, the body (`openai_chat_request`), HTTP (`transport`) and what
comes back (`openai_chat_answer`).  Not here: which server a name stands for (`resolve`).
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Tuple, Union

from ..errors import AuthenticationFailed, ConfigError, TruncatedStream, UnknownOption, did_you_mean
from .base import SETTINGS, LanguageModel, ModelCall, ModelRequest, StreamPart
from .exchange import EventStream, Place, truncated
from .failures import Scrubbing, bad_response, failure
from .openai_chat_answer import ChatAnswer
from .openai_chat_request import BodyWriter, Dialect, own_options
from .transport import Transport
from .wire import Secret, decode

OPENAI_URL = "https://api.openai.com/v1"
#: What a model object may be given besides settings: see `Transport`.
TRANSPORT_OPTIONS = ("connect_timeout", "first_byte_timeout", "idle_timeout", "retry_wait", "verify", "cert",
                     "proxies", "configure_session")

FromContext = Callable[[Mapping[str, Any]], str]


@dataclass(frozen=True)
class Server:
    """A server of this API, as data.

    Attributes:
        provider: Name under which what must be echoed is kept.
        base_url: Up to and with ``/v1``, or what the server has instead.
        key_variable: Environment variable of the key, read at call time; "" for none.  Never sent to a base_url
            that the caller chose.
        key_header: "authorization" (with "Bearer"), or a header that takes the bare key.
        needs_key: Whether a missing key is an error before anything is sent.
        url_variable: Environment variable that says where the server is, or "".
        url_path: Added to what `url_variable` holds.
        dialect: What it accepts.
    """

    provider: str = "openai-chat"
    base_url: str = OPENAI_URL
    key_variable: str = "OPENAI_API_KEY"
    key_header: str = "authorization"
    needs_key: bool = True
    url_variable: str = ""
    url_path: str = ""
    dialect: Dialect = Dialect()


OPENAI = Server(dialect=Dialect(max_tokens_key="max_completion_tokens", no_text=None))
#: A server that we know nothing about but its address.
COMPATIBLE = Server(base_url="", key_variable="", needs_key=False)


class OpenAIChat(LanguageModel):
    """A model behind OpenAI's Chat Completions API.

    Parameters:
        model: Name of the model, as the server spells it.
        base_url: Up to and with ``/v1``; may be a function of the run's request_context.
        api_key: The key, or a function of the run's request_context that returns it.  Without one, OpenAI
            itself gets the environment variable OPENAI_API_KEY of the moment of the call, and a server at
            another base_url gets no key.
        headers: Sent with every request, over ours.
        parallel_tool_calls: False asks for one call at a time.
        provider: Name under which what must be echoed is kept with messages; models that share it are sent
            each other's.
        server: What is known about the server; by default OpenAI at its own address, else no assumptions.
        display_name: How messages name the model; by default by `model`.
        settings: Defaults of `SETTINGS` (temperature, max_output_tokens, …) and limits of the network: see
            `Transport`.

    Raises:
        UnknownOption: If a setting does not exist.
        ConfigError: If a limit is not above 0.
    """

    def __init__(self, model: str, base_url: Union[None, str, FromContext] = None,
                 api_key: Union[None, str, FromContext] = None, *, headers: Optional[Mapping[str, str]] = None,
                 parallel_tool_calls: Optional[bool] = None, provider: Optional[str] = None,
                 server: Optional[Server] = None, display_name: Optional[str] = None, **settings: Any):
        _check_names(settings)
        if server in (None, OPENAI) and isinstance(base_url, str) and base_url.rstrip("/") == OPENAI_URL:
            base_url = None
        if server is None:
            server = OPENAI if base_url is None else COMPATIBLE
        self._server = replace(server, provider=provider or server.provider)
        self.provider = self._server.provider
        self.model = model
        self._base_url = base_url
        self._api_key = Secret(api_key) if isinstance(api_key, str) else api_key
        self._headers = dict(headers or {})
        who = display_name or "model %r" % model
        self._transport = Transport(who, **{name: settings[name] for name in TRANSPORT_OPTIONS if name in settings})
        if base_url is None and server.url_variable:
            self._transport.place = Place(server.provider, "the environment variable " + server.url_variable)
        defaults = {name: settings[name] for name in SETTINGS if name in settings}
        self._defaults = defaults
        self._writer = BodyWriter(self.provider, model, self._server.dialect, defaults, parallel_tool_calls)

    def __repr__(self) -> str:
        return "OpenAIChat(%r, provider=%r)" % (self.model, self.provider)

    def do_stream(self, request: ModelRequest, call: ModelCall) -> Iterator[List[StreamPart]]:
        """See `LanguageModel`."""
        call.check()
        url, headers = self._address(request, call)
        body = self._writer.body(request, call.stream)
        answer = ChatAnswer(self.provider, self.model)
        scrubbing = Scrubbing(headers, url)
        if not call.stream:
            whole = self._transport.send(url, body, headers, call)
            with scrubbing:
                parts = answer.whole(self._read(whole.body, whole.headers, scrubbing))
            yield parts
            return
        stream = self._transport.stream(url, body, headers, call)
        try:
            with scrubbing:
                yield from self._streamed(stream, answer, scrubbing)
        finally:
            stream.close()

    def close(self) -> None:
        """Close the connections of this process; those in use close after their answer.  Calls open new ones."""
        self._transport.close()

    def _streamed(self, stream: EventStream, answer: ChatAnswer,
                  scrubbing: Scrubbing) -> Iterator[List[StreamPart]]:
        ended = False
        try:
            for events in stream:
                parts: List[StreamPart] = []
                for event in events:
                    ended = ended or event.data.startswith("[DONE]")
                    if not ended:
                        parts += answer.feed(self._read(event.data, stream.headers, scrubbing))
                if parts:
                    yield parts
                if ended:
                    stream.finish()
                    break
        except TruncatedStream:
            # After the finish word only the usage can be missing.
            if answer.finish_word is None:
                raise
            answer.warnings.append("the connection broke after the answer; its usage may be unknown")
        if stream.rest:
            yield answer.whole(self._read(stream.rest, stream.headers, scrubbing))
            return
        if not answer.started or (answer.finish_word is None and not ended):
            raise truncated(self._transport.who, "no finish word came")
        yield answer.end()

    def _read(self, text: Union[str, bytes], received: Mapping[str, str],
              scrubbing: Scrubbing) -> Mapping[str, Any]:
        """Return a JSON object of an answer.

        Raises:
            ModelError: If it holds an error, under whatever status.
            BadResponse: If it is none.
        """
        if isinstance(text, bytes):
            text = text.decode("utf-8-sig", "replace")
        try:
            data = decode(text)
        except (ValueError, RecursionError):
            data = None
        # Nearly every event is spared the search.
        error = _error_in(data) if '"error"' in text else None
        if error is not None:
            raise failure(self._transport.who, 200, received, json.dumps(error).encode(),
                          scrubbing.secrets())
        if not isinstance(data, dict):
            raise bad_response(self._transport.who, "which is no JSON object; check base_url", text,
                               scrubbing.secrets())
        return data

    def _address(self, request: ModelRequest, call: ModelCall) -> Tuple[str, Dict[str, str]]:
        """Where the request goes, and with which headers."""
        server, context = self._server, call.request_context
        base = self._base_url(context) if callable(self._base_url) else self._base_url
        if base is None:
            base = os.environ.get(server.url_variable, "") if server.url_variable else ""
            base = base.rstrip("/") + server.url_path if base else server.base_url
        if not base:
            raise ConfigError("%s has no address (base_url is %r); %spass base_url=" % (
                self._transport.who, base, _set_variable(server.url_variable)))
        options = own_options(self.provider, self._defaults, request.frame.settings)
        key = options.get("api_key") or (self._api_key(context) if callable(self._api_key) else self._api_key)
        # The environment's key is for that server, and for no address that a caller chose.
        variable = server.key_variable if self._base_url is None else ""
        key = Secret(key or (os.environ.get(variable, "") if variable else ""))
        headers: Dict[str, str] = {"Content-Type": "application/json", "User-Agent": "minagent"}
        if key:
            bearer = server.key_header == "authorization"
            headers[server.key_header] = Secret("Bearer " + key if bearer else key)
        elif server.needs_key:
            raise AuthenticationFailed("%s needs a key and has none; %spass api_key="
                                       % (self._transport.who, _set_variable(variable)))
        path, question, query = base.partition("?")
        headers.update(self._headers)
        headers.update(options.get("headers") or {})
        return path.rstrip("/") + "/chat/completions" + question + query, headers


def _set_variable(name: str) -> str:
    return "set the environment variable %s or " % name if name else ""


def _check_names(settings: Mapping[str, Any]) -> None:
    known = SETTINGS + TRANSPORT_OPTIONS
    for name in settings:
        if name not in known:
            raise UnknownOption("unknown option %r for OpenAIChat%s; known are %s"
                                % (name, did_you_mean(name, known), ", ".join(known)))


def _error_in(data: Any) -> Any:
    """The object that holds an error, or None."""
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return None
    if data.get("error"):
        return data
    choices = data.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, dict) and isinstance(first.get("error"), dict) else None
