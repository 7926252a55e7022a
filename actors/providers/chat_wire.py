"""The OpenAI chat format: a request becomes a body, a body becomes a completion. Pure.

What a reader would get wrong: ids of tool calls are minted here, from the place
of a call in the conversation, and the ids a model sends are dropped. Models
repeat ids and leave them empty; a place is unique by itself, and the same
conversation gives the same bytes, so an endpoint's prompt cache still hits.

What is sent always pairs: each call has exactly one result behind it, no result
stands alone, and no message is empty.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from actors.agents.entry_text import clean, clean_value
from actors.agents.ports import (
    AssistantTurn,
    Completion,
    CompletionRequest,
    ResultsTurn,
    ToolCall,
    ToolSpec,
    Turn,
    UserTurn,
)
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind
from actors.providers.http_errors import embedded_error, one_line

# No call of any model uses a thousand million tokens; a figure above is a fault of the report.
MOST_TOKENS: Final = 10**9
NO_RESULT: Final = "(no result was recorded for this call)"
EMPTY_RESULT: Final = "(the result is empty)"

_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NOT_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")

Message = dict[str, Any]


# ── encode ──────────────────────────────────────────────────────────────────


def encode_request(
    request: CompletionRequest,
    *,
    model: str | None = None,
    limit_field: str = "max_tokens",
    stream: bool = False,
) -> bytes:
    """Encode the body of one call. ``model`` is used when the request names none; without either none is sent.

    Raises:
        ProviderError: of kind request, when there is nothing to send or a tool's name
            cannot be expressed. Nothing is dropped silently.
    """
    messages = wire_messages(request.system, request.turns)
    if not messages:
        raise ProviderError(ProviderErrorKind.request, "the request has no message that is not empty")
    body: Message = {"messages": messages, limit_field: request.max_output_tokens}
    served = request.model or model
    if served:
        body["model"] = served
    if request.effort is not None:
        body["reasoning_effort"] = request.effort
    if request.tools:
        body["tools"] = _wire_tools(request.tools)
    if stream:
        body["stream"] = True
        body["stream_options"] = {"include_usage": True}
    try:
        return _ENCODER.encode(body)
    except UnicodeEncodeError:
        return _ENCODER.encode(clean_value(_plain_tree(body)))


def wire_messages(system: str, turns: Sequence[Turn]) -> list[Message]:
    """Put a conversation into messages whose calls and results pair and whose roles alternate."""
    messages: list[Message] = [{"role": "system", "content": system}] if system.strip() else []
    waiting: list[str] = []
    seen = 0
    for turn in turns:
        texts = turn.texts if isinstance(turn, ResultsTurn) else ()
        # Without calls before it a result is an orphan, and `waiting` is empty: nothing is sent for it.
        _add_results(messages, waiting, texts)
        waiting = []
        if isinstance(turn, UserTurn):
            _add_text(messages, "user", turn.text)
        elif isinstance(turn, AssistantTurn):
            waiting = [call_id(seen + ordinal) for ordinal in range(len(turn.calls))]
            _add_assistant(messages, turn, waiting)
            seen += len(waiting)
    _add_results(messages, waiting, ())
    return messages


def call_id(position: int) -> str:
    """Mint the id of the call at ``position`` (from 0) of a whole conversation: nine letters and digits."""
    digits = ""
    while position or not digits:
        position, digit = divmod(position, 36)
        digits = _DIGITS[digit] + digits
    return "c" + digits.rjust(8, "0")


def _add_results(messages: list[Message], ids: Sequence[str], texts: Sequence[str]) -> None:
    for ordinal, id in enumerate(ids):
        text = texts[ordinal] if ordinal < len(texts) else NO_RESULT
        messages.append({"role": "tool", "tool_call_id": id, "content": text if text.strip() else EMPTY_RESULT})


def _add_text(messages: list[Message], role: str, text: str) -> None:
    """Add a message that is only text; an empty one is not sent, and one of the same role grows."""
    if not text.strip():
        return
    if messages and messages[-1]["role"] == role:
        messages[-1]["content"] = f"{messages[-1]['content']}\n\n{text}"
    else:
        messages.append({"role": role, "content": text})


def _add_assistant(messages: list[Message], turn: AssistantTurn, ids: Sequence[str]) -> None:
    _add_text(messages, "assistant", turn.text or "")
    if not turn.calls:
        return
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    messages[-1]["tool_calls"] = [
        {
            "id": id,
            "type": "function",
            "function": {"name": _sent_name(call.name), "arguments": _sent_arguments(call.arguments)},
        }
        for id, call in zip(ids, turn.calls, strict=True)
    ]


def _sent_name(name: str) -> str:
    """Give a name that endpoints accept: models invent names, and one bad name in the past would end the run."""
    return name if _NAME.fullmatch(name) else _NOT_NAME.sub("_", name)[:64] or "unnamed"


def _sent_arguments(text: str) -> str:
    """Give arguments as a JSON object: endpoints parse what the model said before, and refuse what is none."""
    if not text.strip():
        return "{}"
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return json.dumps({"malformed_arguments": clean(text)})
    return text


def _wire_tools(tools: Sequence[ToolSpec]) -> list[Message]:
    names = [tool.name for tool in tools]
    for name in names:
        if not _NAME.fullmatch(name):
            text = f"tool {name!r} cannot be sent: a name is 1 to 64 letters, digits, _ or -"
            raise ProviderError(ProviderErrorKind.request, text)
    if len(set(names)) < len(names):
        text = f"two tools have one name: {', '.join(sorted({name for name in names if names.count(name) > 1}))}"
        raise ProviderError(ProviderErrorKind.request, text)
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"cannot be sent as JSON: {type(value).__name__}")


def _plain_tree(value: Any) -> Any:
    """Turn every mapping and sequence into a plain one, so that all text can be reached."""
    if isinstance(value, Mapping):
        return {key: _plain_tree(item) for key, item in value.items()}
    return [_plain_tree(item) for item in value] if isinstance(value, list | tuple) else value


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


# ── decode ──────────────────────────────────────────────────────────────────


def decode_completion(body: bytes) -> Completion:
    """Decode the body of a successful response.

    Raises:
        ProviderError: of kind malformed when it is no completion, carrying the usage
            where the body still told it; of another kind when the body is an error
            object with a status of its own.
    """
    data = load_json(body)
    if not isinstance(data, dict):
        raise malformed(f"the answer is no JSON object: {_excerpt(body)}")
    usage = read_usage(data.get("usage"))
    choices = data.get("choices")
    if not choices and data.get("error") is not None:
        raise embedded_error(data["error"])
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = choice.get("message") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(message, dict) or not message:
        raise malformed(f"the answer holds no message: {_excerpt(body)}", usage)
    return Completion(
        text=_read_text(message, usage),
        calls=_read_calls(message.get("tool_calls"), usage),
        usage=usage,
        model=read_word(data.get("model")),
        finish_reason=read_word(choice.get("finish_reason")),
    )


def load_json(body: bytes) -> Any:
    """Parse JSON that may hold lone surrogates or broken bytes inside its texts.

    Raises:
        ProviderError: of kind malformed.
    """
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        pass
    # The strict decoder is five times as fast; the other one takes lone surrogates, which are cleaned later.
    try:
        return json.loads(body.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError) as error:
        raise malformed(f"the answer is no JSON: {_excerpt(body)}") from error


def malformed(text: str, usage: Usage | None = None) -> ProviderError:
    """Make the error for an answer that cannot be read, with the usage it still told."""
    return ProviderError(ProviderErrorKind.malformed, text, usage=usage)


def read_usage(raw: Any) -> Usage | None:
    """Read a usage report; None (unknown) when a count in it is absent, negative, no whole number or huge.

    Zero as reported stays zero. Parts that cannot be are left out or cut to their
    whole: a cached count above the prompt would make tokens cheaper than they are.
    """
    if not isinstance(raw, dict):
        return None
    prompt, completion = _count(raw.get("prompt_tokens")), _count(raw.get("completion_tokens"))
    total = 0 if raw.get("total_tokens") is None else _count(raw["total_tokens"])
    if prompt is None or completion is None or total is None:
        return None
    of_prompt, of_completion = raw.get("prompt_tokens_details"), raw.get("completion_tokens_details")
    return Usage(
        prompt_tokens=prompt,
        completion_tokens=completion,
        total_tokens=total,
        cache_read_tokens=_part(of_prompt, "cached_tokens", prompt),
        cache_write_tokens=_part(of_prompt, "cache_write_tokens", prompt),
        reasoning_tokens=_part(of_completion, "reasoning_tokens", completion),
    )


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value <= MOST_TOKENS else None


def _part(details: Any, key: str, whole: int) -> int:
    count = _count(details.get(key)) if isinstance(details, dict) else None
    return 0 if count is None else min(count, whole)


def read_word(value: Any) -> str | None:
    """Take a text that is only told on: a model's name, a finish reason."""
    return clean(value) if isinstance(value, str) else None


def read_content(content: Any) -> str | None:
    """Take the text of a message: a text, or a list of parts of which the text ones count.

    Raises:
        ValueError: it is neither.
    """
    if content is None:
        return None
    if isinstance(content, str):
        return clean(content)
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        texts = [part["text"] for part in content if isinstance(part.get("text"), str)]
        return clean("".join(texts)) if texts else None
    raise ValueError("the content of the message is no text")


def _read_text(message: dict[str, Any], usage: Usage | None) -> str | None:
    try:
        text = read_content(message.get("content"))
    except ValueError as error:
        raise malformed(str(error), usage) from None
    # A model's refusal comes in a field of its own; it is what the model said.
    return text if text is not None else read_word(message.get("refusal"))


def _read_calls(raw: Any, usage: Usage | None) -> tuple[ToolCall, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list):
        raise malformed("tool_calls is no list", usage)
    return tuple(read_call(entry, usage) for entry in raw)


def read_call(entry: Any, usage: Usage | None) -> ToolCall:
    """Take one call, without its id.

    Raises:
        ProviderError: of kind malformed: it names no function, or its arguments are neither text nor object.
    """
    function = entry.get("function") if isinstance(entry, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(function, dict) or not isinstance(name, str):
        raise malformed("a tool call names no function", usage)
    arguments = function.get("arguments")
    if isinstance(arguments, dict):
        # Some local servers send the object itself instead of its text.
        arguments = json.dumps(arguments)
    if arguments is not None and not isinstance(arguments, str):
        raise malformed(f"the arguments of a call to {one_line(name)} are no text", usage)
    return ToolCall(clean(name), clean(arguments) if arguments and arguments.strip() else "{}")


def _excerpt(body: bytes) -> str:
    return one_line(body[:200].decode("utf-8", "replace")) or "(empty)"
