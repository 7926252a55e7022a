"""What an operator says of a call of which nobody knows whether it was done."""

from typing import Any

import attrs

from actors.agents.call_journal import call_done
from actors.agents.entry_text import bounded, clean
from actors.agents.ports import Observation, ObservationKind, ToolCall
from actors.agents.prompt import ENTRY_CHARS
from actors.agents.rewriting import Rewriting
from actors.agents.rows import AttemptClosed
from actors.errors import ConfigError
from actors.store.records import AttemptRecord
from actors.store.store import Store


@attrs.frozen
class Retry:
    """It was not done: run the call again. ``attempt`` is its key, as the pause names it."""

    attempt: str


@attrs.frozen
class Completed:
    """It was done: the model reads ``observation`` as its result, and the tool is not called."""

    attempt: str
    observation: str


@attrs.frozen
class Abort:
    """Give it up: the agent that asked for it ends as ``denied``."""

    attempt: str


Recovery = Retry | Completed | Abort


def recovery_rows(store: Store, tree_id: str, recovery: Recovery) -> list[Any]:
    """Give the rows of a recovery: the result first if there is one, then the end of the attempt.

    Raises:
        ConfigError: this run has no such open call.
    """
    found = next((each for each in store.open_attempts(tree_id) if each.key == recovery.attempt), None)
    if found is None:
        raise ConfigError(("recovery", f"{recovery.attempt} is no call of {tree_id} that waits for a decision"))
    place = (found.run_id, found.step, found.ordinal)
    if isinstance(recovery, Retry):
        return [AttemptClosed(*place, "retry")]
    if isinstance(recovery, Abort):
        return [AttemptClosed(*place, "aborted")]
    seen = Observation(ObservationKind.tool, found.tool, clean(recovery.observation), changed=True)
    seen = _as_asked(store, tree_id, found).telling(seen)
    done = attrs.evolve(seen, text=bounded(seen.text, ENTRY_CHARS))
    return [call_done(*place, done), AttemptClosed(*place, "completed")]


def _as_asked(store: Store, tree_id: str, found: AttemptRecord) -> Rewriting:
    """Give a call as the model asked for it, and what of the answers to its questions was begun."""
    place = (found.run_id, found.step, found.ordinal)
    asked = [each for each in store.approvals(tree_id, all=True) if (each.run_id, each.step, each.ordinal) == place]
    # The first question was about what the model asked for.
    first = min(asked, key=lambda each: each.nth or 0, default=found)
    call = ToolCall(found.tool, first.arguments)
    begun = Rewriting(call)
    begun.hear(store.answers(*place))
    # An answer that came too late changed nothing.
    return begun if begun.call.arguments == found.arguments else Rewriting(call)
