"""The handle of a supervisor: administration from outside its loop.

Each call leaves one request in the supervisor's mailbox and waits for the
answer; what is wrong with a spec is said here, before anything is sent.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, Protocol

import attrs
import trio

from actors.errors import ActorGone, ConfigError, GoneReason, Stopping
from actors.runtime.actor import Ref, waiting_for
from actors.runtime.child import Child, Owner, refuse_own_stop
from actors.runtime.exits import Exit, Reason
from actors.runtime.plan import Answer, Count, Listed, Plan, Word
from actors.runtime.specs import ChildSpec, Flags, check_specs, read_flags, read_spec
from actors.runtime.stops import How, Stopped, StopReceipt
from actors.runtime.supervise import warn_of

# ── what is asked ───────────────────────────────────────────────────────────


@attrs.frozen
class StartChild:
    """Start one more child: by its own spec, or by the template with more arguments."""

    spec: ChildSpec | None
    args: tuple[Any, ...] = ()


@attrs.frozen
class TerminateChild:
    """Stop a child."""

    which: Any


@attrs.frozen
class RestartChild:
    """Start a kept child."""

    id: Any


@attrs.frozen
class DeleteChild:
    """Forget a kept child."""

    id: Any


@attrs.frozen
class Which:
    """Give one line."""

    id: Any


@attrs.frozen
class GetSpec:
    """Give one spec."""

    id: Any


class Listing:
    """List the children."""


class Counting:
    """Count the children."""


@attrs.frozen
class Reconfigure:
    """Take new flags, or keep those that are, and take specs."""

    flags: Flags | None
    specs: tuple[ChildSpec, ...]


class Administered(Protocol):
    """What the handle needs of its supervisor."""

    plan: Plan
    ref: Ref[Any]
    host: Owner

    @property
    def ending(self) -> bool:
        """Whether it starts nothing more."""
        ...


class SupervisorRef:
    """The handle of one incarnation of a supervisor: administration.

    Every request is served by the supervisor's own loop. Once it has ended, each
    fails at once with `ActorGone` (``noproc``). While it is ending, each is answered
    ``stopping`` at once, or raises `Stopping` if it only looks.
    """

    __slots__ = ("_child", "_supervisor")

    def __init__(self, child: Child, supervisor: Administered) -> None:
        # One and the same, under two types.
        self._child = child
        self._supervisor = supervisor

    def __repr__(self) -> str:
        return f"SupervisorRef({self.path!r})"

    @property
    def child(self) -> Child:
        """Give the child behind it."""
        return self._child

    @property
    def path(self) -> str:
        """Name the supervisor."""
        return self._child.path

    @property
    def exit(self) -> Exit | None:
        """Give the recorded end, None while it lives."""
        return self._child.exit

    async def wait(self) -> Exit:
        """Wait for the end, and give it.

        Cancellation: the supervisor is not disturbed.
        """
        return await self._child.wait_ended()

    async def start_child(
        self,
        spec: ChildSpec | Mapping[str, Any] | None = None,
        *,
        args: tuple[Any, ...] = (),
        timeout: float | None = None,
    ) -> Answer:
        """Start one more child, and wait until it is ready.

        Without a spec a dynamic supervisor takes its template, and ``args`` behind the
        template's own.

        Words: ``ok`` (with ``ref`` and ``extra``), ``ignored``, ``already_started`` (``ref``),
        ``already_present``, ``max_children``, ``error`` (``reason`` is the `Exit` of the attempt),
        ``stopping``.

        Cancellation: no child, no spec and no name is left of it.

        Raises:
            ConfigError: the spec is faulty, or there is no template; nothing was sent.
            trio.TooSlowError: not ready in time; nothing is left of it.
        """
        plan = self._supervisor.plan
        if spec is None:
            if plan.template is None:
                raise ConfigError(("child", f"{self.path} has no template; give a spec"))
            return await self._request(StartChild(None, args), timeout)
        if args:
            raise ConfigError(("args", "they are for the template; put them into the spec"))
        read = read_spec(spec, "child", plan.flags)
        if not plan.flags.dynamic:
            # Children of a dynamic supervisor are alike, and there may be many.
            warn_of((read,), plan.flags)
        return await self._request(StartChild(read), timeout)

    async def terminate_child(self, which: Any, *, timeout: float | None = None) -> Answer:
        """Stop a child: by id, or by ref below a dynamic supervisor. Its spec is kept unless it is temporary.

        Words: ``ok``, ``not_found``, ``stopping``.

        Cancellation: the stop goes on if it had begun.
        """
        return await self._request(TerminateChild(which), timeout)

    async def restart_child(self, id: Hashable, *, timeout: float | None = None) -> Answer:
        """Start a kept child that does not run. Costs nothing.

        Words: ``ok``, ``ignored``, ``running``, ``restarting``, ``not_found``, ``error``, ``stopping``, ``refused``.

        Cancellation: as `start_child`; the spec is kept.
        """
        return await self._request(RestartChild(id), timeout)

    async def delete_child(self, id: Hashable, *, timeout: float | None = None) -> Answer:
        """Forget the spec of a child that does not run.

        Words: ``ok``, ``running``, ``restarting``, ``not_found``, ``stopping``, ``refused``.

        Cancellation: done or not done.
        """
        return await self._request(DeleteChild(id), timeout)

    async def which_child(self, id: Any, *, timeout: float | None = None) -> Listed | None:
        """Give one line of the listing, None for what is no child.

        Cancellation: nothing changed.

        Raises:
            Stopping: it is ending.
        """
        listed: Listed | None = await self._ask(Which(id), timeout)
        return listed

    async def list_children(self, *, timeout: float | None = None) -> list[Listed]:
        """List the children, newest first.

        Cancellation: nothing changed.

        Raises:
            Stopping: it is ending.
        """
        listed: list[Listed] = await self._ask(Listing(), timeout)
        return listed

    async def count_children(self, *, timeout: float | None = None) -> Count:
        """Count the children by kind.

        Cancellation: nothing changed.

        Raises:
            Stopping: it is ending.
        """
        counted: Count = await self._ask(Counting(), timeout)
        return counted

    async def get_spec(self, id: Any, *, timeout: float | None = None) -> ChildSpec | None:
        """Give a kept spec with its defaults filled in, None for what is no child.

        Cancellation: nothing changed.

        Raises:
            Stopping: it is ending.
        """
        spec: ChildSpec | None = await self._ask(GetSpec(id), timeout)
        return spec

    async def reconfigure(
        self,
        specs: Iterable[ChildSpec | Mapping[str, Any]] = (),
        flags: Flags | Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
    ) -> Answer:
        """Take new flags and specs, which apply from their next use; nothing that runs is ended.

        A spec that is missing keeps its child; a new one is added and not started.

        Cancellation: taken or not, whole.

        Raises:
            ConfigError: any fault; the old configuration stays whole.
        """
        plan = self._supervisor.plan
        read = plan.flags if flags is None else read_flags(flags)
        known = check_specs(specs, read)
        faults = plan.misfits(read, known)
        if faults:
            raise ConfigError(*faults)
        warn_of(known, read)
        return await self._request(Reconfigure(None if flags is None else read, known), timeout)

    async def stop(self, why: object = None, *, grace: float = math.inf) -> StopReceipt:
        """Ask it to stop its children in order and to end, wait for that, and say how each one ended.

        After ``grace`` seconds what is left is killed, leaf first. What did not end even
        then is named in the receipt. The end itself is in ``exit``.

        Cancellation: the stop goes on; this waits for it, as it promises a receipt.

        Raises:
            ActorGone: it had ended before.
            ActorsError: asked from inside; it would wait for itself. Nothing was stopped.
            WouldDeadlock: it waits for the one who asks, perhaps through others. Nothing was stopped.
            ValueError: the grace is no number of seconds from 0 on; nothing was stopped.
        """
        if type(grace) not in (int, float) or not grace >= 0:
            raise ValueError(f"grace must be seconds from 0 on, not {grace!r}")
        if self.exit is not None:
            raise ActorGone(GoneReason.noproc, self.path, self.exit)
        refuse_own_stop(self._child)
        with trio.CancelScope(shield=True), waiting_for(self._child, "the end of"):
            receipt = await stop_with_receipt(self._child, grace, why)
        # Outside the block, as a scope might swallow what is raised in it.
        return receipt  # noqa: RET504

    def ask_to_stop(self, why: object = None) -> None:
        """Ask it to stop its children in order and to end; waits for nothing, so it may be called from inside."""
        self._child.request_stop(why)

    async def _request(self, request: Any, timeout: float | None) -> Answer:
        try:
            answer: Answer = await self._ask(request, timeout)
        except Stopping:
            return Answer(Word.stopping)
        return answer

    async def _ask(self, request: Any, timeout: float | None) -> Any:
        supervisor = self._supervisor
        if self.exit is None and supervisor.ending:
            await trio.lowlevel.checkpoint()
            if self.exit is None:
                raise Stopping(f"{self.path} is ending")
        answer = await supervisor.ref.ask(request, timeout)
        if type(answer) is Answer and answer.word is Word.stopping:
            # It was sent before the stop, and not looked at.
            raise Stopping(f"{self.path} is ending")
        return answer


async def stop_with_receipt(top: Child, grace: float, why: object) -> StopReceipt:
    """Stop one child within its grace, and say of everything that lived below it how it ended.

    Cancellation: whoever was asked goes on ending; nobody is killed.
    """
    asked_at = trio.current_time()
    nodes = [node for node in top.subtree() if node.exit is None]
    await top.host.stop_children([(top, grace)], why)
    # Those that ended together keep the order of the tree, children first.
    lines = sorted((_line(node, asked_at) for node in nodes), key=_ended_at)
    return StopReceipt(asked_at, trio.current_time(), tuple(lines), top.host.threads.left_by(nodes))


def _line(node: Child, asked_at: float) -> Stopped:
    end = node.exit
    if end is None or not end.left:
        return Stopped(node.path, asked_at, None, How.did_not_end)
    return Stopped(node.path, asked_at, end.ended_at, How.killed if end.reason is Reason.killed else How.clean)


def _ended_at(line: Stopped) -> float:
    return math.inf if line.ended_at is None else line.ended_at
