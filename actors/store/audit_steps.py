"""Whether the steps of one agent can have happened. Pure: rows in order go in, findings come out.

The rows are iterators, and no more than one step of them is held at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Generic, TypeVar

import attrs
import msgspec

from actors.agents.ports import ObservationKind
from actors.agents.spawning import NAME as SPAWN
from actors.agents.step_digest import step_digest
from actors.store.audit_findings import Check, Findings

T = TypeVar("T")


class Unreadable(ValueError):
    """A column holds what was never written to it."""


def as_whole(value: Any) -> int:
    """Read a whole number.

    Raises:
        Unreadable: it is none.
    """
    if type(value) is not int:
        raise Unreadable(f"{value!r} stands where a whole number must")
    return value


def as_text(value: Any) -> str:
    """Read a text.

    Raises:
        Unreadable: it is none.
    """
    if type(value) is not str:
        raise Unreadable(f"{value!r} stands where a text must")
    return value


def as_whole_or_null(value: Any) -> int | None:
    """Read a whole number, or null.

    Raises:
        Unreadable: it is neither.
    """
    return None if value is None else as_whole(value)


def as_text_or_null(value: Any) -> str | None:
    """Read a text, or null.

    Raises:
        Unreadable: it is neither.
    """
    return None if value is None else as_text(value)


@attrs.frozen
class StepRow:
    """A row of ``steps``."""

    step: int = attrs.field(converter=as_whole)
    tokens: int = attrs.field(converter=as_whole)
    digest: str | None = attrs.field(converter=as_text_or_null)


@attrs.frozen
class AnswerRow:
    """A row of ``step_turns``."""

    step: int = attrs.field(converter=as_whole)
    text: str | None = attrs.field(converter=as_text_or_null)
    calls: str = attrs.field(converter=as_text)
    finish_reason: str | None = attrs.field(converter=as_text_or_null)
    admitted: int | None = attrs.field(default=None, converter=as_whole_or_null)

    def called(self) -> list[str]:
        """Name the tools of its calls, in order.

        Raises:
            Unreadable: the calls are not written as calls are.
        """
        try:
            calls = _DECODE(self.calls)
        except msgspec.MsgspecError as error:
            raise Unreadable(f"the calls of step {self.step} cannot be read: {error}") from None
        return [call[0] if call else "" for call in calls]


@attrs.frozen
class SeenRow:
    """A row of ``ledger_observations``."""

    step: int = attrs.field(converter=as_whole)
    ordinal: int = attrs.field(converter=as_whole)
    kind: str = attrs.field(converter=as_text)
    target: str = attrs.field(converter=as_text)
    text: str = attrs.field(converter=as_text)
    changed: int | None = attrs.field(converter=as_whole_or_null)

    @property
    def facts(self) -> tuple[str, str, str, bool | None]:
        """Give what is digested of it."""
        return self.kind, self.target, self.text, None if self.changed is None else bool(self.changed)


@attrs.frozen
class EditRow:
    """A row of ``edits``."""

    step: int = attrs.field(converter=as_whole)
    ordinal: int = attrs.field(converter=as_whole)
    tool: str = attrs.field(converter=as_text)
    path: str = attrs.field(converter=as_text)
    lines_added: int | None = attrs.field(converter=as_whole_or_null)
    lines_removed: int | None = attrs.field(converter=as_whole_or_null)


_DECODE: Final = msgspec.json.Decoder(list[list[str]]).decode


class _Ahead(Generic[T]):
    """Rows of which the next one can be looked at."""

    def __init__(self, rows: Iterator[T]) -> None:
        self._rows = rows
        self.head = next(rows, None)

    def take(self) -> T:
        head, self.head = self.head, next(self._rows, None)
        assert head is not None, "whoever takes has looked"
        return head


class StepsOfOne:
    """The judge of one agent's steps. Used once: `judge`, and then `count` is how many steps are whole."""

    def __init__(
        self,
        findings: Findings,
        run_id: str,
        answers: Iterator[AnswerRow],
        seen: Iterator[SeenRow],
        edits: Iterator[EditRow],
    ) -> None:
        self.count = 0
        self._findings = findings
        self._run_id = run_id
        self._answers = _Ahead(answers)
        self._seen = _Ahead(seen)
        self._edits = _Ahead(edits)
        self._previous: str | None = None

    def judge(self, steps: Iterator[StepRow]) -> None:
        """Judge all steps, and what stands behind the last of them."""
        last = 0
        for row in steps:
            self.count += 1
            self._findings.looked(Check.steps)
            if row.step != last + 1:
                self._wrong(Check.steps, f"step {row.step} follows step {last}")
            answer, seen = self._answer(row.step), self._results(row.step)
            if answer is not None:
                self._judge_results(answer, seen)
                self._judge_edits(answer, seen)
                self._judge_digest(row, answer, seen)
            self._previous = row.digest
            last = row.step
        self._judge_rest(last)

    def _wrong(self, check: Check, text: str) -> None:
        self._findings.wrong(check, self._run_id, text)

    # ── what belongs to a step ──────────────────────────────────────────────

    def _answer(self, step: int) -> AnswerRow | None:
        ahead = self._answers
        while ahead.head is not None and ahead.head.step < step:
            self._wrong(Check.answers, f"step {ahead.take().step} was answered, is not whole, and has others behind it")
        self._findings.looked(Check.answers)
        if ahead.head is None or ahead.head.step != step:
            self._wrong(Check.answers, f"step {step} is whole and has no answer")
            return None
        return ahead.take()

    def _results(self, step: int) -> list[SeenRow]:
        ahead = self._seen
        while ahead.head is not None and ahead.head.step < step:
            row = ahead.take()
            self._wrong(Check.results, f"result {row.ordinal} of step {row.step} stands where step {step} is due")
        return self._group(step)

    def _group(self, step: int) -> list[SeenRow]:
        """Take the observations of one step, and see whether they are numbered without a gap."""
        ahead, rows = self._seen, []
        while ahead.head is not None and ahead.head.step == step:
            rows.append(ahead.take())
        rows.sort(key=lambda row: row.ordinal)
        self._findings.looked(Check.ordinals, len(rows))
        if any(row.ordinal != place for place, row in enumerate(rows, 1)):
            numbers = ", ".join(str(row.ordinal) for row in rows)
            self._wrong(Check.ordinals, f"the {len(rows)} results of step {step} are numbered {numbers}")
        return rows

    # ── judging ─────────────────────────────────────────────────────────────

    def _judge_results(self, answer: AnswerRow, seen: list[SeenRow]) -> None:
        """Look for one result of each call, behind the reports of children that came late."""
        tools = answer.called()
        # An answer without a call is itself what is observed.
        due = len(tools) or 1
        self._findings.looked(Check.results, due)
        late, own = seen[: len(seen) - due], seen[max(len(seen) - due, 0) :]
        if len(own) < due or any(row.kind != ObservationKind.child for row in late):
            calls = f"{len(tools)} calls" if tools else "an answer without a call"
            self._wrong(Check.results, f"step {answer.step} has {len(seen)} results for {calls}")
        elif not tools:
            if own[0].kind != ObservationKind.message:
                self._wrong(Check.results, f"step {answer.step} made no call, and its result is of kind {own[0].kind}")
        else:
            let = len(tools) if answer.admitted is None else answer.admitted
            for place, row in enumerate(own[let:], let + 1):
                if row.kind != ObservationKind.error:
                    text = f"call {place} of step {answer.step} was not to be run, as {let} were, and has a result"
                    self._wrong(Check.results, text)
            for tool, row in zip(tools, own, strict=True):
                if row.kind == ObservationKind.child and tool != SPAWN:
                    self._wrong(
                        Check.results,
                        f"result {row.ordinal} of step {answer.step} reports of {row.target}, and its call is {tool}",
                    )

    def _judge_edits(self, answer: AnswerRow, seen: list[SeenRow]) -> None:
        """Look for a call of this name, which says that it changed something, for each file that is told as changed."""
        ahead, tools = self._edits, answer.called()
        late = len(seen) - len(tools)
        while ahead.head is not None and ahead.head.step <= answer.step:
            row = ahead.take()
            self._findings.looked(Check.edits)
            called = row.step == answer.step and 0 < row.ordinal <= len(tools) and tools[row.ordinal - 1] == row.tool
            if not called or late < 0 or seen[late + row.ordinal - 1].changed != 1:
                text = f"{row.tool} is told to have changed {row.path} as call {row.ordinal} of step {row.step}"
                self._wrong(Check.edits, f"{text}, which changed nothing")

    def _judge_digest(self, row: StepRow, answer: AnswerRow, seen: list[SeenRow]) -> None:
        if row.digest is None:
            if self._previous is None:
                self._findings.missing(Check.digests, "steps have no digest")
            else:
                self._wrong(Check.digests, f"step {row.step} has no digest, and the step before it has one")
            return
        self._findings.looked(Check.digests)
        due = step_digest(
            self._previous,
            self._run_id,
            row.step,
            answer.text,
            answer.calls,
            answer.finish_reason,
            row.tokens,
            [each.facts for each in seen],
        )
        if due != row.digest:
            self._wrong(Check.digests, f"step {row.step} has the digest {row.digest}, and its rows have {due}")

    def _judge_rest(self, last: int) -> None:
        """Judge what stands behind the last whole step: one step may be answered, and children may have reported."""
        answered = False
        while self._edits.head is not None:
            edit = self._edits.take()
            self._findings.looked(Check.edits)
            if edit.step != last + 1 or self._answers.head is None:
                self._wrong(Check.edits, f"step {edit.step} changed {edit.path}, and step {last} is the last one")
        while self._answers.head is not None:
            step = self._answers.take().step
            self._findings.looked(Check.answers)
            if answered or step != last + 1:
                self._wrong(Check.answers, f"step {step} is answered, and step {last} is the last that is whole")
            answered = True
        while self._seen.head is not None:
            step = self._seen.head.step
            if step <= last:
                row = self._seen.take()
                self._wrong(Check.results, f"result {row.ordinal} of step {step} stands behind all of step {last}")
                continue
            rows = self._group(step)
            self._findings.looked(Check.results, len(rows))
            if step != last + 1 or any(row.kind != ObservationKind.child for row in rows):
                self._wrong(Check.results, f"step {step} has {len(rows)} results, and step {last} is the last one")


def judge_checkpoints(findings: Findings, run_id: str, marks: Iterator[tuple[Any, ...]], count: int) -> None:
    """Look for one checkpoint of each of ``count`` steps; ``marks`` are (step, kind) in the order of writing."""
    last = 0
    for step, kind in marks:
        if kind != "checkpoint":
            continue
        findings.looked(Check.checkpoints)
        if as_whole(step) != last + 1:
            findings.wrong(Check.checkpoints, run_id, f"the checkpoint of step {step} follows that of step {last}")
        last = step
    if last != count:
        findings.wrong(Check.checkpoints, run_id, f"the last checkpoint is of step {last}, and {count} steps are whole")
