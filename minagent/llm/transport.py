"""HTTP for language models: a request, sent until it is answered, within the call's limits.

`requests` is imported on first use, and only public interfaces of requests and urllib3 are used.  Not here:
what a provider's bodies mean (its own file, and `failures`), and what happens on a connection (`exchange`).
"""

from __future__ import annotations

import functools
import os
import random
import threading
import weakref
from typing import Any, Callable, Dict, Mapping, Optional, Tuple, TypeVar, Union

from ..errors import AuthenticationFailed, ConfigError, ModelError, QuotaExhausted
from .base import ModelCall
from .connection import recording_adapter
from .exchange import Answer, EventStream, Exchange, Patience, Place, empty
from .failures import Scrubbing, failure
from .wire import Headers, secrets_of

T = TypeVar("T")

#: A provider that asks for a longer wait than this many seconds is not waited for.
LONGEST_WAIT = 120.0
#: Without such a wish the wait doubles with each try, up to this many seconds.
LONGEST_BACKOFF = 8.0
#: Statuses that say: the same request may work later.  And all from 500.
RETRIED = (408, 409, 429)
#: A thread remembers that many URLs.
URLS = 32


class Transport:
    """Sends requests.  Any number of threads may share one.

    Parameters:
        who: Names the model in messages.
        connect_timeout: Seconds until a connection stands, for each address.
        first_byte_timeout: Seconds from the request to the headers, and in a stream from them to the first
            event.
        idle_timeout: Seconds between two events of a stream, or two reads of a plain answer.  Comments that
            keep a connection alive do not count.
        retry_wait: Seconds before the first retry where the provider names none; the next wait twice as long.
        verify: As in requests: True, False, or the path of a CA bundle.
        cert: As in requests: a client certificate.
        proxies: As in requests; None takes the environment's.
        configure_session: Called with every new `requests.Session`, one per thread and process; a place to
            mount adapters.

    Attributes:
        place: What messages say of a server that cannot be reached.

    Raises:
        ConfigError: If a limit is not above 0.
    """

    def __init__(self, who: str, *, connect_timeout: float = 10.0, first_byte_timeout: float = 120.0,
                 idle_timeout: float = 60.0, retry_wait: float = 0.5, verify: Union[bool, str] = True,
                 cert: Any = None, proxies: Optional[Mapping[str, str]] = None,
                 configure_session: Optional[Callable[[Any], None]] = None):
        for name, value in (("connect_timeout", connect_timeout), ("first_byte_timeout", first_byte_timeout),
                            ("idle_timeout", idle_timeout)):
            if not value > 0:
                raise ConfigError("%s is %r; expected seconds above 0" % (name, value))
        self.who = who
        self.place = Place()
        self.patience = Patience(connect_timeout, first_byte_timeout, idle_timeout)
        self._retry_wait = retry_wait
        self._network = (dict(proxies or {}), True, verify, cert)
        self._configure_session = configure_session
        self._local = threading.local()
        #: Process id -> its sessions: a fork leaves the parent's, and perhaps a held lock, behind.
        self._sessions: Dict[int, Sessions] = {}

    def send(self, url: str, body: bytes, headers: Headers, call: ModelCall) -> Answer:
        """Return the whole answer.

        Raises:
            ModelError: If the provider refuses, fails or cannot be reached, and retries are spent.
            Cancelled: If the call was cancelled.
            LimitReached: If its deadline has passed.
        """
        return self._retried(lambda: self._whole(url, body, headers, call), call, Scrubbing(headers, url))

    def stream(self, url: str, body: bytes, headers: Headers, call: ModelCall) -> EventStream:
        """Return the answer as a stream, once its first event has come.  Close it.  Raises like `send`."""
        return self._retried(lambda: self._begun(url, body, headers, call), call, Scrubbing(headers, url))

    def close(self) -> None:
        """Close this process's connections; those that are in use close after their answer.

        May be called by any thread, also while others send.  The next request opens a new connection.
        """
        sessions = self._sessions.get(os.getpid())
        if sessions is not None:
            sessions.close()

    def _retried(self, attempt: Callable[[], T], call: ModelCall, scrubbing: Scrubbing) -> T:
        tries = 0
        while True:
            call.check()
            try:
                with scrubbing:
                    return attempt()
            except ModelError as error:
                tries += 1
                wait = self._wait_before(error, tries)
                remaining = call.deadline.remaining()
                if not error.retryable or tries > call.retries or (error.retry_after or 0) > LONGEST_WAIT:
                    raise
                if remaining is not None and wait >= remaining:
                    raise
                if call.on_retry is not None:
                    call.on_retry(tries, wait, error)
            call.cancel.wait(wait)

    def _wait_before(self, error: ModelError, tries: int) -> float:
        # Else all clients of an overloaded provider would come back at the same moment.
        backoff = min(LONGEST_BACKOFF, self._retry_wait * 2 ** (tries - 1)) * random.uniform(0.75, 1.0)
        return error.retry_after or backoff

    def _whole(self, url: str, body: bytes, headers: Headers, call: ModelCall) -> Answer:
        exchange = self._accepted(url, body, headers, call)
        try:
            whole = exchange.read()
            if not whole.strip():
                raise empty(self.who)
            return Answer(exchange.status, exchange.headers, whole)
        finally:
            exchange.close()

    def _begun(self, url: str, body: bytes, headers: Headers, call: ModelCall) -> EventStream:
        stream = EventStream(self._accepted(url, body, headers, call))
        try:
            stream.begin()
        except BaseException:
            stream.close()
            raise
        return stream

    def _accepted(self, url: str, body: bytes, headers: Headers, call: ModelCall) -> Exchange:
        """Send the request once; return the exchange if its status is that of an answer."""
        exchange = Exchange(self.who, self.patience, call)
        exchange.place = self.place
        try:
            session, template, settings = self._prepared(url, exchange)
            request = template.copy()
            request.headers.update(headers)
            request.headers["Content-Length"] = str(len(body))
            request.body = body
            exchange.open(session.get_adapter(url), request, **settings)
            if exchange.status >= 300:
                raise self._refused(exchange, url, headers)
        except BaseException:
            exchange.close()
            raise
        return exchange

    def _refused(self, exchange: Exchange, url: str, headers: Headers) -> ModelError:
        try:
            body = exchange.read()
        except ModelError:
            body = b""  # The status says enough.
        error = failure(self.who, exchange.status, exchange.headers, body, secrets_of(headers, url), url)
        if isinstance(error, AuthenticationFailed) and not secrets_of(headers):
            error.args = ("%s; no key was sent, pass api_key=" % error,)
        wish = exchange.headers.get("x-should-retry", "").lower()
        error.retryable = exchange.status in RETRIED or exchange.status >= 500
        if wish in ("true", "false"):
            error.retryable = wish == "true"
        if isinstance(error, QuotaExhausted):
            error.retryable = False  # However the status looks, waiting does not fill an account.
        return error

    def _prepared(self, url: str, exchange: Exchange) -> Tuple[Any, Any, Dict[str, Any]]:
        """Return (session, request without body, environment's settings), made once per thread and URL."""
        used = self._used(exchange)
        session, urls = used.session, used.urls
        if url not in urls:
            if len(urls) >= URLS:
                urls.clear()
            settings = session.merge_environment_settings(url, *self._network)
            settings.pop("stream")
            urls[url] = _template(session, url), settings
        template, settings = urls[url]
        return session, template, settings

    def _used(self, exchange: Exchange) -> ThreadSession:
        """This thread's session, which `close` leaves alone until the exchange is closed."""
        pid = os.getpid()
        sessions = self._sessions.get(pid) or self._sessions.setdefault(pid, Sessions())
        used: Optional[ThreadSession] = getattr(self._local, "used", None)
        if used is None or used.sessions is not sessions or not sessions.begin(used):
            used = self._local.used = ThreadSession(self._new_session(), sessions)
            sessions.add(used)
        exchange.on_close = functools.partial(sessions.end, used)
        return used

    def _new_session(self) -> Any:
        import requests

        session = requests.Session()
        adapter = recording_adapter()()
        session.mount("https://", adapter)
        session.mount("http://", adapter)
        # The thread may end while connections are open; this closes them then.
        weakref.finalize(session, _close, session.adapters)
        if self._configure_session is not None:
            self._configure_session(session)
        return session


class ThreadSession:
    """The session of one thread, with what it knows of URLs.

    Attributes:
        exchanges: How many are under way.
        is_closed: Whether it takes no further ones.
    """

    def __init__(self, session: Any, sessions: Sessions):
        self.session = session
        self.sessions = sessions
        self.urls: Dict[str, Any] = {}
        self.exchanges = 1
        self.is_closed = False


class Sessions:
    """The sessions of a process, as long as their threads live.  urllib3 can refuse a request in a pool that is
    closed at that moment, so only a session without an exchange is closed.
    """

    def __init__(self) -> None:
        # Guards _all, and `exchanges` and `is_closed` of each; a stream that is collected may call `end` anywhere.
        self._lock = threading.RLock()
        self._all: weakref.WeakSet[ThreadSession] = weakref.WeakSet()

    def add(self, used: ThreadSession) -> None:
        with self._lock:
            self._all.add(used)

    def begin(self, used: ThreadSession) -> bool:
        """Count an exchange; return False if there can be none any more."""
        with self._lock:
            used.exchanges += not used.is_closed
            return not used.is_closed

    def end(self, used: ThreadSession) -> None:
        with self._lock:
            used.exchanges -= 1
            is_over = used.is_closed and not used.exchanges
        if is_over:
            _close(used.session.adapters)

    def close(self) -> None:
        with self._lock:
            closed = list(self._all)
            self._all.clear()
            for used in closed:
                used.is_closed = True
            idle = [used for used in closed if not used.exchanges]
        for used in idle:
            _close(used.session.adapters)


def _close(adapters: Mapping[str, Any]) -> None:
    for adapter in adapters.values():
        adapter.close()


def _template(session: Any, url: str) -> Any:
    """A request that no session has touched: without its cookies and the key of a netrc file."""
    import requests

    try:
        session.get_adapter(url)  # Refuses what no adapter is mounted for.
        return requests.Request("POST", url, headers={"Accept-Encoding": "gzip, deflate"}).prepare()
    except (requests.exceptions.RequestException, ValueError) as error:
        raise ConfigError("base_url leads to %r, which is no URL (%s); expected http:// or https:// and a "
                          "host" % (url, error)) from None
