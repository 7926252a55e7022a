"""A failure has one kind, and a wait that was asked for is never shortened."""

from datetime import UTC, datetime
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.containment.usage import Usage
from actors.errors import ProviderErrorKind as Kind
from actors.providers.http_errors import (
    MOST_ERROR_TEXT,
    classify_exception,
    classify_status,
    error_text,
    parse_retry_after,
    response_error,
    was_never_sent,
)

NOW = datetime(2026, 11, 30, 12, 0, 0, 200_000, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (429, Kind.rate_limited, True),
        (500, Kind.server, True),
        (503, Kind.server, True),
        (529, Kind.server, True),
        (408, Kind.timeout, True),
        (401, Kind.auth, False),
        (403, Kind.auth, False),
        (400, Kind.request, False),
        (404, Kind.request, False),
        (413, Kind.request, False),
        (422, Kind.request, False),
    ],
)
def test_each_status_has_its_kind(status, kind, retryable):
    assert classify_status(status, "something") is kind
    assert kind.retryable is retryable


@pytest.mark.parametrize(
    "text",
    [
        '{"error": {"code": "context_length_exceeded"}}',
        "This model's maximum context length is 8192 tokens",
        "prompt is too long: 213462 tokens > 200000 maximum",
        "Please reduce the length of the messages",
        "the request exceeds the available context size",
        "Input tokens exceed the configured limit: input token count 9 is too large",
    ],
)
def test_a_prompt_that_is_too_long_is_known_by_its_wording(text):
    assert classify_status(400, text) is Kind.context_overflow
    assert classify_status(413, text) is Kind.context_overflow
    assert classify_status(422, text) is Kind.request


@pytest.mark.parametrize(
    ("error", "kind", "unsent"),
    [
        (httpx.ConnectTimeout("a"), Kind.timeout, True),
        (httpx.ReadTimeout("a"), Kind.timeout, False),
        (httpx.ConnectError("a"), Kind.transport, True),
        (httpx.ReadError("a"), Kind.transport, False),
        (httpx.RemoteProtocolError("a"), Kind.transport, False),
        (httpx.LocalProtocolError("a"), Kind.request, False),
        (httpx.UnsupportedProtocol("a"), Kind.request, True),
        (httpx.DecodingError("a"), Kind.malformed, False),
        (ConnectionResetError("a"), Kind.transport, False),
        (ValueError("a"), None, False),
    ],
)
def test_each_failure_of_the_wire_has_its_kind(error, kind, unsent):
    assert classify_exception(error) is kind
    assert was_never_sent(error) is unsent


def test_errors_of_another_library_with_the_same_interface_are_understood():
    class TransportError(Exception):
        pass

    class ReadError(TransportError):
        pass

    assert classify_exception(ReadError()) is Kind.transport


def date(seconds: float) -> str:
    return format_datetime(datetime.fromtimestamp(NOW + seconds, UTC), usegmt=True)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"Retry-After": "30"}, 30.0),
        ({"retry-after": " 1.5 "}, 1.5),
        ({"retry-after": "0"}, 0.0),
        ({"Retry-After-Ms": "250"}, 0.25),
        ({"retry-after": "1", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "2", "retry-after-ms": "1500"}, 2.0),
        ({"retry-after": "garbage", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": date(59.8)}, 60.0),
        ({"retry-after": date(10 * 365 * 86400 + 0.8)}, 10 * 365 * 86400 + 1.0),
        ({"retry-after": "Mon Nov 30 12:00:10 2026"}, 10.0),
        ({"retry-after": "Monday, 30-Nov-26 12:00:10 GMT"}, 10.0),
        ({"retry-after": date(-5)}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "garbage"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "1e9"}, None),
        ({"retry-after": "٣"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "9" * 400}, None),
        ({"retry-after": "Mon, 30 Nov 99999 12:00:00 GMT"}, None),
        ({}, None),
    ],
)
def test_every_form_of_a_wished_wait_is_read(headers, wait):
    assert parse_retry_after(headers, NOW) == wait


@given(ahead=st.integers(1, 10**6), fraction=st.floats(0, 0.999))
def test_a_date_is_never_reached_too_early(ahead, fraction):
    now = 1_800_000_000 + fraction
    text = format_datetime(datetime.fromtimestamp(1_800_000_000 + ahead, UTC), usegmt=True)
    wait = parse_retry_after({"retry-after": text}, now)
    assert wait is not None
    assert ahead - fraction <= wait <= ahead + 1


@given(st.text(max_size=30))
def test_no_header_breaks_the_parser(text):
    wait = parse_retry_after({"retry-after": text, "retry-after-ms": text}, NOW)
    assert wait is None or wait >= 0


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error": {"message": "bad key", "code": 1}}', "bad key"),
        (b'{"error": "plain"}', "plain"),
        (b'{"message": "m"}', "m"),
        (b'{"detail": [1]}', "[1]"),
        (b"<html>\n\n oops \x00</html>", "<html> oops \ufffd</html>"),
        (b"", ""),
    ],
)
def test_the_line_for_a_person_is_found(body, text):
    assert error_text(body) == text


def test_an_error_of_any_length_is_one_bounded_line():
    error = response_error(500, {}, b"line\n" * 100_000, NOW)
    assert "\n" not in str(error)
    assert len(str(error)) < MOST_ERROR_TEXT + 50


def test_an_error_carries_status_and_wait_and_whether_it_cost_anything():
    limited = response_error(429, {"retry-after": "7"}, b"", NOW)
    assert (limited.status, limited.retry_after, limited.usage) == (429, 7.0, Usage())
    assert str(limited) == "rate_limited: HTTP 429"
    assert response_error(529, {}, b"", NOW).usage == Usage()
    assert response_error(504, {}, b"", NOW).usage is None
    assert response_error(408, {}, b"", NOW).usage is None


def test_a_redirect_says_what_to_do():
    error = response_error(307, {}, b"", NOW)
    assert error.kind is Kind.request
    assert "base_url" in str(error)
