"""Commands in the background: read by window, ended with all below them, and orphaned when their process is gone."""

import os

import pytest
import trio

from actors.agents.belongings import Belongings
from actors.agents.confinement import Confinement
from actors.agents.contract import ExecCaps, ExecSandbox
from actors.agents.policy import Policy
from actors.agents.ports import ActRefused
from actors.errors import ToolFailed
from actors.tools.handles import MOST_KEPT, MOST_LIVE, RING_BYTES, WINDOW_BYTES, Handles, Ring
from actors.tools.sandbox import SandboxUnavailable, sandbox_problem
from actors.tools.sandbox_plan import Capabilities
from actors.tools.shell_background import ShellKill, ShellPoll, ShellStart


@pytest.fixture
async def background(context, nursery):
    """A context whose agent may have commands in the background, as the loop gives it."""
    context.belongings = Belongings(nursery.start_soon)
    yield context
    with trio.CancelScope(shield=True):
        leaked = await context.belongings.give_up()
    assert leaked == ()


async def start(context, line, key="run#1.1"):
    context.key = key
    return (await ShellStart().run({"line": line}, context)).text


async def poll(context, handle="1.1", cursor=0):
    return (await ShellPoll().run({"handle": handle, "cursor": cursor}, context)).text


async def kill(context, handle="1.1"):
    return (await ShellKill().run({"handle": handle}, context)).text


async def poll_until(context, wanted, handle="1.1", cursor=0):
    with trio.fail_after(5):
        while wanted not in (seen := await poll(context, handle, cursor)):
            await trio.sleep(0.01)
    return seen


# ── the life of one ─────────────────────────────────────────────────────────


async def test_a_line_runs_while_its_agent_does_something_else(root, background):
    said = await start(background, "echo first; cat < /dev/null; sh -c 'until [ -e go ]; do sleep 0.01; done'; echo last")
    assert said == "[started in the background; handle 1.1]\nshell_poll reads it, shell_kill ends it."
    assert await poll_until(background, "first") == "[handle 1.1: runs; next cursor 6; printed 6 bytes]\nfirst\n"
    assert await poll(background, cursor=6) == "[handle 1.1: runs; next cursor 6; printed 6 bytes]\n(nothing new)"
    (root / "go").touch()
    seen = await poll_until(background, "ended", cursor=6)
    assert seen == "[handle 1.1: ended with exit code 0; next cursor 11; printed 11 bytes]\nlast\n"
    # To read changes nothing: the same window reads the same again.
    assert (await poll(background)).endswith("first\nlast\n")


async def test_how_it_ended_is_told(background):
    await start(background, "false", "run#1.1")
    await start(background, "sh -c 'kill -9 $$'", "run#1.2")
    await start(background, "no-such-program", "run#1.3")
    assert "ended with exit code 1;" in await poll_until(background, "ended", "1.1")
    assert "ended by signal 9;" in await poll_until(background, "ended", "1.2")
    assert "ended with exit code 127;" in await poll_until(background, "ended", "1.3")
    assert "is unavailable" in await poll(background, "1.3")


async def test_it_is_judged_whole_before_it_starts(root, background):
    background.policy = Policy.permissive().layer("op").deny_exec("rm").deny_write("locked")
    for line in ["touch made; rm x", "touch made; env rm x", "touch made > locked"]:
        with pytest.raises(ActRefused):
            await start(background, line)
    with pytest.raises(ToolFailed):
        await start(background, "touch made &")
    assert list(root.iterdir()) == [] and Handles.of(background.belongings).live == []


# ── ends ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "line",
    [
        "sleep {}",
        "sleep {} | sleep {}",
        "sh -c 'sleep {} & sleep {}'",
        "sh -c 'sh -c \"setsid sleep {} & sleep {}\" & wait'",
        # Its parent is gone when it is killed, and it left its session too.
        "sh -c '(setsid sleep {} &) ; sleep {}'",
        "sh -c 'nohup setsid sleep {} > /dev/null 2>&1 & sleep {}'",
        "env -i setsid sleep {}; sleep {}",
    ],
)
async def test_a_kill_reaches_every_process_of_it(background, marker, line):
    await start(background, line.replace("{}", marker.text))
    with trio.fail_after(5):
        while not marker.living():
            await trio.sleep(0.01)
    await trio.sleep(0.1)
    assert await kill(background) == "[handle 1.1: killed]"
    assert marker.living() == [] and background.leaked == []
    assert (await poll(background)).startswith("[handle 1.1: killed;")


async def test_what_is_left_when_it_ends_by_itself_is_ended_too(background, marker):
    await start(background, f"sh -c 'setsid sleep {marker.text} & echo done'")
    await poll_until(background, "ended with exit code 0")
    with trio.fail_after(5):
        await Handles.of(background.belongings).find("1.1", background.belongings).over.wait()
    assert marker.living() == []


async def test_the_first_ending_wins(background):
    await start(background, "sh -c 'exit 3'", "run#1.1")
    await poll_until(background, "ended", "1.1")
    assert await kill(background, "1.1") == "[handle 1.1: ended with exit code 3 before this call; nothing was killed]"
    assert "ended with exit code 3;" in await poll(background, "1.1")
    # The other way round: it would end with 0 on its signal, and was killed before.
    await start(background, "sleep 60", "run#1.2")
    async with trio.open_nursery() as both:
        for _ in range(2):
            both.start_soon(kill, background, "1.2")
    assert "killed;" in await poll(background, "1.2")
    # In the grace after its end it has ended, although something of it is left.
    await start(background, "sh -c 'sleep 60 & exit 4'", "run#1.3")
    await poll_until(background, "ended with exit code 4", "1.3")
    assert "exit code 4 before" in await kill(background, "1.3")
    await start(background, "sh -c 'sleep 60 & exit 5'", "run#1.4")
    await trio.sleep(0.1)
    handle = Handles.of(background.belongings).find("1.4", background.belongings)
    await handle.kill()
    assert str(handle.ending) == "ended with exit code 5"


async def test_giving_up_ends_all_and_is_what_the_end_of_an_agent_does(background, marker):
    for place in range(1, MOST_LIVE + 1):
        await start(background, f"sh -c 'setsid sleep {marker.text} & sleep {marker.text}'", f"run#1.{place}")
    assert len(Handles.of(background.belongings).live) == MOST_LIVE
    assert await background.belongings.give_up() == ()
    assert marker.living() == [] and not background.belongings


async def test_the_cap_on_wall_time_ends_it_and_is_named(background):
    background.confinement = Confinement(ExecSandbox.full_access, caps=ExecCaps(wall_seconds=0.3))
    await start(background, "sleep 60")
    assert "[handle 1.1: killed: the cap wall_seconds was reached;" in await poll_until(background, "killed")


@pytest.mark.skipif(
    sandbox_problem(ExecSandbox.workspace_write, Policy.default(), "/srv") is not None, reason="no sandbox can be had here"
)
async def test_it_runs_behind_the_boundary_and_is_ended_there_too(root, background, marker):
    background.confinement = Confinement(ExecSandbox.workspace_write, Policy.default())
    await start(background, f"sh -c 'echo bad > ../secret/key.txt'; sh -c 'setsid sleep {marker.text} & sleep {marker.text}'")
    with trio.fail_after(5):
        while not marker.living():
            await trio.sleep(0.01)
    assert (root.parent / "secret" / "key.txt").read_text() == "canary\n"
    assert await kill(background) == "[handle 1.1: killed]"
    assert marker.living() == []


async def test_a_boundary_that_cannot_be_held_starts_nothing(root, background, monkeypatch):
    monkeypatch.setattr("actors.tools.sandbox.detect", Nothing())
    background.confinement = Confinement(ExecSandbox.workspace_write, Policy.default())
    with pytest.raises(SandboxUnavailable):
        await start(background, "touch made")
    assert list(root.iterdir()) == [] and Handles.of(background.belongings).live == []


class Nothing:
    """A machine that can hold nothing."""

    def __call__(self):
        return Capabilities()

    def cache_info(self):
        return self

    currsize = 1


# ── bounds ──────────────────────────────────────────────────────────────────


async def test_so_many_run_at_once_and_no_more(root, background):
    for place in range(1, MOST_LIVE + 1):
        await start(background, "sleep 60", f"run#2.{place}")
    background.asked.clear()
    with pytest.raises(ToolFailed, match=rf"{MOST_LIVE} commands run .* end one of 2\.1, 2\.2"):
        await start(background, "touch made", "run#2.9")
    assert background.asked == [] and not (root / "made").exists()
    await kill(background, "2.3")
    assert "handle 2.9" in await start(background, "touch made", "run#2.9")


async def test_the_oldest_that_are_over_are_forgotten(background):
    for place in range(1, MOST_KEPT + 3):
        await start(background, "true", f"run#1.{place}")
        with trio.fail_after(5):
            while Handles.of(background.belongings).live:
                await trio.sleep(0.005)
    assert "ended" in await poll(background, f"1.{MOST_KEPT + 2}")
    with pytest.raises(ToolFailed, match=r"there is no handle '1\.1'"):
        await poll(background, "1.1")


async def test_output_is_kept_up_to_a_bound_and_a_gap_is_told(background):
    total = RING_BYTES + 50_000
    await start(background, f"sh -c 'yes 123456789 | head -c {total}'")
    await poll_until(background, "ended")
    seen = await poll(background)
    assert f"[... {total - RING_BYTES} bytes from cursor 0 on are no longer kept ...]" in seen
    # From window to window nothing is lost and nothing comes twice.
    cursor, text = total - RING_BYTES, ""
    while cursor < total:
        head, _, body = (await poll(background, cursor=cursor)).partition("\n")
        after = int(head.split("next cursor ")[1].split(";")[0])
        assert 0 < after - cursor <= WINDOW_BYTES and "no longer kept" not in body
        text += body
        cursor = after
    assert text == ("123456789\n" * (total // 10 + 1))[total - RING_BYTES : total]
    with pytest.raises(ToolFailed, match="behind the end"):
        await poll(background, cursor=total + 1)


async def test_a_window_cuts_no_character_in_two(background):
    await start(background, f"sh -c 'printf a; yes ä | head -n {WINDOW_BYTES}'")
    await poll_until(background, "ended")
    text, cursor, total = "", 0, 1 + 3 * WINDOW_BYTES
    while cursor < total:
        head, _, body = (await poll(background, cursor=cursor)).partition("\n")
        cursor = int(head.split("next cursor ")[1].split(";")[0])
        text += body
    assert text == "a" + "ä\n" * WINDOW_BYTES


def test_a_ring_keeps_the_last_bytes_by_their_place():
    ring = Ring(4)
    assert (ring.begin, ring.end, ring.read(0, 9)) == (0, 0, b"")
    for data in (b"ab", b"c", b"def", b"", b"0123456789"):
        ring.feed(data)
    assert (ring.begin, ring.end) == (12, 16)
    assert (ring.read(0, 9), ring.read(14, 9), ring.read(13, 2), ring.read(16, 9)) == (b"6789", b"89", b"78", b"")


# ── over processes ──────────────────────────────────────────────────────────


@pytest.mark.parametrize("tool", [ShellPoll(), ShellKill()])
async def test_a_handle_of_a_process_that_is_gone_is_orphaned_and_nobody_is_signalled(background, tool):
    background.belongings.remember([("shell_start", 3, 1), ("exec", 4, 1)])
    seen = await tool.run({"handle": "3.1"}, background)
    assert seen.text.startswith("[handle 3.1: orphaned]\n") and "nothing was signalled" in seen.text
    for name in ["4.1", "3.2", "3", "", "x", "3.1.1", "\ud800", "٣.١", "9" * 5000 + ".1"]:
        with pytest.raises(ToolFailed, match="there is no handle"):
            await tool.run({"handle": name}, background)


async def test_no_descriptor_is_left_open(background):
    await start(background, "true", "run#1.9")
    with trio.fail_after(5):
        while Handles.of(background.belongings).live:
            await trio.sleep(0.005)
    before = len(os.listdir("/proc/self/fd"))
    for place, line in enumerate(["true | cat", "sleep 60", "nothing", "cat < missing"], 1):
        await start(background, line, f"run#2.{place}")
        await kill(background, f"2.{place}")
    assert len(os.listdir("/proc/self/fd")) == before
