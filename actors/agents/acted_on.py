"""Which fields of a contract are acted on. Pure.

A field that is set and would be ignored is named before a run, so that no run is
silently weaker than it was asked to be.
"""

from typing import Any, Final

import attrs

from actors.agents.contract import Identity, TaskContract
from actors.agents.judged_fields import NOT_YET
from actors.agents.roster import AgentDef
from actors.agents.verification import CriterionKind

# What the runtime acts on. A field that is not named here is refused when it is set.
ACTED_ON: Final = frozenset({
    "goal", "file", "root", "verify", "constraints", "max_steps", "max_duration", "max_tokens", "max_output_tokens",
    "max_retries", "retry", "stall", "max_read_chars", "exec_timeout", "agents", "on_unknown_price",
    "queue_order", "spawn_background_after", "detached_spawns", "exec_sandbox", "exec_caps", "effort", "routing",
    "max_parallel_reads",
    "commit_identity", "check_writes",
})  # fmt: skip
# And of a named agent.
AGENT_ACTED_ON: Final = frozenset({
    "name", "role", "model", "max_steps", "effort", "deny_write", "deny_net", "worktree", "tools", "description",
})  # fmt: skip


def unsupported_fields(contract: TaskContract) -> list[tuple[str, str]]:
    """List what is set and not acted on: the path of each key, and what to do about it."""
    problems = [
        (f"contract.{field.name}", NOT_YET)
        for field in attrs.fields(TaskContract)
        if field.name not in ACTED_ON and getattr(contract, field.name) != _default(field, contract)
    ]
    if contract.check_writes and contract.is_single_file:
        problems.append(("contract.check_writes", "one file has no commands; remove it, or give the contract a root"))
    if contract.commit_identity != Identity() and contract.is_single_file:
        text = "nobody commits one file; remove it, or give the contract a root"
        problems.append(("contract.commit_identity", text))
    criterion = _criterion_problem(contract)
    if criterion is not None:
        problems.append(("contract.verify.kind", criterion))
    for agent in contract.agents:
        problems.extend(_of_agent(agent))
    return problems


def _default(field: Any, of: object) -> Any:
    default = field.default
    if isinstance(default, attrs.Factory):  # type: ignore[arg-type]  # a class at run time
        return default.factory(of) if default.takes_self else default.factory()
    return default


_ONE_FILE: Final = frozenset({CriterionKind.file_contains, CriterionKind.file_equals})


def _criterion_problem(contract: TaskContract) -> str | None:
    verify = contract.verify
    if not verify.is_supported:
        return f"{verify.kind} {NOT_YET}"
    if verify.kind in _ONE_FILE and not contract.is_single_file:
        return f"{verify.kind} judges a single-file contract; write workspace_file_contains, with a file and a needle"
    if verify.kind is CriterionKind.each_compiles and contract.is_single_file:
        return f"{verify.kind} judges a workspace; give the contract a root"
    if verify.kind is CriterionKind.workspace_file_contains and contract.is_single_file:
        return f"{verify.kind} judges a workspace; write file_contains, or give the contract a root"
    return None


def _of_agent(agent: AgentDef) -> list[tuple[str, str]]:
    return [
        (f"contract.agents.{agent.name}.{field.name}", NOT_YET)
        for field in attrs.fields(AgentDef)
        if field.name not in AGENT_ACTED_ON and getattr(agent, field.name) != field.default
    ]
