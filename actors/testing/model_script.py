"""What a scripted endpoint answers, byte for byte, and what it bills. Pure.

The bill is the endpoint's own count, made from the script and never from what
the client believes, so that a ledger can be held against it. It counts a whole
answer the moment it is begun, as an endpoint does that goes on writing after
its client has gone.
"""

import json
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

import attrs
import msgspec

from actors.errors import ConfigError
from actors.providers.script_file import Check, condition, count, flag, load_script, seconds, text_or_null, text_value

DEFAULT_MODEL: Final = "loopback-model"
# A stream's text comes in this many pieces, so that there is a middle to cut.
TEXT_PIECES: Final = 4


class Fault(StrEnum):
    """What goes wrong with an answer."""

    none = "none"
    # Nothing is ever sent.
    hang = "hang"
    # The headers and half of the answer, then silence.
    stall = "stall"
    # The headers, then one byte every `piece_delay` seconds.
    trickle = "trickle"
    # The connection is closed before any answer.
    drop = "drop"
    # The connection is closed after half of the answer.
    cut = "cut"
    # A stream ends in good order, but without finish reason, usage and end mark.
    no_end = "no_end"
    # The answer is no JSON.
    malformed = "malformed"
    # The answer is JSON, and no completion.
    wrong_content = "wrong_content"


@attrs.frozen
class SaidCall:
    """A call as the model says it. ``id`` may be anything, also empty or said before; None is a proper one."""

    name: str
    arguments: str = "{}"
    id: str | None = None


class Unset(StrEnum):
    """A mark for what the script leaves alone, where null means null."""

    unset = "unset"


@attrs.frozen
class Answer:
    """One answer of the endpoint.

    ``prompt_tokens`` and ``completion_tokens`` None are counted from the bytes.
    ``usage`` replaces the whole report, whatever it is; ``report_usage`` false leaves it
    out; what is billed stays the same. ``delay`` is in seconds before the first byte,
    ``piece_delay`` between the pieces of a stream. A ``status`` other than 200 answers
    with an error of ``text`` and bills nothing. ``body`` replaces the whole body.
    ``ignore_max_tokens`` writes, and bills, more than was allowed.
    """

    text: str | None = None
    calls: tuple[SaidCall, ...] = ()
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    usage: Any = Unset.unset
    report_usage: bool = True
    ignore_max_tokens: bool = False
    finish_reason: str | None = None
    model: str | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    delay: float = 0.0
    piece_delay: float = 0.0
    fault: Fault = Fault.none
    when: str | None = None


@attrs.frozen
class Bill:
    """What one call costs by the endpoint's count."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


@attrs.frozen
class Reply:
    """An answer made ready: status, headers, and the body in pieces, each of them sent by itself."""

    status: int
    headers: tuple[tuple[str, str], ...]
    pieces: tuple[bytes, ...]
    chunked: bool
    bill: Bill

    @property
    def half(self) -> int:
        """Count the pieces sent before a fault in the middle."""
        return max(len(self.pieces) // 2, 1)


def make_reply(answer: Answer, request: Mapping[str, Any], size: int, number: int) -> Reply:
    """Make the bytes of an answer to a request of ``size`` bytes, the call number ``number``."""
    if answer.status != 200:
        error = {"error": {"message": answer.text or f"scripted status {answer.status}", "type": "scripted"}}
        body = (answer.body or "").encode() if answer.body is not None else msgspec.json.encode(error)
        return Reply(answer.status, _typed(answer, "application/json"), (body,), False, Bill())
    bill, cut = _charge(answer, request, size)
    stream = bool(request.get("stream"))
    if answer.body is not None or answer.fault in (Fault.malformed, Fault.wrong_content):
        return Reply(200, _typed(answer, "application/json"), (_wrong_body(answer, number),), False, bill)
    said = _Said(answer, request, bill, cut, number)
    if stream:
        return Reply(200, _typed(answer, "text/event-stream"), said.events(), True, bill)
    whole = msgspec.json.encode(said.completion())
    middle = len(whole) // 2
    return Reply(200, _typed(answer, "application/json"), (whole[:middle], whole[middle:]), False, bill)


def _typed(answer: Answer, content_type: str) -> tuple[tuple[str, str], ...]:
    if any(name.lower() == "content-type" for name, _ in answer.headers):
        return answer.headers
    return (("content-type", content_type), *answer.headers)


def _wrong_body(answer: Answer, number: int) -> bytes:
    if answer.body is not None:
        return answer.body.encode()
    if answer.fault is Fault.malformed:
        return b'{"id": "chatcmpl-%d", "choices": [{"mess' % number
    return b'{"status": "ok"}'


def _charge(answer: Answer, request: Mapping[str, Any], size: int) -> tuple[Bill, bool]:
    """Count what the call costs, and whether the output limit cut it."""
    if answer.fault is Fault.drop:
        return Bill(), False
    prompt = size // 4 + 1 if answer.prompt_tokens is None else answer.prompt_tokens
    said = len(answer.text or "") + sum(len(call.name) + len(call.arguments) for call in answer.calls)
    wanted = said // 4 + 1 if answer.completion_tokens is None else answer.completion_tokens
    allowed = request.get("max_completion_tokens", request.get("max_tokens"))
    if answer.ignore_max_tokens or type(allowed) is not int or wanted <= allowed:
        return Bill(prompt, wanted), False
    return Bill(prompt, allowed), True


@attrs.frozen
class _Said:
    """One answer in the words of the wire."""

    answer: Answer
    request: Mapping[str, Any]
    bill: Bill
    cut: bool
    number: int

    def completion(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": self._text()}
        if self.answer.calls:
            message["tool_calls"] = self._calls()
        data = self._frame("chat.completion")
        data["choices"] = [{"index": 0, "message": message, "finish_reason": self._finish_reason()}]
        return data | self._usage()

    def events(self) -> tuple[bytes, ...]:
        """Give the stream: pieces of text, each call in two pieces, the reason, the usage, the end mark."""
        deltas: list[dict[str, Any]] = [{"role": "assistant"}]
        text = self._text() or ""
        step = max(-(-len(text) // TEXT_PIECES), 1)
        deltas += [{"content": text[start : start + step]} for start in range(0, len(text), step)]
        for index, call in enumerate(self._calls()):
            arguments = call["function"]["arguments"]
            middle = len(arguments) // 2
            first = {"name": call["function"]["name"], "arguments": arguments[:middle]}
            deltas.append({"tool_calls": [{**call, "index": index, "function": first}]})
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[middle:]}}]})
        chunks = [self._chunk(delta) for delta in deltas]
        if self.answer.fault is Fault.no_end:
            return tuple(chunks)
        chunks.append(self._chunk({}, self._finish_reason()))
        options = self.request.get("stream_options")
        usage = self._usage()
        if usage and isinstance(options, dict) and options.get("include_usage"):
            chunks.append(_event({**self._frame("chat.completion.chunk"), "choices": [], **usage}))
        return (*chunks, b"data: [DONE]\n\n")

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
        return _event({**self._frame("chat.completion.chunk"), "choices": [choice]})

    def _frame(self, kind: str) -> dict[str, Any]:
        model = self.answer.model or self.request.get("model") or DEFAULT_MODEL
        return {"id": f"chatcmpl-{self.number}", "object": kind, "created": 0, "model": model}

    def _text(self) -> str | None:
        text, allowed = self.answer.text, self.bill.completion_tokens
        return text[: 4 * allowed] if self.cut and text is not None else text

    def _calls(self) -> list[dict[str, Any]]:
        return [
            {
                "id": f"call_{self.number}_{place}" if call.id is None else call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for place, call in enumerate(self.answer.calls)
        ]

    def _finish_reason(self) -> str:
        if self.answer.finish_reason is not None:
            return self.answer.finish_reason
        if self.cut:
            return "length"
        return "tool_calls" if self.answer.calls else "stop"

    def _usage(self) -> dict[str, Any]:
        if not self.answer.report_usage:
            return {}
        if self.answer.usage is not Unset.unset:
            return {"usage": self.answer.usage}
        prompt, completion = self.bill.prompt_tokens, self.bill.completion_tokens
        report: dict[str, Any] = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        }
        if self.answer.cached_tokens:
            report["prompt_tokens_details"] = {"cached_tokens": self.answer.cached_tokens}
        if self.answer.reasoning_tokens:
            report["completion_tokens_details"] = {"reasoning_tokens": self.answer.reasoning_tokens}
        return {"usage": report}


def _event(data: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


# ── the strict endpoint ─────────────────────────────────────────────────────


def conversation_problem(messages: Any) -> str | None:
    """Say why a strict endpoint refuses a conversation; None when calls and results pair and roles alternate."""
    if not isinstance(messages, list) or not messages:
        return "there are no messages"
    open_ids: list[str] = []
    seen: set[str] = set()
    before = "start"
    for place, message in enumerate(messages):
        problem = _message_problem(message, before, place, open_ids, seen)
        if problem is not None:
            return f"messages[{place}]: {problem}"
        before = message["role"]
    if open_ids:
        return f"the calls {open_ids} have no result"
    return "the last message is the assistant's" if before == "assistant" else None


def _message_problem(message: Any, before: str, place: int, open_ids: list[str], seen: set[str]) -> str | None:
    role = message.get("role") if isinstance(message, dict) else None
    if role == "tool":
        return _result_problem(message, open_ids)
    if open_ids:
        return f"the calls {open_ids} have no result"
    if not isinstance(role, str) or role not in _MAY_FOLLOW:
        return f"unknown role {role!r}"
    if before not in _MAY_FOLLOW[role]:
        return f"{role} cannot follow {before}"
    calls = message.get("tool_calls") if role == "assistant" else None
    if not calls:
        return None if _is_said(message.get("content")) else "the message is empty"
    for call in calls:
        problem = _call_problem(call, seen)
        if problem is not None:
            return problem
        open_ids.append(call["id"])
    return None


_MAY_FOLLOW: Final[Mapping[str, frozenset[str]]] = {
    "system": frozenset({"start"}),
    "user": frozenset({"start", "system", "assistant", "tool"}),
    "assistant": frozenset({"user", "tool"}),
}
_CALL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def _is_said(content: Any) -> bool:
    return isinstance(content, str) and bool(content.strip())


def _result_problem(message: Mapping[str, Any], open_ids: list[str]) -> str | None:
    id = message.get("tool_call_id")
    if id not in open_ids:
        return f"a result for {id!r}, and no call waits for it"
    open_ids.remove(id)
    return None if _is_said(message.get("content")) else "the result is empty"


def _call_problem(call: Any, seen: set[str]) -> str | None:
    id = call.get("id") if isinstance(call, dict) else None
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(id, str) or not id or id in seen:
        return f"the call id {id!r} is empty or was used before"
    seen.add(id)
    if not isinstance(function, dict) or not _CALL_NAME.fullmatch(str(function.get("name"))):
        return f"the call {id!r} has no proper name"
    try:
        arguments = json.loads(str(function.get("arguments")))
    except (ValueError, RecursionError):
        arguments = None
    return None if isinstance(arguments, dict) else f"the arguments of the call {id!r} are no JSON object"


# ── script files ────────────────────────────────────────────────────────────


def read_answers(text: str, where: str) -> list[Answer]:
    """Read a script file of the server: a list of objects with the fields of `Answer`.

    A call is ``[name, arguments]`` or ``[name, arguments, id]``.

    Raises:
        ConfigError: every problem found, with its path.
    """
    return load_script(text, where, _KEYS, Answer)


def said_calls(value: Any) -> tuple[SaidCall, ...]:
    """Take a list of calls, each a pair or a triple; arguments are an object, or a text as it is."""
    if not isinstance(value, list | tuple):
        raise TypeError("must be a list of [name, arguments] or [name, arguments, id]")
    return tuple(_said_call(entry, place) for place, entry in enumerate(value))


def _said_call(entry: Any, place: int) -> SaidCall:
    if isinstance(entry, SaidCall):
        return entry
    if not isinstance(entry, list | tuple) or len(entry) not in (2, 3):
        raise ConfigError((f"[{place}]", "must be [name, arguments] or [name, arguments, id]"))
    name, arguments, id = (*entry, None)[:3]
    if not isinstance(name, str) or not isinstance(id, str | None):
        raise ConfigError((f"[{place}]", "name and id must be texts"))
    return SaidCall(name, arguments if isinstance(arguments, str) else json.dumps(arguments), id)


def _headers(value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, dict):
        raise TypeError("must be an object of header names and texts")
    return tuple((text_value(name), text_value(text)) for name, text in value.items())


def _fault(value: Any) -> Fault:
    try:
        return Fault(value)
    except ValueError:
        raise ValueError(f"must be one of {', '.join(Fault)}, not {value!r}") from None


def _status(value: Any) -> int:
    if type(value) is not int or not 200 <= value <= 599:
        raise ValueError(f"must be an HTTP status from 200 to 599, not {value!r}")
    return value


def _count_or_null(value: Any) -> int | None:
    return None if value is None else count(value)


def _anything(value: Any) -> Any:
    return value


_KEYS: Final[Mapping[str, Check]] = {
    "text": text_or_null,
    "calls": said_calls,
    "prompt_tokens": _count_or_null,
    "completion_tokens": _count_or_null,
    "cached_tokens": count,
    "reasoning_tokens": count,
    "usage": _anything,
    "report_usage": flag,
    "ignore_max_tokens": flag,
    "finish_reason": text_or_null,
    "model": text_or_null,
    "status": _status,
    "headers": _headers,
    "body": text_or_null,
    "delay": seconds,
    "piece_delay": seconds,
    "fault": _fault,
    "when": condition,
}
