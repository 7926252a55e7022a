"""Credentials are known by their names, and stand in no text that went through, cut or escaped as it may be."""

import base64
import html
import json
import re
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.secret_values import HIDDEN, MOST_FOUND, SHOWN, SHOWN_LAST, Redactor, is_secret_name, values_in
from actors.testing.effort import does_not_run_away

VALUES = st.text("abcXYZ019-_/+é\"\\", min_size=SHOWN, max_size=40)


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "ANTHROPIC_API_KEY", "github_token", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD", "PGPASSWD",
     "SSH_PASSPHRASE", "GH_PAT", "SENTRY_DSN", "KEY", "MY_TOKEN_2", "DB_PASS", "MYSQL_PASS", "SMTP_PASS_2", "AWS_CREDS", "SESSION_COOKIE",
     "SLACK_WEBHOOK_URL", "AZURE_STORAGE_CONNECTION_STRING", "SQL_CONNSTR", "SERVICE_JWT", "API_BEARER", "ORACLE_PSWD",
     "GOOGLE_CREDENTIALS", "HTTP_AUTH"],
)  # fmt: skip
def test_a_credential_is_known_by_its_name(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["PATH", "HOME", "PWD", "OLDPWD", "LANG", "SSH_KEY_FILE", "TOKEN_PATH", "PATTERN", "AUTHOR", "COMPASS", "BYPASS_CHECK", "PASSIVE"])
def test_a_place_or_a_plain_word_is_no_credential(name: str) -> None:
    assert not is_secret_name(name)


def test_an_address_with_a_password_is_a_credential_whatever_it_is_called() -> None:
    environ = {"HTTPS_PROXY": "http://me:hunter2hunter2@proxy:3128", "A": "https://ghp_0123456789@github.com/x", "B": "http://host/a:b@c"}
    assert values_in(environ) == ("me:hunter2hunter2", "hunter2hunter2", "ghp_0123456789")


def test_short_values_of_the_environment_are_left_alone_and_own_ones_are_not() -> None:
    assert values_in({"USE_KEY": "yes", "A_KEY": "  canary-0123456 \n"}) == ("canary-0123456",)
    assert Redactor((), ("k3y",)).hide("a k3y b") == "a [secret] b"


@given(VALUES, st.text("ab ", max_size=10), st.text("ab ", max_size=10))
def test_no_spelling_of_a_value_is_left(value: str, before: str, after: str) -> None:
    redactor = Redactor((value,))
    for spelled in (
        value, json.dumps(value)[1:-1], quote(value, safe=""), repr(value)[1:-1], " ".join(value.split()), html.escape(value),
        re.sub("%..", lambda code: code[0].lower(), quote(value, safe="")),
    ):  # fmt: skip
        if len(spelled) >= SHOWN:
            assert spelled not in redactor.hide(f"{before} {spelled} {after}")


@given(VALUES, st.binary(max_size=9), st.binary(max_size=9), st.sampled_from([base64.b64encode, base64.urlsafe_b64encode]))
def test_a_value_inside_of_what_is_encoded_in_base_64_is_hidden(value: str, before: bytes, after: bytes, encode: Any) -> None:
    # As a user with a password stands in a header, or a credential in a stored secret.
    told = encode(before + value.encode() + after).decode()
    kept = Redactor((value,)).hide(f"Basic {told}").removeprefix("Basic ")
    assert HIDDEN in kept
    # What is left are the neighbours, and letters that they share with the value.
    assert len(kept.replace(HIDDEN, "")) <= -(-len(before) * 8 // 6) + -(-len(after) * 8 // 6) + 5


@given(VALUES, st.integers(1, 32))
def test_whoever_chooses_where_a_value_is_cut_does_not_see_the_rest(value: str, place: int) -> None:
    rest = value[place:]
    told = Redactor((value,)).hide(f"{rest} and more")
    # Of a short ending so little is told as of a short beginning, or a little more.
    assert rest not in told or len(rest) < SHOWN_LAST


def test_each_line_of_a_value_with_several_is_hidden_by_itself() -> None:
    key = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0B\nAQEFAASCBKcwggSjAgEAAoIB\n-----END KEY-----"
    redactor = Redactor((key,))
    assert redactor.hide("3: AQEFAASCBKcwggSjAgEAAoIB") == "3: [secret]"
    assert redactor.hide(f"it is {key}!") == "it is [secret]!"
    # The frame by itself is no credential, and what begins like one is not lost.
    assert redactor.hide("-----END KEY-----") in ("-----END KEY-----", "[secret]")


def test_a_value_of_blanks_hides_no_words() -> None:
    assert Redactor(("a        b", " " * 12), ("  ",)).hide("a b c") == "a b c"


@given(VALUES, st.integers(SHOWN, 40))
def test_a_value_that_was_cut_is_hidden_too(value: str, length: int) -> None:
    assert value[:length] not in Redactor((value,)).hide(f"... bad key {value[:length]}")


@given(st.text(max_size=60), VALUES)
def test_a_text_without_it_is_left_as_it_is(text: str, value: str) -> None:
    if value[:SHOWN] not in text:
        kept = Redactor(()).hide(text)
        assert kept is text


def test_values_that_begin_alike_are_all_hidden_whole() -> None:
    redactor = Redactor(("canary-0-short", "canary-0-long-and-longer"))
    assert redactor.hide("canary-0-long-and-longer canary-0-short") == "[secret] [secret]"


def test_a_redactor_shows_no_value_of_its_own() -> None:
    redactor = Redactor(("canary-0123",), ("own",))
    assert "canary" not in repr(redactor) and "own" not in repr(redactor)
    assert redactor and not Redactor()


@pytest.mark.parametrize(
    ("value", "text"),
    [("a" * 16_000, "a" * 2_000_000), ("canary-0123", "canary-0123" * 200_000), ("canary-0123", "canary-0" * 200_000)],
)
def test_a_text_made_to_hurt_takes_no_time_and_shows_nothing(value: str, text: str) -> None:
    # Milliseconds in truth.
    with does_not_run_away():
        hidden = Redactor((value,)).hide(text)
    assert value[:SHOWN] not in hidden and len(hidden) <= (MOST_FOUND + 1) * 20
