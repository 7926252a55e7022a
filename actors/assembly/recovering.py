"""What an operator says of a call of which nobody knows whether it was done."""

from typing import Any

import attrs

from actors.agents.entry_text import bounded, clean
from actors.agents.ports import ObservationKind
from actors.agents.prompt import ENTRY_CHARS
from actors.agents.rows import AttemptClosed, CallDone
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
    return [_result(found, recovery), AttemptClosed(*place, "completed")]


def _result(found: AttemptRecord, told: Completed) -> CallDone:
    return CallDone(
        found.run_id,
        found.step,
        found.ordinal,
        ObservationKind.tool,
        found.tool,
        bounded(clean(told.observation), ENTRY_CHARS),
        changed=True,
    )
