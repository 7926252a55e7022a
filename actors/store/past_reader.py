"""Reading what a tree did, for the process that goes on with it.

Each table is read once, in order of the agents, and only for those that have no
end: so the cost grows with what is left to do and not with how many queries it
takes to ask for it.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import attrs
import msgspec

from actors.agents.coming_back import only_says_works_on
from actors.agents.end_rows import ENDED
from actors.agents.outcomes import Outcome
from actors.agents.past import PastAgent, PastAnswer, PastChild, PastEnd, PastStep
from actors.agents.ports import Observation, ObservationKind, ToolCall
from actors.agents.roster import AgentDef
from actors.agents.terminal_codec import decode_terminal
from actors.containment.amounts import whole
from actors.containment.ledger_state import LedgerState
from actors.containment.limits import Containment
from actors.containment.usage import Usage
from actors.ids import ROOT
from actors.store.readers import OF_TREE, Reader, bounds
from actors.store.row_codec import NOW
from actors.store.storage_errors import readable

# The agents of a tree that have no end yet.
_OPEN: Final = "tree_id = ? AND status NOT IN ('completed', 'failed')"
_OF_OPEN: Final = f"run_id IN (SELECT run_id FROM runs WHERE {_OPEN})"
# Rows of a step that is not whole.
_NOT_WHOLE: Final = "NOT EXISTS (SELECT 1 FROM steps s WHERE s.run_id = r.run_id AND s.step = r.step)"
# As usages are added: a missing total counts as prompt plus completion.
_USAGE: Final = tuple(
    "MAX(total_tokens, prompt_tokens + completion_tokens)" if field.name == "total_tokens" else field.name
    for field in attrs.fields(Usage)
)
_KINDS: Final = {kind.value: kind for kind in ObservationKind}
_AGE: Final = f"(julianday({NOW}) - julianday(started_at)) * 86400.0"


class StoredPast:
    """One tree's history; keeps to `actors.agents.past.Past`. Reads everything when it is made.

    Raises:
        StoreError: the file cannot be read, or holds what no version of ours wrote.
    """

    def __init__(self, reader: Reader, tree_id: str) -> None:
        with readable(reader.file, f"the agents of {tree_id}"):
            self._read(reader, tree_id)

    def _read(self, reader: Reader, tree_id: str) -> None:
        self._file = reader.file
        self._tree_id = tree_id
        self._reader = reader
        self._runs = {
            row[0]: row[1:]
            for row in reader.select(
                f"SELECT run_id, {_AGE}, said, decided FROM runs WHERE {_OPEN}", (tree_id,)
            )
        }
        self._before = _before(reader, tree_id)
        self._turns = self._by_run("text, calls, finish_reason, admitted, step", "step_turns", "step")
        self._steps = self._by_run("step, digest", "steps", "step")
        self._seen = self._by_run(
            "step, kind, target, text, changed", "ledger_observations", "step, ordinal, id"
        )
        self._gates = self._by_run("step, verdict", "gate_attempts", "id")
        self._reserved = self._summed(
            ("used_tokens", "used_microdollars", "overrun_tokens", "state = 'estimated'"), "reservations"
        )
        # What was sent for the step that comes next.
        self._sent = self._by_run(
            "attempt, COALESCE(used_tokens, 0) + COALESCE(overrun_tokens, 0)",
            "reservations AS r",
            "id",
            f"step > 0 AND {_NOT_WHOLE}",
        )
        self._calls = self._summed(_USAGE, "provider_calls", "prompt_tokens IS NOT NULL")
        self._said, self._routed = self._last_told("said"), self._last_told("routed")
        # Of whole steps they are observations, which are read above.
        self._done = self._by_run(
            "step, ordinal, kind, target, text, changed", "call_results AS r", "step, ordinal", _NOT_WHOLE
        )
        self._aborted = self._by_run("step, ordinal", "tool_attempts", "step, ordinal", "resolution = 'aborted'")
        self._draws = self._summed(("tokens", "microdollars", "overrun_tokens"), "draws")
        self._children = self._children_of_open()
        self.backlog = frozenset(
            (self._path(parent), step, ordinal)
            for parent, step, ordinal in reader.select(
                "SELECT parent_run_id, step, ordinal FROM agent_queue"
                f" WHERE parent_run_id IN (SELECT run_id FROM runs WHERE {_OPEN})",
                (tree_id,),
            )
        )

    def agent(self, path: str) -> PastAgent | None:
        """Give one agent's history, None when it never began or has ended. A second call gives None."""
        run_id = self._tree_id if path == ROOT else self._tree_id + path[len(ROOT) :]
        run = self._runs.pop(run_id, None)
        if run is None:
            return None
        age, said, decided = run
        with readable(self._file, path):
            return self._assembled(run_id, path, max(age, 0.0), said, decided)

    def began(self, path: str) -> bool:
        """Tell whether an agent began and has no end, and nobody has taken its history yet."""
        return self._tree_id + path[len(ROOT) :] in self._runs

    # ── one agent ───────────────────────────────────────────────────────────

    def _assembled(self, run_id: str, path: str, age: float, said: str | None, decided: str | None) -> PastAgent:
        digests = dict(self._steps.pop(run_id, ()))
        aborted = self._aborted.pop(run_id, ())
        with_aborted = {at for at, _ in aborted}
        seen = _grouped(self._seen.pop(run_id, ()))
        gates = dict(self._gates.pop(run_id, ()))
        steps: list[PastStep] = []
        pending: PastAnswer | None = None
        for text, calls, finish, admitted, step in self._turns.pop(run_id, ()):
            asked = tuple(ToolCall(name, arguments) for name, arguments in msgspec.json.decode(calls))
            observed = seen.pop(step, ())
            if step in digests:
                late = len(observed) - max(len(asked), 1)
                gate, denied = gates.get(step), step in with_aborted
                steps.append(
                    PastStep(
                        step, text, asked, finish, observed[:late], observed[late:], gate, digests[step], denied
                    )
                )
            else:
                given_up = frozenset(ordinal for at, ordinal in aborted if at == step)
                pending = self._pending(run_id, step, text, asked, finish, admitted, observed, given_up)
        last = steps[-1].step if steps else 0
        if len(steps) != len(digests) or last != len(steps):
            raise ValueError(f"{len(digests)} steps and {len(steps)} answers do not go together")
        rows = [each for step in steps for each in step.late + step.seen if each.kind is ObservationKind.child]
        if pending is not None:
            rows += pending.late
        if decided is not None:
            # Reports that came while it only waited for its children stand behind its last step.
            rows += [each for group in seen.values() for each in group]
        told = frozenset(each.target for each in rows if not only_says_works_on(each.target, each.text))
        return self._accounts(run_id, path, age, said, decided, tuple(steps), pending, told)

    def _pending(
        self,
        run_id: str,
        step: int,
        text: str | None,
        calls: tuple[ToolCall, ...],
        finish: str | None,
        admitted: int | None,
        late: tuple[Observation, ...],
        aborted: frozenset[int],
    ) -> PastAnswer:
        results = {
            row[1]: _observation(row[2:]) for row in self._done.pop(run_id, ()) if row[0] == step
        }
        let = len(calls) if admitted is None else admitted
        return PastAnswer(step, text, calls, finish, late, let, results, aborted)

    def _accounts(
        self,
        run_id: str,
        path: str,
        age: float,
        said: str | None,
        decided: str | None,
        steps: tuple[PastStep, ...],
        pending: PastAnswer | None,
        told: frozenset[str],
    ) -> PastAgent:
        tokens, money, overrun, estimated = self._reserved.pop(run_id, (0, 0, 0, 0))
        drawn, drawn_money, drawn_overrun = self._draws.pop(run_id, (0, 0, 0))
        sent = self._sent.pop(run_id, ())
        used = self._calls.pop(run_id, None)
        seconds, taken_over = self._before if path == ROOT else (0.0, 0)
        return PastAgent(
            path,
            age + seconds,
            steps,
            pending,
            tuple(
                # A report is of one that has ended, whatever stands there.
                attrs.evolve(child, reported=True) if child.path in told and child.end is not None else child
                for child in self._children.pop(run_id, ())
            ),
            attempts=max((attempt for attempt, _ in sent), default=0),
            step_tokens=sum(drew for _, drew in sent),
            own_tokens=tokens + drawn,
            own_microdollars=money + drawn_money,
            own_overrun=overrun + drawn_overrun,
            estimated=bool(estimated),
            usage=None if used is None else Usage(*used),
            said=self._said.pop(run_id, said),
            decided=None if decided is None else Outcome.from_json(json.loads(decided)),
            taken_over=taken_over,
            routed=self._routed.pop(run_id, None),
        )

    # ── many at once ────────────────────────────────────────────────────────

    def _by_run(self, columns: str, table: str, order: str, where: str = "1") -> dict[str, list[tuple[Any, ...]]]:
        """Read a table for all agents that go on, each agent's rows in order."""
        sql = f"SELECT run_id, {columns} FROM {table} WHERE {_OF_OPEN} AND {where} ORDER BY run_id, {order}"
        found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
        for row in self._reader.select(sql, (self._tree_id,)):
            found[row[0]].append(row[1:])
        return found

    def _last_told(self, kind: str) -> dict[str, str]:
        """Read what each agent that goes on was last told in one kind of ``agent_events``."""
        last = f"SELECT MAX(id) FROM agent_events WHERE kind = ? AND {_OF_OPEN} GROUP BY run_id"
        sql = f"SELECT run_id, detail FROM agent_events WHERE id IN ({last})"
        return dict(self._reader.select(sql, (kind, self._tree_id)))

    def _summed(self, columns: Sequence[str], table: str, where: str = "1") -> dict[str, tuple[int, ...]]:
        """Add up columns of a table for each agent that goes on."""
        sums = ", ".join(f"SUM(COALESCE({column}, 0))" for column in columns)
        sql = f"SELECT run_id, {sums} FROM {table} WHERE {_OF_OPEN} AND {where} GROUP BY run_id"
        return {row[0]: row[1:] for row in self._reader.select(sql, (self._tree_id,))}

    def _children_of_open(self) -> dict[str, list[PastChild]]:
        sql = (
            # A child that still waits for its first slot has no run yet.
            "SELECT s.parent_run_id, s.step, s.ordinal, s.child_run_id, s.goal, s.definition,"
            " s.arguments, r.status, r.outcome,"
            " r.steps, r.spent_tokens + r.overrun_tokens, r.said, r.detail, r.error, r.input_tokens, r.output_tokens,"
            " r.cached_input_tokens, t.terminal, r.tree_id FROM spawns s LEFT JOIN runs r"
            " ON r.run_id = s.child_run_id LEFT JOIN terminals t ON t.run_id = r.run_id"
            f" WHERE s.parent_run_id IN (SELECT run_id FROM runs WHERE {_OPEN})"
            " ORDER BY s.parent_run_id, s.step, s.ordinal"
        )
        found: dict[str, list[PastChild]] = defaultdict(list)
        for parent, step, ordinal, child, goal, definition, arguments, status, *end, tree in self._reader.select(
            sql, (self._tree_id,)
        ):
            ended = _end(end) if status in ENDED else None
            # From its id: what stands in ``path`` is a copy.
            path = ROOT + child[len(self._tree_id if status is None else tree) :]
            if ended is not None and tree != self._tree_id:
                # A child of the run that this one reopened: only its report is of use, what it used is counted there.
                ended = attrs.evolve(ended, usage=None, turns=0)
            found[parent].append(
                PastChild(
                    step, ordinal, path, goal, self._definition(definition, path), arguments, ended, reported=False
                )
            )
        return found

    def _definition(self, text: str | None, path: str) -> AgentDef | None:
        if text is None:
            return None
        place = f"the definition of {path}"
        with readable(self._file, place):
            plain = json.loads(text)
            return AgentDef.from_dict(plain.pop("name"), plain, place)

    def _path(self, run_id: str) -> str:
        return ROOT + run_id[len(self._tree_id) :]


def _before(reader: Reader, tree_id: str) -> tuple[float, int]:
    """Give the seconds and the root's steps that a reopened run takes over."""
    found = reader.select("SELECT seconds, steps FROM inherited WHERE tree_id = ?", (tree_id,))
    return (found[0][0] or 0.0, found[0][1] or 0) if found else (0.0, 0)


def _end(row: Sequence[Any]) -> PastEnd:
    outcome, steps, tokens, said, detail, error, prompt, completion, cached, terminal = row
    told = Outcome.from_json(json.loads(detail))
    usage = Usage(prompt, completion, 0, cached or 0) if prompt or completion else None
    turns = decode_terminal(terminal).usage.turns if terminal is not None else steps
    return PastEnd(outcome, steps, tokens, said, told.message or error, usage, turns)


def _grouped(rows: Sequence[tuple[Any, ...]]) -> dict[int, tuple[Observation, ...]]:
    found: dict[int, list[Observation]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(_observation(row[1:]))
    return {step: tuple(seen) for step, seen in found.items()}


def _observation(row: Sequence[Any]) -> Observation:
    kind, target, text, changed = row
    return Observation(_KINDS[kind], target, text, bool(changed))


_TOTALS: Final = (
    "spent_tokens",
    "spent_microdollars",
    "overrun_tokens",
    "overrun_microdollars",
    "agents",
    "calls",
    "tool_calls",
)
_FIGURES: Final = {
    "reservations": (
        "step",
        "attempt",
        "tokens",
        "microdollars",
        "used_tokens",
        "used_microdollars",
        "overrun_tokens",
        "overrun_microdollars",
    ),
    "draws": ("tokens", "microdollars", "overrun_tokens", "overrun_microdollars"),
    "step_turns": ("step", "admitted"),
    "steps": ("step", "tokens"),
    "inherited": (*_TOTALS, "steps"),
    "ledger": (*_TOTALS, "unpriced_calls", "peak_working"),
}


def refuse_damaged_figures(reader: Reader, tree_id: str) -> None:
    """Refuse a tree of which a figure is none, or less than nothing: it would be added up to what may still be spent.

    Raises:
        StoreError: there is one; the table and the agent are named.
    """
    for table, names in _FIGURES.items():
        owner = "tree_id" if table in ("inherited", "ledger") else "run_id"
        # A file of an older version lacks some of them until it is opened for writing.
        known = [name for name in names if reader.knows(table, name)]
        if not known:
            continue
        damaged = " OR ".join(f"typeof({name}) NOT IN ('integer', 'null') OR {name} < 0" for name in known)
        mine = OF_TREE.replace("run_id", owner)
        sql = f"SELECT {owner}, {', '.join(known)} FROM {table} WHERE {mine} AND ({damaged}) LIMIT 1"
        for whose, *figures in reader.select(sql, bounds(tree_id)):
            with readable(reader.file, f"{whose} in {table}"):
                for name, figure in zip(known, figures, strict=True):
                    if figure is not None:
                        whole(name, figure)


def restored_ledger(reader: Reader, tree_id: str, limits: Containment) -> LedgerState:
    """Restore a tree's ledger from what is stored. No reservation may be open any more.

    An agent that was counted and still waited for its first slot is one of the agents.

    Raises:
        StoreError: the file cannot be read.
    """
    with readable(reader.file, f"what {tree_id} has used"):
        return _restored_ledger(reader, tree_id, limits)


def _restored_ledger(reader: Reader, tree_id: str, limits: Containment) -> LedgerState:
    mine = bounds(tree_id)
    [reserved] = reader.select(
        "SELECT COALESCE(SUM(used_tokens), 0), COALESCE(SUM(used_microdollars), 0), COALESCE(SUM(overrun_tokens), 0),"
        f" COALESCE(SUM(overrun_microdollars), 0), COUNT(*) FROM reservations WHERE {OF_TREE}",
        mine,
    )
    [drawn] = reader.select(
        "SELECT COALESCE(SUM(tokens), 0), COALESCE(SUM(microdollars), 0), COALESCE(SUM(overrun_tokens), 0),"
        f" COALESCE(SUM(overrun_microdollars), 0) FROM draws WHERE {OF_TREE}",
        mine,
    )
    # A child is counted once, whichever of its three rows stand: its run, its spawn, its place in the queue.
    [[agents]] = reader.select(
        "SELECT COUNT(*) FROM (SELECT run_id FROM runs WHERE tree_id = ?1"
        " UNION SELECT child_run_id FROM spawns"
        " WHERE (parent_run_id = ?1 OR (parent_run_id > ?2 AND parent_run_id < ?3))"
        " AND child_run_id > ?2 AND child_run_id < ?3"
        " UNION SELECT parent_run_id || '/' || step || '.' || ordinal FROM agent_queue"
        " WHERE parent_run_id = ?1 OR (parent_run_id > ?2 AND parent_run_id < ?3))",
        mine,
    )
    [[tools]] = reader.select(
        f"SELECT COALESCE(SUM(COALESCE(admitted, json_array_length(calls))), 0) FROM step_turns WHERE {OF_TREE}", mine
    )
    before = reader.select(
        "SELECT spent_tokens, spent_microdollars, overrun_tokens, overrun_microdollars, agents, calls, tool_calls,"
        " from_tree_id FROM inherited WHERE tree_id = ?",
        (tree_id,),
    )
    had = before[0] if before else (0,) * 7 + (None,)
    spent, money, over, over_money = (sum(parts) for parts in zip(reserved[:4], drawn, had[:4], strict=True))
    return LedgerState.from_state(
        limits,
        spent,
        agents + had[4],
        spent_microdollars=money,
        overrun_tokens=over,
        overrun_microdollars=over_money,
        calls=reserved[4] + had[5],
        tool_calls=tools + had[6],
        unpriced_calls=_unpriced(reader, tree_id, had[7], mine),
        refusals=_refusals(reader, mine),
    )


def _unpriced(reader: Reader, tree_id: str, before: str | None, mine: tuple[str, str, str]) -> int:
    """Count the calls whose cost nobody knows, also those of the run that this one reopened."""
    [[marked]] = reader.select(f"SELECT COUNT(*) FROM reservations WHERE {OF_TREE} AND priced = 0", mine)
    taken_over = None if before is None else reader.ledger(before)
    counted = marked + (0 if taken_over is None else taken_over.unpriced_calls or 0)
    # An older version marked none: what it told last is the least that there were.
    told = reader.ledger(tree_id)
    return int(counted if told is None else max(counted, told.unpriced_calls or 0))


def _refusals(reader: Reader, mine: tuple[str, str, str]) -> dict[str, int]:
    """Count what was refused, by the ceiling. Spawns of a step that is not whole are tried, and refused, again."""
    refused = (
        f"SELECT detail, COUNT(*) FROM agent_events e WHERE kind = 'spawn_refused' AND {OF_TREE}"
        " AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.run_id = e.run_id AND e.step > 0"
        " AND r.status NOT IN ('completed', 'failed')"
        " AND NOT EXISTS (SELECT 1 FROM steps s WHERE s.run_id = e.run_id AND s.step = e.step)) GROUP BY detail"
    )
    found = {str(cap): count for cap, count in reader.select(refused, mine)}
    [[calls]] = reader.select(
        f"SELECT COALESCE(SUM(json_array_length(calls) - admitted), 0) FROM step_turns WHERE {OF_TREE}", mine
    )
    return {**found, "tool_calls": calls} if calls else found


def open_reservations(reader: Reader, tree_id: str) -> Iterator[tuple[str, int, int, int, int, int]]:
    """Give what was held when a process ended: run id, step, attempt, reservation, tokens, microdollars."""
    sql = (
        "SELECT run_id, step, attempt, reservation, tokens, microdollars FROM reservations"
        f" WHERE {OF_TREE} AND state = 'open' ORDER BY id"
    )
    return iter(reader.select(sql, bounds(tree_id)))
