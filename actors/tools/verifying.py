"""Whether the work is done, judged by something other than the worker.

Errored is not failed: a check that could not be made says nothing of the work.
A signal or a timeout never passes, whatever exit code is expected.
"""

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

import attrs

from actors.agents.confinement import Confinement
from actors.agents.entry_text import bounded
from actors.agents.verification import (
    CommandPasses,
    CriterionKind,
    EachCompiles,
    FileContains,
    FileEquals,
    NoCriterion,
    Verification,
    WorkspaceFileContains,
)
from actors.errors import ToolFailed
from actors.tools.compiling import compile_each
from actors.tools.output import foreign_kind
from actors.tools.paths import Workspace
from actors.tools.process import Status
from actors.tools.sandbox import SandboxUnavailable, run_confined
from actors.tools.whole_files import opened, read_bytes

TAIL_CHARS: Final = 4_000
MOST_BYTES: Final = 16_000_000
# For a check whose files are protected: byte code that lies beside them is none of them, and could be anybody's.
NO_BYTE_CODE: Final = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": os.devnull}

_PHASES: Final = {CriterionKind.command: "command", CriterionKind.each_compiles: "compiles"}


@attrs.frozen
class Verdict:
    """What a criterion came to: ``verdict`` is passed, failed or errored."""

    phase: str
    verdict: str
    detail: str = ""


async def evaluate(
    criterion: Verification,
    *,
    root: str,
    file: str | None,
    exec_timeout: float,
    may_read: Callable[[str], bool],
    may_exec: Callable[[Sequence[str]], bool],
    confinement: Confinement | None = None,
) -> Verdict:
    """Look whether a criterion holds in ``root``; ``file`` is the one file of single-file work.

    Whatever is run stands behind what ``confinement`` says; without one, behind what this machine can hold.

    Cancellation: nothing was decided, and every process of the check is gone.
    """
    if isinstance(criterion, NoCriterion):
        return Verdict("none", "failed", "there is no criterion")
    try:
        # A work tree that was turned into a link meanwhile leads to what is not the agent's.
        Workspace(root)
    except ToolFailed as error:
        return Verdict(_PHASES.get(criterion.kind, "contains"), "errored", str(error))
    if isinstance(criterion, CommandPasses):
        return await _command(criterion, root, exec_timeout, may_exec, confinement or Confinement())
    if isinstance(criterion, EachCompiles):
        told, detail = await compile_each(
            criterion.files,
            root=root,
            timeout=exec_timeout,
            may_read=may_read,
            may_exec=may_exec,
            confinement=confinement or Confinement(),
        )
        return Verdict("compiles", told, detail[-TAIL_CHARS:])
    try:
        return _contains(criterion, root, file, may_read)
    except ToolFailed as error:
        return Verdict("contains", "errored", str(error))


def _contains(criterion: Verification, root: str, file: str | None, may_read: Callable[[str], bool]) -> Verdict:
    if isinstance(criterion, WorkspaceFileContains):
        workspace = Workspace(root)
        relative, needle = workspace.resolve(criterion.file), criterion.needle
        if not may_read(relative):
            # Not even whether it is there: the criterion may be a model's.
            return Verdict("contains", "errored", "the policy does not let this file be read")
    elif isinstance(criterion, FileContains | FileEquals) and file is not None:
        # The operator named this file; where a link of his leads is his choice too.
        path = Path(os.path.realpath(file))
        workspace, relative, needle = Workspace(str(path.parent)), path.name, criterion.text
    else:
        return Verdict("contains", "errored", f"{criterion.kind} cannot be evaluated here")
    with opened(workspace, relative) as descriptor:
        if descriptor is None:
            return Verdict("contains", "failed", "the file does not exist")
        raw = read_bytes(descriptor, MOST_BYTES)
    if raw is None:
        return Verdict("contains", "errored", f"the file is larger than {MOST_BYTES} bytes")
    # As bytes: a decoded text could show U+FFFD where the file holds something else.
    wanted = needle.encode()
    if raw == wanted if isinstance(criterion, FileEquals) else wanted in raw:
        return Verdict("contains", "passed")
    kind = foreign_kind(raw)
    return Verdict("contains", "failed", "the text is not there" if kind is None else f"the file is {kind}")


async def _command(
    criterion: CommandPasses,
    root: str,
    exec_timeout: float,
    may_exec: Callable[[Sequence[str]], bool],
    confinement: Confinement,
) -> Verdict:
    argv = criterion.argv
    if not may_exec(argv):
        line = bounded(shlex.join(argv), 500)
        return Verdict("command", "errored", f"refused: the policy does not allow {line}")
    more: Mapping[str, str] = NO_BYTE_CODE if criterion.protect else {}
    try:
        finished = await run_confined(argv, cwd=root, timeout=exec_timeout, confinement=confinement, more=more)
    except SandboxUnavailable as error:
        # Says nothing of the work.
        return Verdict("command", "errored", str(error))
    endings = {
        Status.exited: f"exit code {finished.code}",
        Status.signalled: f"ended by signal {finished.code}",
        Status.timed_out: f"timed out after {exec_timeout:g} s",
    }
    if finished.status not in endings:
        return Verdict("command", "errored", finished.output)
    # What a cap ended did not end by itself, however it looks.
    ended = finished.status is Status.exited and finished.hit is None
    passed = ended and finished.code == criterion.expect_exit
    hit = "" if finished.hit is None else f"; the cap {finished.hit} was reached"
    leaked = f"; these processes did not die: {finished.leaked}" if finished.leaked else ""
    detail = f"{endings[finished.status]}{hit}{leaked}\n{finished.output[-TAIL_CHARS:]}"
    return Verdict("command", "passed" if passed else "failed", detail)
