"""Side by side means that what is not there is said, and what is there is billed whole."""

import subprocess
import sys
import threading
import time

import pytest

from benchmarks import peers
from benchmarks.bills import Bill, Clock, median


def test_a_peer_that_is_not_installed_is_skipped_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PEERS", {"no-such-peer": ("no_such_peer", "benchmarks.peer_none")})
    assert peers.present() == []
    told = capsys.readouterr().err.splitlines()
    assert told == ["peers: no-such-peer is skipped: ModuleNotFoundError: No module named 'no_such_peer'"]


def test_without_any_peer_ours_are_still_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers, "PEERS", {})
    names = [figure.name for figure in peers.figures(True)]
    assert names == [f"peers_{job}_{kind}" for job in [*peers.JOBS, "restart"] for kind in ("wall", "cpu")]


def test_a_bill_counts_the_cpu_of_threads_and_of_processes_that_have_left() -> None:
    def spin(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    clock = Clock()
    thread = threading.Thread(target=spin, args=(0.1,))
    thread.start()
    thread.join()
    assert clock.bill(1).cpu >= 0.1
    clock = Clock()
    subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.1: pass"], check=True)
    assert clock.bill(1).cpu >= 0.1


def test_the_median_is_taken_of_wall_and_cpu_each_by_itself() -> None:
    bills = [Bill(10, 1.0, 9.0), Bill(10, 2.0, 8.0), Bill(10, 3.0, 1.0)]
    assert median(bills) == Bill(10, 2.0, 8.0)
    assert median(bills).each == (2.0 / 10 * 1e6, 8.0 / 10 * 1e6)
