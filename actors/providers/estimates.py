"""How many tokens a request may cost at worst, before it is sent. Pure but for what `Drift` remembers.

A byte count is no tokenizer: it is right for no model and close for all. What
an endpoint reports corrects it, upwards only, so that reservations hold.
"""

import math
from typing import Final

import attrs
import msgspec

from actors.agents.growing import added_up
from actors.agents.ports import CompletionRequest, Estimate, ResultsTurn, ToolSpec, Turn, UserTurn

BYTES_PER_TOKEN: Final = 3
# Roles, separators and ids around each message, and around each tool.
MESSAGE_MARGIN: Final = 8
# Above this a report is more likely wrong than our count, and would refuse every later call.
MOST_DRIFT: Final = 10.0


def raw_prompt_tokens(request: CompletionRequest) -> int:
    """Count UTF-8 bytes / 3, rounded up, plus a margin for each message and tool."""
    size = _size(request.system) + added_up(_turn_bytes, request.turns, request.grown)
    size += _size_of_tools(request.tools)
    messages = 1 + len(request.tools) + added_up(_messages, request.turns, request.grown)
    return -(-size // BYTES_PER_TOKEN) + messages * MESSAGE_MARGIN


def _turn_bytes(turn: Turn) -> int:
    if isinstance(turn, UserTurn):
        return _size(turn.text)
    if isinstance(turn, ResultsTurn):
        return sum(map(_size, turn.texts))
    return _size(turn.text or "") + sum(_size(call.name) + _size(call.arguments) for call in turn.calls)


def _messages(turn: Turn) -> int:
    if isinstance(turn, UserTurn):
        return 1
    return len(turn.texts) if isinstance(turn, ResultsTurn) else 1 + len(turn.calls)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _size_of_tools(tools: tuple[ToolSpec, ...]) -> int:
    """Count the bytes of all tools. An agent offers the same tuple in every request, so the last few are remembered."""
    known = _TOOL_SIZES.get(id(tools))
    if known is not None and known[0] is tools:
        return known[1]
    size = sum(_size(tool.name) + _size(tool.description) + len(_ENCODER.encode(tool.parameters)) for tool in tools)
    if len(_TOOL_SIZES) >= REMEMBERED:
        _TOOL_SIZES.clear()
    # The tuple itself is kept beside its size, so its id cannot come to mean another one.
    _TOOL_SIZES[id(tools)] = (tools, size)
    return size


REMEMBERED: Final = 64
_TOOL_SIZES: Final[dict[int, tuple[tuple[ToolSpec, ...], int]]] = {}
_ENCODER: Final = msgspec.json.Encoder(enc_hook=dict)


@attrs.define
class Drift:
    """The highest ratio of reported prompt tokens to our raw count so far; never below 1."""

    ratio: float = 1.0

    def note(self, raw: int, reported: int) -> None:
        """Take what an endpoint reported for a request of ``raw`` tokens by our count."""
        if raw > 0:
            self.ratio = min(max(self.ratio, reported / raw), MOST_DRIFT)

    def estimate(self, request: CompletionRequest) -> Estimate:
        """Give the worst case of a request, raised by the drift."""
        prompt = math.ceil(raw_prompt_tokens(request) * self.ratio)
        return Estimate(prompt_tokens=prompt, output_tokens=request.max_output_tokens)
