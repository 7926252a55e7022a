"""Events in words: one short line for each, for a log that people follow and for a trace.

An event is plain data whose keys may be missing: an older version, or another
kind of agent, wrote it. What nobody has words for keeps a general form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from actors.agents.outcomes import TABLE, After
from actors.cli.quoting import printable
from actors.containment.amounts import UNLIMITED
from actors.tools.sandbox_grants import ASKED_BY_DEFAULT

GOAL_CHARS: Final = 60
TEXT_CHARS: Final = 120
# Failed calls of one step that are told in its line.
FEW: Final = 3

# Outcomes that are no end: the run goes on from there.
PAUSES: Final = frozenset(kind.value for kind, row in TABLE.items() if row.after is After.paused)

Told = Mapping[str, Any]


def shortened(text: str, limit: int = GOAL_CHARS) -> str:
    """Fit a text into one line, without characters that would move the cursor of whoever reads it."""
    line = printable(" ".join(text.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def phrase(told: Told) -> str:
    """Say any event in one line."""
    words = _WORDS.get(str(told.get("kind")), _general)
    return f"{told.get('path', '?')}: {words(told)}"


def progress_line(told: Told) -> str | None:
    """Say an event to people who follow a run; None for what would only be noise to them."""
    kind = told.get("kind")
    worth = kind in _FOLLOWED or (kind == "gate" and told.get("verdict") != "passed")
    return phrase(told) if worth else None


def is_cut(told: Told) -> bool:
    """Tell whether the line of a step, or of a check, leaves out some of what a tool or a check said."""
    failed, unsound = told.get("failed", ()), told.get("unsound", ())
    texts = [told.get("detail"), *(each.get("text") for each in (*failed, *unsound))]
    long = any(len(" ".join(str(text or "").split())) > TEXT_CHARS for text in texts)
    return long or max(len(failed), len(unsound)) > FEW


def reason_of(rule: str | None, layer: str | None, source: str | None) -> str:
    """Say who denied an act, and which rule of which layer had it denied or asked about."""
    rest = f"rule {rule!r} of layer {layer!r}" if rule else "the policy's default"
    return f"asked about by {rest}, not approved" if source == "approver" else f"denied by {rest}"


def unheld(told: Told, *, asks: bool = True) -> str | None:
    """Say what of its boundary commands were not held by, in an event or a group of a report; None when all held.

    ``asks``: also that they write without asking where a default asks. That is so in nearly every run, and
    news only where the same was denied to the agent's own tools.
    """
    said = [printable(str(each)) for each in told.get("not_held") or () if asks or each != ASKED_BY_DEFAULT]
    if told.get("backend") == "none":
        open_net = ["the network is open to them"] if told.get("net") == "not_held" else []
        return f"commands run without a boundary: {'; '.join((*said, *open_net)) or told.get('mode')}"
    return f"commands run behind {told.get('backend')}, which does not hold: {'; '.join(said)}" if said else None


def brief_time(seconds: float) -> str:
    """Say a time in a few characters."""
    whole = max(int(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min" if whole < 3600 else f"{whole // 3600} h"


def silence(seconds: float) -> str:
    """Say that a run is silent, and what that may mean."""
    return f"not heard of for {brief_time(seconds)}: its process may be gone"


def counted(count: int, noun: str) -> str:
    """Write a count with its noun."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


# ── the words of each kind ──────────────────────────────────────────────────────


def _step(told: Told, words: str) -> str:
    return f"step {told['step']}: {words}" if told.get("step") else words


def _finished(told: Told) -> str:
    cause = f": {shortened(str(told['cause']), TEXT_CHARS)}" if told.get("cause") else ""
    ended = "paused" if told.get("outcome") in PAUSES else "ended"
    return f"{ended}: {told.get('outcome')} after {counted(int(told.get('steps', 0)), 'step')}{cause}"


def _whole_step(told: Told) -> str:
    failed = [
        f"{shortened(str(call.get('tool')))} failed: {shortened(str(call.get('text')), TEXT_CHARS)}"
        for call in told.get("failed", ())
    ]
    more = [f"{len(failed) - FEW} more failed"] if len(failed) > FEW else []
    calls = shortened(", ".join(told.get("calls", ())), TEXT_CHARS) or "no call"
    noted = [f"to do: {shortened(str(told['noted']), TEXT_CHARS)}"] if told.get("noted") else []
    known = [
        f"not asked about {each['act']} {shortened(str(each['target']))}: the rule {each['rule']!r} is remembered"
        for each in told.get("remembered", ())
    ]
    left = [f"{len(known) - FEW} more not asked about"] if len(known) > FEW else []
    done = " ".join((calls, *_edited(told)))
    return "; ".join((_step(told, done), *_unsound(told), *noted, *known[:FEW], *left, *failed[:FEW], *more))


def _unsound(told: Told) -> list[str]:
    """Say which files that a step wrote do not compile, or could not be looked at."""
    files = [
        f"{shortened(str(each.get('path')))} {shortened(str(each.get('text')), TEXT_CHARS)}"
        for each in told.get("unsound", ())
    ]
    return [*files[:FEW], *([f"{len(files) - FEW} more do not either"] if len(files) > FEW else [])]


def _edited(told: Told) -> list[str]:
    """Say which files a step changed, and by how many lines: ``(+3 -1 path)``."""
    files = [
        f"(+{_figure(each.get('added'))} -{_figure(each.get('removed'))} {shortened(str(each.get('path')))})"
        for each in told.get("edited", ())
    ]
    return [*files[:FEW], *([f"and {counted(len(files) - FEW, 'more file')} changed"] if len(files) > FEW else [])]


def _figure(lines: Any) -> str:
    return "?" if lines is None else f"{lines:,}"


def _refused(told: Told) -> str:
    if "act" not in told:
        return _step(told, f"refused: {shortened(str(told.get('text', '')), TEXT_CHARS)}")
    target = shortened(str(told.get("target", "")), TEXT_CHARS)
    why = reason_of(told.get("rule"), told.get("layer"), told.get("source"))
    parts = "; ".join(map(str, told.get("parts", ())))
    within = f", which {shortened(str(told['line']), TEXT_CHARS)} would run," if told.get("line") else ""
    return f"refused {told['act']} {target}{within} ({f'{shortened(parts, TEXT_CHARS)}: ' if parts else ''}{why})"


# Whose answer counted. Who the approver of a process was (a person, or nobody that was asked), no row tells.
_ANSWERED_BY: Final = {
    "operator": ", given from elsewhere by the operator",
    "approver": ", by the approver of its process",
    "runtime": ", as the approver failed",
}


def _decided(told: Told) -> str:
    target = shortened(str(told.get("target") or ""), TEXT_CHARS)
    what = f"{told.get('act')} {target}".strip()
    other = f", with another {', '.join(map(str, told['changed']))}" if told.get("changed") else ""
    who = str(told.get("by") or "")
    by = _ANSWERED_BY.get(who, f", by {shortened(who)}" if who else "")
    return _step(told, f"the answer to {what} is {'yes' if told.get('approved') else 'no'}{other}{by}")


def _gate(told: Told) -> str:
    return _step(told, of_check(str(told.get("verdict")), str(told.get("detail") or "")))


def _reviewed(told: Told) -> str:
    model = f" ({shortened(str(told['model']))})" if told.get("model") else ""
    changes = counted(int(told.get("changes") or 0), "changed file")
    verdict = {"passed": "passes it", "failed": "does not pass it"}.get(str(told.get("verdict")), "gave no verdict")
    return _step(told, f"{shortened(str(told.get('reviewer')))}{model} reviewed {changes} and {verdict}")


def of_check(verdict: str, detail: str) -> str:
    """Say what a look at a criterion came to, with as much of its reason as fits into a line."""
    verdicts = {"passed": "the criterion passed", "failed": "the criterion did not pass"}
    words, why = verdicts.get(verdict, "the criterion could not be checked"), detail.strip()
    if verdict == "failed" and len(why) > TEXT_CHARS:
        # How it ended stands first, and what a program has to say in the end last.
        lines = why.splitlines()
        first, last = shortened(lines[0], TEXT_CHARS // 2), shortened(lines[-1], TEXT_CHARS // 2)
        why = f"{first} … {last}" if len(lines) > 1 else why
    return words + (f": {shortened(why, TEXT_CHARS)}" if why else "")


def _sandbox(told: Told) -> str:
    net = {"open": "granted", "denied": "closed"}.get(str(told.get("net")), "open, though the policy denies it")
    around = f"{told.get('mode')} by {told.get('backend')}, the network {net}"
    # Whole: whoever looks here wants to know exactly that.
    said = "; ".join(printable(str(each)) for each in told.get("not_held") or ())
    what = "a check" if told.get("ordinal") is None else "a command"
    return _step(told, f"{what} stands behind {around}" + (f"; not held: {said}" if said else ""))


def _draw(told: Told) -> str:
    tokens, remaining = int(told.get("tokens", 0)), int(told.get("remaining", UNLIMITED))
    # Half of no ceiling at all is never used up: nothing is told of what is left then.
    left = "" if remaining >= UNLIMITED // 2 else f", {remaining:,} left"
    if told.get("granted") is False:
        return f"asked for {counted(tokens, 'token')} and was halted{left}"
    overrun = f" and {int(told['overrun']):,} over what was held" if told.get("overrun") else ""
    estimated = " (estimated)" if told.get("estimated") else ""
    return _step(told, f"used {counted(tokens, 'token')}{overrun}{estimated}{left}")


def _routed(told: Told) -> str:
    non_passes, size = int(told.get("non_passes", 0)), int(told.get("bytes", 0))
    why = {
        "escalated": f"after {counted(non_passes, 'check')} that did not pass",
        "downshifted": f"for a request of {counted(size, 'byte')}",
    }.get(str(told.get("why")), "its own again")
    after, before = (shortened(str(told.get(key) or "the provider's own model")) for key in ("to", "from"))
    return _step(told, f"asks {after} instead of {before}, {why}")


def _fleet(told: Told) -> str:
    states = ", ".join(f"{told[state]} {state}" for state in ("working", "waiting", "queued", "done") if state in told)
    tree = f"; in the whole tree {told.get('tree_working')} working, {told.get('tree_queued')} queued"
    return f"agents at depth {told.get('tier')}: {states}{tree}"


def _general(told: Told) -> str:
    known = ("kind", "run_id", "path", "depth")
    facts = ", ".join(f"{key} {value}" for key, value in told.items() if key not in known)
    return f"{told.get('kind')}" + (f" ({shortened(facts, TEXT_CHARS)})" if facts else "")


_WORDS: Final[Mapping[str, Callable[[Told], str]]] = {
    "started": lambda told: f"started: {shortened(str(told.get('goal', '')))}",
    "spawned": lambda told: f"spawned {told.get('child', '')}: {shortened(str(told.get('goal', '')))}",
    "spawn_refused": lambda told: f"spawn refused: {shortened(str(told.get('text', '')), TEXT_CHARS)}",
    "refused": _refused,
    "approval_requested": lambda told: _step(
        told, f"asks to {told.get('act')} {shortened(str(told.get('target', '')), TEXT_CHARS)}"
    ),
    "approval_decided": _decided,
    "routed": _routed,
    "retry": lambda told: f"tries again in {float(told.get('seconds', 0)):.1f} s ({told.get('why', '')})",
    "spend_draw": _draw,
    "tool_call": lambda told: _step(told, f"calls {shortened(str(told.get('tool', '')))}"),
    "step": _whole_step,
    "gate": _gate,
    "reviewed": _reviewed,
    "sandbox": _sandbox,
    "stalled": lambda told: _step(told, "no progress"),
    "fleet": _fleet,
    "halted": lambda told: (
        f"halted: {told.get('halt')} by {told.get('by')}"
        + (f": {shortened(str(told['reason']), TEXT_CHARS)}" if told.get("reason") else "")
    ),
    "resumed": lambda told: f"goes on after {counted(int(told.get('step', 0)), 'step')}",
    "reopened": lambda told: (
        f"goes on from the run {told.get('from')}, after {counted(int(told.get('step', 0)), 'step')}"
    ),
    "finished": _finished,
}
_FOLLOWED: Final = frozenset(
    {"spawned", "spawn_refused", "resumed", "refused", "retry", "routed", "step", "stalled", "halted", "finished"}
)
