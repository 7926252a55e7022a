"""pykka's side of `peers`: an actor is a thread, and a message a queue entry. Import it only if pykka is there."""

import threading
from typing import Any

import pykka

from benchmarks.bills import Bill, Clock, Job

NAME = "pykka"
ACTOR = "a thread for each actor"


class _Counter(pykka.ThreadingActor):
    def __init__(self, last: int = -1, over: threading.Event | None = None) -> None:
        super().__init__()
        self._seen = 0
        self._last = last
        self._over = over

    def on_receive(self, message: Any) -> Any:
        self._seen += 1
        if self._seen == self._last:
            self._over.set()
        return message


def _told(n: int) -> Bill:
    over = threading.Event()
    ref = _Counter.start(n, over)
    clock = Clock()
    for number in range(n):
        ref.tell(number)
    over.wait()
    bill = clock.bill(n)
    ref.stop()
    return bill


def _tell(quick: bool) -> Bill:
    return _told(640 if quick else 20_480)


def _asked(n: int, timeout: float | None) -> Bill:
    ref = _Counter.start()
    clock = Clock()
    for number in range(n):
        assert ref.ask(number, timeout=timeout) == number
    bill = clock.bill(n)
    ref.stop()
    return bill


def _ask(quick: bool) -> Bill:
    return _asked(200 if quick else 5_000, None)


def _ask_with_deadline(quick: bool) -> Bill:
    return _asked(200 if quick else 5_000, 60.0)


def _spawn(quick: bool) -> Bill:
    alive, n = (50, 20) if quick else (1_000, 200)
    try:
        for _ in range(alive):
            _Counter.start()
        clock = Clock()
        for _ in range(n):
            _Counter.start()
        return clock.bill(n)
    finally:
        pykka.ActorRegistry.stop_all()


def _stop(quick: bool) -> Bill:
    n = 50 if quick else 1_000
    for _ in range(n):
        _Counter.start()
    clock = Clock()
    assert all(pykka.ActorRegistry.stop_all())
    return clock.bill(n)


# Nothing in it is woken once for several messages, so a burst is a tell after a tell.
JOBS: dict[str, Job] = {
    "tell": _tell,
    "tell_bursts": _tell,
    "ask": _ask,
    "ask_timed": _ask_with_deadline,
    "spawn": _spawn,
    "stop": _stop,
}
