"""Who waits for whom, so that a wait that could never end is refused when it begins.

A node is whatever can wait or be waited for: an actor, a limit. It is *stuck*
when a wait blocks it and nobody who could end that wait can ever go on:

    for all of its targets   stuck when one of them is stuck, or is the waiter itself
    for any of several       stuck when every one of them is; one that works is enough

So a plain search for circles would be wrong: a circle through a slot is no
deadlock while another holder still works. What is searched for is the least
set of nodes that can go on: first those that nothing blocks, then whoever
waits for them, and so on. Who is not in it waits for ever.

A timeout is no excuse: a wait that only a timeout can end is refused too.

A refusal must never be wrong, so whatever is in doubt can go on: who holds one
of several and still works in another task may give it back from there.

Only live waits are kept. A walk looks at what can be reached from the targets
and at nothing else, each edge at most twice, and it does not recurse: a chain
of 100,000 is walked like any other.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Final

import attrs

from actors.errors import WouldDeadlock

# How many links a text names. A cycle may be as long as the tree is deep; `WouldDeadlock.cycle` has all of it.
SHOWN: Final = 8


@attrs.frozen(eq=False)
class Wait:
    """One wait that stands. Hand it to `WaitGraph.end` when it is over, however it ended.

    ``what`` is worded so that a name can follow: "an answer from". It is empty for a
    limit, which does not wait itself: whoever waits for it waits for one of its holders,
    and only these are named. ``alone`` says that the waiter does nothing else meanwhile,
    ``lends`` that it gives back meanwhile what it holds of limits.
    """

    waiter: Hashable
    what: str
    any_of: bool
    alone: bool
    _targets: tuple[Hashable, ...] | Callable[[], Iterable[Hashable]] = attrs.field(repr=False)
    lends: bool = False

    @property
    def targets(self) -> tuple[Hashable, ...]:
        """Give who can end it as things stand now, each once."""
        if isinstance(self._targets, tuple):
            return self._targets
        return tuple(dict.fromkeys(self._targets()))


@attrs.define(eq=False)
class _Open:
    """A wait as one walk sees it: ``lacking`` targets more must be able to go on before it is sure to end."""

    wait: Wait
    targets: tuple[Hashable, ...]
    lacking: int


# Nodes that can never go on, each with the waits that block it.
_Stuck = dict[Hashable, list[_Open]]
# One step of a cycle: the wait, and the one of its targets that the cycle goes on with.
_Link = tuple[Wait, Hashable]


def _no_mark(_node: Hashable) -> Wait | None:
    return None


def _nowhere(_node: Hashable) -> bool:
    return False


class WaitGraph:
    """The waits of one run: of all trees in it.

    ``name`` gives the readable name of a node. ``standing`` gives the one wait that a
    node has by a mark of its own, without an entry here, or None: the cheap form for a
    wait that happens often and closes a cycle seldom. ``beside`` tells whether a node
    whose wait stands may still work in another task, and give back what it holds.

        wait = graph.begin(me, [callee], what="an answer from", any_of=False)
        try:
            ...
        finally:
            graph.end(wait)
    """

    def __init__(
        self,
        name: Callable[[Hashable], str] = str,
        standing: Callable[[Hashable], Wait | None] = _no_mark,
        beside: Callable[[Hashable], bool] = _nowhere,
    ) -> None:
        self._name = name
        self._standing = standing
        self._beside = beside
        # Nodes without a wait are not in it, so it is empty when nobody waits.
        self._waits: dict[Hashable, dict[Wait, None]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waits.values()))

    def begin(
        self,
        waiter: Hashable,
        targets: Iterable[Hashable] | Callable[[], Iterable[Hashable]],
        *,
        what: str,
        any_of: bool,
        alone: bool = True,
        lends: bool = False,
    ) -> Wait:
        """Enter a wait of ``waiter`` for all of ``targets``, or with ``any_of`` for the first of them.

        No targets mean that it ends from outside; such a wait is never refused.
        A call in place of the targets is asked at every walk: for a slot, whose
        holders change while others wait for it. It must be quick and not raise.

        ``alone=False`` says that another task of the waiter still works. Such a
        wait is never refused and blocks nobody. When that other task stops
        working, end the wait and begin it again as alone.

        ``lends=True`` says that the waiter, once this has not refused, gives back what it
        holds of limits: then nobody who needs that waits for the waiter.

        Raises:
            WouldDeadlock: it could never end. Nothing was entered.
        """
        whom = targets if callable(targets) else tuple(dict.fromkeys(targets))
        wait = Wait(waiter, what, any_of, alone, whom, lends)
        if alone and not self._sure_to_end(wait):
            stuck = self._stuck_with(wait)
            if waiter in stuck:
                raise self._refusal(_cycle(stuck, waiter))
        self._waits.setdefault(waiter, {})[wait] = None
        return wait

    def check(self, waiter: Hashable, target: Hashable, *, what: str, lends: bool = False) -> None:
        """Look whether a wait of ``waiter`` for ``target`` could ever end, and enter nothing.

        Free while nobody stands in the graph: a cycle has a wait that was entered.

        Raises:
            WouldDeadlock: it could not.
        """
        if self._waits:
            self.end(self.begin(waiter, (target,), what=what, any_of=False, lends=lends))

    def end(self, wait: Wait) -> None:
        """Take a wait out; nothing happens if it is out already."""
        waits = self._waits.get(wait.waiter)
        if waits is not None:
            waits.pop(wait, None)
            if not waits:
                del self._waits[wait.waiter]

    def waits_of(self, node: Hashable) -> tuple[Wait, ...]:
        """Give the waits that stand for ``node``, the oldest first."""
        return tuple(self._waits.get(node, ()))

    def explain(self, node: Hashable) -> str:
        """Say in one line what ``node`` waits for, and what that waits for in turn."""
        first = self._name(node)
        links: list[str] = []
        seen: set[Hashable] = set()
        while node not in seen and (wait := self._main_wait(node)) is not None:
            if len(links) == SHOWN:
                links[-1] += ", and so on"
                break
            seen.add(node)
            targets = wait.targets
            if not targets:
                links.append(f"{wait.what} somebody outside")
                break
            node = self._telling(wait, targets)
            links.append(self._object(wait.what, wait, node, len(targets)))
        return f"{first} waits for {', which waits for '.join(links) or 'nobody'}"

    # ── the walk ────────────────────────────────────────────────────────────

    def _blocking(self, node: Hashable, new: Wait | None) -> list[Wait]:
        """Give the waits that block a node while ``new`` begins, without those that one at work can end."""
        marked = self._standing(node)
        waits = (*self._waits.get(node, ()), *(() if marked is None else (marked,)))
        return [wait for wait in waits if wait.alone and not (wait.any_of and self._one_works(wait, new))]

    def _one_works(self, wait: Wait, new: Wait | None) -> bool:
        """Tell whether one of several plainly can go on, so that whoever waits for any of them can too."""
        for holder in wait.targets:
            if new is not None and holder == new.waiter:
                # What it holds of a limit it gives back if the new wait says so.
                works = new.lends and not wait.what
            else:
                works = not self._waits_alone(holder)
            if works or self._beside(holder):
                return True
        return False

    def _waits_alone(self, node: Hashable) -> bool:
        return any(wait.alone for wait in self._waits.get(node, ())) or self._standing(node) is not None

    def _sure_to_end(self, wait: Wait) -> bool:
        """Tell whether nothing blocks those it waits for. Nearly every wait is such, and needs no walk."""
        targets = wait.targets
        # The common case by far, an ask of somebody who waits for nobody.
        if len(targets) == 1 and targets[0] not in self._waits and self._standing(targets[0]) is None:
            return targets[0] != wait.waiter or (wait.any_of and self._beside(targets[0]))
        if wait.any_of:
            return not targets or self._one_works(wait, wait)
        return all(target != wait.waiter and not self._blocking(target, wait) for target in targets)

    def _stuck_with(self, new: Wait) -> _Stuck:
        """Find who could never go on if ``new`` stood as well, among those that can be reached from it."""
        blocked_by: _Stuck = {}
        # Turned round: who goes on when this node does.
        waited_by: dict[Hashable, list[_Open]] = {}
        found = [new.waiter]
        while found:
            node = found.pop()
            if node in blocked_by:
                continue
            blocked_by[node] = []
            # Of the waiter's own only the new one is judged: whether the others can end was asked when they began.
            for wait in [new] if node == new.waiter else self._blocking(node, new):
                targets = wait.targets
                if not targets:
                    continue
                opened = _Open(wait, targets, 1 if wait.any_of else len(targets))
                blocked_by[node].append(opened)
                for target in targets:
                    waited_by.setdefault(target, []).append(opened)
                found.extend(targets)
        for node in _going_on(blocked_by, waited_by):
            del blocked_by[node]
        return blocked_by

    # ── words ───────────────────────────────────────────────────────────────

    def _refusal(self, links: list[_Link]) -> WouldDeadlock:
        names = [self._name(links[0][0].waiter)]
        texts: list[str] = []
        what = ""
        for place, (wait, target) in enumerate(links, 1):
            what = what or wait.what
            if place < len(links) and not links[place][0].what:
                # A limit: the next link says which of its holders the cycle goes on with.
                continue
            names.append(self._name(target))
            texts.append(f"{names[-2]} waits for {self._object(what, wait, target, len(wait.targets))}")
            what = ""
        return WouldDeadlock(tuple(names), tuple(texts))

    def _object(self, what: str, wait: Wait, target: Hashable, count: int) -> str:
        text = f"{what} {self._name(target)}"
        if count > 1:
            text += f" ({'or' if wait.any_of else 'and'} {count - 1} more)"
        return text

    def _main_wait(self, node: Hashable) -> Wait | None:
        return min(self._waits.get(node, ()), key=lambda wait: not wait.alone, default=None)

    def _telling(self, wait: Wait, targets: tuple[Hashable, ...]) -> Hashable:
        """Choose the target that tells why the wait lasts: of any, one that works; of all, one that does not."""
        for target in targets:
            if bool(self._blocking(target, None)) is not wait.any_of:
                return target
        return targets[0]


def _going_on(blocked_by: _Stuck, waited_by: dict[Hashable, list[_Open]]) -> list[Hashable]:
    """Find all that can go on, beginning with those that nothing blocks."""
    unsure = {node: len(opened) for node, opened in blocked_by.items()}
    going = [node for node, count in unsure.items() if not count]
    # The list grows while it is read: whoever goes on may let others go on.
    for node in going:
        for opened in waited_by.get(node, ()):
            opened.lacking -= 1
            # Exactly zero: a wait for any of several comes past here once more for each further one.
            if opened.lacking == 0:
                waiter = opened.wait.waiter
                unsure[waiter] -= 1
                if not unsure[waiter]:
                    going.append(waiter)
    return going


def _stuck_links(stuck: _Stuck, node: Hashable) -> Iterator[_Link]:
    for opened in stuck[node]:
        if opened.lacking > 0:
            yield from ((opened.wait, target) for target in opened.targets if target in stuck)


def _cycle(stuck: _Stuck, waiter: Hashable) -> list[_Link]:
    """Find the shortest way from ``waiter`` back to it; or, if there is none, to a circle it would join."""
    came_by: dict[Hashable, _Link] = {}
    queue = deque([waiter])
    while queue:
        for link in _stuck_links(stuck, queue.popleft()):
            target = link[1]
            if target not in came_by:
                came_by[target] = link
                if target == waiter:
                    return _way_back(came_by, waiter)
                queue.append(target)
    return _first_circle(stuck, waiter)


def _way_back(came_by: dict[Hashable, _Link], waiter: Hashable) -> list[_Link]:
    links = [came_by[waiter]]
    while links[-1][0].waiter != waiter:
        links.append(came_by[links[-1][0].waiter])
    return links[::-1]


def _first_circle(stuck: _Stuck, waiter: Hashable) -> list[_Link]:
    # Only reached when others are stuck already: a live set of targets shrank, and no call could be refused for that.
    links: list[_Link] = []
    seen: set[Hashable] = set()
    node = waiter
    while node not in seen:
        seen.add(node)
        # Whoever is stuck waits for somebody who is stuck: else it could go on.
        links.append(next(_stuck_links(stuck, node)))
        node = links[-1][1]
    closing = next(link for link in links if link[0].waiter == node)
    # It is never told that it comes back to a limit: one link further is the holder that was named.
    return links if closing[0].what else [*links, closing]
