"""What the policy says of the files of a workspace binds commands as it binds the file tools, or it is said.

Run once for every backend that this machine has, as `test_sandbox.py`.
"""

import os
from pathlib import Path

import attrs
import pytest
import trio

from actors.agents.confinement import Confinement, SandboxApplied
from actors.agents.contract import ExecSandbox
from actors.agents.policy import Defaults, Effect, Policy
from actors.agents.ports import Act
from actors.tools import sandbox_places
from actors.tools.sandbox import SandboxUnavailable, detect, sandbox_problem
from actors.tools.sandbox_grants import ASKED_BY_DEFAULT
from actors.tools.sandbox_places import planned

READ_ONLY, WRITE, FULL = ExecSandbox.read_only, ExecSandbox.workspace_write, ExecSandbox.full_access
everywhere = pytest.mark.parametrize("can", ["namespaces", "users", "rules", "bubblewrap"], indirect=True)
covering = pytest.mark.parametrize("can", ["namespaces", "users", "bubblewrap"], indirect=True)
rules_alone = pytest.mark.parametrize("can", ["rules"], indirect=True)
# Nothing is read but what a rule opens.
ONLY_SOME = Policy((), Defaults(read=Effect.deny, write=Effect.allow)).layer("operator").allow_read("src/*")


@pytest.fixture
def told():
    """What was recorded of each command."""
    return []


@pytest.fixture
def under(told):
    async def record(applied: SandboxApplied) -> None:
        told.append(applied)

    def under(mode=WRITE, policy=ONLY_SOME, **more) -> Confinement:
        return Confinement(mode, policy, record=record, **more)

    return under


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"canary of {name}\n")


# What is closed is no error of who looks.
EACH = 'for file in $(find . -type f 2> /dev/null | sort); do cat "$file" 2> /dev/null; done; true'
NAMES = ("secret.txt", "src/a.txt", "src/deep/b.txt", "srcs/c.txt", "docs/deep/d.txt", "node_modules/x/e.js", ".git/config")


# ── what a default of the policy does not let be read ───────────────────────


async def test_without_a_boundary_all_of_it_is_read(root, shell, under):
    write(root, *NAMES)
    assert (await shell(EACH, root, under(FULL))).output.count("canary") == len(NAMES)


@covering
@pytest.mark.parametrize("effect", [Effect.deny, Effect.ask])
@pytest.mark.parametrize("opened", ["src/*", "*.txt", "*/a.txt", "**/*.js", "*/deep/*"])
async def test_a_default_that_lets_nothing_be_read_holds_for_each_file_as_the_policy_says(
    effect, opened, can, root, shell, under, told
):
    write(root, *NAMES)
    policy = Policy((), Defaults(read=effect, write=Effect.allow)).layer("operator").allow_read(opened).deny_read("src/deep/*")
    wanted = [name for name in NAMES if policy.explain(Act.read, name).effect is Effect.allow]
    done = await shell(EACH, root, under(policy=policy), can)
    assert sorted(done.output.splitlines()) == sorted(f"canary of {name}" for name in wanted)
    assert told[0].not_held == ()
    assert all((root / name).read_text() == f"canary of {name}\n" for name in NAMES)


@covering
async def test_a_new_file_can_be_made_and_read_beside_what_may_be_read(can, root, shell, under):
    write(root, "src/a.txt", "b.txt")
    done = await shell("echo made > src/new && cat src/new src/a.txt && echo top > top; cat b.txt", root, under(), can)
    assert done.output.startswith("made\ncanary of src/a.txt\n") and "of b.txt" not in done.output
    assert (root / "top").read_text() == "top\n"


@rules_alone
async def test_landlock_alone_refuses_such_a_policy_by_name_and_says_so_without(can, root, shell, under, told):
    write(root, *NAMES)
    with pytest.raises(SandboxUnavailable, match="landlock alone cannot hide a file"):
        await shell(EACH, root, under(), can)
    await shell(EACH, root, under(None), can)
    assert any("read of" in each for each in told[0].not_held)
    # Where nothing may be written, every neighbour can be named.
    assert (await shell(EACH, root, under(READ_ONLY), can)).output.count("canary") == 2


@covering
async def test_such_a_policy_and_more_files_than_are_looked_at_is_refused_by_name_and_said_without(
    can, root, shell, under, told, monkeypatch
):
    monkeypatch.setattr(sandbox_places, "MOST_LOOKED_AT", 20)
    write(root, *(f"src/{number}.txt" for number in range(30)), "secret.txt")
    with pytest.raises(SandboxUnavailable, match="opens, and there are denied files beyond the first 20 entries"):
        await shell("true", root, under(), can)
    assert told == []
    await shell("true", root, under(None), can)
    assert told[0].not_held == ("denied files beyond the first 20 entries",)


def test_it_is_refused_before_anything_starts(root, monkeypatch):
    if detect().bubblewrap is None and not detect().namespaces:
        pytest.skip("nothing here covers files")
    write(root, *(f"src/{number}.txt" for number in range(30)))
    assert sandbox_problem(WRITE, ONLY_SOME, str(root)) is None
    monkeypatch.setattr(sandbox_places, "MOST_LOOKED_AT", 20)
    problem = sandbox_problem(WRITE, ONLY_SOME, str(root))
    assert problem is not None and problem.startswith("workspace_write cannot be held here")
    assert sandbox_problem(None, ONLY_SOME, str(root)) is None
    # A deny is held as far as is looked, and that is said.
    assert sandbox_problem(WRITE, Policy.default(), str(root)) is None


@pytest.mark.parametrize("mode", [READ_ONLY, WRITE])
async def test_what_refuses_each_command_under_a_named_mode_refuses_it_before_anything_starts(mode, root, under, monkeypatch):
    if detect().bubblewrap is None and not detect().landlock:
        pytest.skip("no sandbox can be had here")
    monkeypatch.setattr(sandbox_places, "MOST_COVERED", 30)
    # Each is held in its place, so a directory counts beside its file.
    policy = Policy.default().layer("op").deny_write("*/kept/a.txt")
    write(root, *(f"{number}/kept/a.txt" for number in range(10)))
    for more, refused in (((), False), (tuple(f"{number}/.env" for number in range(10)), True)):
        write(root, *more)
        plan = await planned(under(mode, policy), str(root), detect())
        problem = sandbox_problem(mode, policy, str(root))
        assert problem == plan.problem and (problem is not None) is refused
    assert "40 denied files and directories above them, and 30 can be covered; deny the directories" in problem
    assert sandbox_problem(None, policy, str(root)) is sandbox_problem(FULL, policy, str(root)) is None
    assert sandbox_problem(mode, Policy.permissive(), str(root)) is None


def test_a_workspace_that_is_not_there_yet_is_no_problem_of_the_boundary(root):
    if detect().bubblewrap is None and not detect().landlock:
        pytest.skip("no sandbox can be had here")
    assert sandbox_problem(WRITE, Policy.default(), str(root / "later")) is None


async def test_many_closed_files_take_as_few_covers_as_there_are_directories(root, under):
    write(root, *(f"closed/{number}/{place}.c" for number in range(40) for place in range(40)), "closed/1/open.txt")
    policy = Policy((), Defaults(read=Effect.deny)).layer("operator").allow_read("*.txt")
    plan = await planned(under(policy=policy), str(root), attrs.evolve(detect(), bubblewrap="/usr/bin/bwrap"))
    inside = [path for path in plan.grants.hidden if path.startswith(f"{root}/")]
    # All of the 39 directories, and each of those beside what is open.
    assert len(inside) == 39 + 40 and f"{root}/closed/0" in inside and plan.problem is None


# ── asks ────────────────────────────────────────────────────────────────────


@covering
async def test_what_a_rule_asks_about_is_neither_written_nor_read_by_a_command(can, root, shell, under, told):
    write(root, "conf/a.txt", "b.lock", "vault/c.txt", "free.txt")
    policy = Policy.permissive().layer("op").ask_write("conf/*").ask_write("*.lock").ask_read("vault/*")
    line = "for f in conf/a.txt conf/new b.lock free.txt; do echo x > $f; done; cat vault/c.txt"
    done = await shell(line, root, under(policy=policy), can)
    assert "canary" not in done.output and not (root / "conf" / "new").exists()
    kept = [(root / name).read_text() for name in ("conf/a.txt", "b.lock", "free.txt")]
    assert kept == ["canary of conf/a.txt\n", "canary of b.lock\n", "x\n"]
    assert told[0].not_held == ()


@everywhere
async def test_a_rule_that_asks_about_all_writing_makes_the_workspace_read_only(can, root, shell, under):
    policy = Policy.permissive().layer("op").ask_write("*").allow_write("out/*")
    write(root, "out/a")
    await shell("echo x > new; echo x > out/a", root, under(policy=policy), can)
    assert sorted(os.listdir(root)) == ["out"] and (root / "out" / "a").read_text() == "canary of out/a\n"


@everywhere
async def test_a_default_of_ask_lets_commands_write_and_is_said(can, root, shell, under, told):
    asking = Policy((), attrs.evolve(Policy.permissive().defaults, write=Effect.ask))
    for policy in (asking, Policy.default(), asking.layer("op").allow_write("*")):
        assert (await shell("echo x > new", root, under(policy=policy), can)).code == 0
    assert [ASKED_BY_DEFAULT in each.not_held for each in told] == [True, True, False]


# ── where a look ends ───────────────────────────────────────────────────────


@covering
async def test_denied_files_lie_also_in_build_directories_and_work_trees(can, root, shell, under, told):
    places = ("target", "node_modules/pack", ".git", ".worktrees/child")
    write(root, *(f"{place}/.env" for place in places))
    line = "; ".join(f"cat {place}/.env" for place in places)
    assert (await shell(line, root, under(FULL))).output.count("canary") == 4
    done = await shell(line, root, under(policy=Policy.default().layer("op").allow_write("*")), can)
    assert "canary" not in done.output and told[1].not_held == ()


@covering
async def test_what_was_not_looked_at_is_said_whether_the_mode_was_named_or_not(can, root, shell, under, told, monkeypatch):
    monkeypatch.setattr(sandbox_places, "MOST_LOOKED_AT", 20)
    write(root, ".env", *(f"node_modules/p{number}/x.js" for number in range(30)))
    policy = Policy.default().layer("op").allow_write("*")
    # Not even many of those use up the look for what people wrote.
    done = await shell("cat .env", root, under(policy=policy), can)
    assert "canary" not in done.output
    assert told[0].not_held == (
        "denied files in .actors, .git, .worktrees, node_modules, target beyond the first 20 entries",
    )
    write(root, *(f"src/{number}.txt" for number in range(30)), "z/.env")
    await shell("true", root, under(None, policy), can)
    assert told[1].not_held == ("denied files beyond the first 20 entries",)


@covering
async def test_more_denied_files_than_can_be_covered_are_refused_by_name_and_said_without(
    can, root, shell, under, told, monkeypatch
):
    monkeypatch.setattr(sandbox_places, "MOST_COVERED", 3)
    write(root, *(f"{number}.pem" for number in range(5)))
    policy = Policy.default().layer("op").allow_write("*")
    with pytest.raises(SandboxUnavailable, match="5 denied files and directories above them, and 3 can be covered; deny the directories"):
        await shell("true", root, under(policy=policy), can)
    await shell("true", root, under(None, policy), can)
    assert told[-1].not_held == ("5 denied files and directories above them, and 3 can be covered",)


@everywhere
async def test_a_denied_file_cannot_be_opened_and_does_not_look_empty(can, root, shell, under, outside):
    (outside / "x.pem").write_text("canary")
    policy = Policy.default().layer("op").deny_read(f"{outside}/x.pem")
    done = await shell(f"cat {outside}/x.pem && echo empty", root, under(policy=policy), can)
    assert "ermission denied" in done.output and "empty" not in done.output


async def test_full_access_says_that_no_rule_binds(root, shell, under, told):
    await shell("true", root, under(FULL))
    await shell("true", root, under(FULL, Policy.permissive()))
    assert [each.not_held for each in told] == [("full_access: no rule for files or the network binds a command",), ()]
    assert [each.net for each in told] == ["not_held", "open"]


@covering
@pytest.mark.parametrize("mode", [READ_ONLY, WRITE])
async def test_whoever_works_in_a_work_tree_reads_nothing_that_is_closed_in_the_workspace_above(mode, can, root, shell, under):
    write(root, ".env", "conf/a.txt", "open.txt", ".worktrees/w-1/src/a.txt", ".worktrees/w-2/.env")
    tree = root / ".worktrees" / "w-1"
    policy = Policy.default().layer("op").deny_read("conf/*")
    done = await shell("cd ../..; cat .env conf/a.txt .worktrees/w-2/.env", tree, under(mode, policy), can)
    assert "canary" not in done.output
    done = await shell("cat ../../open.txt src/a.txt", tree, under(mode, policy), can)
    assert done.output == "canary of open.txt\ncanary of .worktrees/w-1/src/a.txt\n"


@covering
async def test_what_is_closed_above_by_default_closes_nothing_in_a_work_tree(can, root, shell, under):
    write(root, "src/a.txt", "other.txt", ".worktrees/w-1/src/b.txt", ".worktrees/w-1/other.txt")
    tree = root / ".worktrees" / "w-1"
    done = await shell("cat src/b.txt ../../src/a.txt other.txt ../../other.txt", tree, under(), can)
    assert sorted(line for line in done.output.splitlines() if "canary" in line) == [
        "canary of .worktrees/w-1/src/b.txt", "canary of src/a.txt"
    ]


# ── attacks on what is covered ──────────────────────────────────────────────


@covering
@pytest.mark.parametrize("glob", ["deep/vault/*", "deep*/vault/a*"])
@pytest.mark.parametrize("hide", ["ask_read", "deny_read"])
async def test_a_covered_place_is_not_moved_out_from_under_its_rule(hide, glob, can, root, shell, under):
    """A rule names a path. Whoever moves a directory above it reads the rest at the next command."""
    write(root, "deep/vault/a.txt", "deep/other/b.txt")
    policy = getattr(Policy.permissive().layer("op"), hide)(glob)
    await shell("mv deep/vault v; mv deep d; mv deep/other o", root, under(policy=policy), can)
    done = await shell("cat v/a.txt d/vault/a.txt deep/vault/a.txt", root, under(policy=policy), can)
    assert "canary" not in done.output
    assert (root / "deep" / "vault" / "a.txt").read_text() == "canary of deep/vault/a.txt\n"


@covering
async def test_a_name_that_may_be_written_nowhere_is_no_reason_to_let_what_is_hidden_be_moved(can, root, shell, under):
    write(root, "deep/vault/a.lock")
    policy = Policy.permissive().layer("op").deny_read("deep/vault/*.lock").deny_write("*.lock")
    await shell("mv deep d", root, under(policy=policy), can)
    assert "canary" not in (await shell("cat d/vault/a.lock", root, under(policy=policy), can)).output


@covering
async def test_what_is_closed_wherever_it_lies_leaves_the_directories_above_it_free(can, root, shell, under):
    write(root, "app/.env", "app/a.txt", "deep/vault/b.txt", "deep/other/c.txt")
    policy = Policy.default().layer("op").allow_write("*").deny_read("deep/vault/*")
    done = await shell("mv app moved && echo x > deep/new && mv deep/other deep/o && cat deep/o/c.txt", root, under(policy=policy), can)
    assert (done.code, done.output) == (0, "canary of deep/other/c.txt\n")
    assert "canary" not in (await shell("cat moved/.env", root, under(policy=policy), can)).output


@covering
async def test_a_file_that_may_not_be_written_is_not_moved_out_from_under_its_rule(can, root, shell, under):
    write(root, "deep/tests/check.py")
    policy = Policy.permissive().layer("op").deny_write("deep/tests/*")
    line = "mv deep d && mkdir -p deep/tests && echo mine > deep/tests/check.py"
    await shell(line, root, under(policy=policy), can)
    assert (root / "deep" / "tests" / "check.py").read_text() == "canary of deep/tests/check.py\n"


# ── the store ───────────────────────────────────────────────────────────────


@everywhere
@pytest.mark.parametrize("policy", [Policy.permissive(), Policy.default()], ids=["permissive", "default"])
async def test_the_store_beside_the_workspace_is_closed_to_commands_under_every_policy(policy, can, root, shell, under):
    beside = root.parent / "kept"
    write(beside, "runs.db", "runs.db-wal", "notes.txt")
    own = (str(beside / "runs.db"), str(beside / "runs.db-wal"), str(beside / "runs.db-shm"))
    line = "cat ../kept/runs.db ../kept/runs.db-wal ../kept/notes.txt"
    assert (await shell(line, root, under(FULL, policy))).output.count("canary") == 3
    done = await shell(line, root, under(policy=policy, hidden=own), can)
    assert [line for line in done.output.splitlines() if "canary" in line] == ["canary of notes.txt"]


@covering
async def test_the_store_inside_the_workspace_is_neither_read_nor_written(can, root, shell, under):
    write(root, ".actors/runs.db")
    line = "cat .actors/runs.db; echo mine > .actors/runs.db; rm -rf .actors; mv .actors a; cat a/runs.db"
    done = await shell(line, root, under(policy=Policy.permissive(), hidden=(str(root / ".actors"),)), can)
    assert "canary" not in done.output
    assert (root / ".actors" / "runs.db").read_text() == "canary of .actors/runs.db\n"


def test_the_look_gives_way_to_others(root):
    write(root, *(f"d{number}/x" for number in range(20)))

    async def main() -> int:
        turns = 0

        async def other() -> None:
            nonlocal turns
            while True:
                turns += 1
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(other)
            await planned(Confinement(WRITE, Policy.default()), str(root), detect())
            nursery.cancel_scope.cancel()
        return turns

    assert trio.run(main) > 10


@covering
async def test_what_may_not_be_read_is_hidden_in_work_trees_too(can, root, shell, under):
    write(root, "conf/a.txt", ".worktrees/w-1/conf/a.txt", ".worktrees/w-1/b.txt")
    policy = Policy.permissive().layer("op").deny_read("conf/*")
    done = await shell("cd .worktrees/w-1; cat b.txt conf/a.txt; mv conf c; cat c/a.txt", root, under(policy=policy), can)
    assert "canary of .worktrees/w-1/b.txt" in done.output
    assert "canary of .worktrees/w-1/conf" not in done.output


@covering
async def test_what_may_not_be_written_may_not_be_in_work_trees_too(can, root, shell, under):
    names = ("tests/a.txt", ".worktrees/w-1/tests/a.txt", ".worktrees/w-1/b.txt", ".worktrees/w-1/.worktrees/w-2/tests/a.txt")
    write(root, *names)
    policy = Policy.permissive().layer("op").deny_write("tests/*")
    line = "; ".join(f"echo x > {name}" for name in names) + "; cd .worktrees/w-1; echo x > tests/new; mv tests t; rm -r tests; true"
    await shell(line, root, under(policy=policy), can)
    assert [name for name in names if (root / name).read_text() == "x\n"] == [".worktrees/w-1/b.txt"]
    assert sorted(os.listdir(root / ".worktrees/w-1")) == [".worktrees", "b.txt", "tests"]
    assert os.listdir(root / ".worktrees/w-1/tests") == ["a.txt"]


async def test_a_directory_in_which_nothing_may_be_written_is_one_place_however_many_files_it_has(root, monkeypatch):
    monkeypatch.setattr(sandbox_places, "MOST_COVERED", 8)
    write(root, *(f"{tree}tests/deep/{number}.txt" for tree in ("", ".worktrees/w-1/", ".worktrees/w-2/") for number in range(9)))
    whole = await planned(Confinement(WRITE, Policy.permissive().layer("op").deny_write("tests/*")), str(root), detect())
    assert whole.problem is None
    assert [path.removeprefix(f"{root}/") for path in whole.grants.protected] == [
        ".worktrees/w-1/tests", ".worktrees/w-2/tests", "tests"
    ]  # fmt: skip
    # A rule for some of them is one for each.
    some = await planned(Confinement(WRITE, Policy.permissive().layer("op").deny_write("tests/*.txt")), str(root), detect())
    assert some.problem is not None and "can be covered" in some.problem
