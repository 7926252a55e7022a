"""The wire form of a terminal, strict both ways. Pure.

What is decoded and encoded again is the same document; what is not exactly
right is refused with a typed kind. One table of fields per record says what
may stand, in the order in which it is written.
"""

from collections.abc import Callable
from typing import Any, Final

import attrs
import msgspec

from actors.agents.outcomes import FailureCode
from actors.agents.strict_json import (
    CodecRefused,
    Field,
    Need,
    Read,
    RefusalKind,
    as_object,
    identifier,
    many,
    opaque,
    parse,
    read_object,
    read_tag,
    string,
    u32,
    u64_text,
    word,
)
from actors.agents.terminals import (
    AgentTerminal,
    CancellationReason,
    CancelledTerminal,
    FailedTerminal,
    KernelFailure,
    LoopResult,
    MessageCall,
    PaceAction,
    PaceDecision,
    ProviderMessage,
    Role,
    Terminal,
    TerminationReason,
    UsageReport,
    WorkflowOutcome,
    WorkflowStatus,
    WorkflowTerminal,
)


def encode_terminal(terminal: Terminal) -> str:
    """Write a terminal: ``kind`` first, keys in the order of the records, what is absent or empty left out."""
    return msgspec.json.encode(terminal_document(terminal)).decode()


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


# ── decoding ────────────────────────────────────────────────────────────────


def _record(make: Callable[..., Any], *fields: Field) -> Read:
    def read(value: Any, at: str) -> Any:
        return make(**read_object(value, at, fields))

    return read


_OPTIONAL: Final = Need.optional
_EMPTY: Final = Need.omitted_when_empty

_read_usage: Final = _record(
    UsageReport,
    Field("input_tokens", u64_text),
    Field("output_tokens", u64_text),
    Field("turns", u32),
    Field("cached_input_tokens", u64_text, _OPTIONAL),
)
_read_call: Final = _record(
    MessageCall, Field("call_id", identifier), Field("name", string), Field("arguments", opaque, _OPTIONAL)
)
_read_message: Final = _record(
    ProviderMessage,
    Field("role", word(Role)),
    Field("content", string),
    Field("tool_calls", many(_read_call), _EMPTY),
    Field("tool_call_id", identifier, _OPTIONAL),
    Field("tokens", u32, _OPTIONAL),
)
_read_pace: Final = _record(
    PaceDecision,
    Field("action", word(PaceAction)),
    Field("delay_ms", u64_text, _OPTIONAL),
    Field("reason", string),
    Field("coerced_from", string, _OPTIONAL),
)
_read_result: Final = _record(
    LoopResult,
    Field("termination", word(TerminationReason)),
    Field("final_message", _read_message, _OPTIONAL),
    Field("turns_used", u32),
    Field("pace_decision", _read_pace, _OPTIONAL),
)
_read_outcome: Final = _record(
    WorkflowOutcome,
    Field("workflow_id", identifier),
    Field("status", word(WorkflowStatus)),
    Field("completed_nodes", many(identifier), _EMPTY),
    Field("failed_nodes", many(identifier), _EMPTY),
)
_read_failure: Final = _record(
    KernelFailure, Field("code", word(FailureCode)), Field("message", string, _EMPTY)
)
_USAGE: Final = Field("usage", _read_usage)
_VARIANTS: Final[dict[str, tuple[Callable[..., Terminal], tuple[Field, ...]]]] = {
    AgentTerminal.kind: (AgentTerminal, (Field("result", _read_result), _USAGE)),
    WorkflowTerminal.kind: (WorkflowTerminal, (Field("outcome", _read_outcome), _USAGE)),
    CancelledTerminal.kind: (CancelledTerminal, (Field("reason", word(CancellationReason)), _USAGE)),
    FailedTerminal.kind: (FailedTerminal, (Field("failure", _read_failure), _USAGE)),
}


def decode_terminal(text: str | bytes) -> Terminal:
    """Read the wire form of a terminal.

    Raises:
        CodecRefused: it is not exactly one; names the place and the kind of refusal.
    """
    return read_terminal(parse(text), "")


def read_terminal(document: Any, at: str) -> Terminal:
    """Read a terminal out of a parsed document.

    Raises:
        CodecRefused: as `decode_terminal`.
    """
    table = as_object(document, at)
    kind = read_tag(table, at)
    if kind not in _VARIANTS:
        place = f"{at}.kind" if at else "kind"
        raise CodecRefused(RefusalKind.unknown_variant, place, f"must be one of {', '.join(_VARIANTS)}")
    make, fields = _VARIANTS[kind]
    return make(**read_object(table, at, fields, tags=("kind",)))
