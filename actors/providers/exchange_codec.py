"""Exchanges with a model as lines of JSON: what was asked, as digests, and what came of it. Pure.

    {"line":"start","format":2,"version":"0.1.0","provider":"openai","model":"m"}
    {"line":"exchange","key":"5d2c...","asked":1,"request":{...},"estimate":{...},"answer":{...}}

A request is known by what is in it: ``key`` is a digest of its system text, turns, tools, model, effort and
``max_output_tokens``. No run id and no clock is in a request, so the same work asks the same questions.

``max_output_tokens`` is part of the key although the ledger may clamp it near a ceiling. An answer is cut at
that limit, so what came under another one is no answer to this request; and a run that comes to another clamp has
spent differently from the recorded one already, and must hear so.

The parts are kept as short digests beside the key: they tell which of them differs when a request is unknown.
Nothing of the request itself is written down but the beginning of its last turn, for people. The turns that an
exchange before it had as well are only counted, or a long run would be written as often as it has steps.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Annotated, Any, Final

import attrs
import msgspec

from actors.agents.entry_text import clean, clean_value
from actors.agents.ports import (
    AssistantTurn,
    Completion,
    CompletionRequest,
    Estimate,
    ResultsTurn,
    ToolCall,
    Turn,
    UserTurn,
)
from actors.containment.amounts import LARGEST
from actors.containment.usage import Usage
from actors.errors import ProviderError, ProviderErrorKind

# In lines of format 1 every request has all its turns.
FORMAT: Final = 2
READ: Final = (1, 2)
KEY_CHARS: Final = 32
PART_CHARS: Final = 16
SHOWN_CHARS: Final = 160


class BadLine(Exception):
    """A line is no line of a recording; the text says why."""


# ── what a request is known by ──────────────────────────────────────────────


@attrs.frozen
class Fingerprint:
    """A request as digests. ``key`` is what it is known by; the parts only tell where two requests differ.

    Each of ``turns`` begins with a letter for its kind: u, a or r. ``content`` is the key of all but
    ``max_output_tokens``; it is not written down. In a line the first ``same`` turns may be left out: they are
    those of the exchange ``after`` before it. Otherwise both are 0.
    """

    key: str
    system: str
    tools: str
    turns: tuple[str, ...]
    model: str | None
    max_output_tokens: int
    shown: str = attrs.field(default="", eq=False)
    content: str = attrs.field(default="", eq=False)
    after: int = attrs.field(default=0, eq=False)
    same: int = attrs.field(default=0, eq=False)


@attrs.define(eq=False)
class Link:
    """A turn in the line of turns of a request: its own digest, as a part of a fingerprint, and that of all up to it.

    ``line`` is the exchange that was written first with just these turns up to it; 0 for none.
    """

    part: str
    state: Any
    line: int = 0


@attrs.frozen
class Linked:
    """A request as digests that cost what is new in it, where its turns are those of a run. Until the run goes on."""

    key: str
    content: str
    _system: str
    _tools: str
    _links: list[Link]
    _request: CompletionRequest

    def whole(self) -> Fingerprint:
        """Give the fingerprint, with all turns."""
        return self._from(0, 0)

    def written(self, number: int) -> Fingerprint:
        """Give the fingerprint for a line, which counts as written: of turns in one before it only the count."""
        same = len(self._links)
        while same and not self._links[same - 1].line:
            same -= 1
        after = self._links[same - 1].line if same else 0
        for link in self._links[same:]:
            link.line = number
        return self._from(after, same)

    def _from(self, after: int, same: int) -> Fingerprint:
        request = self._request
        last = text_of(request.turns[-1]) if request.turns else ""
        return Fingerprint(
            self.key,
            self._system[:PART_CHARS],
            self._tools[:PART_CHARS],
            tuple(link.part for link in self._links[same:]),
            request.model,
            request.max_output_tokens,
            clean(last[:SHOWN_CHARS]),
            self.content,
            after,
            same,
        )


def fingerprint(request: CompletionRequest) -> Fingerprint:
    """Take the fingerprint of a request. Equal requests have equal ones, in every process."""
    return linked(request).whole()


def linked(request: CompletionRequest, keeper: object = None) -> Linked:
    """Take the digests of a request. Who writes lines is the ``keeper`` of what was written."""
    system = _digest(request.system)
    tools = _digest([[tool.name, tool.description, tool.parameters] for tool in request.tools])
    begun = hashlib.sha256(f'["{system}","{tools}",['.encode("ascii"))
    grown = request.grown
    if grown is not None and grown.has_just(request.turns):
        links = grown.chain((keeper, system, tools), partial(_extend, begun))
    else:
        links = []
        _extend(begun, links, request.turns)
    state = (links[-1].state if links else begun).copy()
    # An effort that nobody asked for is no part: recordings of before there was one go on to fit.
    effort = [] if request.effort is None else [request.effort]
    # As if all of it were one list in JSON: the system text, the tools, the list of turns, the model.
    state.update(b"]," + _canonical([request.model, *effort])[1:])
    content = state.hexdigest()
    key = _digest([content, request.max_output_tokens])[:KEY_CHARS]
    return Linked(key, content, system, tools, links, request)


def _extend(begun: Any, links: list[Link], turns: Sequence[Turn]) -> None:
    state = links[-1].state if links else begun
    for turn in turns:
        digest = _digest(_plain(turn))
        state = state.copy()
        state.update((f',"{digest}"' if links else f'"{digest}"').encode("ascii"))
        links.append(Link(_letter(turn) + digest[:PART_CHARS], state))


def _digest(value: Any) -> str:
    return hashlib.sha256(_canonical(value)).hexdigest()


def _canonical(value: Any) -> bytes:
    # In plain ASCII every text has bytes, half characters too.
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=dict).encode("ascii")


def _letter(turn: Turn) -> str:
    return "u" if isinstance(turn, UserTurn) else "a" if isinstance(turn, AssistantTurn) else "r"


def _plain(turn: Turn) -> Any:
    if isinstance(turn, UserTurn):
        return {"user": turn.text}
    if isinstance(turn, AssistantTurn):
        return {"assistant": turn.text, "calls": [[call.name, call.arguments] for call in turn.calls]}
    return {"results": turn.texts}


def text_of(turn: Turn) -> str:
    """Give what stands in a turn, for people."""
    if isinstance(turn, UserTurn):
        return turn.text
    if isinstance(turn, ResultsTurn):
        return "\n".join(turn.texts)
    return turn.text or ", ".join(call.name for call in turn.calls)


# ── where two requests differ ───────────────────────────────────────────────

_KINDS: Final = {"u": "the runtime's text", "a": "the model's own turn", "r": "results of calls"}


def first_other_turn(one: Fingerprint, other: Fingerprint) -> int:
    """Count the turns that are equal from the first on: the place of the first that is not."""
    pairs = zip(one.turns, other.turns, strict=False)
    return next((place for place, (mine, theirs) in enumerate(pairs) if mine != theirs), _shorter(one, other))


def _shorter(one: Fingerprint, other: Fingerprint) -> int:
    return min(len(one.turns), len(other.turns))


def closest(asked: Fingerprint, recorded: Iterable[tuple[int, Fingerprint]]) -> tuple[int, Fingerprint] | None:
    """Find the recorded request most like ``asked``; the first of several. None when there is none at all."""

    def likeness(candidate: tuple[int, Fingerprint]) -> tuple[int, ...]:
        other = candidate[1]
        same = (other.system == asked.system, other.tools == asked.tools, other.model == asked.model)
        lengths = -abs(len(other.turns) - len(asked.turns))
        return (first_other_turn(asked, other), *same, lengths, other.max_output_tokens == asked.max_output_tokens)

    return max(recorded, key=likeness, default=None)


def what_differs(asked: Fingerprint, other: Fingerprint) -> list[str]:
    """Name the parts of ``asked`` that are not those of ``other``, in the order a model reads them."""
    found = []
    if asked.system != other.system:
        found.append("the system text differs")
    if asked.tools != other.tools:
        found.append("the tools differ")
    place = first_other_turn(asked, other)
    if place < _shorter(asked, other):
        found.append(f"turn {place + 1} of {len(asked.turns)} differs ({_KINDS[asked.turns[place][0]]})")
    elif len(asked.turns) != len(other.turns):
        found.append(f"it has {len(asked.turns)} turns and not {len(other.turns)}")
    if asked.model != other.model:
        found.append(f"the model is {asked.model!r} and not {other.model!r}")
    # The limit follows from what else was asked; it is worth a word when all that is equal.
    if not found and asked.max_output_tokens != other.max_output_tokens:
        found.append(f"max_output_tokens is {asked.max_output_tokens} and not {other.max_output_tokens}")
    if not found and asked.key != other.key:
        # It has no digest of its own: nothing else is in a key.
        found.append("the effort differs")
    return found


# ── lines ───────────────────────────────────────────────────────────────────


@attrs.frozen
class Start:
    """The first line of each recording process: which provider was recorded, and by which version of this package."""

    provider: str
    model: str | None
    version: str


@attrs.frozen
class Exchange:
    """One request and what came of it.

    ``asked`` counts the requests of one recording in the order in which they were made; the lines stand in the order
    of the answers. ``estimate`` is what the provider said of the request before it was made; ``estimated_as`` is its
    key at that time, None for the same: what may be spent can have lowered ``max_output_tokens`` since.
    """

    asked: int
    request: Fingerprint
    estimate: Estimate
    estimated_as: str | None
    came: Completion | ProviderError


Count = Annotated[int, msgspec.Meta(ge=0, le=LARGEST)]
Key = Annotated[str, msgspec.Meta(pattern=f"^[0-9a-f]{{{KEY_CHARS}}}$")]


class _Wire(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of a line; an unknown key is refused."""


class _Usage(_Wire, frozen=True):
    prompt_tokens: Count
    completion_tokens: Count
    total_tokens: Count
    cache_read_tokens: Count
    cache_write_tokens: Count
    reasoning_tokens: Count
    server_tool_requests: Count


class _Request(_Wire, frozen=True, omit_defaults=True):
    system: str
    tools: str
    turns: tuple[str, ...]
    model: str | None
    max_output_tokens: int
    shown: str
    after: Count = 0
    same: Count = 0


class _Estimate(_Wire, frozen=True, omit_defaults=True):
    prompt_tokens: Count
    output_tokens: Count
    minimal_output: Count
    key: Key | None = None


class _Answer(_Wire, frozen=True):
    text: str | None
    calls: tuple[tuple[str, str], ...]
    usage: _Usage | None
    model: str | None
    finish_reason: str | None
    first_token_seconds: float | None


class _Error(_Wire, frozen=True):
    kind: ProviderErrorKind
    message: str
    status: int | None
    retry_after: float | None
    usage: _Usage | None


class _Start(_Wire, frozen=True, tag_field="line", tag="start"):
    format: int
    version: str
    provider: str
    model: str | None


class _Exchange(_Wire, frozen=True, tag_field="line", tag="exchange", omit_defaults=True):
    key: Key
    asked: Count
    request: _Request
    estimate: _Estimate
    answer: _Answer | None = None
    error: _Error | None = None


_DECODER: Final = msgspec.json.Decoder(_Start | _Exchange)
_ENCODER: Final = msgspec.json.Encoder()


def encode_line(line: Start | Exchange) -> bytes:
    """Write a line, its end included."""
    wire = _wire(line)
    try:
        return _ENCODER.encode(wire) + b"\n"
    except UnicodeEncodeError:
        # Half a character: the loop replaces it in the answer as well, and nothing else can carry it.
        return _ENCODER.encode(clean_value(msgspec.to_builtins(wire))) + b"\n"


def decode_line(line: bytes) -> Start | Exchange:
    """Read a line strictly.

    Raises:
        BadLine: it is none, or of a newer format.
    """
    try:
        wire = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadLine(str(error)) from None
    if isinstance(wire, _Start):
        if wire.format not in READ:
            raise BadLine(f"format {wire.format} is not known to this version, which reads {FORMAT}")
        return Start(wire.provider, wire.model, wire.version)
    if (wire.answer is None) == (wire.error is None):
        raise BadLine("must hold an answer or an error, and not both")
    return _exchange(wire)


def _wire(line: Start | Exchange) -> _Start | _Exchange:
    if isinstance(line, Start):
        return _Start(FORMAT, line.version, line.provider, line.model)
    asked, estimate, came = line.request, line.estimate, line.came
    return _Exchange(
        asked.key,
        line.asked,
        _Request(
            asked.system,
            asked.tools,
            asked.turns,
            asked.model,
            asked.max_output_tokens,
            asked.shown,
            asked.after,
            asked.same,
        ),
        _Estimate(estimate.prompt_tokens, estimate.output_tokens, estimate.minimal_output, line.estimated_as),
        answer=None if isinstance(came, ProviderError) else _answer_wire(came),
        error=_error_wire(came) if isinstance(came, ProviderError) else None,
    )


def _answer_wire(came: Completion) -> _Answer:
    calls = tuple((call.name, call.arguments) for call in came.calls)
    usage = _usage_wire(came.usage)
    return _Answer(came.text, calls, usage, came.model, came.finish_reason, came.first_token_seconds)


def _error_wire(came: ProviderError) -> _Error:
    return _Error(came.kind, came.message, came.status, came.retry_after, _usage_wire(came.usage))


def _usage_wire(usage: object) -> _Usage | None:
    # An error may carry anything; only a usage means something.
    return _Usage(**attrs.asdict(usage)) if isinstance(usage, Usage) else None


def _usage(wire: _Usage | None) -> Usage | None:
    return None if wire is None else Usage(**msgspec.structs.asdict(wire))


def _exchange(wire: _Exchange) -> Exchange:
    request, estimate, answer, error = wire.request, wire.estimate, wire.answer, wire.error
    came: Completion | ProviderError
    if answer is not None:
        calls = tuple(ToolCall(name, arguments) for name, arguments in answer.calls)
        usage = _usage(answer.usage)
        came = Completion(answer.text, calls, usage, answer.model, answer.finish_reason, answer.first_token_seconds)
    else:
        assert error is not None, "one of the two stands"
        came = ProviderError(
            error.kind, error.message, status=error.status, retry_after=error.retry_after, usage=_usage(error.usage)
        )
    return Exchange(
        wire.asked,
        Fingerprint(wire.key, **msgspec.structs.asdict(request)),
        Estimate(estimate.prompt_tokens, estimate.output_tokens, estimate.minimal_output),
        estimate.key,
        came,
    )
