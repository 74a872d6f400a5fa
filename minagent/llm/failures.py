"""What a provider's refusal means: status, headers and body become one of the errors of `errors`.  And why a
connection failed, in words for somebody who knows neither requests nor urllib3.  And where secrets are taken out
of whatever leaves as an error (`Scrubbing`).

Bodies are JSON objects, JSON arrays of one object, HTML, or nothing, under any content type.  Not here:
whether a request is tried again (`transport`).
"""

from __future__ import annotations

import json
import socket
import time
from typing import Any, Iterable, List, Mapping, NamedTuple, Optional, Type
from urllib.parse import urlsplit

from ..errors import (
    AuthenticationFailed,
    BadRequest,
    BadResponse,
    ContentFiltered,
    ContextLengthExceeded,
    ModelError,
    ModelTimeout,
    Overloaded,
    QuotaExhausted,
    RateLimited,
)
from .wire import Headers, decode, secrets_of

#: An error body is kept up to here.
BODY_LIMIT = 64 * 1024
#: A provider's words are quoted up to here.
MESSAGE_LIMIT = 2000

#: Words of recorded answers to conversations that were too long.
CONTEXT_LENGTH = ("context_length_exceeded", "maximum context length", "prompt too long",
                  "prompt is too long", "too_many_prompt_tokens", "exceeds the maximum number of tokens",
                  "context window")
CONTENT_FILTER = ("content_filter", "content_policy_violation", "content management policy")
QUOTA = ("insufficient_quota", "billing_hard_limit_reached", "billing_error", "enforced_spend_limit_reached",
         "credit balance is too low", "perday")
WRONG_KEY = ("invalid_api_key", "api_key_invalid", "incorrect api key", "authentication_error")


class Refusal(NamedTuple):
    """What an error body says.

    Attributes:
        message: In the provider's words, or "".
        code: Its own code, as text, or None.
        kind: Its type or status word, or "".
        status: A status inside the body, or None.
        retry_after: Seconds it asks us to wait, or None.
    """

    message: str = ""
    code: Optional[str] = None
    kind: str = ""
    status: Optional[int] = None
    retry_after: Optional[float] = None


def failure(who: str, status: Optional[int], headers: Mapping[str, str], body: bytes,
            secrets: Iterable[str] = (), url: str = "") -> ModelError:
    """Return the error for a refused request.

    Parameters:
        who: Names the model in the message.
        status: HTTP status, or None for an error inside a stream.
        headers: Of the answer; names in any case.
        body: Of the answer.
        secrets: Texts that must not appear in the error, whatever the provider quotes.
        url: What was asked; named where the address may be the mistake.
    """
    # Cut afterwards: half a secret would not be found.
    text = _without(body[:2 * BODY_LIMIT].decode("utf-8", "replace"), secrets)[:BODY_LIMIT]
    refusal = read_refusal(text)
    waits = [wait for wait in (retry_after(headers), refusal.retry_after) if wait is not None]
    known = {name.lower(): value for name, value in headers.items()}
    kind = _kind(status, refusal, text)
    advice = (kind.__doc__ or "").strip().split("\n")[0].rstrip(".")
    if url and status and 400 <= status < 500 and (status in (404, 405) or not _is_error(text)):
        advice = "%s%s" % ("" if kind is BadRequest else advice + "; ", _without(_look_at(url), secrets))
    error = kind(_sentence(who, status, refusal, text, advice), status=status if status else refusal.status,
                 code=refusal.code, request_id=known.get("x-request-id") or known.get("request-id"),
                 retry_after=max(waits) if waits else None, body=text)
    if status in (300, 301, 302, 303, 307, 308):
        error.args = ("%s; set base_url to where it points (%r)" % (error, _place(known.get("location", ""))),)
    return error


def bad_response(who: str, what: str, text: str, secrets: Iterable[str] = ()) -> BadResponse:
    """Return the error for a body that its API does not describe; its beginning is quoted.

    Parameters:
        who: Names the model in the message.
        what: Ends the message: what is wrong with the body, and what to try.
        text: The body.
        secrets: As for `failure`.
    """
    text = _without(text[:2 * BODY_LIMIT], secrets)[:BODY_LIMIT]
    return BadResponse("%s sent %r, %s" % (who, text[:200], what), status=200, body=text)


class Scrubbing:
    """A context that no error leaves with a secret of a request in it, nor any error behind it.

    Parameters:
        headers: Of the request.
        url: Of the request.
    """

    def __init__(self, headers: Headers, url: str):
        self._headers = headers
        self._url = url

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: object) -> None:
        if isinstance(error, Exception):
            _scrub(error, self.secrets())

    def secrets(self) -> Iterable[str]:
        """What must not be quoted."""
        return secrets_of(self._headers, self._url)


def _scrub(error: Exception, secrets: Iterable[str]) -> None:
    for item in _chain(error):
        args = tuple(_without(value, secrets) if isinstance(value, str) else value for value in item.args)
        if args != item.args:
            item.args = args
        members = vars(item)
        members.update({name: _without(value, secrets) for name, value in members.items() if isinstance(value, str)})
    if isinstance(error, ModelError):
        error.body = error.body[:BODY_LIMIT]


def _place(location: str) -> str:
    """Where a redirect points, without what may be secret in it."""
    before, slashes, rest = location.partition("?")[0].partition("#")[0].partition("//")
    host, slash, path = rest.partition("/")
    return before + slashes + host.rpartition("@")[2] + slash + path


def read_refusal(text: str) -> Refusal:
    """Read an error body of any of the known shapes."""
    try:
        data = decode(text)
    except (ValueError, RecursionError):
        return Refusal(_visible(text))
    if isinstance(data, list) and data:
        data = data[0]
    if not isinstance(data, dict):
        return Refusal(text.strip()[:MESSAGE_LIMIT])
    error = data.get("error")
    inner: Mapping[str, Any] = error if isinstance(error, dict) else data
    message = inner.get("message") or (error if isinstance(error, str) else None) or data.get("detail")
    code = inner.get("code")
    if isinstance(inner.get("innererror"), dict) and code is None:
        code = inner["innererror"].get("code")
    kind = inner.get("type") or inner.get("status") or ""
    status = _status(inner.get("status_code"), inner.get("status"), code)
    return Refusal(_text(message), None if code is None else str(code), _text(kind), status,
                   _retry_delay(inner.get("details")))


def retry_after(headers: Mapping[str, str]) -> Optional[float]:
    """Return the seconds a provider asks us to wait, in whatever form; of several the largest."""
    known = {name.lower(): value for name, value in headers.items()}
    waits = []
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = known.get(name, "").strip()
        wait = _number(value)
        if wait is not None:
            waits.append(wait * unit)
        elif value and name == "retry-after":
            date = _date(value)
            waits += [] if date is None else [max(0.0, date - time.time())]
    return max(waits) if waits else None


def _kind(status: Optional[int], refusal: Refusal, text: str) -> Type[ModelError]:
    """The class of error.  Words come first: a wrong key can be a 400, a spent quota a 429."""
    words = " ".join([refusal.code or "", refusal.kind, refusal.message]).lower()
    number = status if status and status >= 300 else refusal.status
    if number is None or number < 500:
        for kind, signs in ((ContextLengthExceeded, CONTEXT_LENGTH), (ContentFiltered, CONTENT_FILTER),
                            (AuthenticationFailed, WRONG_KEY)):
            if any(sign in words for sign in signs):
                return kind
    if number == 402 or any(sign in words or sign in text[:4096].lower() for sign in QUOTA):
        return QuotaExhausted
    return _kind_by_word(words) if number is None else _kind_by_status(number)


def _kind_by_status(status: int) -> Type[ModelError]:
    kinds = {401: AuthenticationFailed, 403: AuthenticationFailed, 408: ModelTimeout, 409: Overloaded,
             429: RateLimited}
    return kinds.get(status) or (Overloaded if status >= 500 else BadRequest)


def _kind_by_word(words: str) -> Type[ModelError]:
    if "rate_limit" in words or "rate limit" in words:
        return RateLimited
    if "invalid_request" in words or "tool_use_failed" in words:
        return BadRequest
    if any(sign in words for sign in ("overloaded", "server_error", "api_error", "server had an error")):
        return Overloaded
    return ModelError


def _is_error(text: str) -> bool:
    """Whether a body is one that a provider of an API sends, and not that of a web server or a proxy."""
    try:
        data = decode(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, (dict, list))


def _look_at(url: str) -> str:
    hint = "the name of the model and " if "/v1/" in url else ""
    usual = "" if hint else "; a forgotten /v1 at its end is the usual cause"
    return "It was asked at %s; check %sbase_url%s" % (bare_url(url), hint, usual)


def bare_url(url: str) -> str:
    """Return a URL without what may be secret in it: user, password, query and fragment."""
    parts = urlsplit(url)
    return "%s://%s%s" % (parts.scheme, parts.netloc.rpartition("@")[2], parts.path)


def reason(error: BaseException) -> str:
    """Why a connection failed: what the innermost error of a chain of requests' and urllib3's says, in short."""
    chain = _chain(error)
    proxy = "its proxy failed: " if any(type(item).__name__ == "ProxyError" for item in chain) else ""
    return proxy + (next(filter(None, map(_short, reversed(chain))), None) or _cleaned(chain[-1]))


def _chain(error: BaseException) -> List[BaseException]:
    """An error and all that it came of, which is in its arguments, its reason, or behind it."""
    found: List[BaseException] = []
    waiting: List[Any] = [error]
    while waiting:
        item = waiting.pop(0)
        if isinstance(item, BaseException) and item not in found:
            found.append(item)
            waiting += [*item.args, getattr(item, "reason", None), item.__cause__ or item.__context__]
    return found


def _short(error: BaseException) -> str:
    """The words for an error that says enough, or ""."""
    import ssl

    if isinstance(error, ssl.SSLError):
        words = getattr(error, "verify_message", "") or (error.reason or str(error)).replace("_", " ").lower()
        return "TLS: " + words
    for kind, words in ((socket.gaierror, "the name of the host is not known"), (socket.timeout, "timed out"),
                        (ConnectionRefusedError, "connection refused"),
                        (ConnectionResetError, "the server hung up"), (BrokenPipeError, "the server hung up")):
        if isinstance(error, kind):
            return words
    # An error of requests is an OSError too, without a number.
    return error.strerror or "" if isinstance(error, OSError) and error.errno else ""


def _cleaned(error: BaseException) -> str:
    """An error's message without the objects that it shows."""
    import re

    words = re.sub(r"<[^<>]* object at 0x[0-9a-fA-F]+>:? ?|\w*(Pool|Connection)\([^()]*\):? ?", "", str(error))
    return words.strip() or type(error).__name__


def _sentence(who: str, status: Optional[int], refusal: Refusal, text: str, advice: str) -> str:
    words = [who, "answered with", "status %d" % status if status else "an error in its stream"]
    if refusal.code:
        words.append("(%s)" % refusal.code)
    said = refusal.message or (text.strip()[:MESSAGE_LIMIT] if text.strip() else "the body is empty")
    return "%s: %s [%s]" % (" ".join(words), said[:MESSAGE_LIMIT], advice)


def _without(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        if len(secret) > 3:
            text = text.replace(secret, "***")
    return text


def _text(value: Any) -> str:
    if value is None:
        return ""
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))[:MESSAGE_LIMIT]


def _visible(text: str) -> str:
    """What a reader of an HTML page would see, on one line."""
    import re

    if "<" in text:
        text = re.sub(r"(?is)<(script|style)\b.*?</\1>|<[^>]*>", " ", text)
    return " ".join(text.split())[:MESSAGE_LIMIT]


_STATUSES = frozenset(map(str, range(400, 600)))


def _status(*candidates: Any) -> Optional[int]:
    for value in candidates:
        if isinstance(value, str) and value in _STATUSES:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
            return value
    return None


def _number(value: str) -> Optional[float]:
    try:
        number = float(value)
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None


def _date(value: str) -> Optional[float]:
    from email.utils import parsedate_to_datetime

    try:
        return parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None


def _retry_delay(details: Any) -> Optional[float]:
    """The delay that Google puts into the body, such as ``{"retryDelay": "34.07s"}``."""
    for item in details if isinstance(details, list) else ():
        delay = item.get("retryDelay") if isinstance(item, dict) else None
        if isinstance(delay, str) and delay.endswith("s"):
            return _number(delay[:-1])
    return None
