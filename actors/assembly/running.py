"""Where the parts meet: a contract, a provider, a store, tools, a boundary, and a tree that runs.

`run` and `run_with` run one agent; `run_tree` runs a tree, and only it offers
`spawn_agent`. Everything is checked before the first call is made: a refused
run has cost nothing and written nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import attrs

from actors.agents.acted_on import unsupported_fields
from actors.agents.agent import Agent
from actors.agents.approvals import ApproveAll
from actors.agents.contract import TaskContract
from actors.agents.loop import Job, work_on
from actors.agents.outcomes import Outcome
from actors.agents.past import Past
from actors.agents.policy import Policy
from actors.agents.ports import Approver, Observer, Provider, Tool
from actors.agents.remembered import Remembered
from actors.agents.services import Services, tool_names_problem
from actors.agents.spawning import NAME as SPAWN
from actors.agents.terminals import Terminal
from actors.agents.tree import Leaks, Tree
from actors.assembly.boundary_check import check_boundary, told_before
from actors.assembly.reviewer_check import reviewer_of, reviewer_problems
from actors.containment.amounts import UNLIMITED
from actors.containment.limits import Containment
from actors.containment.prices import OnUnknownPrice, PriceTable
from actors.errors import ConfigError
from actors.halts import Halt
from actors.store.store import Store
from actors.tools.protected import WorkspaceFiles
from actors.tools.single_file import SingleFile
from actors.tools.toolbox import builtin_tools, tools_for
from actors.tools.verifying import evaluate
from actors.tools.worktrees import GitWorktrees

FILES: Final = WorkspaceFiles()
# One agent alone: nothing bounds it but its contract.
ALONE: Final = Containment(1, 1, 0, UNLIMITED)


@attrs.frozen
class RunResult:
    """How a run ended. ``terminal`` is None while the run can be resumed.

    ``remembered`` are the rules that approvals brought along: write them into the policy to keep them.
    """

    run_id: str
    outcome: Outcome
    terminal: Terminal | None
    halt: Halt | None
    leaks: Leaks
    said: str | None
    remembered: tuple[Remembered, ...] = ()


async def run(contract: TaskContract, provider: Provider, store: Store | None = None, **options: Any) -> RunResult:
    """Run one agent on a contract, with everything allowed. Takes the options of `run_with`.

    Cancellation: the agent is halted as an interrupt; with a store on disk the run can be resumed.

    Raises:
        ConfigError: the contract cannot be run; nothing was started.
    """
    return await run_with(contract, provider, store, Policy.permissive(), ApproveAll(), **options)


async def run_with(
    contract: TaskContract,
    provider: Provider,
    store: Store | None,
    policy: Policy,
    approver: Approver,
    **options: Any,
) -> RunResult:
    """Run one agent on a contract under a policy. Takes the options of `run_tree`.

    Cancellation: as `run`.

    Raises:
        ConfigError: the contract cannot be run so; nothing was started.
    """
    if contract.is_single_file and not policy.is_permissive:
        raise ConfigError(("policy", "a single-file contract enforces no policy; give it a root, or drop the policy"))
    return await _run(contract, provider, store, policy, approver, ALONE, in_tree=False, **options)


async def run_tree(
    contract: TaskContract,
    provider: Provider,
    store: Store | None,
    policy: Policy,
    approver: Approver,
    containment: Containment,
    **options: Any,
) -> RunResult:
    """Run a tree of agents on a contract, under a containment boundary.

    Options: ``observer`` (`Observer`), ``prices`` (`PriceTable`),
    ``cleanup_allowance`` (seconds), ``tools`` (instead of the built-in ones),
    ``reviewer`` (a `Provider` that judges by the rubric of a review, and is not the run's own),
    ``on_open``, which is called with the `Tree` before the root starts, and ``task``, a text
    that is stored with the run: what the command line makes a provider of again (`stored_task`).

    Cancellation: the tree is halted as an interrupt, leaf first; with a store on disk it can be resumed.

    Raises:
        ConfigError: the contract cannot be run so; nothing was started.
        StoreError: the run came to its end, and its end could not be stored.
    """
    if contract.is_single_file:
        raise ConfigError(("contract.root", "a tree works in a workspace; give the contract a root"))
    return await _run(contract, provider, store, policy, approver, containment, in_tree=True, **options)


async def _run(
    contract: TaskContract,
    provider: Provider,
    store: Store | None,
    policy: Policy,
    approver: Approver,
    containment: Containment,
    *,
    in_tree: bool,
    observer: Observer | None = None,
    prices: PriceTable | None = None,
    cleanup_allowance: float = 5.0,
    tools: tuple[Tool, ...] | None = None,
    on_open: Callable[[Tree], None] | None = None,
    task: str | None = None,
    reviewer: Provider | None = None,
) -> RunResult:
    table = PriceTable() if prices is None else prices
    check_run(contract, provider, containment, table, reviewer)
    check_boundary(contract, policy)
    job = job_for(contract, provider, policy, approver, table, tools, in_tree=in_tree, reviewer=reviewer)
    # A named agent may keep a tool that this workspace has no use for.
    _check_tools(contract, builtin_tools() if tools is None and not contract.is_single_file else job.services.tools)
    await told_before(contract, policy, FILES)
    kept = Store.memory() if store is None else store
    tree = Tree(containment, kept, observer, cleanup_allowance, queue_order=contract.queue_order)
    return await drive(tree, job, on_open, task=task)


def job_for(
    contract: TaskContract,
    provider: Provider,
    policy: Policy,
    approver: Approver,
    prices: PriceTable,
    tools: tuple[Tool, ...] | None,
    *,
    in_tree: bool,
    opening: str | None = None,
    reviewer: Provider | None = None,
) -> Job:
    """Put together what a root is to do; ``opening`` is what it was shown when it started, if it did before.

    Raises:
        ConfigError: the name of a tool means two things.
    """
    if tools is None:
        tools = (SingleFile(contract.file),) if contract.root is None else tools_for(contract.root)
    problem = tool_names_problem(tools)
    if problem is not None:
        raise ConfigError(("tools", problem))
    reviewer = reviewer_of(contract, provider, reviewer)
    services = Services(
        provider, approver, tools, evaluate, prices, files=FILES, reviewer=reviewer, worktrees=GitWorktrees()
    )
    if opening is None:
        opening = "\n".join(tool.shown() for tool in tools if isinstance(tool, SingleFile))
    return Job(contract, policy, services, in_tree=in_tree, opening=opening)


async def drive(
    tree: Tree, job: Job, on_open: Callable[[Tree], None] | None, past: Past | None = None, task: str | None = None
) -> RunResult:
    """Open a tree, run its root on a job to its end, and say how it ended. ``task`` is stored with a new one.

    Cancellation: the tree is halted as an interrupt.
    """
    entry = "tree" if job.in_tree else "run"
    about = attrs.evolve(job.about(), opening=job.opening or None, entry=entry, task=task)
    async with tree:
        if on_open is not None:
            on_open(tree)
        root = await tree.run_root(work_on, (job,), job.limits(), about, past)
    return _result(tree, root)


def _result(tree: Tree, root: Agent) -> RunResult:
    assert root.outcome is not None, "the recorder names every outcome"
    terminal = None if root.terminal is None else root.terminal.get()
    rules = tree.remembered.rules
    return RunResult(tree.run_id, root.outcome, terminal, tree.ledger.halted, tree.leaks(), root.said, rules)


def _check_tools(contract: TaskContract, tools: tuple[Tool, ...]) -> None:
    """Refuse named agents that keep tools which nobody has: a slip of the pen would leave them without.

    Raises:
        ConfigError: every such name.
    """
    known = {SPAWN, *(tool.spec.name for tool in tools)}
    problems = [
        (f"contract.agents.{agent.name}.tools", f"there is no tool {name}; the tools are {', '.join(sorted(known))}")
        for agent in contract.agents
        for name in agent.tools or ()
        if name not in known
    ]
    if problems:
        raise ConfigError(*problems)


def check_run(
    contract: TaskContract,
    provider: Provider,
    containment: Containment,
    prices: PriceTable,
    reviewer: Provider | None = None,
) -> None:
    """Refuse what cannot be run, before anything starts.

    Raises:
        ConfigError: every problem, with the path of its key.
    """
    problems = list(unsupported_fields(contract))
    problems += reviewer_problems(contract, provider, reviewer, containment, prices)
    if getattr(provider, "takes_effort", False) is not True:
        efforts = {"contract.effort": contract.effort}
        efforts |= {f"contract.agents.{agent.name}.effort": agent.effort for agent in contract.agents}
        text = f"the provider {provider.name} cannot be asked for an effort; remove it"
        problems += [(place, text) for place, effort in efforts.items() if effort is not None]
    if contract.root is not None and not Path(contract.root).is_dir():
        problems.append(("contract.root", f"{contract.root} is not a directory"))
    if containment.max_total_cost is not None and contract.on_unknown_price == OnUnknownPrice.refuse:
        models = [getattr(provider, "default_model", None)]
        models += [] if contract.routing is None else contract.routing.models.values()
        unknown = dict.fromkeys(model or "the provider's own model" for model in models if prices.get(model) is None)
        if not len(prices):
            named = next(iter(unknown))
            text = f"no price is known for {named}, and a cost ceiling is set: add [prices] for it and all others"
            problems.append(("prices", text))
        else:
            problems += [(f'prices."{named}"', "is missing, and a cost ceiling is set") for named in unknown]
    if problems:
        raise ConfigError(*problems)
