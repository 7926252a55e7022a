"""Whether what a file says of a tree as a whole can be true: totals, ceilings, halt, queue, lease, approvals."""

from __future__ import annotations

from typing import Final

import attrs

from actors.containment.limits import Containment
from actors.store.audit_findings import MOST_TOLD, Check, Findings, TreeState
from actors.store.audit_spend import Spend
from actors.store.audit_steps import as_whole
from actors.store.readers import OF_TREE, bounds
from actors.store.tree_rows import TreeRows

# Stamps are made when rows are written, in groups, so two that lie so close may stand in either order.
LATEST_SECONDS: Final = 1.0

_SPENT: Final = ("spent_tokens", "spent_microdollars", "overrun_tokens", "overrun_microdollars")
_COUNTED: Final = ("agents", "calls", "tool_calls")
_RESERVED: Final = ("reserved_tokens", "reserved_microdollars")
_TABLES_OF_AGENTS: Final = (
    "terminals",
    "run_outcomes",
    "provider_calls",
    "reservations",
    "step_turns",
    "steps",
    "checkpoint_events",
    "ledger_observations",
    "draws",
    "call_results",
    "tool_attempts",
    "edits",
)


@attrs.define
class Sums:
    """What the agents of a tree come to, while they are gone through."""

    agents: int = 0
    # Whether some have no figures yet, because they run.
    running: bool = False
    reservations: int = 0
    # Whether draws were made that have no rows of their own.
    undrawn: bool = False
    # By the rows of reservations and draws, and by the agents' own figures.
    by_rows: Spend = Spend()
    by_agents: Spend = Spend()


@attrs.frozen
class _Totals:
    """A row of ``ledger`` or ``inherited``."""

    spend: Spend
    agents: int
    calls: int
    tool_calls: int
    reserved: Spend = Spend()


class TreeAuditor:
    """The judge of one tree, once its agents were gone through."""

    def __init__(
        self, findings: Findings, rows: TreeRows, state: TreeState, limits: Containment | None, sums: Sums
    ) -> None:
        self._findings = findings
        self._rows = rows
        self._select = rows.reader.select
        self._tree_id = rows.tree_id
        self._state = state
        self._limits = limits
        self._sums = sums

    def judge(self) -> None:
        """Judge the whole tree.

        Raises:
            Unreadable: a figure is none.
        """
        self._judge_orphans()
        self._judge_spawns()
        self._judge_halt()
        self._judge_queue()
        self._judge_lease()
        self._judge_approvals()
        self._judge_totals()

    def _wrong(self, check: Check, run_id: str, text: str) -> None:
        self._findings.wrong(check, run_id, text)

    def _expect(self, true: bool, check: Check, text: str) -> None:
        self._findings.expect(true, check, self._tree_id, text)

    # ── totals ──────────────────────────────────────────────────────────────

    def _judge_totals(self) -> None:
        """Judge the totals against the rows and the agents, and all of them against the ceilings."""
        inherited = self._totals("inherited")
        totals = self._totals("ledger", *_RESERVED)
        before = Spend() if inherited is None else inherited.spend
        if self._state is not TreeState.running:
            self._judge_conservation(totals, before)
        if self._limits is not None:
            sums = self._sums
            counted = _Totals(sums.by_rows + before, sums.agents, sums.reservations, 0)
            self._judge_ceilings(self._limits, counted, inherited)
            if totals is not None:
                self._judge_ceilings(self._limits, totals, inherited)

    def _totals(self, table: str, *more: str) -> _Totals | None:
        for row in self._rows.of_tree(table, (*_SPENT, *_COUNTED, *more)):
            figures = [as_whole(value or 0) for value in row]
            agents, calls, tool_calls = figures[4:7]
            return _Totals(Spend(*figures[:4]), agents, calls, tool_calls, Spend(*figures[7:]))
        return None

    def _judge_conservation(self, totals: _Totals | None, before: Spend) -> None:
        sums = self._sums
        if totals is None:
            self._expect(False, Check.conservation, f"it is {self._state}, and ledger has no totals of it")
            return
        told = totals.spend
        if not sums.undrawn:
            rows = sums.by_rows + before
            text = f"ledger tells {told}, and reservations and draws come to {rows}"
            self._expect(rows == told, Check.conservation, text)
        if not sums.running:
            own, spent = (sums.by_agents + before).without_money_over, told.without_money_over
            text = f"ledger tells {spent}, and the agents' own figures come to {own}"
            self._expect(own == spent, Check.conservation, text)
        text = f"ledger counted {totals.agents} agents, and runs has {sums.agents}"
        self._expect(sums.agents <= totals.agents, Check.conservation, text)
        if self._state is TreeState.ended:
            text = f"ledger still holds {totals.reserved} for calls, and the tree has ended"
            self._expect(totals.reserved == Spend(), Check.reservations, text)

    def _judge_ceilings(self, limits: Containment, used: _Totals, inherited: _Totals | None) -> None:
        """Look whether the ceilings held; what a reopened tree had used already may lie above tighter ones."""
        before = inherited or _Totals(Spend(), 0, 0, 0)
        for what, figure, ceiling, had in (
            ("tokens", used.spend.tokens, limits.max_total_tokens, before.spend.tokens),
            ("microdollars", used.spend.microdollars, limits.max_total_cost, before.spend.microdollars),
            ("agents", used.agents, limits.max_total_agents, before.agents),
            ("calls", used.calls, limits.max_total_calls, before.calls),
            ("tool calls", used.tool_calls, limits.max_total_tool_calls, before.tool_calls),
        ):
            if ceiling is not None:
                allowed = max(ceiling, had)
                self._expect(figure <= allowed, Check.ceilings, f"{figure} {what} used, and {allowed} are allowed")

    # ── rows that belong to nobody ──────────────────────────────────────────

    def _judge_orphans(self) -> None:
        """Look for rows of agents that have none in ``runs``, and for results of calls that were never asked for."""
        for table in _TABLES_OF_AGENTS:
            if not self._rows.has(table):
                continue
            sql = (
                f"SELECT DISTINCT run_id FROM {table} WHERE {OF_TREE}"
                f" AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_id = {table}.run_id) LIMIT {MOST_TOLD}"
            )
            for (run_id,) in self._select(sql, bounds(self._tree_id)):
                self._wrong(Check.family, run_id, f"{table} has rows of it, and runs has none")
        if self._rows.has("call_results"):
            sql = (
                "SELECT c.run_id, c.step, c.ordinal FROM runs r JOIN call_results c USING (run_id)"
                " LEFT JOIN step_turns t ON t.run_id = c.run_id AND t.step = c.step"
                f" WHERE r.tree_id = ? AND t.run_id IS NULL LIMIT {MOST_TOLD}"
            )
            for run_id, step, ordinal in self._select(sql, (self._tree_id,)):
                text = f"call {ordinal} of step {step} has a result, and the step was never answered"
                self._wrong(Check.results, run_id, text)

    def _judge_spawns(self) -> None:
        """Look for the children that calls made: before the end, one that waits for its first slot has no row yet."""
        if self._state is not TreeState.ended:
            return
        sql = (
            "SELECT s.parent_run_id, s.step, s.ordinal, s.child_run_id FROM runs p"
            " JOIN spawns s ON s.parent_run_id = p.run_id LEFT JOIN runs c ON c.run_id = s.child_run_id"
            f" WHERE p.tree_id = ? AND c.run_id IS NULL LIMIT {MOST_TOLD}"
        )
        for parent, step, ordinal, child in self._select(sql, (self._tree_id,)):
            self._wrong(Check.spawns, parent, f"call {ordinal} of step {step} made {child}, and runs has no such row")

    # ── what stands beside the agents ───────────────────────────────────────

    def _judge_halt(self) -> None:
        """Look for what began after the halt.

        The row of an agent that never began is written with its end: it did nothing, in no time.
        """
        latest = f"strftime('%Y-%m-%dT%H:%M:%fZ', ?, '+{LATEST_SECONDS} seconds')"
        for (at,) in self._rows.of_tree("halts", ("at",)):
            self._findings.looked(Check.halt, self._sums.agents)
            sql = (
                f"SELECT run_id, started_at FROM runs WHERE tree_id = ? AND started_at > {latest}"
                " AND (status IN ('running', 'draining') OR steps > 0 OR duration_ms > 0 OR spent_tokens > 0)"
                f" LIMIT {MOST_TOLD}"
            )
            for run_id, began in self._select(sql, (self._tree_id, at)):
                self._wrong(Check.halt, run_id, f"it began at {began}, and the tree was halted at {at}")
            sql = (
                "SELECT r.run_id, h.step, h.attempt, h.reserved_at FROM runs r JOIN reservations h USING (run_id)"
                f" WHERE r.tree_id = ? AND h.reserved_at > {latest} LIMIT {MOST_TOLD}"
            )
            for run_id, step, attempt, held in self._select(sql, (self._tree_id, at)):
                text = f"attempt {attempt} of step {step} was reserved at {held}, and the tree was halted at {at}"
                self._wrong(Check.halt, run_id, text)

    def _judge_queue(self) -> None:
        sql = (
            "SELECT q.parent_run_id, q.step, q.ordinal FROM agent_queue q JOIN runs r ON r.run_id = q.parent_run_id"
            f" WHERE r.tree_id = ? LIMIT {MOST_TOLD}"
        )
        for parent, step, ordinal in self._select(sql, (self._tree_id,)):
            self._findings.looked(Check.queue)
            if self._state is TreeState.ended:
                text = f"the child of call {ordinal} of step {step} stands in agent_queue, and the tree has ended"
                self._wrong(Check.queue, parent, text)

    def _judge_lease(self) -> None:
        leases = [as_whole(generation) for (generation,) in self._rows.of_tree("run_leases", ("generation",))]
        self._findings.looked(Check.lease, len(leases))
        if len(leases) > 1:
            text = f"{len(leases)} leases stand for it, of the generations {', '.join(map(str, leases))}; one may"
            self._wrong(Check.lease, self._tree_id, text)

    def _judge_approvals(self) -> None:
        names = ("run_id", "request_id", "decision", "decided_at", "applied_at", "modified")
        for run_id, request, decision, decided, applied, modified in self._rows.of_tree("pending_approvals", names):
            self._findings.looked(Check.approvals)
            if decision not in (None, "approved", "denied") or (decision is None) != (decided is None):
                self._wrong(Check.approvals, run_id, f"request {request} was decided {decision!r} at {decided}")
            elif applied is not None and decision != "approved":
                text = f"request {request} was applied at {applied}, and its decision is {decision or 'open'}"
                self._wrong(Check.approvals, run_id, text)
            elif modified is not None and decision != "approved":
                text = f"request {request} has other arguments, and its decision is {decision or 'open'}"
                self._wrong(Check.approvals, run_id, text)
