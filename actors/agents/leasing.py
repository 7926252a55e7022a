"""Who drives a tree: one process by the lease of the store, and in that process one driver by `RunStore.driven`.

Within one store a lease would be given a second time, and be given back under the
one who drives. So whoever takes it says first that it does.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from actors.agents.ports import RunStore
from actors.errors import RunConflict, StoreError

log = logging.getLogger("actors.leasing")

# A failing store delays the end of a drive for no longer.
RELEASE_SECONDS = 1.0


def claim(store: RunStore, tree_id: str) -> None:
    """Say that this driver takes the lease of a tree; `give_back` follows, also when it could not be taken.

    Raises:
        RunConflict: another driver in this process does. Nothing was claimed.
    """
    if tree_id in store.driven:
        raise RunConflict(tree_id, "this very process", None)
    store.driven.add(tree_id)


async def give_back(store: RunStore, tree_id: str) -> None:
    """Give a lease back. When that cannot be written in time it lapses by itself.

    Cancellation: shielded, for `RELEASE_SECONDS` at most.
    """
    try:
        with trio.move_on_after(RELEASE_SECONDS, shield=True):
            await store.release(tree_id)
    except StoreError as error:
        log.warning("the lease was not given back, and lapses by itself: %s", error)
    finally:
        store.driven.discard(tree_id)


@asynccontextmanager
async def driving(store: RunStore, tree_id: str) -> AsyncIterator[None]:
    """Drive a tree for as long as the block, and nobody else does.

    Cancellation: the lease is given back, as `give_back`.

    Raises:
        RunConflict: somebody else drives it; nothing was written.
        StoreError: the lease could not be taken.
    """
    claim(store, tree_id)
    try:
        await store.take(tree_id)
        yield
    finally:
        await give_back(store, tree_id)
