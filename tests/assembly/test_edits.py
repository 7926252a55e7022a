"""Each call that changed a file leaves one row of it, with its result: a kill leaves both or neither."""

import os
import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.lowlevel

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import Observation, ObservationKind, ToolContext, ToolSpec
from actors.agents.rows import Edited, StepDone
from actors.agents.verification import Verification
from actors.assembly.edited_files import EditedFile, edited_in
from actors.assembly.reopening import reopen
from actors.assembly.reporting import run_report
from actors.assembly.running import run, run_with
from actors.halts import HaltKind
from actors.providers.scripted import Scripted
from actors.store.records import EditRecord
from actors.store.store import Store, open_reader
from actors.testing.dying_store import Death, holds
from actors.testing.goal_model import GoalModel, call
from actors.testing.resume_bench import Bench, finished
from actors.tools.toolbox import builtin_tools
from actors.tools.write_file import WriteFile

NEW = "--- f.txt\n+++ f.txt\n@@\n-two\n+second\n"
WROTE = call("write_file", path="f.txt", content="one\ntwo\n")
EDIT = call("edit_file", path="f.txt", search="one", replace="first\nand more")
PATCH = call("patch_file", path="f.txt", patch=NEW)
# Something that acts stands between them, so results are stored before the step is.
CALLS = [WROTE, EDIT, call("act"), PATCH]
ANSWERS: dict[str, Any] = {"root": [CALLS, "done"]}
WHOLE = [
    (1, 1, "write_file", "f.txt", 2, 0, "@@ -0,0 +1,2 @@\n+one\n+two\n"),
    (1, 2, "edit_file", "f.txt", 2, 1, "@@ -1,2 +1,3 @@\n-one\n+first\n+and more\n two\n"),
    (1, 4, "patch_file", "f.txt", 1, 1, "@@ -1,3 +1,3 @@\n first\n and more\n-two\n+second\n"),
]


@attrs.define
class Acts:
    """A tool that may have done something, and may be run again."""

    read_only: bool = False
    recovery: str = "replayable"
    meanwhile: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint
    spec: ToolSpec = ToolSpec("act", "Act.", {"type": "object", "properties": {}})

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> Observation:
        await self.meanwhile()
        return Observation(ObservationKind.tool, "act", "acted")


TOOLS = (*builtin_tools(), Acts())


def facts(edits: Sequence[EditRecord]) -> list[tuple[Any, ...]]:
    return [
        (each.step, each.ordinal, each.tool, each.path, each.lines_added, each.lines_removed, each.hunk)
        for each in edits
    ]


def edits(bench: Bench) -> list[tuple[Any, ...]]:
    with open_reader(bench.file) as reader:
        return facts(reader.edits(bench.run_id))


async def of_one(root: Path, *calls: Any, policy: Policy | None = None, **fields: Any) -> list[tuple[Any, ...]]:
    contract = TaskContract.workspace("g", root, Verification.none(), **fields)
    store = Store.memory()
    ran = await run_with(contract, Scripted([list(calls), []]), store, policy or Policy.permissive(), ApproveAll())
    return facts(store.edits(ran.run_id))


async def test_each_tool_that_changes_a_file_leaves_what_it_changed(tmp_path: Path) -> None:
    bench = Bench(tmp_path, ANSWERS, tools=TOOLS)
    assert finished(await bench.begin())
    assert edits(bench) == WHOLE
    # The hunk stands once: what it was noted for is done.
    assert bench.sql("select count(*) from write_intents") == [3]
    assert bench.sql("select count(*) from write_intents where hunk is not null") == [0]
    bench.check()


async def test_what_changes_nothing_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("one\n")
    (tmp_path / "g").mkdir()
    calls = [
        call("write_file", path="f.txt", content="one\n"),
        call("edit_file", path="f.txt", search="one", replace="one"),
        call("edit_file", path="f.txt", search="missing", replace="x"),
        call("write_file", path="g", content="a directory"),
        call("write_file", path=".git/config", content="x"),
        call("git_status"),
        call("read_file", path="f.txt"),
    ]
    assert await of_one(tmp_path, *calls) == []
    denied = Policy.permissive().layer("operator").deny_write("f.txt")
    assert await of_one(tmp_path, call("write_file", path="f.txt", content="x"), policy=denied) == []
    assert (tmp_path / "f.txt").read_text() == "one\n"


async def test_the_one_file_of_a_task_is_told_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "note.txt"
    file.write_text("a\nb\n")
    contract = TaskContract("g", file, Verification.file_contains("c")).with_max_steps(1)
    store = Store.memory()
    result = await run(contract, Scripted([[("write_file", {"content": "a\nc\n"})]]), store)
    assert facts(store.edits(result.run_id)) == [(1, 1, "write_file", "note.txt", 1, 1, "@@ -1,2 +1,2 @@\n a\n-b\n+c\n")]


async def test_a_text_that_the_agent_may_not_read_is_counted_and_not_told(tmp_path: Path) -> None:
    (tmp_path / "f.txt").write_text("hidden\n")
    blind = Policy.permissive().layer("operator").deny_read("*.txt")
    calls = [call("write_file", path=name, content="own\n") for name in ("f.txt", "new.txt")]
    assert await of_one(tmp_path, *calls, policy=blind) == [
        (1, 1, "write_file", "f.txt", 1, 1, None),
        # What it made is its own text, all of it.
        (1, 2, "write_file", "new.txt", 1, 0, "@@ -0,0 +1,1 @@\n+own\n"),
    ]


async def test_what_is_no_text_is_counted(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"\xff\n\0")
    assert await of_one(tmp_path, call("write_file", path="f", content="own\n")) == [(1, 1, "write_file", "f", 1, 2, None)]


# ── a process that ends ─────────────────────────────────────────────────────


async def test_a_process_that_ends_anywhere_leaves_each_edit_once_and_with_the_text_from_before(tmp_path: Path) -> None:
    count = 0
    for at in range(1, 99):
        bench = Bench(tmp_path / str(at), ANSWERS, tools=TOOLS)
        bench.work.mkdir(parents=True, exist_ok=True)
        if await bench.begin(death=Death(at=at, after=True)) is not None:
            break
        if not bench.stands:
            continue
        seen = edits(bench)
        assert seen == WHOLE[: len(seen)]
        done = bench.sql("select count(*) from call_results where changed = 1 and step = 1")[0]
        whole = bench.sql("select count(*) from steps where step = 1")[0]
        # An edit stands with its result, and with nothing else.
        assert len(seen) == (3 if whole else done)
        if bench.agents()["root"].status != "completed":
            assert finished(await bench.go_on()), at
        assert edits(bench) == WHOLE, at
        bench.check()
        count += 1
    assert count > 4


async def test_a_file_that_somebody_changed_before_the_call_is_run_again_is_told_as_it_was_then(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WROTE], "done"]})
    assert await bench.begin(death=Death(when=holds(StepDone))) is None
    assert (bench.work / "f.txt").read_text() == "one\ntwo\n" and edits(bench) == []
    (bench.work / "f.txt").write_text("other\ntwo\n")
    assert finished(await bench.go_on())
    assert edits(bench) == [(1, 1, "write_file", "f.txt", 1, 1, "@@ -1,2 +1,2 @@\n-other\n+one\n two\n")]
    bench.check()


class WriteAndReport:
    """A tool of somebody's own that writes, and is no tool that may simply be run again."""

    def __init__(self) -> None:
        self._inner = WriteFile()
        self.spec = self._inner.spec
        self.read_only = False

    async def run(self, arguments: Mapping[str, Any], context: Any) -> Any:
        return await self._inner.run(arguments, context)


async def test_a_tool_whose_effect_is_journalled_leaves_its_edit_with_its_result(tmp_path: Path) -> None:
    tools = (WriteAndReport(), *(each for each in builtin_tools() if each.spec.name != "write_file"))
    bench = Bench(tmp_path, {"root": [[WROTE], "done"]}, tools=tools)  # type: ignore[arg-type]
    committed: list[list[str]] = []

    def looks(rows: Sequence[Any]) -> bool:
        if any(isinstance(row, Edited) for row in rows):
            committed.append([type(row).__name__ for row in rows])
        return False

    assert finished(await bench.begin(death=Death(when=looks)))
    assert committed == [["CallDone", "Edited", "AttemptClosed"]]
    assert edits(bench) == WHOLE[:1]
    bench.check()


async def test_a_file_of_an_older_version_has_no_edits_and_gets_them_from_now_on(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WROTE], [EDIT], [PATCH], "done"]})
    assert await bench.begin(death=Death(when=holds(StepDone, lambda row: row.step == 2))) is None
    connection = sqlite3.connect(bench.file)
    with connection:
        connection.execute("drop table edits")
        for column in ("lines_added", "lines_removed", "hunk"):
            connection.execute(f"alter table write_intents drop column {column}")
    connection.close()
    assert edits(bench) == []
    assert finished(await bench.go_on())
    # Of the second one nobody noted how the file had been: it is not known, and nothing is made up.
    assert edits(bench) == [(3, 1, *WHOLE[2][2:])]
    bench.check()


async def test_a_reopened_run_tells_an_edit_of_which_the_old_one_had_no_result(tmp_path: Path) -> None:
    tool = Acts()
    bench = Bench(tmp_path, {"root": [[WROTE, call("act")], "done"]}, tools=(*builtin_tools(), tool))
    tool.read_only = True

    async def stop() -> None:
        assert bench.tree is not None
        bench.tree.halt_nowait(HaltKind.cancel)
        await trio.sleep_forever()

    tool.meanwhile = stop
    ran = await bench.begin()
    assert ran is not None and ran.outcome.kind is OutcomeKind.cancelled
    assert (bench.work / "f.txt").read_text() == "one\ntwo\n" and edits(bench) == []
    tool.meanwhile = trio.lowlevel.checkpoint
    async with Store.open(bench.file) as store:
        again = await reopen(
            bench.run_id, GoalModel({"root": ["done"]}), store, approver=ApproveAll(), tools=bench.tools
        )
        assert facts(store.edits(again.run_id)) == WHOLE[:1]
        assert store.edits(bench.run_id) == []


# ── who reads it ────────────────────────────────────────────────────────────


async def test_a_report_sums_up_what_was_changed_and_a_step_names_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[*CALLS, call("read_file", path="f.txt")], [call("read_file", path="no")], "done"]}, tools=TOOLS)
    assert finished(await bench.begin())
    with open_reader(bench.file) as reader:
        assert run_report(reader, bench.run_id)["edits"] == {
            "files": 1, "edits": 3, "lines_added": 5, "lines_removed": 2,
        }  # fmt: skip
        files = edited_in(reader, bench.run_id, 1)
        assert files == [EditedFile("f.txt", 2, 0), EditedFile("f.txt", 2, 1), EditedFile("f.txt", 1, 1)]
        assert edited_in(reader, bench.run_id, 2) == []


async def test_a_file_of_an_older_version_says_nothing_of_edits(tmp_path: Path) -> None:
    bench = Bench(tmp_path, {"root": [[WROTE], "done"]})
    assert finished(await bench.begin())
    bench.sql("drop table edits")
    with open_reader(bench.file) as reader:
        assert run_report(reader, bench.run_id)["edits"] is None
        assert edited_in(reader, bench.run_id, 1) == []
    bench.check()


@pytest.mark.parametrize("several", [False, True], ids=["one line", "several lines"])
async def test_no_credential_stands_in_a_hunk_or_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, several: bool
) -> None:
    secret, lines = "sk-canary-0123456789", "-----BEGIN-----\nMIIcanary0123456789abc\nMIIcanary9876543210xyz\n-----END-----"
    monkeypatch.setenv("SOME_API_KEY", secret)
    monkeypatch.setenv("OTHER_SECRET", lines)
    bench = Bench(tmp_path, {"root": [[WROTE, call("write_file", path="link", content="x\n")], "done"]})
    (bench.work / f"{secret}.txt").write_text("y\n")
    (bench.work / "link").symlink_to(f"{secret}.txt")
    # It was there before the agent was: whoever wrote over it would have it in the store.
    (bench.work / "f.txt").write_text(f"key = {secret}\n{lines if several else secret}\nrest\n")
    assert await bench.begin(death=Death(when=holds(StepDone))) is None
    assert await bench.go_on() is not None
    [hunk, path] = edits(bench)[0][-1], edits(bench)[1][3]
    assert path == "[secret].txt"
    # Lines that went with a credential leave no diff behind.
    assert hunk is None if several else hunk.count("[secret]") == 2 and "-rest" in hunk
    for name in os.listdir(tmp_path):
        if name.startswith("runs.db"):
            data = (tmp_path / name).read_bytes()
            assert secret.encode() not in data and b"MIIcanary" not in data, name
