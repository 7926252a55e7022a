"""Paths, links and races: nothing outside the workspace, and nothing that is denied in it, is told or changed.

Each case has its control: the same access as a tool without a guard would make
it, by `open`, gets the secret or changes it.
"""

import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from actors.agents.confinement import Confinement
from actors.agents.contract import ExecSandbox
from actors.agents.policy import Policy
from actors.tools.sandbox import detect

OUTSIDE = "canary-outside-the-workspace"
DENIED = "canary-denied-inside"


@attrs.frozen
class Attack:
    """What is tried: ``path`` by the way ``how`` of the world; ``{top}`` stands for the directory above."""

    name: str
    path: str
    how: str


# ── without the guard ───────────────────────────────────────────────────────


def naive(world: Any, attack: Attack) -> str:
    """Do what a tool does that joins the path to the root; give what it would tell."""
    path = attack.path.format(top=world.top)
    place = os.path.join(world.root, path)
    if not os.path.lexists(place):
        # As many tools do: dots are taken away by the text, before anything is looked at.
        place = os.path.normpath(place)
    if attack.how == "list":
        return " ".join(f"{OUTSIDE if 'key.txt' in name else ''} {name}" for name in os.listdir(place))
    if attack.how in ("read", "edit", "patch", "contains", "compiles", "redirect_in"):
        told = Path(place).read_text()
        if attack.how in ("edit", "patch"):
            Path(place).write_text(told.replace("canary", "changed"))
        return told
    with open(place, "a" if attack.how == "append" else "w") as file:
        file.write("changed")
    return ""


async def guarded(world: Any, attack: Attack) -> str:
    told: str = await getattr(world, attack.how)(attack.path.format(top=world.top))
    if attack.how == "list" and "key.txt" in told:
        told += OUTSIDE
    if attack.how in ("contains", "compiles") and not told.startswith("errored"):
        # Passed or failed: either tells something about the file.
        told += OUTSIDE + DENIED
    return told


# ── out of the workspace ────────────────────────────────────────────────────

LEADING_OUT = {
    "dots": "../secret/key.txt",
    "dots after a directory": "sub/../../secret/key.txt",
    "dots between": "sub/./.././../secret//key.txt",
    "dots after what is not there": "new/../../secret/key.txt",
    "absolute": "{top}/secret/key.txt",
    "two slashes": "/{top}/secret/key.txt",
    "a neighbour whose name begins alike": "{top}/workspacex/key.txt",
    "up from the root by its name": "{top}/workspace/../secret/key.txt",
    "a linked directory": "out/key.txt",
    "an absolute link": "out_abs/deep/key.txt",
    "a linked file": "file",
    "an absolute linked file": "file_abs",
    "links to links": "chain",
    "a link deep inside": "sub/far",
    "up behind a link": "out/../secret/key.txt",
    "round and out": "to_root/to_root/out/key.txt",
    "a link to the parent": "up/secret/key.txt",
    "through /proc": "proc{top}/secret/key.txt",
}
WAYS = ("read", "write", "edit", "patch", "contains", "redirect_in", "redirect_out", "append")
OUT = [Attack(f"{way}: {name}", path, way) for way in WAYS for name, path in LEADING_OUT.items()]
OUT += [
    Attack(f"list: {path}", path, "list")
    for path in ("../secret/deep", "../secret", "out", "out_abs", "{top}/secret", "to_root/out", "sub/../../secret", "up/secret", "proc{top}/secret")
]  # fmt: skip
OUT += [Attack(f"compiles: {path}", path, "compiles") for path in ("../secret/code.py", "code.py", "{top}/secret/code.py", "out/code.py")]
# New files beside the secret, whose path does not exist yet.
OUT += [
    Attack(f"{way} anew: {path}", path, way)
    for way in ("write", "redirect_out")
    for path in ("../secret/new.txt", "out/new.txt", "{top}/secret/new.txt", "up/secret/new.txt", "out/deep/../new.txt")
]


@pytest.mark.parametrize("attack", OUT, ids=lambda attack: attack.name)
async def test_attack_out_of_the_workspace(world: Any, attack: Attack) -> None:
    told = await guarded(world, attack)
    assert world.escapes(told) == []
    # The control.
    assert world.escapes(naive(world, attack)) != []


# ── to what the policy denies inside ────────────────────────────────────────

DENIED_INSIDE = {
    "by its name": ".env",
    "dots": "sub/../.env",
    "a dot": "./.env",
    "slashes": ".//.env",
    "absolute": "{top}/workspace/.env",
    "a link": "env_link",
    "a link deep inside": "sub/env_link",
    "round": "to_root/to_root/.env",
    "a denied directory": "private/p.txt",
    "its link": "private_link/p.txt",
    "a link with dots": "p_link",
    "by its ending": "server.pem",
    "a link with another ending": "pem_link",
}
INSIDE = [Attack(f"{way}: {name}", path, way) for way in WAYS for name, path in DENIED_INSIDE.items()]
INSIDE += [Attack(f"compiles: {path}", path, "compiles") for path in ("private/code.py", "private_link/code.py")]


@pytest.mark.parametrize("attack", INSIDE, ids=lambda attack: attack.name)
async def test_attack_on_what_is_denied(world: Any, attack: Attack) -> None:
    told = await guarded(world, attack)
    assert world.escapes(told) == []
    assert world.escapes(naive(world, attack)) != []


@pytest.mark.parametrize("attack", ["*", ".env", "*.pem", "private/*", "*p.txt", "?env", "out/*", "*key.txt", "file", "**/*"])
async def test_attack_by_searching(world: Any, attack: str) -> None:
    for told in (await world.grep(attack), await world.find(attack)):
        assert world.escapes(told) == [] and "key.txt:" not in told and "p.txt" not in told.replace(attack, "")
    # The control: a search that follows links and asks nobody.
    walked = [Path(here, name) for here, _, names in os.walk(world.root, followlinks=False) for name in names]
    assert world.escapes(" ".join(each.read_text() for each in walked if each.is_file())) != []


async def test_attack_by_checking_what_may_not_be_read(world: Any) -> None:
    """A checker quotes the line that it cannot read."""
    for folder, word in (("private", DENIED), ("../secret", OUTSIDE)):
        (world.root / folder / "quoted.bash").write_text(f"echo {word} (\n")
    (world.root / "quoted.bash").symlink_to("../secret/quoted.bash")
    (world.root / "again.bash").symlink_to("private/quoted.bash")
    (world.root / "ours.py").write_text("x = 1\n")
    world.begin()
    told = await world.check()
    assert world.escapes(told) == []
    assert "[1 files compile]" in told and "[2 files were left out: the policy does not let them be read]" in told
    # The control: without a guard both are quoted.
    for name in ("quoted.bash", "again.bash"):
        done = await trio.run_process(["bash", "-n", str(world.root / name)], capture_stderr=True, check=False)
        assert world.escapes(done.stderr.decode()) != []


async def test_what_a_search_left_out_is_counted(world: Any) -> None:
    for told in (await world.grep("*"), await world.find("*")):
        assert "[4 files were left out: the policy does not let them be read]" in told
    told = await world.list(".")
    assert "entries were left out: the policy does not let them be read]" in told and ".env" not in told.splitlines()


# ── races ───────────────────────────────────────────────────────────────────


@attrs.frozen
class Race:
    """What is swapped for a link between the look and the opening, and by which tool it is opened."""

    way: str
    module: str
    path: str
    swapped: str
    target: str

    @property
    def name(self) -> str:
        return f"{self.way} {self.path} while {self.swapped} becomes {self.target}"


RACES = [
    Race(way, module, path, swapped, target)
    for way, module in (
        ("read", "read_file"), ("write", "write_file"), ("edit", "edit_file"), ("patch", "edit_file"), ("contains", "verifying"),
        ("redirect_in", "shell"), ("redirect_out", "shell"), ("append", "shell"),
    )
    for path, swapped, target in (
        ("key.txt", "key.txt", "../secret/key.txt"),
        ("sub/key.txt", "sub", "../secret"),
        ("key.txt", "key.txt", ".env"),
        ("sub/p.txt", "sub", "private"),
    )
]  # fmt: skip
RACES += [Race("list", "list_dir", "sub", "sub", "../secret"), Race("compiles", "compiling", "sub/code.py", "sub", "../secret")]


@pytest.mark.parametrize("attack", RACES, ids=lambda attack: attack.name)
async def test_attack_by_a_swap(world: Any, racing: Callable[..., Any], attack: Race) -> None:
    place = world.root / attack.path
    if attack.way != "list":
        place.write_text("canary inside, to be edited\n")
    with racing(attack.module, attack.swapped, attack.target) as done:
        told = await getattr(world, attack.way)(attack.path)
    assert done, "the seam was reached"
    if attack.way == "list":
        told = told.replace("key.txt", OUTSIDE)
    if attack.way == "contains":
        told = told.replace("passed", OUTSIDE)
    assert world.escapes(told) == []
    # The control: the link is in place, and a tool that looked before it opens the secret by its name.
    assert (world.root / attack.swapped).is_symlink()
    opened = naive(world, Attack("", attack.path, attack.way))
    assert world.escapes(opened) != []


@pytest.mark.parametrize("attack", ["write", "edit", "patch", "read", "redirect_out", "redirect_in"])
@pytest.mark.parametrize("target", ["../secret/key.txt", ".env"])
async def test_attack_while_a_human_thinks(world: Any, swapped: Callable[[str, str], None], attack: str, target: str) -> None:
    (world.root / "key.txt").write_text("canary inside\n")
    done: list[bool] = []

    def meanwhile() -> None:
        if not done:
            done.append(True)
            swapped("key.txt", target)

    world.context.meanwhile = meanwhile
    told = await getattr(world, attack)("key.txt")
    assert done and world.escapes(told) == []
    assert world.escapes(naive(world, Attack("", "key.txt", attack))) != []


async def test_attack_by_another_name_of_a_file_outside(world: Any) -> None:
    """A hard link cannot be told from a file. It is not written through, since a write makes a new file."""
    os.link(world.top / "secret" / "key.txt", world.root / "hard")
    for way in ("write", "edit", "patch", "redirect_out", "append"):
        if os.stat(world.root / "hard").st_nlink == 1:
            (world.root / "hard").unlink()
            os.link(world.top / "secret" / "key.txt", world.root / "hard")
        await getattr(world, way)("hard")
        assert world.escapes() == [], way
    assert world.escapes(naive(world, Attack("", "hard", "write"))) != [] or os.stat(world.root / "hard").st_nlink == 1


@pytest.mark.parametrize("odd", ["key\0.txt", "../secret/key.txt\0", "a\n../secret/key.txt", "\x1b[2Jkey", "key\u0085", "key\ud800", "x" * 5_000, "a/" * 1_200 + "b", "", "\x7f"])
async def test_odd_characters_are_refused_and_never_repeated_as_they_are(world: Any, odd: str) -> None:
    """As they are they would clear a terminal, or end a text early."""
    for way in ("read", "write", "edit", "patch", "list", "contains"):
        told = await getattr(world, way)(odd) if odd or way != "contains" else "refused"
        assert told.startswith(("refused", "errored", "failed")), way
        assert world.escapes(told) == []
        assert not any(ord(letter) < 32 or 0x7F <= ord(letter) < 0xA0 for letter in told.replace("\n", "")) and len(told) < 1_000


@pytest.mark.parametrize("kind", ["dev", "fifo", "socket"])
async def test_what_is_no_file_is_not_opened(world: Any, kind: str) -> None:
    """A device or a pipe is not opened: a read of it would do something, or never end."""
    place = world.root / kind
    if kind == "fifo":
        os.mkfifo(place)
    elif kind == "dev":
        try:
            os.mknod(place, 0o600 | 0o020000, os.makedev(1, 9))
        except PermissionError:
            pytest.skip("only root makes devices")
    else:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(place))
    for way in ("read", "write", "edit", "patch", "redirect_in", "redirect_out", "contains"):
        told = await getattr(world, way)(kind)
        assert "is no regular file" in told, way
    assert not place.is_file(), "it is still what it was"


# ── to copies in a work tree, and from one to what is above ─────────────────


@pytest.mark.parametrize("way", ["read", "grep", "redirect_in", "contains", "patch"])
@pytest.mark.parametrize("place", [".worktrees/w-1/private/p.txt", "sub/../.worktrees/w-1/private/p.txt", ".worktrees/w-1/.env"])
async def test_attack_on_the_copy_of_what_is_denied_in_a_work_tree(world: Any, way: str, place: str) -> None:
    copied(world)
    told = await getattr(world, way)(place)
    assert world.escapes(told) == [] and "passed" not in told
    # The control: nothing but the rule keeps it.
    world.context.policy = Policy.permissive()
    told = await world.read(place)
    assert world.escapes(told) != []


def copied(world: Any) -> None:
    """Lay a copy of what is denied where a work tree has it."""
    for name in ("private/p.txt", ".env"):
        copy = world.root / ".worktrees" / "w-1" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text((world.root / name).read_text())


@pytest.mark.skipif(not detect().namespaces and detect().bubblewrap is None, reason="nothing here hides files from commands")
@pytest.mark.parametrize("path", ["../../.env", "../../private/p.txt", "../../server.pem", "../w-2/private/p.txt"])
async def test_attack_by_a_command_in_a_work_tree_on_what_is_denied_above(world: Any, path: str) -> None:
    for tree in ("w-1", "w-2"):
        (world.root / ".worktrees" / tree / "private").mkdir(parents=True)
        (world.root / ".worktrees" / tree / "private" / "p.txt").write_text((world.root / "private/p.txt").read_text())
    policy: Policy = world.context.policy
    world.context.root = str(world.root / ".worktrees" / "w-1")
    world.context.confinement = Confinement(ExecSandbox.workspace_write, policy)
    assert world.escapes(await world.exec("cat", path)) == []
    # The control: the same command without a boundary.
    world.context.confinement = Confinement(ExecSandbox.full_access)
    assert world.escapes(await world.exec("cat", path)) != []
