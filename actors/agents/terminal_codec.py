"""The wire form of a terminal. Pure."""

import json
from typing import Any

import attrs

from actors.agents.terminals import (
    AgentTerminal,
    CancelledTerminal,
    FailedTerminal,
    KernelFailure,
    LoopResult,
    MessageCall,
    PaceDecision,
    ProviderMessage,
    Terminal,
    UsageReport,
    WorkflowOutcome,
    WorkflowTerminal,
)


def encode_terminal(terminal: Terminal) -> str:
    """Write a terminal: ``kind`` first, keys in the order of the records, what is absent or empty left out."""
    return json.dumps(terminal_document(terminal), ensure_ascii=False)


def terminal_document(terminal: Terminal) -> dict[str, Any]:
    """Give a terminal as a document."""
    usage = _usage(terminal.usage)
    if isinstance(terminal, AgentTerminal):
        return {"kind": terminal.kind, "result": _result(terminal.result), "usage": usage}
    if isinstance(terminal, WorkflowTerminal):
        return {"kind": terminal.kind, "outcome": _outcome(terminal.outcome), "usage": usage}
    if isinstance(terminal, CancelledTerminal):
        return {"kind": terminal.kind, "reason": terminal.reason.value, "usage": usage}
    assert isinstance(terminal, FailedTerminal)
    return {"kind": terminal.kind, "failure": _failure(terminal.failure), "usage": usage}


def _usage(usage: UsageReport) -> dict[str, Any]:
    document: dict[str, Any] = {
        "input_tokens": str(usage.input_tokens),
        "output_tokens": str(usage.output_tokens),
        "turns": usage.turns,
    }
    if usage.cached_input_tokens is not None:
        document["cached_input_tokens"] = str(usage.cached_input_tokens)
    return document


def _result(result: LoopResult) -> dict[str, Any]:
    document: dict[str, Any] = {"termination": result.termination.value}
    if result.final_message is not None:
        document["final_message"] = _message(result.final_message)
    document["turns_used"] = result.turns_used
    if result.pace_decision is not None:
        document["pace_decision"] = _pace(result.pace_decision)
    return document


def _message(message: ProviderMessage) -> dict[str, Any]:
    document: dict[str, Any] = {"role": message.role.value, "content": message.content}
    if message.tool_calls:
        document["tool_calls"] = [_call(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        document["tool_call_id"] = message.tool_call_id
    if message.tokens is not None:
        document["tokens"] = message.tokens
    return document


def _call(call: MessageCall) -> dict[str, Any]:
    return {name: value for name, value in attrs.asdict(call, recurse=False).items() if value is not None}


def _pace(pace: PaceDecision) -> dict[str, Any]:
    document: dict[str, Any] = {"action": pace.action.value}
    if pace.delay_ms is not None:
        document["delay_ms"] = str(pace.delay_ms)
    document["reason"] = pace.reason
    if pace.coerced_from is not None:
        document["coerced_from"] = pace.coerced_from
    return document


def _outcome(outcome: WorkflowOutcome) -> dict[str, Any]:
    document: dict[str, Any] = {"workflow_id": outcome.workflow_id, "status": outcome.status.value}
    if outcome.completed_nodes:
        document["completed_nodes"] = list(outcome.completed_nodes)
    if outcome.failed_nodes:
        document["failed_nodes"] = list(outcome.failed_nodes)
    return document


def _failure(failure: KernelFailure) -> dict[str, Any]:
    document: dict[str, Any] = {"code": failure.code.value}
    if failure.message:
        document["message"] = failure.message
    return document
