"""What a killed process leaves in the place for temporary files is cleared by a later one, and nothing that lives is."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import trio

from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox
from actors.agents.policy import Policy
from actors.testing.effort import count_calls
from actors.tools import private_places
from actors.tools.private_places import MOST_SECONDS, PREFIX, private_place, remove_left
from actors.tools.removing import remove_directory
from actors.tools.sandbox import boundary

REPOSITORY = Path(__file__).parents[2]
WITH_ONE = """
import trio
from actors.tools.private_places import private_place

async def main():
    place = await private_place()
    open(place.path + "/file", "w").close()
    print(place.path, flush=True)
    await trio.sleep_forever()

trio.run(main)
"""


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty place for temporary files, that nobody has cleared yet."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setattr(private_places, "_cleared", set())
    return place


def started(base: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", WITH_ONE], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY, env={**os.environ, "TMPDIR": str(base)}
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def is_there(path: str) -> bool:
    return os.path.lexists(path)


async def test_a_later_start_clears_what_a_killed_one_left_and_leaves_what_lives(base):
    killed, left = started(base)
    living, held = started(base)
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert is_there(f"{left}/file"), "the control: nobody removed it"
        async with boundary(Confinement(ExecSandbox.read_only, Policy.permissive()), str(base.parent)) as around:
            assert not is_there(left)
            assert is_there(f"{held}/file")
            # And so does what this process itself has in use.
            remove_left(str(base))
            assert is_there(around._temporary or "")
        assert os.listdir(base) == [os.path.basename(held)]
    finally:
        living.kill()
        living.wait()
        for process in (killed, living):
            assert process.stdout is not None
            process.stdout.close()
    remove_left(str(base))
    assert os.listdir(base) == []


def test_only_what_is_ours_is_cleared_and_no_link_is_followed(base, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").write_text("x")
    (base / f"{PREFIX}link").symlink_to(tmp_path / "mine")
    (base / f"{PREFIX}file").write_text("x")
    (base / "another").mkdir()
    left = base / f"{PREFIX}left"
    left.mkdir()
    (left / "link").symlink_to(tmp_path / "mine")
    (left / "sub").mkdir()
    (left / "sub/link").symlink_to(tmp_path / "mine/file")
    if os.geteuid() == 0:
        (base / f"{PREFIX}other").mkdir()
        os.chown(base / f"{PREFIX}other", 65534, 65534)
    remove_left(str(base))
    assert sorted(os.listdir(base)) == sorted(
        ["another", f"{PREFIX}file", f"{PREFIX}link", *([f"{PREFIX}other"] if os.geteuid() == 0 else [])]
    )
    assert (tmp_path / "mine/file").read_text() == "x"


async def test_one_that_is_taken_for_left_while_it_is_made_is_made_again(base, monkeypatch):
    made: list[str] = []
    real = tempfile.mkdtemp

    def swept(**options: str) -> str:
        path = real(**options)
        made.append(path)
        if len(made) == 1:
            remove_left(str(base))
        return path

    monkeypatch.setattr(tempfile, "mkdtemp", swept)
    place = await private_place()
    assert len(made) == 2 and place.path == made[1] and is_there(place.path)
    await place.remove()
    assert os.listdir(base) == []


async def test_where_nothing_can_be_locked_nothing_is_taken_for_left(base, monkeypatch):
    def refuses(*_: int) -> None:
        raise OSError(38, "not here")

    monkeypatch.setattr(private_places.fcntl, "flock", refuses)
    place = await private_place()
    assert is_there(place.path) and not os.path.basename(place.path).startswith(PREFIX)
    remove_left(str(base))
    assert is_there(place.path)
    await place.remove()
    assert os.listdir(base) == []


def test_clearing_ends_after_a_while_and_the_next_start_goes_on(base):
    for number in range(4):
        left = base / f"{PREFIX}{number}"
        (left / "sub").mkdir(parents=True)
        for name in range(10):
            (left / "sub" / str(name)).write_text("x")

    def there() -> int:
        return sum(len(names) for _, _, names in os.walk(base))

    # A file system on which each look at the clock finds it a tenth of the time later.
    ticks = iter(range(10_000))

    def slow() -> float:
        return next(ticks) * MOST_SECONDS / 10

    remove_left(str(base), slow)
    after_one, looks = there(), next(ticks)
    assert 25 <= after_one < 40 and looks <= 25
    while there():
        remove_left(str(base), slow)
    remove_left(str(base))
    assert os.listdir(base) == []


# ── removing ────────────────────────────────────────────────────────────────


def nested(place: Path, depth: int) -> None:
    """Nest directories deeper than a path may be long."""
    before = os.open(".", os.O_RDONLY)
    try:
        os.chdir(place)
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
            open("file", "w").close()
    finally:
        os.fchdir(before)
        os.close(before)


def test_what_is_nested_deeper_than_a_recursion_goes_is_removed(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    nested(place, sys.getrecursionlimit() * 2)
    assert remove_directory(str(place)) and not place.exists()


def test_rights_that_were_taken_away_keep_nothing():
    """Root has them all; so as somebody without, in a place that everybody can reach."""
    base = Path(tempfile.mkdtemp())
    place = base / "place"
    (place / "a/b/c").mkdir(parents=True)
    (place / "a/b/file").write_text("x")
    (place / "a/b/c/file").write_text("x")
    paths = [str(place / name) for name in ("a/b/c/file", "a/b/c", "a/b/file", "a/b", "a", "")]
    code = f"""
import os
from actors.tools.removing import remove_directory
for path in {paths!r}:
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    os.chmod(path, 0)
if os.geteuid() == 0:
    os.chown({str(base)!r}, 65534, 65534)
    os.setgid(65534)
    os.setuid(65534)
print(remove_directory({str(place)!r}))
"""
    try:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
        assert (done.stdout, place.exists()) == ("True\n", False), done.stderr
    finally:
        base.rmdir()


def test_removing_is_bounded_and_goes_on_where_it_ended(tmp_path):
    place = tmp_path / "place"
    for number in range(40):
        (place / str(number)).mkdir(parents=True)
        (place / str(number) / "file").write_text("x")
    rounds = 1
    while not remove_directory(str(place), 10):
        rounds += 1
    assert 5 <= rounds <= 10 and not place.exists()


@pytest.mark.parametrize("shape", ["wide", "deep"])
def test_removing_costs_as_much_as_there_is(tmp_path, shape):
    made = []
    for size in (100, 400):
        place = tmp_path / str(size)
        place.mkdir()
        if shape == "deep":
            nested(place, size)
        else:
            for number in range(size):
                (place / str(number)).mkdir()
        with count_calls() as calls:
            assert remove_directory(str(place))
        made.append(calls.made)
    assert made[1] < 5 * made[0]


async def test_a_command_that_nests_without_end_does_not_end_the_run(base):
    async with boundary(Confinement(ExecSandbox.read_only, Policy.permissive()), str(base.parent)) as around:
        nested(Path(around._temporary or ""), sys.getrecursionlimit() + 100)
        await trio.lowlevel.checkpoint()
    assert os.listdir(base) == []
