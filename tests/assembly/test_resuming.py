"""A run that was cut anywhere goes on under its id, as if it had not been."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.outcomes import OutcomeKind
from actors.agents.policy import Policy
from actors.agents.ports import CompletionRequest
from actors.agents.tree import Tree
from actors.agents.verification import Verification
from actors.assembly.resuming import resume, resume_tree, resume_tree_from_stored_policy
from actors.assembly.running import RunResult, run, run_tree
from actors.containment.limits import Containment
from actors.errors import ConfigError, RunConflict
from actors.halts import HaltKind
from actors.store.store import Store
from actors.testing.goal_model import GoalModel, spawn, without_figures

LIMITS = Containment(50, 4, 4, 1_000_000)
# Of each request, also by the worst case.
TOKENS = 15


def cut_short(answers: Mapping[str, Sequence[Any]], stop_at: int, stop: Callable[[], object]) -> GoalModel:
    """Make a model that calls ``stop`` when so many requests have arrived, and answers no more."""

    async def cut(_request: CompletionRequest) -> None:
        if len(model.requests) == stop_at:
            stop()
        if len(model.requests) >= stop_at:
            await trio.sleep_forever()

    model = GoalModel(answers, cut)
    return model


def write(path: str, content: str) -> tuple[str, dict[str, Any]]:
    return "write_file", {"path": path, "content": content}


ANSWERS: Mapping[str, Sequence[Any]] = {
    "root": [
        [write("a.txt", "one"), spawn("first"), spawn("second"), spawn("first")],
        [("edit_file", {"path": "a.txt", "search": "one", "replace": "one and one"}), spawn("beside", wait=False)],
        [("read_file", {"path": "a.txt"})],
        [write("b.txt", "two")],
        "all done",
    ],
    # Twins: two of this goal work beside each other, so they only read, and each reads the same.
    "first": [[("read_file", {"path": "a.txt"})], [("read_file", {"path": "none.txt"})], "first done"],
    "second": [[spawn("below"), ("read_file", {"path": "a.txt"})], "second done"],
    "below": ["below done"],
    "beside": [[write("beside.txt", "b")], "beside done"],
}


def contract(folder: Path, **fields: Any) -> TaskContract:
    return TaskContract.workspace(
        "root", folder, Verification.workspace_file_contains("b.txt", "two"), **fields
    ).with_max_steps(8)


def workspace(folder: Path, name: str) -> Path:
    made = folder / name
    made.mkdir()
    return made


async def cut_and_go_on(folder: Path, stop_at: int) -> tuple[RunResult, list[GoalModel], Store, Path]:
    """Run a tree, interrupt it at the n-th request, and go on from the file with another store object."""
    place = workspace(folder, f"cut{stop_at}")
    opened: list[Tree] = []
    first = cut_short(ANSWERS, stop_at, lambda: opened[0].halt_nowait(HaltKind.interrupt))
    async with Store.open(folder / f"{stop_at}.db") as store:
        ran = await run_tree(
            contract(place), first, store, Policy.permissive(), ApproveAll(), LIMITS, on_open=opened.append
        )
    second = GoalModel(ANSWERS)
    async with Store.open(folder / f"{stop_at}.db") as store:
        if ran.terminal is None:
            ran = await resume_tree_from_stored_policy(ran.run_id, second, store, ApproveAll())
    return ran, [first, second], store, place


def asked(models: Sequence[GoalModel]) -> list[str]:
    """Give what was asked, once each. What a child drew may hold an estimate of a call that was cut."""
    return sorted({without_figures(repr(request)) for model in models for request in model.requests})


async def test_a_tree_that_is_interrupted_at_any_request_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, models, _, place = await cut_and_go_on(tmp_path, 10_000)
    assert whole.outcome.kind is OutcomeKind.success
    questions, files = asked(models), {each.name: each.read_text() for each in place.iterdir()}
    spent = whole.outcome.spent_tokens
    for stop_at in range(1, len(models[0].requests) + 1):
        went_on, both, _, place = await cut_and_go_on(tmp_path, stop_at)
        assert went_on.outcome.kind is OutcomeKind.success, (stop_at, went_on)
        assert {each.name: each.read_text() for each in place.iterdir()} == files, stop_at
        # A background report may be read one step earlier or later; nothing else may differ.
        seen = set(asked(both))
        missing = [each for each in questions if each not in seen and "beside" not in each]
        more = [each for each in seen if each not in questions and "beside" not in each]
        assert (missing, more) == ([], []), stop_at
        assert went_on.leaks.empty
        assert went_on.outcome.spent_tokens >= spent


async def test_a_run_that_has_ended_is_reported_and_asked_nothing(tmp_path: Path) -> None:
    model = GoalModel(ANSWERS)
    async with Store.open(tmp_path / "runs.db") as store:
        place = workspace(tmp_path, "w")
        ran = await run_tree(contract(place), model, store, Policy.permissive(), ApproveAll(), LIMITS)
        rows = store.select("select count(*) from run_events")
        again = await resume_tree(ran.run_id, GoalModel(ANSWERS), store, Policy.permissive(), ApproveAll())
        assert (again.outcome, again.terminal) == (ran.outcome, ran.terminal)
        assert store.select("select count(*) from run_events") == rows


async def test_an_unknown_run_and_an_agent_are_refused(tmp_path: Path) -> None:
    async with Store.open(tmp_path / "runs.db") as store:
        with pytest.raises(ConfigError, match="there is no run nope"):
            await resume("nope", GoalModel(ANSWERS), store)
        place = workspace(tmp_path, "w")
        ran = await run_tree(contract(place), GoalModel(ANSWERS), store, Policy.permissive(), ApproveAll(), LIMITS)
        with pytest.raises(ConfigError, match="is an agent of"):
            await resume(f"{ran.run_id}/1.2", GoalModel(ANSWERS), store)


async def test_a_policed_run_is_not_resumed_bare(tmp_path: Path) -> None:
    place = workspace(tmp_path, "w")
    opened: list[Tree] = []
    model = cut_short(ANSWERS, 3, lambda: opened[0].halt_nowait(HaltKind.interrupt))
    policy = Policy.permissive().layer("operator").deny_write("secret*")
    async with Store.open(tmp_path / "runs.db") as store:
        ran = await run_tree(contract(place), model, store, policy, ApproveAll(), LIMITS, on_open=opened.append)
        with pytest.raises(ConfigError, match="is under a policy"):
            await resume(ran.run_id, GoalModel(ANSWERS), store)


async def test_a_live_run_is_driven_by_one_only(tmp_path: Path) -> None:
    place = workspace(tmp_path, "w")
    refused: list[str] = []
    opened: list[Tree] = []

    async def meddle() -> None:
        for other in (store, None):
            try:
                if other is not None:
                    await resume(opened[0].run_id, GoalModel(ANSWERS), other)
                else:
                    async with Store.open(tmp_path / "runs.db") as second:
                        await resume(opened[0].run_id, GoalModel(ANSWERS), second)
            except RunConflict as conflict:
                refused.append(str(conflict))
        opened[0].halt_nowait(HaltKind.interrupt)

    async with trio.open_nursery() as nursery, Store.open(tmp_path / "runs.db") as store:
        model = cut_short(ANSWERS, 3, lambda: nursery.start_soon(meddle))
        await run_tree(
            contract(place), model, store, Policy.permissive(), ApproveAll(), LIMITS, on_open=opened.append
        )
    assert len(refused) == 2 and "this very process" in refused[0] and "is driven by process" in refused[1]


async def test_one_agent_goes_on_too(tmp_path: Path) -> None:
    place = workspace(tmp_path, "w")
    opened: list[Tree] = []
    answers = {"root": [[write("a.txt", "1")], [write("b.txt", "two")], "done"]}
    first = cut_short(answers, 2, lambda: opened[0].halt_nowait(HaltKind.interrupt))
    async with Store.open(tmp_path / "runs.db") as store:
        ran = await run(contract(place), first, store, on_open=opened.append)
        assert ran.outcome.kind is OutcomeKind.interrupted
        second = GoalModel(answers)
        ran = await resume(ran.run_id, second, store)
    assert ran.outcome.kind is OutcomeKind.success and ran.outcome.steps == 2
    # What was on its way when it was cut is charged in full, and said to be estimated.
    assert ran.outcome.spent_tokens == TOKENS * (len(first.requests) + len(second.requests))


async def test_a_spawn_that_only_the_interrupt_refused_is_made_by_the_resume(tmp_path: Path) -> None:
    place = workspace(tmp_path, "w")
    opened: list[Tree] = []
    answers = {"root": [[spawn("child")], [write("b.txt", "two")], "done"], "child": ["child done"]}

    class Meddling:
        """Stops the tree between an answer and the spawn that it asks for."""

        def event(self, event: Mapping[str, Any]) -> None:
            if event["kind"] == "tool_call":
                opened[0].halt_nowait(HaltKind.interrupt)

    async with Store.open(tmp_path / "runs.db") as store:
        ran = await run_tree(
            contract(place), GoalModel(answers), store, Policy.permissive(), ApproveAll(), LIMITS,
            observer=Meddling(), on_open=opened.append,
        )  # fmt: skip
        assert ran.outcome.kind is OutcomeKind.interrupted
        assert store.steps(ran.run_id) == []
        again = GoalModel(answers)
        ran = await resume_tree_from_stored_policy(ran.run_id, again, store, ApproveAll())
        assert ran.outcome.kind is OutcomeKind.success
        assert [each.path for each in store.agents(ran.run_id)] == ["root", "root/1.1"]
