"""The names of every platform, judged here for all of them: what is one file is one name, and what hides is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.globs import GlobSet, exec_glob, exec_names, path_glob, path_names
from actors.agents.platform_names import (
    Platform,
    fold_glob,
    fold_target,
    name_problem,
    path_problem,
    platform_of,
)
from actors.errors import ToolFailed
from actors.tools.paths import Workspace

WINDOWS, MACOS, UNIX = Platform.windows, Platform.macos, Platform.unix

REFUSED_ON_WINDOWS = {
    "CON": "device", "con": "device", "Nul": "device", "NUL.txt": "device", "nul.tar.gz": "device", "AUX.": "device",
    "COM1": "device", "com9.log": "device", "LPT1": "device", "COM\u00b9": "device", "lpt\u00b3.x": "device",
    "COM0": "device", "CONIN$": "device", "conout$": "device", "PRN .txt": "device", "NUL:": "device", "clock$": "device",
    ".env.": "ends in a dot", ".env ": "ends in a dot", ".env. . ": "ends in a dot", "a..": "ends in a dot",
    ".env::$DATA": "colon", "a.txt:secret": "colon", "dir:$I30:$INDEX_ALLOCATION": "colon", "C:": "colon",
    "PROGRA~1": "short name", "ENV~1": "short name", "SECRET~1.TXT": "short name", "GIT~1": "short name",
    "ab~12.pem": "short name",
    'a"b': "no file name", "a<b": "no file name", "a|b": "no file name", "a?": "no file name", "a*": "no file name",
    "a\x1fb": "no file name",
}  # fmt: skip
FINE_ON_WINDOWS = [
    "console", "connect.py", "nullable", "com", "com10", "lpt", "auxiliary.txt", ".env", ".gitignore", "a.b.c", "a b",
    "naïve.txt", "~1", "backup~", "a~b", "notes~1a", "...x", "long-name~1.text",
]  # fmt: skip


@pytest.mark.parametrize(("name", "why"), REFUSED_ON_WINDOWS.items())
def test_a_name_that_hides_what_it_means_is_refused_on_windows_and_is_a_name_on_unix(name: str, why: str) -> None:
    assert why in (name_problem(name, WINDOWS) or "")
    assert why in (path_problem(f"a/{name}/b", WINDOWS) or "")
    assert name_problem(name, UNIX) is None and path_problem(f"a/{name}", UNIX) is None


@pytest.mark.parametrize("name", FINE_ON_WINDOWS)
def test_an_honest_name_is_taken_everywhere(name: str) -> None:
    assert all(name_problem(name, platform) is None for platform in Platform)
    assert all(path_problem(f"{name}/../{name}", platform) is None for platform in Platform)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("\\\\host\\share\\x", "another machine"), ("//host/share/x", "another machine"), ("\\\\?\\C:\\x", "verbatim"),
        ("\\\\.\\PhysicalDrive0", "verbatim"), ("//?/UNC/host/share", "verbatim"), ("\\/host\\x", "another machine"),
        ("C:secret.txt", "current directory"), ("C:", "current directory"), ("c:..\\x", "current directory"),
        ("C:\\task\\NUL", "device"), ("a\\con\\b", "device"), ("a\\..\\.env.", "ends in a dot"),
    ],
)  # fmt: skip
def test_a_path_that_leads_elsewhere_on_windows_is_refused_before_anything_is_looked_up(path: str, why: str) -> None:
    assert why in (path_problem(path, WINDOWS) or "")
    assert path_problem(path, UNIX) is None


@pytest.mark.parametrize("path", ["C:\\task\\a.txt", "c:/task/a.txt", "a\\b", "..\\a", ".", "a//b"])
def test_an_honest_path_of_windows_is_walked(path: str) -> None:
    assert path_problem(path, WINDOWS) is None


SAME_ON_WINDOWS = [".env", ".ENV", ".Env.", ".env ", ".env...", ".env::$DATA", ".env:stream", "\\\\?\\.env", ".ENV. ."]


@pytest.mark.parametrize("spelled", SAME_ON_WINDOWS)
@pytest.mark.parametrize("above", ["", "a/", "a\\", "A/b. /", "C:\\w\\"])
def test_a_deny_holds_for_every_spelling_of_a_file_on_windows(spelled: str, above: str) -> None:
    if spelled.startswith("\\"):
        above = ""
    globs = GlobSet((path_glob(".env", platform=WINDOWS),))
    assert globs.first(path_names(above + spelled, platform=WINDOWS)) == 0


SAME_ON_MACOS = [("caf\u00e9", "cafe\u0301"), ("Secret", "sECRET"), ("\u00c9t\u00e9", "e\u0301te\u0301"), ("\u212b", "\u00e5"), ("\u1e69", "s\u0307\u0323"), ("\uac00", "\u1100\u1161")]


@pytest.mark.parametrize(("one", "other"), SAME_ON_MACOS)
def test_two_spellings_of_one_file_of_macos_answer_to_one_rule_both_ways(one: str, other: str) -> None:
    for rule, target in ((one, other), (other, one)):
        globs = GlobSet((path_glob(f"{rule}/*", platform=MACOS),))
        assert globs.first(path_names(f"{target}/x", platform=MACOS)) == 0
        # The control: on unix these are two files.
        assert GlobSet((path_glob(f"{rule}/*", platform=UNIX),)).first(path_names(f"{target}/x", platform=UNIX)) is None


@pytest.mark.parametrize("letter", ["\u200c", "\u200d", "\u200e", "\u202e", "\u2060", "\u206a", "\ufeff"])
def test_an_invisible_letter_is_refused_on_macos(letter: str) -> None:
    assert "invisible" in (name_problem(f".g{letter}it", MACOS) or "")
    assert name_problem(f".g{letter}it", UNIX) is None


NAMES = st.text("aAé\u0301.: ~1\\/Cß\u1e9eİ", max_size=12)


@given(NAMES, st.sampled_from(Platform))
def test_folding_twice_is_folding_once(name: str, platform: Platform) -> None:
    for fold in (fold_glob, fold_target):
        assert fold(fold(name, platform), platform) == fold(name, platform)


@given(NAMES)
def test_on_unix_a_name_is_its_bytes(name: str) -> None:
    assert fold_target(name, UNIX) is name and fold_glob(name, UNIX) is name


@given(NAMES)
def test_a_rule_that_was_written_for_a_name_fits_that_name_on_every_platform(one: str) -> None:
    for platform in Platform:
        if one:
            assert GlobSet((path_glob(one, platform=platform),)).first(path_names(one, platform=platform)) == 0


def test_the_platform_is_told_by_the_systems_word() -> None:
    words = ("linux", "freebsd14", "darwin", "win32", "cygwin")
    assert [platform_of(word) for word in words] == [UNIX, UNIX, MACOS, WINDOWS, WINDOWS]


def test_the_guard_asks_for_the_platform_it_is_on(tmp_path) -> None:
    (tmp_path / "NUL").write_text("a file like any other")
    (tmp_path / "link").symlink_to("NUL")
    assert Workspace(str(tmp_path), platform=UNIX).resolve("NUL") == "NUL"
    for asked in ("NUL", "a/NUL.txt/b", "C:x", "link"):
        with pytest.raises(ToolFailed, match=r"device|drive"):
            Workspace(str(tmp_path), platform=WINDOWS).resolve(asked)
    with pytest.raises(ToolFailed, match="invisible"):
        Workspace(str(tmp_path), platform=MACOS).resolve("a\u200cb")


PROGRAMS = [
    ("rm", "RM"), ("rm*", "RM x"), ("RM", "rm"), ("Rm *", "rM x"), ("RM*", "rm -r x"), ("/Bin/rm", "/bin/RM"), ("*rm x", "RM x"), ("git commit -S*", "GIT commit -S"),
]  # fmt: skip


@pytest.mark.parametrize(("glob", "target"), PROGRAMS)
def test_a_program_is_compared_as_the_file_system_does(glob, target):
    """Where it takes capitals for small letters, another spelling starts the same program; elsewhere it is another file."""
    for platform in (MACOS, WINDOWS):
        assert GlobSet((exec_glob(glob, platform=platform),)).first(exec_names(target, platform=platform)) == 0
    assert GlobSet((exec_glob(glob, platform=UNIX),)).first(exec_names(target, platform=UNIX)) is None


@pytest.mark.parametrize(("glob", "target"), [("rm", "rm.exe"), ("rm *", "RM.EXE x"), ("rm.exe", "rm"), ("rm.exe *", "rm x"), ("rm.e*", "rm.exe"), ("C:/x/rm", "c:\\x\\RM.cmd")])
def test_what_windows_adds_to_the_name_of_a_program_hides_it_from_no_rule(glob, target):
    assert GlobSet((exec_glob(glob, platform=WINDOWS),)).first(exec_names(target, platform=WINDOWS)) == 0


@pytest.mark.parametrize(("glob", "target"), [("git commit -S*", "git commit -s"), ("rm X", "rm x"), ("*RM x", "a rm x"), ("rm.exe*", "rmdir"), ("*X", "rm x")])
def test_in_arguments_capitals_stay_what_they_are(glob, target):
    for platform in (UNIX, MACOS, WINDOWS):
        assert GlobSet((exec_glob(glob, platform=platform),)).first(exec_names(target, platform=platform)) is None
        # As it is written it is itself everywhere.
        assert GlobSet((exec_glob(glob, platform=platform),)).first(exec_names(glob.replace("*", "a"), platform=platform)) == 0
