"""Globs mean what they say, take linear time, and are refused when they could match nothing."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from actors.agents.globs import (
    MOST_CHARACTERS,
    GlobSet,
    glob_problem,
    net_glob,
    net_glob_problem,
    net_names,
    path_glob,
    path_glob_problem,
    path_names,
)
from actors.agents.platform_names import Platform
from actors.testing.effort import does_not_run_away

GLOBS = st.lists(st.sampled_from([*"ab*?[.\n/", "**/", "/**/"]), min_size=1, max_size=8).map("".join)
TARGETS = st.text(alphabet="ab[.\n/", max_size=10)
DIRECTORIES = re.compile(r"\*{2,}/")


def means(glob: str, target: str, before: str = "/") -> bool:
    """The model: a star is nothing, or one character and the star again; ``**/`` at a part's begin is directories."""
    if not glob:
        return not target
    if before == "/" and (found := DIRECTORIES.match(glob)):
        starts = [0, *(at + 1 for at, letter in enumerate(target) if letter == "/")]
        return any(means(glob[found.end() :], target[at:]) for at in starts)
    if glob[0] == "*":
        rest = glob.lstrip("*")
        return means(rest, target, "*") or (bool(target) and means("*" + rest, target[1:], "*"))
    return bool(target) and glob[0] in ("?", target[0]) and means(glob[1:], target[1:], glob[0])


def matches(glob: str, target: str) -> bool:
    return GlobSet((glob,)).first([target]) == 0


@given(GLOBS, TARGETS)
@example("a*a", "a")
@example("*ab*b", "ab")
@example("a**b?", "aabb")
@example("**/a", "a")
@example("**/a", "b/ba")
@example("a/**/b*", "a/b")
@example("**/**/a", "b/a")
@example("a**/b", "ab")
def test_a_glob_matches_what_the_simplest_reading_of_it_says(glob, target):
    assert matches(glob, target) == means(glob, target)


@given(st.lists(GLOBS, min_size=1, max_size=6), st.lists(TARGETS, min_size=1, max_size=2))
def test_the_first_glob_that_matches_any_name_is_named(globs, names):
    fitting = [place for place, glob in enumerate(globs) if any(means(glob, name) for name in names)]
    assert GlobSet(tuple(globs)).first(names) == (fitting[0] if fitting else None)


@pytest.mark.parametrize(
    ("glob", "target", "expected"),
    [
        ("*", "", True),
        ("src/*", "src/a/b.py", True),
        ("src/?", "src//", True),
        ("*.pem", "deep/down/a.pem", True),
        ("*.pem", "a.pem.txt", False),
        ("a[b]", "ab", False),
        ("a[b]", "a[b]", True),
        ("a.c", "abc", False),
        ("(a|b)", "a", False),
        ("x", "x\n", False),
        ("**/x", "x", True),
        ("**/x", "a/b/x", True),
        ("**/x", "ax", False),
        ("a/**/x", "a/x", True),
        ("a/**/x", "a/b/c/x", True),
        ("a/**/x", "ax", False),
        ("/**/x", "/x", True),
        ("a/**", "a/b/c", True),
        ("a/**", "a", False),
        ("a**/x", "a/x", True),
        ("a**/x", "ax", False),
    ],
)
def test_only_star_and_question_mark_are_special(glob, target, expected):
    assert matches(glob, target) is expected


@pytest.mark.parametrize(
    "glob",
    [
        "*a*a*a*b",
        "*" + "a*" * 2_000 + "b",
        "*" + "a" * 2_000 + "b*",
        "*" + "?" * 2_000 + "b*",
        "*" + "a?" * 1_000 + "b",
        "**/a/" * 800 + "b",
        "**/" * 1_300 + "b",
    ],
)
def test_no_glob_takes_long_over_a_target_made_to_hurt_it(glob):
    globs = GlobSet((glob,))
    globs.first([""])
    # Milliseconds in truth; trying every way would take longer than anybody waits.
    with does_not_run_away():
        assert globs.first(["a" * MOST_CHARACTERS]) is None


@pytest.mark.parametrize("glob", ["", "a\0b", "a\nb", "\x7f", "\x85", "a" * (MOST_CHARACTERS + 1), None, 3, b"a", " a", "a ", "!a"])
def test_a_malformed_glob_has_a_problem(glob):
    assert glob_problem(glob)


@pytest.mark.parametrize("glob", ["*", "[", "a b", "ü", "a" * MOST_CHARACTERS, "\\"])
def test_a_sound_glob_has_none(glob):
    assert glob_problem(glob) is None


@pytest.mark.parametrize("glob", ["./a", "../a", "a/../b", "a/./b", "a//b", "secrets/", "a/.", "..", "~/x", "~", "~you/x", "$HOME/x", "**/"])
def test_a_path_glob_that_no_resolved_path_can_match_has_a_problem(glob):
    assert "can match nothing" in (path_glob_problem(glob) or "")


@pytest.mark.parametrize("glob", ["[ab].txt", "{a,b}.txt", "src/[", "a/${HOME}"])
def test_a_path_glob_in_another_language_has_a_problem_that_says_what_to_write(glob):
    assert "write a rule for each that is meant, or ? for" in (path_glob_problem(glob) or "")


@pytest.mark.parametrize(
    "glob", [".", "/", "/etc/*", "a/b", "*/..x", ".env", "a/*", "...", "~$doc", "a~/b", "$a.txt", "a]", "**/x", "?id]"]
)
def test_a_path_glob_that_a_resolved_path_can_match_has_none(glob):
    assert path_glob_problem(glob) is None


def test_a_path_answers_to_the_whole_of_it_and_to_its_last_part():
    assert path_names("a/b/.env", platform=Platform.unix) == ("a/b/.env", ".env")
    assert path_names(".env", platform=Platform.unix) == (".env",)
    assert path_names("/", platform=Platform.unix) == ("/",)


def test_on_unix_a_backslash_is_a_letter_of_a_name():
    assert path_names("a\\.env", platform=Platform.unix) == ("a\\.env",)
    assert path_glob("a\\b", platform=Platform.unix) == "a\\b"


@pytest.mark.parametrize("target", ["C:\\W\\.env", "\\\\?\\C:\\w\\.ENV", "c:/w/.env"])
@pytest.mark.parametrize("glob", ["C:\\w\\*", "\\\\?\\C:\\w\\.env", "c:/W/.env", ".env"])
def test_on_windows_every_spelling_of_a_file_is_one_file(glob, target):
    globs = GlobSet((path_glob(glob, platform=Platform.windows),))
    assert globs.first(path_names(target, platform=Platform.windows)) == 0


def test_a_share_of_windows_keeps_its_two_slashes():
    assert path_glob("\\\\?\\UNC\\host\\share", platform=Platform.windows) == path_glob("\\\\host\\share", platform=Platform.windows)


@pytest.mark.parametrize(
    ("glob", "target", "expected"),
    [
        ("example.com", "example.com:443", True),
        ("example.com:443", "example.com:443", True),
        ("example.com:80", "example.com:443", False),
        ("Example.COM", "EXAMPLE.com:443", True),
        ("example.com.", "example.com:443", True),
        ("example.com", "example.com.:443", True),
        ("*.example.com", "a.example.com:443", True),
        ("*.example.com", "example.com:443", False),
        ("*:443", "example.com:443", True),
        ("example.com:*", "example.com:443", True),
        ("example.com", "example.com", True),
        ("com:443", "a/com:443", False),
        ("::1", "[::1]:443", True),
        ("[::1]", "[::1]:443", True),
        ("[::1]:443", "[0:0:0:0:0:0:0:1]:443", True),
        ("0:0::1", "[::1]:80", True),
        ("[::1]:443", "[::1]:80", False),
        ("fe80:*", "[FE80::2]:80", True),
        ("[fe80:*]:80", "[fe80::2]:80", True),
        ("::2", "[::1]:2", False),
        ("*", "[::1]:80", True),
        # One address has many spellings, and a system connects to all of them.
        ("127.0.0.1", "127.1:80", True),
        ("127.0.0.1", "2130706433:80", True),
        ("127.0.0.1", "0x7f.0.0.1:80", True),
        ("127.0.0.1", "0177.0.0.1:80", True),
        ("127.0.0.1:80", "[::ffff:127.0.0.1]:80", True),
        ("::ffff:7f00:1", "127.0.0.1:80", True),
        ("127.*", "0x7f000001:80", True),
        ("127.1", "127.0.0.1:80", True),
        ("127.1:*", "127.0.0.1:80", True),
        ("127.1:8?", "127.0.0.1:80", True),
        ("127.1:8?", "127.0.0.1:443", False),
        ("example.com.:*", "example.com:443", True),
        ("[0:0:0:0:0:0:0:1]:*", "[::1]:80", True),
        ("[::ffff:127.0.0.1]:*", "127.0.0.1:80", True),
        ("10:*", "[10::1]:80", True),
        ("*.example.com:*", "a.example.com:1", True),
        ("127.0.0.1", "127.0.0.2:80", False),
        ("127.0.0.1", "127.0.0.1.example:80", False),
        ("1.2.3.4", "1.2.3.4.5:80", False),
        ("0.0.0.255", "0.0.0.0400:80", False),
        ("example.com:443", "example.com:0443", True),
        ("example.com:0443", "example.com:443", True),
    ],
)
def test_a_net_glob_names_a_host_or_a_host_and_port(glob, target, expected):
    assert (GlobSet((net_glob(glob),)).first(net_names(target)) == 0) is expected


@pytest.mark.parametrize("glob", ["x:99999", "*:70000", "[::1]:65536", "x:" + "9" * 4_000, "{a,b}.org", "[ab].org"])
def test_a_net_glob_that_no_host_and_port_can_match_has_a_problem(glob):
    assert net_glob_problem(glob)


@pytest.mark.parametrize("glob", ["x:65535", "*:443", "[::1]:443", "[fe80:*]:80", "::1", "fe80::12", "[::1]", "[fe80::1%eth0]:80"])
def test_a_net_glob_that_some_host_and_port_can_match_has_none(glob):
    assert net_glob_problem(glob) is None
