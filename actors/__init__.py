"""Trees of agents on trio, under one containment boundary that nobody inside the tree can raise.

Start with `open_tree` for plain async functions, `run_tree` for a task contract
against a model, or `open_supervisor` for supervised actors alone. Names are loaded when they are first used, so that
importing `actors.runtime` alone loads neither httpx nor sqlite3.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actors.agents.about import AgentLimits as AgentLimits
    from actors.agents.agent import Agent as Agent
    from actors.agents.approvals import ApproveAll as ApproveAll
    from actors.agents.approvals import DeferAll as DeferAll
    from actors.agents.approvals import DenyAll as DenyAll
    from actors.agents.approvals import FixedResponder as FixedResponder
    from actors.agents.child_handle import ChildHandle as ChildHandle
    from actors.agents.contract import TaskContract as TaskContract
    from actors.agents.live_states import WaitFor as WaitFor
    from actors.agents.outcomes import Outcome as Outcome
    from actors.agents.outcomes import Outcome as RunOutcome  # noqa: F401  # the name that scripts hold on to
    from actors.agents.outcomes import OutcomeKind as OutcomeKind
    from actors.agents.policy import Policy as Policy
    from actors.agents.restarting import Former as Former
    from actors.agents.restarting import RestartPolicy as RestartPolicy
    from actors.agents.roster import AgentDef as AgentDef
    from actors.agents.roster import Agents as Agents
    from actors.agents.routing import Routing as Routing
    from actors.agents.verification import Verification as Verification
    from actors.assembly.reopening import reopen as reopen
    from actors.assembly.resuming import resume as resume
    from actors.assembly.resuming import resume_from_stored_policy as resume_from_stored_policy
    from actors.assembly.resuming import resume_tree as resume_tree
    from actors.assembly.resuming import resume_tree_from_stored_policy as resume_tree_from_stored_policy
    from actors.assembly.resuming import resume_with as resume_with
    from actors.assembly.resuming import resume_with_decision as resume_with_decision
    from actors.assembly.resuming import resume_with_recovery as resume_with_recovery
    from actors.assembly.retrying_gate import retry_gate as retry_gate
    from actors.assembly.running import RunResult as RunResult
    from actors.assembly.running import run as run
    from actors.assembly.running import run_tree as run_tree
    from actors.assembly.running import run_with as run_with
    from actors.assembly.trees import open_tree as open_tree
    from actors.containment.ledger import Ledger as Ledger
    from actors.containment.ledger import open_ledger as open_ledger
    from actors.containment.ledger_state import Draw as Draw
    from actors.containment.ledger_state import LedgerState as LedgerState
    from actors.containment.limits import Containment as Containment
    from actors.containment.lines import QueueOrder as QueueOrder
    from actors.containment.prices import PriceTable as PriceTable
    from actors.containment.usage import Usage as Usage
    from actors.errors import ActorGone as ActorGone
    from actors.errors import ActorsError as ActorsError
    from actors.errors import AgentCap as AgentCap
    from actors.errors import BudgetExceeded as BudgetExceeded
    from actors.errors import BudgetExhausted as BudgetExhausted
    from actors.errors import ChildFailed as ChildFailed
    from actors.errors import ChildRefused as ChildRefused
    from actors.errors import ConfigError as ConfigError
    from actors.errors import DepthCap as DepthCap
    from actors.errors import Halted as Halted
    from actors.errors import LeafSpawn as LeafSpawn
    from actors.errors import MailboxFull as MailboxFull
    from actors.errors import ProviderError as ProviderError
    from actors.errors import RestartsExhausted as RestartsExhausted
    from actors.errors import SpawnRefusal as SpawnRefusal
    from actors.errors import StartFailed as StartFailed
    from actors.errors import StoreError as StoreError
    from actors.errors import ToolCallCap as ToolCallCap
    from actors.errors import UnknownPrice as UnknownPrice
    from actors.errors import WouldDeadlock as WouldDeadlock
    from actors.halts import Halt as Halt
    from actors.halts import HaltKind as HaltKind
    from actors.providers.openai_chat import OpenAIChat as OpenAIChat
    from actors.providers.scripted import Scripted as Scripted
    from actors.runtime.actor import LATER as LATER
    from actors.runtime.actor import Call as Call
    from actors.runtime.behaviour import Behaviour as Behaviour
    from actors.runtime.behaviour_ref import BehaviourRef as BehaviourRef
    from actors.runtime.exits import Exit as Exit
    from actors.runtime.exits import Reason as Reason
    from actors.runtime.links import Down as Down
    from actors.runtime.links import Linked as Linked
    from actors.runtime.named import Named as Named
    from actors.runtime.open_supervisor import open_supervisor as open_supervisor
    from actors.runtime.replay import replay as replay
    from actors.runtime.specs import Backoff as Backoff
    from actors.runtime.specs import Budget as Budget
    from actors.runtime.specs import ChildSpec as ChildSpec
    from actors.runtime.specs import Flags as Flags
    from actors.runtime.starting import IGNORE as IGNORE
    from actors.runtime.supervisor import SupervisorRef as SupervisorRef
    from actors.runtime.supervisor import supervise as supervise
    from actors.runtime.tasks import start_task as start_task
    from actors.runtime.tasks import stream as stream
    from actors.runtime.threads import run_in_thread as run_in_thread
    from actors.runtime.watchdog import Lag as Lag
    from actors.runtime.watchdog import lag_watchdog as lag_watchdog
    from actors.store.store import Store as Store

_WHERE = {
    "ActorGone": "actors.errors",
    "ActorsError": "actors.errors",
    "Agent": "actors.agents.agent",
    "AgentCap": "actors.errors",
    "AgentDef": "actors.agents.roster",
    "AgentLimits": "actors.agents.agent",
    "Agents": "actors.agents.roster",
    "ApproveAll": "actors.agents.approvals",
    "Backoff": "actors.runtime.specs",
    "Behaviour": "actors.runtime.behaviour",
    "BehaviourRef": "actors.runtime.behaviour_ref",
    "Budget": "actors.runtime.specs",
    "BudgetExceeded": "actors.errors",
    "BudgetExhausted": "actors.errors",
    "Call": "actors.runtime.actor",
    "ChildFailed": "actors.errors",
    "ChildHandle": "actors.agents.child_handle",
    "ChildRefused": "actors.errors",
    "ChildSpec": "actors.runtime.specs",
    "ConfigError": "actors.errors",
    "Containment": "actors.containment.limits",
    "DeferAll": "actors.agents.approvals",
    "DenyAll": "actors.agents.approvals",
    "DepthCap": "actors.errors",
    "Down": "actors.runtime.links",
    "Draw": "actors.containment.ledger_state",
    "Exit": "actors.runtime.exits",
    "FixedResponder": "actors.agents.approvals",
    "Flags": "actors.runtime.specs",
    "Former": "actors.agents.restarting",
    "Halt": "actors.halts",
    "HaltKind": "actors.halts",
    "Halted": "actors.errors",
    "IGNORE": "actors.runtime.starting",
    "LATER": "actors.runtime.actor",
    "Lag": "actors.runtime.watchdog",
    "LeafSpawn": "actors.errors",
    "Ledger": "actors.containment.ledger",
    "LedgerState": "actors.containment.ledger_state",
    "Linked": "actors.runtime.links",
    "MailboxFull": "actors.errors",
    "Named": "actors.runtime.named",
    "OpenAIChat": "actors.providers.openai_chat",
    "Outcome": "actors.agents.outcomes",
    "OutcomeKind": "actors.agents.outcomes",
    "Policy": "actors.agents.policy",
    "PriceTable": "actors.containment.prices",
    "ProviderError": "actors.errors",
    "QueueOrder": "actors.containment.lines",
    "Reason": "actors.runtime.exits",
    "RestartPolicy": "actors.agents.restarting",
    "RestartsExhausted": "actors.errors",
    "Routing": "actors.agents.routing",
    "RunOutcome": "actors.agents.outcomes:Outcome",
    "RunResult": "actors.assembly.running",
    "Scripted": "actors.providers.scripted",
    "SpawnRefusal": "actors.errors",
    "StartFailed": "actors.errors",
    "Store": "actors.store.store",
    "StoreError": "actors.errors",
    "SupervisorRef": "actors.runtime.supervisor",
    "TaskContract": "actors.agents.contract",
    "ToolCallCap": "actors.errors",
    "UnknownPrice": "actors.errors",
    "Usage": "actors.containment.usage",
    "Verification": "actors.agents.verification",
    "WaitFor": "actors.agents.live_states",
    "WouldDeadlock": "actors.errors",
    "lag_watchdog": "actors.runtime.watchdog",
    "open_ledger": "actors.containment.ledger",
    "open_supervisor": "actors.runtime.open_supervisor",
    "open_tree": "actors.assembly.trees",
    "reopen": "actors.assembly.reopening",
    "retry_gate": "actors.assembly.retrying_gate",
    "replay": "actors.runtime.replay",
    "resume": "actors.assembly.resuming",
    "resume_from_stored_policy": "actors.assembly.resuming",
    "resume_tree": "actors.assembly.resuming",
    "resume_tree_from_stored_policy": "actors.assembly.resuming",
    "resume_with": "actors.assembly.resuming",
    "resume_with_decision": "actors.assembly.resuming",
    "resume_with_recovery": "actors.assembly.resuming",
    "run": "actors.assembly.running",
    "run_in_thread": "actors.runtime.threads",
    "run_tree": "actors.assembly.running",
    "run_with": "actors.assembly.running",
    "start_task": "actors.runtime.tasks",
    "stream": "actors.runtime.tasks",
    "supervise": "actors.runtime.supervisor",
}


__all__ = list(_WHERE)


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'actors' has no attribute {name!r}")
    module, _, other = _WHERE[name].partition(":")
    value = getattr(import_module(module), other or name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
