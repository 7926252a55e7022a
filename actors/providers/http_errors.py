"""What a failed model call means: its kind, how long to wait, and one line of text. Pure.

Exceptions are told apart by the names of their classes and not by the classes
themselves: a caller may bring a client of another library with the same
interface, whose errors have the same names and are not httpx's.
"""

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, Final

from actors.agents.entry_text import clean
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind

MOST_ERROR_TEXT: Final = 300

# Endpoints agree on no code for "the prompt is too long", so their wording is the only sign.
_OVERFLOW: Final = re.compile(
    r"context[ _-]?(?:length|window|size)|maximum (?:context|prompt|input)|too many (?:input )?tokens"
    r"|(?:input|prompt|request|messages?)(?: \w+)? (?:is|are) too (?:long|large)|reduce the length|exceeds? the context"
    r"|longer than the (?:model|maximum)|input token count",
    re.IGNORECASE,
)
_SECONDS: Final = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")

# The order matters: the first name found among an error's classes decides, and the special ones stand first.
_BY_CLASS: Final = (
    ("TimeoutException", ProviderErrorKind.timeout),
    ("UnsupportedProtocol", ProviderErrorKind.request),
    ("LocalProtocolError", ProviderErrorKind.request),
    ("TransportError", ProviderErrorKind.transport),
    ("DecodingError", ProviderErrorKind.malformed),
    ("TooManyRedirects", ProviderErrorKind.request),
    ("InvalidURL", ProviderErrorKind.request),
    ("OSError", ProviderErrorKind.transport),
)


def classify_status(status: int, text: str = "") -> ProviderErrorKind:
    """Tell what a status that is no success means; ``text`` is what the endpoint said about it."""
    if status == 429:
        return ProviderErrorKind.rate_limited
    if status >= 500:
        return ProviderErrorKind.server
    if status in (401, 403):
        return ProviderErrorKind.auth
    if status == 408:
        return ProviderErrorKind.timeout
    if status in (400, 413) and _OVERFLOW.search(text):
        return ProviderErrorKind.context_overflow
    return ProviderErrorKind.request


def classify_exception(error: BaseException) -> ProviderErrorKind | None:
    """Tell what an exception of an HTTP client means; None when it is no failure of the wire."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return next((kind for name, kind in _BY_CLASS if name in names), None)


def was_refused(status: int) -> bool:
    """Tell whether a status says that no model has run, so that nothing was used.

    Other server errors leave it open: a gateway may give up on a model that runs on,
    and is billed.
    """
    return (400 <= status < 500 and status != 408) or status in (503, 529)


def was_never_sent(error: BaseException) -> bool:
    """Tell whether an exception of an HTTP client came before the request left."""
    names = {cls.__name__ for cls in type(error).__mro__}
    return bool(names & {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol", "InvalidURL"})


def parse_retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Read how many seconds the endpoint asks to wait; None when it names no usable wait.

    ``now`` is the wall clock, in seconds since 1970. Both ``retry-after`` (seconds,
    also with a fraction, or an HTTP date) and ``retry-after-ms`` count; the longer
    one wins. Never shorter than what was asked: a date names a whole second, so
    the wait to it is rounded up. A date that has passed names no wait: the clocks
    differ, and going at once would be a storm.
    """
    lowered = {name.lower(): value for name, value in headers.items() if name.lower().startswith("retry-after")}
    waits = (
        _milliseconds(lowered.get("retry-after-ms", "").strip()),
        _seconds_or_date(lowered.get("retry-after", "").strip(), now),
    )
    return max((wait for wait in waits if wait is not None), default=None)


def _milliseconds(text: str) -> float | None:
    return float(text) / 1000 if _SECONDS.fullmatch(text) else None


def _seconds_or_date(text: str, now: float) -> float | None:
    if _SECONDS.fullmatch(text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
        until = (date if date.tzinfo is not None else date.replace(tzinfo=UTC)).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
    return float(math.ceil(until - now)) if until > now else None


def error_text(payload: Any) -> str:
    """Find the line a person should read in an error's body: JSON in its usual shapes, else the text itself."""
    if isinstance(payload, bytes):
        text = payload.decode("utf-8", "replace")
        try:
            payload = json.loads(text)
        except (ValueError, RecursionError):
            payload = text
    for key in ("error", "message", "detail"):
        if isinstance(payload, Mapping) and payload.get(key) is not None:
            payload = payload[key]
    return one_line(payload if isinstance(payload, str) else json.dumps(payload))


def one_line(text: str) -> str:
    """Make any text one printable line of bounded length."""
    line = " ".join(clean(text[: 4 * MOST_ERROR_TEXT]).split())
    line = "".join(char if char.isprintable() else "\ufffd" for char in line)
    return line if len(line) <= MOST_ERROR_TEXT else line[: MOST_ERROR_TEXT - 1] + "…"


def response_error(status: int, headers: Mapping[str, str], body: bytes, now: float) -> ProviderError:
    """Make the typed error for a response that is no success. ``now`` is the wall clock.

    Its usage is zero where the status says that no model has run, else unknown.
    """
    if 300 <= status < 400:
        text = "redirects are not followed: give the final address as base_url"
        return ProviderError(ProviderErrorKind.request, f"HTTP {status}: {text}", status=status, usage=Usage())
    text = error_text(body)
    # The whole body is searched: the code that names an overflow often stands beside the message.
    kind = classify_status(status, body.decode("utf-8", "replace"))
    return ProviderError(
        kind,
        f"HTTP {status}: {text}" if text else f"HTTP {status}",
        status=status,
        retry_after=parse_retry_after(headers, now),
        usage=Usage() if was_refused(status) else None,
    )


def embedded_error(payload: Any) -> ProviderError:
    """Make the typed error for an error object that came inside a success.

    Gateways do so when the upstream failed after the headers were sent. A code that
    is an HTTP status decides the kind; without one the answer is malformed.
    """
    code = payload.get("code") if isinstance(payload, Mapping) else None
    text = error_text(payload)
    if type(code) is int and 400 <= code < 600:
        return ProviderError(classify_status(code, text), f"error in the answer: {text}", status=code)
    return ProviderError(ProviderErrorKind.malformed, f"error in the answer: {text}")
