"""The store of a tree that keeps nothing."""

from __future__ import annotations

from typing import Any

from actors.agents.edits import Intent
from actors.agents.judging import FileText
from actors.agents.ports import ApprovalState


class Unrecorded:
    """A store that keeps nothing, for a tree that only an observer watches."""

    durable = False

    def __init__(self) -> None:
        self.driven: set[str] = set()

    async def append(self, *rows: Any) -> None:
        """Keep nothing. Cancellation: nothing to undo."""

    def append_nowait(self, *rows: Any) -> None:
        """Keep nothing."""

    async def commit(self, *rows: Any) -> None:
        """Keep nothing. Cancellation: nothing to undo."""

    def approval(self, request_id: str) -> ApprovalState | None:
        """Know nothing."""
        return None

    def answers(self, run_id: str, step: int, ordinal: int) -> tuple[ApprovalState, ...]:
        """Know nothing."""
        return ()

    def write_intent(self, run_id: str, step: int, ordinal: int, target: str) -> Intent | None:
        """Know nothing."""
        return None

    def pins(self, run_id: str) -> str | None:
        """Know nothing."""
        return None

    def models(self, run_id: str) -> list[str | None]:
        """Know nothing."""
        return []

    def has_snapshot(self, run_id: str, path: str) -> bool:
        """Know nothing."""
        return False

    def files_before(self, run_id: str) -> dict[str, FileText]:
        """Know nothing."""
        return {}

    async def take(self, tree_id: str) -> int:
        """Hold nothing. Cancellation: nothing to undo."""
        return 0

    async def renew(self, tree_id: str) -> None:
        """Hold nothing. Cancellation: nothing to undo."""

    async def release(self, tree_id: str) -> None:
        """Hold nothing. Cancellation: nothing to undo."""
