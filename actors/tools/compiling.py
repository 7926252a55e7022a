"""Whether files compile, each in the language that the end of its name tells. Nothing of them is run.

A checker reads the source from its input: the file is opened by the path guard,
once, and what is judged is what was opened. Only checkers that parse stand in
the table: one that follows an include, or runs a macro, would be a look outside.
A hole in one of them is held by the boundary of the agent, without its workspace.

A checker that is missing, crashes or does not end says nothing of the work: the
check is errored then, and never passed.
"""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import attrs

from actors.agents.confinement import Confinement, unrecorded
from actors.agents.entry_text import bounded
from actors.errors import ToolFailed
from actors.tools.paths import Workspace, shown
from actors.tools.process import Finished, Status, environment
from actors.tools.sandbox import SandboxUnavailable, run_confined
from actors.tools.sandbox_places import STARTER
from actors.tools.whole_files import opened, read_bytes

MOST_BYTES: Final = 16_000_000
DETAIL_CHARS: Final = 1_000
# No path, variable or site of anybody's is looked at, so nothing but the compiler runs.
_PYTHON: Final = (
    "import sys\n"
    "data = sys.stdin.buffer.read()\n"
    "try:\n"
    "    compile(data, sys.argv[1], 'exec', dont_inherit=True)\n"
    "except (SyntaxError, ValueError) as error:\n"
    "    print(type(error).__name__ + ':', error)\n"
    "    sys.exit(1)\n"
    "except BaseException as error:\n"
    "    print(type(error).__name__ + ':', error)\n"
    "    sys.exit(3)\n"
)
NOT_COMPILING: Final = 1
PYTHON: Final = (".py", ".pyi")
# Checkers of other languages, which read from their input, and the codes that say that something does not compile.
# One of several ways to read it is enough: only its project knows whether a `.js` is a module.
_SCRIPT: Final = ("node", "--check", "-")
_MODULE: Final = ("node", "--input-type=module", "--check", "-")
CHECKERS: Final[Mapping[str, tuple[tuple[tuple[str, ...], ...], frozenset[int]]]] = {
    ".js": ((_SCRIPT, _MODULE), frozenset({1})),
    ".cjs": ((_SCRIPT,), frozenset({1})),
    ".mjs": ((_MODULE,), frozenset({1})),
    ".sh": ((("sh", "-n"),), frozenset({1, 2})),
    ".bash": ((("bash", "-n"),), frozenset({1, 2})),
    ".rb": ((("ruby", "-c", "-"),), frozenset({1})),
    ".php": ((("php", "-n", "-l"),), frozenset({255})),
    ".lua": ((("luac", "-p", "-"),), frozenset({1})),
    ".go": ((("gofmt", "-e", "-l"),), frozenset({2})),
}

Told = tuple[str, str]


async def compile_each(
    files: Sequence[str],
    *,
    root: str,
    timeout: float,
    may_read: Callable[[str], bool],
    may_exec: Callable[[Sequence[str]], bool],
    confinement: Confinement,
) -> Told:
    """Look whether each file compiles; give the verdict and what was seen. ``timeout`` is for one file.

    What is known not to compile fails, whatever could not be looked at beside it. The
    checkers stand behind ``confinement``, and apart from ``root``; what applied is recorded once.

    Cancellation: nothing was decided, and every process of the check is gone.
    """
    said: list[str] = []
    verdicts = set()
    look = Look(root, timeout, may_read, may_exec, confinement)
    for file in files:
        verdict, detail = await look.at(file)
        verdicts.add(verdict)
        if verdict != "passed":
            said.append(f"{shown(file)} {detail}")
    verdict = next((each for each in ("failed", "errored") if each in verdicts), "passed")
    return verdict, "\n".join(said)


def ending_of(file: str) -> str:
    """Give what tells the language of a file, with its dot and in small letters."""
    return os.path.splitext(file)[1].lower()


def programs_of(ending: str) -> tuple[tuple[str, ...], ...]:
    """Give the commands of a check that are programs of their own, and not our Python; the policy is asked for each."""
    return CHECKERS[ending][0] if ending in CHECKERS else ()


def checker_of(ending: str, root: str) -> str:
    """Find the program that tells whether files of an ending compile.

    Raises:
        ToolFailed: there is none that may judge the files in ``root``.
    """
    if ending in PYTHON:
        if not sys.executable:
            raise ToolFailed("there is no Python to do it")
        # Not that of a virtual environment: it may lie in the workspace.
        return STARTER
    known = CHECKERS.get(ending)
    if known is None:
        raise ToolFailed(f"nothing here compiles {ending or 'a file without an ending'}")
    name = known[0][0][0]
    program = shutil.which(name, path=_path())
    if program is None:
        raise ToolFailed(f"{name} is unavailable")
    if _lies_in(root, program):
        # Whoever works here could have put it there.
        raise ToolFailed(f"{name} lies in the workspace, and would judge itself")
    return program


@attrs.define
class Look:
    """One look at some files of a workspace; what stands around its checkers is recorded once.

    ``leaked`` names processes that did not die in time.
    """

    _root: str
    _timeout: float
    _may_read: Callable[[str], bool]
    _may_exec: Callable[[Sequence[str]], bool]
    _confinement: Confinement
    leaked: list[int] = attrs.Factory(list)

    async def at(self, file: str) -> Told:
        """Look at one file.

        Cancellation: nothing was decided, and its checker is gone.
        """
        workspace = Workspace(self._root)
        try:
            relative = workspace.resolve(file)
            if not self._may_read(relative):
                return "errored", "may not be read: the policy does not let it"
            with opened(workspace, relative) as descriptor:
                if descriptor is None:
                    return "failed", "does not exist"
                source = read_bytes(descriptor, MOST_BYTES)
        except ToolFailed as error:
            return "errored", f"cannot be looked at: {error}"
        return await self.of(relative, source)

    async def of(self, relative: str, source: bytes | None) -> Told:
        """Look at what a file holds; None is too much of it.

        Cancellation: as `at`.
        """
        if source is None or len(source) > MOST_BYTES:
            return "errored", f"is larger than {MOST_BYTES} bytes"
        ending = ending_of(relative)
        try:
            program = checker_of(ending, self._root)
            if ending in PYTHON:
                argv = [program, "-I", "-S", "-W", "ignore", "-c", _PYTHON, relative]
                return self._told("python", await self._run(argv, source), frozenset({NOT_COMPILING}))
            return await self._other(ending, program, source)
        except (SandboxUnavailable, ToolFailed) as error:
            # Says nothing of the work.
            return "errored", f"cannot be looked at: {error}"

    async def _other(self, ending: str, program: str, source: bytes) -> Told:
        ways, wrong = CHECKERS[ending]
        name = ways[0][0]
        told = ("errored", "")
        for argv in ways:
            if not self._may_exec(argv):
                return "errored", f"cannot be looked at: the policy does not allow {' '.join(argv)}"
            told = self._told(name, await self._run([program, *argv[1:]], source), wrong)
            if told[0] != "failed":
                break
        return told

    async def _run(self, argv: Sequence[str], source: bytes) -> Finished:
        apart = attrs.evolve(self._confinement, apart_from=self._root)
        finished = await run_confined(argv, cwd="/", timeout=self._timeout, confinement=apart, stdin=source)
        self.leaked += finished.leaked
        # The same applies to all of them.
        self._confinement = attrs.evolve(self._confinement, record=unrecorded)
        return finished

    def _told(self, checker: str, finished: Finished, wrong: frozenset[int]) -> Told:
        detail = bounded(finished.output.strip(), DETAIL_CHARS)
        if finished.hit is not None:
            # What a cap ended did not end by itself, however it looks.
            return "errored", f"cannot be looked at: {checker} reached the cap {finished.hit}: {detail}"
        if finished.status is Status.exited and finished.code == 0:
            return "passed", ""
        if finished.status is Status.exited and finished.code in wrong:
            return "failed", f"does not compile ({checker}): {detail}"
        endings = {
            Status.exited: f"exit code {finished.code}",
            Status.signalled: f"signal {finished.code}",
            Status.timed_out: f"no answer after {self._timeout:g} s",
        }
        ended = endings.get(finished.status, "no start")
        return "errored", f"cannot be looked at: {checker} ended with {ended}: {detail}"


def _lies_in(root: str, program: str) -> bool:
    inside = os.path.realpath(root).rstrip("/") + "/"
    return any(each.startswith(inside) for each in (os.path.realpath(program), program))


def _path() -> str:
    """Give the directories of PATH that have a place of their own: a relative one would mean the workspace."""
    return os.pathsep.join(each for each in os.get_exec_path(environment()) if os.path.isabs(each))
