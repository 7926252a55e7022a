"""What a step leaves behind: effects for the host to carry out, or the one terminal. Pure.

A step with a terminal has no effects. A document that holds both does not
decode. A step holds at most one effect of a kind: an answer names its effect by
id, and the host carries different kinds out in the order in which they stand.
"""

import json
from collections.abc import Callable
from typing import Any, ClassVar, Final

import attrs

from actors.agents.strict_json import (
    CodecRefused,
    Field,
    Need,
    RefusalKind,
    as_object,
    as_read,
    identifier,
    many,
    opaque,
    parse,
    read_object,
    read_tag,
    string,
)
from actors.agents.terminal_codec import read_terminal, terminal_document
from actors.agents.terminals import Terminal

_ID: Final = as_read(identifier)
_TEXT: Final = as_read(string)


@attrs.frozen
class CallProvider:
    """Ask a model. ``model`` None asks for the provider's own."""

    kind: ClassVar[str] = "call_provider"
    model: str | None = attrs.field(default=None, validator=attrs.validators.optional(_TEXT))


@attrs.frozen
class ToolRequest:
    """One call to be carried out."""

    call_id: str = attrs.field(validator=_ID)
    name: str = attrs.field(validator=_TEXT)
    arguments: Any = attrs.field(default=None, validator=as_read(opaque))


@attrs.frozen
class ExecuteTools:
    """Carry out the calls of an answer."""

    kind: ClassVar[str] = "execute_tools"
    calls: tuple[ToolRequest, ...] = attrs.field(converter=tuple)


@attrs.frozen
class SpawnTasks:
    """Start children, by their task ids."""

    kind: ClassVar[str] = "spawn_tasks"
    tasks: tuple[str, ...] = attrs.field(converter=tuple, validator=attrs.validators.deep_iterable(_ID))


@attrs.frozen
class EvaluateMilestone:
    """Look whether a phase of a contract is reached."""

    kind: ClassVar[str] = "evaluate_milestone"
    contract_id: str = attrs.field(validator=_ID)
    phase_id: str = attrs.field(validator=_ID)


EffectBody = CallProvider | ExecuteTools | SpawnTasks | EvaluateMilestone


@attrs.frozen
class Effect:
    """A thing the host must do and answer. Ids are made from durable facts."""

    effect_id: str = attrs.field(validator=_ID)
    causation_input_id: str = attrs.field(validator=_ID)
    effect: EffectBody


def _repeated(effects: tuple[Effect, ...]) -> int | None:
    """Find the first effect whose kind or id stood before; None when there is none."""
    kinds: set[str] = set()
    ids: set[str] = set()
    for place, effect in enumerate(effects):
        if effect.effect.kind in kinds or effect.effect_id in ids:
            return place
        kinds.add(effect.effect.kind)
        ids.add(effect.effect_id)
    return None


def _none_repeated(_instance: object, _field: object, effects: tuple[Effect, ...]) -> None:
    if (place := _repeated(effects)) is not None:
        raise ValueError(f"effects[{place}]: its kind or its id stands before it in the same step")


@attrs.frozen
class EffectsStep:
    """A step that asks the host for effects; none is a quiet step."""

    kind: ClassVar[str] = "effects"
    effects: tuple[Effect, ...] = attrs.field(default=(), converter=tuple, validator=_none_repeated)

    @property
    def terminal(self) -> Terminal | None:
        """Give None: this step ends nothing."""
        return None

    @property
    def is_terminal(self) -> bool:
        """Whether the step ends its run."""
        return False


@attrs.frozen
class TerminalStep:
    """The step that ends its run."""

    kind: ClassVar[str] = "terminal"
    terminal: Terminal

    @property
    def effects(self) -> tuple[Effect, ...]:
        """Give nothing: a terminal clears every pending effect."""
        return ()

    @property
    def is_terminal(self) -> bool:
        """Whether the step ends its run."""
        return True


StepDisposition = EffectsStep | TerminalStep


# ── the wire ────────────────────────────────────────────────────────────────


def encode_disposition(step: StepDisposition) -> str:
    """Write a step: ``kind`` first, empty lists left out."""
    document: dict[str, Any] = {"kind": step.kind}
    if isinstance(step, TerminalStep):
        document["terminal"] = terminal_document(step.terminal)
    elif step.effects:
        document["effects"] = [_effect_document(effect) for effect in step.effects]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _effect_document(effect: Effect) -> dict[str, Any]:
    return {
        "effect_id": effect.effect_id,
        "causation_input_id": effect.causation_input_id,
        "effect": _body_document(effect.effect),
    }


def _body_document(body: EffectBody) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": body.kind}
    if isinstance(body, EvaluateMilestone):
        document["request"] = {"contract_id": body.contract_id, "phase_id": body.phase_id}
    elif isinstance(body, SpawnTasks):
        document["tasks"] = list(body.tasks)
    elif isinstance(body, ExecuteTools):
        document["calls"] = [_without_none(attrs.asdict(call, recurse=False)) for call in body.calls]
    elif body.model is not None:
        document["model"] = body.model
    return document


def _without_none(table: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if value is not None}


def decode_disposition(text: str | bytes) -> StepDisposition:
    """Read a step.

    Raises:
        CodecRefused: it is not exactly one; both a terminal and effects are refused.
    """
    table = as_object(parse(text), "")
    kind = read_tag(table, "")
    if kind == TerminalStep.kind:
        return TerminalStep(**read_object(table, "", (Field("terminal", read_terminal),), tags=("kind",)))
    if kind == EffectsStep.kind:
        effects = Field("effects", _read_effects, Need.omitted_when_empty)
        return EffectsStep(**read_object(table, "", (effects,), tags=("kind",)))
    raise CodecRefused(RefusalKind.unknown_variant, "kind", "must be effects or terminal")


def _read_effects(value: Any, at: str) -> tuple[Effect, ...]:
    effects: tuple[Effect, ...] = many(_read_effect)(value, at)
    if (place := _repeated(effects)) is not None:
        raise CodecRefused(
            RefusalKind.policy_violation, f"{at}[{place}]", "its kind or its id stands before it in the same step"
        )
    return effects


def _read_effect(value: Any, at: str) -> Effect:
    fields = (Field("effect_id", identifier), Field("causation_input_id", identifier), Field("effect", _read_body))
    return Effect(**read_object(value, at, fields))


def _read_request(value: Any, at: str) -> ToolRequest:
    fields = (Field("call_id", identifier), Field("name", string), Field("arguments", opaque, Need.optional))
    return ToolRequest(**read_object(value, at, fields))


def _read_milestone(value: Any, at: str) -> dict[str, Any]:
    return read_object(value, at, (Field("contract_id", identifier), Field("phase_id", identifier)))


_BODIES: Final[dict[str, tuple[Callable[..., EffectBody], tuple[Field, ...]]]] = {
    CallProvider.kind: (CallProvider, (Field("model", string, Need.optional),)),
    ExecuteTools.kind: (ExecuteTools, (Field("calls", many(_read_request)),)),
    SpawnTasks.kind: (SpawnTasks, (Field("tasks", many(identifier)),)),
    EvaluateMilestone.kind: (
        lambda request: EvaluateMilestone(**request),
        (Field("request", _read_milestone),),
    ),
}


def _read_body(value: Any, at: str) -> EffectBody:
    table = as_object(value, at)
    kind = read_tag(table, at)
    if kind not in _BODIES:
        raise CodecRefused(RefusalKind.unknown_variant, f"{at}.kind", f"must be one of {', '.join(_BODIES)}")
    make, fields = _BODIES[kind]
    return make(**read_object(table, at, fields, tags=("kind",)))
