"""What the policy of a run would say to a call that does not exist yet: one with the arguments of an operator.

The tool itself names what it would do: it is run up to where it asks, which is before it does
anything, and is left there. So what is judged here is what is judged in the run. What makes a
new text of the one in a file reads it on the way: whether its passage stands there is known then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn, cast

import attrs

from actors.agents.confinement import Confinement
from actors.agents.contract import TaskContract
from actors.agents.edits import Edit
from actors.agents.entry_text import bounded, clean
from actors.agents.exec_judging import judge_command
from actors.agents.gatekeeper import CONTENT_CHARS
from actors.agents.policy import Decision, Effect, Policy
from actors.agents.ports import Act, Tool, ToolContext
from actors.agents.rewriting import parsed
from actors.agents.secret_values import Redactor
from actors.agents.spawning import NAME as SPAWN
from actors.errors import ConfigError, ToolFailed
from actors.store.readers import Reader
from actors.store.records import ApprovalRecord, RunRecord
from actors.tools.edit_file import EditFile
from actors.tools.patch_file import PatchFile
from actors.tools.toolbox import builtin_tools

# The layers that only denies of a sub-agent are in; no operator's can be called so.
OWN_LAYER: Final = "child"
TARGET_CHARS: Final = 200


class _Asks(Exception):
    """The tool came to where it asks, for a write perhaps: of which content, and of which change."""

    def __init__(self, content: str = "", edit: Edit | None = None) -> None:
        super().__init__(content)
        self.content = content
        self.edit = edit


class _Denied(Exception):
    """The policy denies what the tool asks for."""

    def __init__(self, act: Act, target: str, decision: Decision) -> None:
        super().__init__(act, target, decision)
        self.act = act
        self.target = target
        self.decision = decision


def denied_call(reader: Reader, asked: ApprovalRecord, arguments: Mapping[str, Any]) -> str | None:
    """Say why the call of a question would not be done with these arguments; None when nothing is known against it.

    Of a tool that nobody here knows, of a workspace that is not here, and of a run
    whose contract or policy cannot be read, nothing is known.
    """
    record = reader.run(asked.run_id)
    policy = _policy(reader, asked)
    if record is None or policy is None:
        return None
    if asked.tool == SPAWN:
        name = str(arguments.get("agent") or "agent")
        decision = policy.explain(Act.spawn, name)
        return _told(_Denied(Act.spawn, name, decision)) if decision.effect is Effect.deny else None
    tool = next((each for each in builtin_tools() if each.spec.name == asked.tool), None)
    context = None if tool is None else _judging(record, policy, tool)
    if tool is None or context is None:
        return None
    try:
        _ask(tool, arguments, context)
    except ToolFailed as error:
        return f"the call would fail: {error}"
    except _Denied as denied:
        return _told(denied)
    except _Asks:
        pass
    return None


def foreseen_hunk(reader: Reader, asked: ApprovalRecord) -> str | None:
    """Give how the lines of a file would change by the call of a question, as a unified diff without credentials.

    None when it is no such call, or its file is not here, or not as it was when the question was asked: the
    answer would count for nothing then.
    """
    record, policy = reader.run(asked.run_id), _policy(reader, asked)
    tool = next((each for each in (EditFile(), PatchFile()) if each.spec.name == asked.tool), None)
    if asked.act != Act.write or record is None or policy is None or tool is None:
        return None
    context = _judging(record, policy, tool)
    try:
        if context is not None:
            _ask(tool, parsed(asked.modified or asked.arguments), context)
    except (ToolFailed, _Denied, ValueError):
        return None
    except _Asks as asks:
        if asks.edit is not None and bounded(clean(asks.content), CONTENT_CHARS) == asked.content:
            return asks.edit.without_secrets(Redactor.of(os.environ).hide).hunk
    return None


def _judging(record: RunRecord, policy: Policy, tool: Tool) -> _Judging | None:
    contract = _contract(record)
    if contract is None or record.root is None or not os.path.isdir(record.root):
        return None
    reads_first = isinstance(tool, EditFile | PatchFile)
    return _Judging(policy, os.path.realpath(record.root), contract, tool.read_only, reads_first)


def _told(denied: _Denied) -> str:
    rule, layer = denied.decision.rule, denied.decision.layer
    why = "the policy's default" if rule is None else f"rule {rule!r} of layer {layer!r}"
    target = bounded(clean(denied.target), TARGET_CHARS)
    what = f"{denied.act} {target} is denied by {why}"
    return f"{what}, and no answer crosses that; give others, or leave the question open"


def _ask(tool: Tool, arguments: Mapping[str, Any], context: _Judging) -> None:
    """Run a tool up to where it asks. It waits for nothing on the way, so no loop has to turn."""
    asking = tool.run(arguments, cast("ToolContext", context))
    try:
        asking.send(None)
    except StopIteration:
        # It asked for nothing.
        return
    asking.close()


@attrs.frozen
class _Judging:
    """What a tool sees of its run here: where it is, and somebody to ask, who lets it do nothing but read a file."""

    policy: Policy
    root: str
    contract: TaskContract
    read_only: bool
    reads_first: bool = False

    @property
    def confinement(self) -> Confinement:
        return Confinement(self.contract.exec_sandbox, self.policy)

    async def authorise(
        self, act: Act, target: str, *more: str, content: str = "", edit: Edit | None = None
    ) -> None:
        """Judge an act by the rules, and end the call where it asks. Cancellation: it waits for nothing."""
        # What reads a file in order to change it asks for that when it has read.
        acts = [act] if act is not Act.read or self.read_only else [Act.read, Act.write]
        for each in acts:
            for seen in (target, *more):
                self._judge(each, seen, self.policy.explain(each, seen))
        if not (self.reads_first and act is Act.read):
            raise _Asks(content, edit)

    def wrote(self, _target: str, _now: str) -> bool:
        """Say that nothing was done yet: the call waits for its answer."""
        return False

    async def authorise_commands(
        self, commands: Sequence[Sequence[str]], line: str, *, reads: Sequence[str] = (), writes: Sequence[str] = ()
    ) -> NoReturn:
        """Judge commands and their files by the rules, and end the call. Cancellation: it waits for nothing."""
        for argv in commands:
            for judged in judge_command(self.policy, argv):
                self._judge(Act.exec, judged.target, judged.decision)
        for act, files in ((Act.read, reads), (Act.write, writes)):
            for file in files:
                self._judge(act, file, self.policy.explain(act, file))
        raise _Asks

    def __getattr__(self, _name: str) -> NoReturn:
        # Whatever else a tool wants of its run comes after the question, or instead of it.
        raise _Asks

    def _judge(self, act: Act, target: str, decision: Decision) -> None:
        if decision.effect is Effect.deny:
            raise _Denied(act, target, decision)


def _policy(reader: Reader, asked: ApprovalRecord) -> Policy | None:
    """Give the policy of the agent that asks: the run's that is in force, with what was denied to this agent alone."""
    try:
        whole = reader.policy(asked.tree_id)
        if whole is None:
            return None
        policy = Policy.from_json(whole)
        text = None if asked.run_id == asked.tree_id else reader.policy(asked.run_id)
        # Its other layers are those of the start of it; a resume may have brought other ones.
        own = () if text is None else tuple(each for each in Policy.from_json(text).layers if each.name == OWN_LAYER)
    except ConfigError:
        return None
    return policy.contain(Policy(own, Policy.permissive().defaults))


def _contract(record: RunRecord) -> TaskContract | None:
    try:
        return None if record.contract is None else TaskContract.from_dict(json.loads(record.contract), "contract")
    except (ConfigError, ValueError, RecursionError):
        return None
