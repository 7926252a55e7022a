"""What a run works with besides its contract and its boundary: stored with it, so that its id alone is enough to go on.

That is the provider as the task file names it, the prices, and the settings of
``[run]``. A key never stands among them: it comes from the environment, of each
process anew.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import attrs

from actors.agents.contract import TaskContract
from actors.agents.judged_fields import as_table, read_record
from actors.agents.prompt import first_turn
from actors.assembly.provider_spec import ProviderSpec
from actors.assembly.run_settings import RunSettings
from actors.containment.prices import PriceTable
from actors.errors import ConfigError
from actors.store.readers import Reader
from actors.store.records import RunRecord
from actors.store.storage_errors import readable

# Failures of attempts whose answer nobody was given.
_UNHEARD = ("lost", "cancelled", "error")


@attrs.frozen
class Means:
    """What a run works with."""

    provider: ProviderSpec
    prices: PriceTable = attrs.Factory(PriceTable)
    run: RunSettings = attrs.Factory(RunSettings)
    reviewer: ProviderSpec | None = None

    def to_dict(self) -> dict[str, Any]:
        """Give the plain form, in the words of a task file; what is None is left out."""
        plain = {
            "provider": _plain(self.provider),
            "prices": self.prices.to_dict(),
            "run": _plain(self.run),
        }
        return plain if self.reviewer is None else {**plain, "reviewer": _plain(self.reviewer)}

    def text(self) -> str:
        """Give the form that is stored: JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Means:
        """Read the plain form.

        Raises:
            ConfigError: every problem, with the path of its key.
        """
        table = as_table(plain, "task")
        return cls(
            read_record(ProviderSpec, table.get("provider", {}), "provider"),
            PriceTable.from_dict(table.get("prices", {})),
            read_record(RunSettings, table.get("run", {}), "run"),
            read_record(ProviderSpec, table["reviewer"], "reviewer") if "reviewer" in table else None,
        )


def stored_means(record: RunRecord) -> dict[str, Any]:
    """Give what a run works with, as it was stored: the plain form of `Means`.

    Raises:
        ConfigError: nothing is stored: the run was started by a program of somebody's own. Or it cannot be read.
    """
    if record.task is None:
        text = "keeps no provider: it was not started by `actors run`. Name a task file that has one, with --task FILE"
        raise ConfigError(("run", f"{record.run_id} {text}"))
    try:
        plain: dict[str, Any] = dict(as_table(json.loads(record.task), "task"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(("run", f"what is stored of the task of {record.run_id} cannot be read: {error}")) from None
    return plain


def answered_goals(reader: Reader, tree_id: str, purpose: str | None = None) -> list[str]:
    """Give the tasks of all answers that a run was given so far, in order, for a script that goes on behind them.

    Those of the runs that it reopens come first. ``purpose`` review: the answers of its reviewer.
    """
    root = reader.run(tree_id)
    before = None if root is None else root.reopened_from
    goals = [] if before is None else answered_goals(reader, before, purpose)
    marks = ", ".join("?" for _ in _UNHEARD)
    # An older file has no reviews, and no column that could tell them apart; nor an opening.
    column = "c.purpose" if reader.knows("provider_calls", "purpose") else "NULL"
    shown = "r.opening" if reader.knows("runs", "opening") else "NULL"
    sql = (
        f"SELECT r.run_id, r.contract, {shown} FROM provider_calls c JOIN runs r USING (run_id)"
        f" WHERE r.tree_id = ? AND {column} IS ? AND (c.failure IS NULL OR c.failure NOT IN ({marks})) ORDER BY c.id"
    )
    texts: dict[str, str] = {}
    for run_id, contract, opening in reader.select(sql, (tree_id, purpose, *_UNHEARD)):
        if run_id not in texts:
            with readable(reader.file, f"the contract of {run_id}"):
                texts[run_id] = _task_text(contract, opening)
        goals.append(texts[run_id])
    return goals


def _task_text(contract: str | None, opening: str | None) -> str:
    if contract is None:
        return ""
    read = TaskContract.from_dict(json.loads(contract), "contract")
    return first_turn(read.goal, read.verify.describe(), opening or "").text


def _plain(record: Any) -> dict[str, Any]:
    return {name: value for name, value in attrs.asdict(record).items() if value is not None}
