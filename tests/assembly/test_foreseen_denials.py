"""Arguments of an operator that the policy denies are refused while the question still stands, and cost it nothing."""

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio.lowlevel

from actors.agents.policy import Policy
from actors.agents.ports import ApprovalRequest, Defer
from actors.assembly.inbox import decide, hunk_of, waiting
from actors.errors import ConfigError
from actors.store.store import Store
from actors.testing.goal_model import call, spawn
from actors.testing.resume_bench import Bench

ASKING = Policy.permissive().layer("operator").ask_write("*").ask_exec("*").ask_spawn("*").ask_read("ask*")
DENYING = ASKING.deny_write("secrets/*").deny_exec("rm*").deny_read("hidden*").deny_spawn("agent")


@attrs.frozen
class Later:
    async def decide(self, request: ApprovalRequest) -> Defer:
        await trio.lowlevel.checkpoint()
        return Defer()


async def asking(folder: Path, asks: Any, policy: Policy = DENYING, **more: Any) -> Bench:
    """Give a run whose root, or the child that it makes, waits for a yes to one call."""
    bench = Bench(folder, {"root": [[asks], "done"], **more}, policy, Later())
    (bench.work / "a.txt").write_text("1")
    (bench.work / "b.txt").write_text("1")
    await bench.begin()
    return bench


async def refused(bench: Bench, arguments: dict[str, Any]) -> str:
    """Give what the answer is refused for; the question must stand as it stood."""
    [row] = bench.questions()
    async with Store.open(bench.file) as store:
        with pytest.raises(ConfigError) as told:
            await decide(store, row.request_id, True, "", (), arguments)
        assert [each.decision for each in store.approvals(all=True)] == [None]
    [(place, text)] = told.value.problems
    assert place == "arguments"
    return text


EDIT = call("edit_file", path="a.txt", search="1", replace="2")
PATCH = call("patch_file", path="a.txt", patch="@@\n-1\n\\ No newline at end of file\n+2\n")
CASES = [
    (call("write_file", path="a.txt", content="2"), {"path": "secrets/x", "content": "2"},
     "write secrets/x is denied by rule 'secrets/*' of layer 'operator'"),
    (call("write_file", path="a.txt", content="2"), {"path": "../x", "content": "2"}, 'the call would fail: "../x" leads out'),
    (EDIT, {"path": "secrets/x", "search": "1", "replace": "2"}, "write secrets/x is denied by rule 'secrets/*'"),
    (EDIT, {"path": "hidden.txt", "search": "1", "replace": "2"}, "read hidden.txt is denied by rule 'hidden*'"),
    (call("exec", argv=["true"]), {"argv": ["env", "rm", "-r", "."]}, "is denied by rule 'rm*' of layer 'operator'"),
    (call("shell", line="true"), {"line": "true && rm x"}, "exec rm is denied by rule 'rm*'"),
    (call("shell", line="true"), {"line": "echo 1 > secrets/x"}, "write secrets/x is denied by rule 'secrets/*'"),
    (call("shell", line="true"), {"line": "wc < hidden.txt"}, "read hidden.txt is denied by rule 'hidden*'"),
    (call("read_file", path="ask.txt"), {"path": "hidden.txt"}, "read hidden.txt is denied by rule 'hidden*'"),
    # Half a character is judged as it would be stored.
    (call("read_file", path="ask.txt"), {"path": "hidden\ud800"}, "is denied by rule 'hidden*'"),
    (call("exec", argv=["true"]), {"argv": ["rm", "\ud800"]}, "is denied by rule 'rm*'"),
    (call("write_file", path="a.txt", content="2"), {"path": "secrets/\udfff", "content": "\ud800"}, "is denied by rule 'secrets/*'"),
    # What cannot be done is no answer either: it would cost the question.
    (EDIT, {"path": "a.txt", "search": "9", "replace": "2"}, "the call would fail: \"a.txt\": search does not occur in the file"),
    (EDIT, {"path": "gone.txt", "search": "1", "replace": "2"}, "the call would fail: \"gone.txt\" does not exist"),
    (PATCH, {"path": "a.txt", "patch": "garbage"}, "the call would fail: \"a.txt\": "),
    (PATCH, {"path": "a.txt", "patch": "@@\n-9\n+2\n"}, "the call would fail: \"a.txt\": "),
]  # fmt: skip


@pytest.mark.parametrize(("asks", "instead", "why"), CASES)
async def test_what_the_policy_denies_is_refused_before_the_question_is_spent(
    tmp_path: Path, asks: Any, instead: dict[str, Any], why: str
) -> None:
    bench = await asking(tmp_path, asks)
    text = await refused(bench, instead)
    assert why in text and text.endswith("leave the question open") == ("denied" in why)
    assert {each.name: each.read_text() for each in bench.work.iterdir()} == {"a.txt": "1", "b.txt": "1"}


@pytest.mark.parametrize(
    ("asks", "instead"),
    [
        (call("write_file", path="a.txt", content="2"), {"path": "c.txt", "content": "2"}),
        (EDIT, {"path": "b.txt", "search": "1", "replace": "2"}),
        (PATCH, {"path": "b.txt", "patch": "@@\n-1\n\\ No newline at end of file\n+3\n"}),
        (call("exec", argv=["true"]), {"argv": ["true", "x"]}),
        (call("shell", line="true"), {"line": "echo 1 > c.txt"}),
        (call("read_file", path="ask.txt"), {"path": "a.txt"}),
    ],
)
async def test_what_nothing_denies_is_taken_and_nothing_of_it_is_done_by_looking(
    tmp_path: Path, asks: Any, instead: dict[str, Any]
) -> None:
    bench = await asking(tmp_path, asks)
    [row] = bench.questions()
    async with Store.open(bench.file) as store:
        assert (await decide(store, row.request_id, True, "", (), instead)).won
    assert {each.name: each.read_text() for each in bench.work.iterdir()} == {"a.txt": "1", "b.txt": "1"}


async def test_a_denied_name_of_an_agent_is_refused_too(tmp_path: Path) -> None:
    policy = Policy.permissive().layer("operator").ask_spawn("*").deny_spawn("reader")
    bench = await asking(tmp_path, spawn("child"), policy)
    wanted = {"goal": "child", "agent": "reader", "verify": {"kind": "none"}}
    assert "spawn reader is denied by rule 'reader' of layer 'operator'" in await refused(bench, wanted)


async def test_what_was_denied_to_a_child_alone_counts_for_its_questions(tmp_path: Path) -> None:
    write = call("write_file", path="a.txt", content="2")
    policy = Policy.permissive().layer("operator").ask_write("*")
    bench = await asking(tmp_path, spawn("child", deny_write=["mine*"]), policy, child=[[write], "done"])
    assert "write mine.txt is denied by rule 'mine*' of layer 'child'" in await refused(
        bench, {"path": "mine.txt", "content": "2"}
    )


async def test_a_question_of_a_child_is_judged_by_the_policy_of_the_last_resume_and_not_by_that_of_its_start(
    tmp_path: Path,
) -> None:
    write = call("write_file", path="a.txt", content="2")
    policy = Policy.permissive().layer("operator").ask_write("*")
    bench = await asking(tmp_path, spawn("child", deny_write=["mine*"]), policy.deny_write("old*"), child=[[write], "done"])
    await bench.go_on(policy=policy.deny_write("new*"))
    assert "write new.txt is denied by rule 'new*'" in await refused(bench, {"path": "new.txt", "content": "2"})
    assert "of layer 'child'" in await refused(bench, {"path": "mine.txt", "content": "2"})
    [row] = bench.questions()
    async with Store.open(bench.file) as store:
        assert (await decide(store, row.request_id, True, "", (), {"path": "old.txt", "content": "2"})).won


async def test_a_workspace_that_is_not_here_is_judged_by_whoever_has_it(tmp_path: Path) -> None:
    bench = await asking(tmp_path, call("write_file", path="a.txt", content="2"))
    bench.work.rename(tmp_path / "elsewhere")
    [row] = bench.questions()
    async with Store.open(bench.file) as store:
        assert (await decide(store, row.request_id, True, "", (), {"path": "secrets/x", "content": "2"})).won


async def test_whoever_decides_an_edit_is_shown_what_changes_and_no_credential(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str | None] = []

    class Seeing(Later):
        async def decide(self, request: ApprovalRequest) -> Defer:
            shown.append(request.hunk)
            return await super().decide(request)

    monkeypatch.setenv("A_TOKEN", "canary-value-12345")
    edit = call("edit_file", path="long.txt", search="line 250\n", replace="line two hundred and fifty\n")
    policy = Policy.permissive().layer("operator").ask_write("*")
    bench = Bench(tmp_path, {"root": [[edit], "done"]}, policy, Seeing())
    lines = [f"line {number}\n" for number in range(300)]
    file = bench.work / "long.txt"
    file.write_text("".join([*lines[:248], "canary-value-12345\n", *lines[249:]]))
    await bench.begin()
    [asked] = bench.questions()
    async with Store.open(bench.file) as store:
        [hunk] = shown
        assert hunk is not None and "-line 250\n+line two hundred and fifty\n" in hunk and "line 9\n" not in hunk
        assert "[secret]" in hunk and "canary" not in hunk
        [one] = waiting(store)
        assert one.id == asked.request_id and hunk_of(store, one) == hunk
        # The question is of the file as it was.
        file.write_text("".join(lines[:251]))
        assert hunk_of(store, one) is None


async def test_an_edit_that_was_allowed_while_its_process_was_gone_is_done_without_another_question(tmp_path: Path) -> None:
    bench = await asking(tmp_path, EDIT)
    [row] = bench.questions()
    async with Store.open(bench.file) as store:
        assert (await decide(store, row.request_id, True, "")).won
    await bench.go_on()
    assert bench.questions() == [] and len(bench.questions(all=True)) == 1
    assert (bench.work / "a.txt").read_text() == "2"
