"""Whether what a file says of one tree can have happened: the audit, from the file alone.

Nothing is asked of a process, and nothing is mended. What must hold only once a
tree has ended is not asked of one that is paused, live or was killed. Everything
is read as it stood at one moment, agent by agent and page by page.

What each check looks at is told in `docs/audit.md`. The digest chain shows
mistakes and careless hands; it holds no key, so it is no proof against somebody
who writes all of it anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

import attrs

from actors.agents.end_rows import ENDED
from actors.agents.outcomes import Outcome
from actors.agents.strict_json import CodecRefused
from actors.agents.terminal_codec import decode_terminal
from actors.containment.limits import Containment
from actors.errors import ConfigError
from actors.ids import ROOT, agent_run_id, depth_of
from actors.store.audit_findings import Audit, Check, Findings, TreeState
from actors.store.audit_spend import Spend, judge_spend
from actors.store.audit_steps import (
    AnswerRow,
    EditRow,
    SeenRow,
    StepRow,
    StepsOfOne,
    Unreadable,
    as_text,
    as_text_or_null,
    as_whole,
    as_whole_or_null,
    judge_checkpoints,
)
from actors.store.audit_tree import Sums, TreeAuditor
from actors.store.readers import OF_TREE, Reader, bounds
from actors.store.tree_rows import PAGE, TreeRows, one_moment

PAUSED: Final = "paused"
RUNNING: Final = frozenset({"running", "draining"})


@attrs.frozen
class AgentRow:
    """A row of ``runs``, with what its parent's says."""

    number: int
    run_id: str = attrs.field(converter=as_text)
    path: str = attrs.field(converter=as_text)
    depth: int = attrs.field(converter=as_whole)
    parent_run_id: str | None = attrs.field(converter=as_text_or_null)
    status: str = attrs.field(converter=as_text)
    outcome: str | None = attrs.field(converter=as_text_or_null)
    detail: str | None = attrs.field(converter=as_text_or_null)
    success: int | None = attrs.field(converter=as_whole_or_null)
    steps: int | None = attrs.field(converter=as_whole_or_null)
    input_tokens: int | None = attrs.field(converter=as_whole_or_null)
    spent_tokens: int | None = attrs.field(converter=as_whole_or_null)
    spent_microdollars: int | None = attrs.field(converter=as_whole_or_null)
    overrun_tokens: int | None = attrs.field(converter=as_whole_or_null)
    duration_ms: int | None = attrs.field(converter=as_whole_or_null)
    started_at: str = attrs.field(converter=as_text)
    finished_at: str | None = attrs.field(converter=as_text_or_null)
    parent_path: str | None = attrs.field(converter=as_text_or_null)
    parent_depth: int | None = attrs.field(converter=as_whole_or_null)
    parent_started: str | None = attrs.field(converter=as_text_or_null)

    @property
    def ended(self) -> bool:
        """Whether it has its end."""
        return self.status in ENDED

    @property
    def spend(self) -> Spend:
        """Give its own figures; money that did not fit has no column of its own."""
        return Spend(self.spent_tokens or 0, self.spent_microdollars or 0, self.overrun_tokens or 0, 0)


_OWN: Final = tuple(field.name for field in attrs.fields(AgentRow) if field.name != "number")[:-3]


def audit(reader: Reader, tree_id: str) -> Audit:
    """Check one tree. Takes time in proportion to its rows, and memory for one page of each table.

    Raises:
        StoreError: the file cannot be read.
    """
    with one_moment(reader):
        return _Auditor(reader, tree_id).audit()


class _Auditor:
    """One audit of one tree."""

    def __init__(self, reader: Reader, tree_id: str) -> None:
        self._reader = reader
        self._tree_id = tree_id
        self._rows = TreeRows(reader, tree_id)
        self._findings = Findings()
        self._state = self._stands()
        self._limits = self._read_limits()
        self._sums = Sums()
        self._drawn: bool | None = None

    def audit(self) -> Audit:
        for values in self._agent_rows():
            self._sums.agents += 1
            try:
                self._judge_agent(AgentRow(*values))
            except Unreadable as error:
                self._wrong(Check.rows, str(values[1]), str(error))
        try:
            TreeAuditor(self._findings, self._rows, self._state, self._limits, self._sums).judge()
        except Unreadable as error:
            self._wrong(Check.rows, self._tree_id, str(error))
        return self._findings.audit(self._tree_id, self._state, self._sums.agents)

    def _wrong(self, check: Check, run_id: str, text: str) -> None:
        self._findings.wrong(check, run_id, text)

    def _expect(self, true: bool, check: Check, run_id: str, text: str) -> None:
        self._findings.expect(true, check, run_id, text)

    # ── reading ─────────────────────────────────────────────────────────────

    def _stands(self) -> TreeState:
        rows = self._reader.select("SELECT status FROM runs WHERE run_id = ?", (self._tree_id,))
        status = rows[0][0] if rows else None
        if status in ENDED:
            return TreeState.ended
        return TreeState.paused if status == PAUSED else TreeState.running

    @property
    def _still(self) -> bool:
        """Whether nobody writes to it."""
        return self._state is not TreeState.running

    def _read_limits(self) -> Containment | None:
        rows = self._reader.select("SELECT containment FROM runs WHERE run_id = ?", (self._tree_id,))
        try:
            if rows and rows[0][0] is not None:
                return Containment.from_json(as_text(rows[0][0]))
        except (ConfigError, Unreadable):
            # A later version may know a ceiling that this one does not.
            pass
        self._findings.missing(Check.ceilings, "boundary cannot be read")
        return None

    def _agent_rows(self) -> Iterator[tuple[Any, ...]]:
        own = ", ".join(f'a."{name}"' for name in _OWN)
        sql = (
            f"SELECT a.rowid, {own}, p.path, p.depth, p.started_at FROM runs a LEFT JOIN runs p"
            f" ON p.run_id = a.parent_run_id AND p.tree_id = a.tree_id"
            f" WHERE a.tree_id = ? AND a.rowid > ? ORDER BY a.rowid LIMIT {PAGE}"
        )
        after = 0
        while page := self._reader.select(sql, (self._tree_id, after)):
            yield from page
            after = page[-1][0]

    def _count(self, sql: str, *values: Any) -> int:
        return int(self._reader.select(sql, values)[0][0])

    # ── one agent ───────────────────────────────────────────────────────────

    def _judge_agent(self, agent: AgentRow) -> None:
        self._judge_status(agent)
        self._judge_terminal(agent)
        self._judge_outcome(agent)
        self._judge_family(agent)
        count = self._judge_steps(agent)
        if agent.status not in RUNNING:
            own = agent.steps or 0
            text = f"it made {own} steps by its row in runs, and {count} are whole"
            self._expect(own == count, Check.steps, agent.run_id, text)
        self._judge_spend(agent)
        if agent.path == ROOT and agent.ended:
            self._judge_usage(agent)
        self._judge_effects(agent)

    def _judge_status(self, agent: AgentRow) -> None:
        known = agent.ended or agent.status == PAUSED or agent.status in RUNNING
        self._expect(known, Check.status, agent.run_id, f"its status is {agent.status!r}, which is none")
        if known and not agent.ended and self._state is TreeState.ended:
            self._wrong(Check.status, agent.run_id, f"it is {agent.status}, and its tree has ended")
        if agent.ended != (agent.finished_at is not None):
            when = "no time" if agent.finished_at is None else f"the time {agent.finished_at}"
            self._wrong(Check.status, agent.run_id, f"it is {agent.status}, and has {when} of an end")

    def _judge_terminal(self, agent: AgentRow) -> None:
        due = 1 if agent.ended else 0
        found = list(self._rows.of_agent("terminals", ("terminal",), agent.run_id))
        text = f"it is {agent.status} and has {len(found)} terminals where {due} must be"
        self._expect(len(found) == due, Check.terminals, agent.run_id, text)
        for (terminal,) in found:
            try:
                decode_terminal(as_text(terminal))
            except CodecRefused as error:
                self._wrong(Check.terminals, agent.run_id, f"its terminal cannot be read: {error}")

    def _judge_outcome(self, agent: AgentRow) -> None:
        names = ("outcome", "success", "steps", "tokens", "duration_ms", "finished_at")
        found = list(self._rows.of_agent("run_outcomes", names, agent.run_id))
        due = 1 if agent.ended else 0
        text = f"it is {agent.status} and has {len(found)} rows in run_outcomes where {due} must be"
        self._expect(len(found) == due, Check.outcomes, agent.run_id, text)
        own = (agent.outcome, agent.success, agent.steps, agent.spent_tokens, agent.duration_ms, agent.finished_at)
        for row in found:
            for name, told, true in zip(names, row, own, strict=True):
                if told != true:
                    text = f"run_outcomes tells {told!r} for {name}, and runs {true!r}"
                    self._wrong(Check.outcomes, agent.run_id, text)
        if agent.ended and agent.detail is not None:
            self._judge_detail(agent, agent.detail)

    def _judge_detail(self, agent: AgentRow, detail: str) -> None:
        try:
            kind = Outcome.from_json(json.loads(detail)).kind.value
        except (CodecRefused, ValueError, TypeError, RecursionError) as error:
            self._wrong(Check.outcomes, agent.run_id, f"its outcome cannot be read: {error}")
            return
        if kind != agent.outcome:
            text = f"its outcome is {agent.outcome!r}, and the detail of it {kind!r}"
            self._wrong(Check.outcomes, agent.run_id, text)

    def _judge_family(self, agent: AgentRow) -> None:
        self._findings.looked(Check.family)
        why = _why_no_family(agent, self._tree_id)
        if why is not None:
            self._wrong(Check.family, agent.run_id, why)
            return
        deepest = None if self._limits is None else self._limits.max_depth
        if deepest is not None:
            text = f"it is at depth {agent.depth}, and {deepest} is allowed"
            self._expect(agent.depth <= deepest, Check.ceilings, agent.run_id, text)
        step, dot, ordinal = agent.path.rpartition("/")[2].partition(".")
        # One that no call asked for is a plain spawn, and has no such row.
        if dot and self._still:
            sql = "SELECT child_run_id FROM spawns WHERE parent_run_id = ? AND step = ? AND ordinal = ?"
            found = [row[0] for row in self._reader.select(sql, (agent.parent_run_id, step, ordinal))]
            named = " and ".join(map(str, found)) or "no row"
            text = f"call {ordinal} of step {step} of {agent.parent_run_id} made it, and spawns has {named} for that"
            self._expect(found == [agent.run_id], Check.spawns, agent.run_id, text)

    def _judge_steps(self, agent: AgentRow) -> int:
        def rows(record: Any, table: str) -> Iterator[Any]:
            names = tuple(field.name for field in attrs.fields(record))
            return (record(*row) for row in self._rows.of_agent(table, names, agent.run_id))

        answers, seen = rows(AnswerRow, "step_turns"), rows(SeenRow, "ledger_observations")
        judged = StepsOfOne(self._findings, agent.run_id, answers, seen, rows(EditRow, "edits"))
        judged.judge(rows(StepRow, "steps"))
        marks = self._rows.of_agent("checkpoint_events", ("step", "kind"), agent.run_id)
        judge_checkpoints(self._findings, agent.run_id, marks, judged.count)
        return judged.count

    def _judge_spend(self, agent: AgentRow) -> None:
        got = judge_spend(self._findings, self._rows, agent.run_id, tree_ended=self._state is TreeState.ended)
        sums = self._sums
        sums.reservations += got.reservations
        sums.by_rows += got.spend
        sums.by_agents += agent.spend
        if agent.status in RUNNING:
            sums.running = True
            return
        undrawn = self._undrawn_by(agent.run_id)
        if undrawn:
            sums.undrawn = True
            self._findings.missing(Check.conservation, "draws have no rows of their own", undrawn)
            return
        rows, own = got.spend.without_money_over, agent.spend
        text = f"it used {own} by its row in runs, and {rows} by {got.reservations} reservations and {got.draws} draws"
        self._expect(rows == own, Check.conservation, agent.run_id, text)

    def _judge_usage(self, root: AgentRow) -> None:
        """Judge what the root's row says that the whole tree has sent; a review after the end is in no such row."""
        column = "purpose" if self._reader.knows("provider_calls", "purpose") else "NULL"
        [[own, all_of_it]] = self._reader.select(
            f"SELECT COALESCE(SUM(CASE WHEN {column} IS NULL THEN prompt_tokens END), 0),"
            f" COALESCE(SUM(prompt_tokens), 0) FROM provider_calls WHERE {OF_TREE}",
            bounds(root.run_id),
        )
        text = f"runs tells {root.input_tokens} tokens of input, and the attempts of the tree come to {all_of_it}"
        self._expect(own <= (root.input_tokens or 0) <= all_of_it, Check.conservation, root.run_id, text)

    def _undrawn_by(self, run_id: str) -> int:
        """Count the draws of an agent in a tree of an older version, which told of them as events only."""
        if self._drawn is None:
            sql = "SELECT EXISTS (SELECT 1 FROM runs JOIN draws USING (run_id) WHERE tree_id = ?)"
            self._drawn = self._rows.has("draws") and bool(self._count(sql, self._tree_id))
        if self._drawn:
            return 0
        sql = "SELECT count(*) FROM agent_events WHERE run_id = ? AND kind = 'budget_draw' AND step = 0"
        return self._count(sql, run_id)

    def _judge_effects(self, agent: AgentRow) -> None:
        if not self._rows.has("tool_attempts"):
            return
        names = ("step", "ordinal", "tool", "resolution", "completed_at")
        for step, ordinal, tool, resolution, completed in self._rows.of_agent("tool_attempts", names, agent.run_id):
            self._findings.looked(Check.effects)
            which = f"the attempt at {tool} (call {ordinal} of step {step})"
            if (resolution is None) != (completed is None):
                text = f"{which} is {resolution or 'open'}, and completed {completed}"
                self._wrong(Check.effects, agent.run_id, text)
            elif resolution is None and agent.ended:
                self._wrong(Check.effects, agent.run_id, f"{which} is open, and the agent is {agent.status}")


def _why_no_family(agent: AgentRow, tree_id: str) -> str | None:
    """Say what is wrong with an agent's place in its tree."""
    if agent.run_id != agent_run_id(tree_id, agent.path) or agent.depth != depth_of(agent.path):
        return f"its path is {agent.path} and its depth {agent.depth}"
    if agent.path == ROOT:
        return None if agent.parent_run_id is None else f"it is the root, and has the parent {agent.parent_run_id}"
    if agent.parent_path is None or agent.parent_depth is None:
        return f"its parent {agent.parent_run_id} has no row in runs"
    if agent.path.rpartition("/")[0] != agent.parent_path or agent.depth != agent.parent_depth + 1:
        return f"its path is {agent.path}, and that of its parent {agent.parent_path} at depth {agent.parent_depth}"
    if agent.parent_started is not None and agent.started_at < agent.parent_started:
        return f"it began at {agent.started_at}, before its parent at {agent.parent_started}"
    return None
