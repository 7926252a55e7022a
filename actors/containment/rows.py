"""What the ledger asks of a store. Whoever owns the ledger hands one in, or none."""

from typing import Protocol

from actors.containment.ledger_state import Draw, Reservation


class LedgerRows(Protocol):
    """Where draws and reservations are written, by the caller and never by the ledger actor itself."""

    async def drawn(self, by: str, tokens: int, microdollars: int, draw: Draw, remaining: int) -> None:
        """Note a draw; it may ride the next commit.

        Cancellation: the draw stands in the ledger; its row may be missing.
        """
        ...

    async def reserved(self, reservation: Reservation, note: object) -> None:
        """Write a reservation before its request leaves, and wait until the row stands.

        Cancellation: the caller settles the reservation.
        """
        ...
