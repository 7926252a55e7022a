"""The ``[provider]`` table of a task file, and the provider that it asks for."""

from enum import StrEnum
from typing import Final

import attrs

from actors.agents.judged_fields import as_member, judged, optional, said_problem
from actors.agents.ports import Provider
from actors.errors import ConfigError
from actors.providers.openai_chat import OpenAIChat
from actors.providers.scripted import Scripted

# The model that a script answers as when the task names none.
SCRIPTED_MODEL: Final = "configured-model"


class ProviderKind(StrEnum):
    """Where answers come from."""

    openai = "openai"
    anthropic = "anthropic"
    openrouter = "openrouter"
    compatible = "compatible"
    scripted = "scripted"
    replay = "replay"


SUPPORTED_PROVIDERS: Final = frozenset({ProviderKind.openai, ProviderKind.compatible, ProviderKind.scripted})


def _kind_problem(value: object) -> str | None:
    """Judge a kind of provider. One that is known and does not work yet is told apart from a word that is none."""
    words = ", ".join(sorted(SUPPORTED_PROVIDERS))
    return None if isinstance(value, ProviderKind) else f"must be one of {words}, not {value!r}"


@attrs.frozen
class ProviderSpec:
    """The ``[provider]`` table."""

    kind: ProviderKind = judged(_kind_problem, converter=as_member(ProviderKind))
    model: str | None = judged(optional(said_problem), None)
    base_url: str | None = judged(optional(said_problem), None)
    script: str | None = judged(optional(said_problem), None)


def provider_of(spec: ProviderSpec) -> Provider:
    """Make the provider that a task names.

    Raises:
        ConfigError: it cannot be made: a script that is not there, an address that is none, a key that is missing.
    """
    if spec.kind == "scripted":
        assert spec.script is not None, "the task file was checked"
        return Scripted.from_file(spec.script, model=spec.model or SCRIPTED_MODEL)
    if spec.kind in ("openai", "compatible"):
        return OpenAIChat(spec.base_url, model=spec.model, name=spec.kind)
    raise ConfigError(("provider.kind", f"{spec.kind!r} is not supported by this version"))
