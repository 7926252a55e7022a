"""What the checker of its language says of a file that was just written, where the operator wants that.

It is told with the write and never undoes or fails it. Whether it may run is asked
before anything is written: an approver may still change the call then. The checker is
handed the bytes that were written: what somebody else put in their place meanwhile is
no business of this call.
"""

import shlex
from typing import Final

import attrs

from actors.agents.edits import with_check
from actors.agents.ports import Act, ActRefused, Observation, ToolContext
from actors.errors import ToolFailed
from actors.tools.compiling import CHECKERS, PYTHON, Look, checker_of, ending_of, programs_of
from actors.tools.paths import shown

# What the policy is asked about, for this and for the tool `check`.
CHECK: Final = "check"


@attrs.frozen
class WriteCheck:
    """A check that is to follow a write. ``missing`` says why there is none."""

    _context: ToolContext
    _relative: str
    missing: str | None = None

    async def told(self, seen: Observation, data: bytes) -> Observation:
        """Give what a write came to, with what the checker says of the bytes that it left.

        Cancellation: the file is written, and the checker is gone.
        """
        if self.missing is not None:
            return attrs.evolve(seen, text=f"{seen.text}\n[not checked: {self.missing}]")
        context = self._context
        look = Look(context.root, context.exec_timeout, lambda _: True, lambda _: True, context.confinement)
        verdict, detail = await look.of(self._relative, data)
        context.report_leaked(look.leaked)
        return attrs.evolve(seen, text=with_check(seen.text, None if verdict == "passed" else detail))


async def write_check(context: ToolContext, relative: str) -> WriteCheck | None:
    """Ask for what a check of a file runs; None where none is wanted, or its language has no checker.

    Cancellation: nothing was decided.

    Raises:
        CallRewritten: as `ToolContext.authorise`.
    """
    ending = ending_of(relative)
    if not context.check_writes or not (ending in PYTHON or ending in CHECKERS):
        return None
    try:
        checker_of(ending, context.root)
    except ToolFailed as error:
        return WriteCheck(context, relative, str(error))
    why = f"a look whether {shown(relative)} compiles, which is about to be written"
    refused = await refused_check(context, CHECK, why=why)
    for argv in programs_of(ending):
        refused = refused or await refused_check(context, *argv, why=why)
    return WriteCheck(context, relative, refused)


async def refused_check(context: ToolContext, *argv: str, why: str = "") -> str | None:
    """Ask for one command of a check, and tell whoever decides ``why``; say why it is refused, None when it is not.

    Cancellation: nothing was decided.
    """
    line = shlex.join(argv)
    try:
        # By the rules alone: an interpreter that is told to parse its input runs nothing else, whatever it could.
        await context.authorise(Act.exec, *dict.fromkeys((argv[0], line)), content=why)
    except ActRefused as error:
        return f"{line} is refused: {error.refusal.reason}"
    return None
