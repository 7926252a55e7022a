"""The ``[provider]`` table of a task file, and the provider that it asks for."""

import json
import os
from collections.abc import Iterable
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
# The keys of the table that name a file.
PATHS: Final = ("script", "file", "record")


class ProviderKind(StrEnum):
    """Where answers come from."""

    openai = "openai"
    anthropic = "anthropic"
    openrouter = "openrouter"
    compatible = "compatible"
    scripted = "scripted"
    replay = "replay"


SUPPORTED_PROVIDERS: Final = frozenset(
    {ProviderKind.openai, ProviderKind.compatible, ProviderKind.scripted, ProviderKind.replay}
)


def _kind_problem(value: object) -> str | None:
    """Judge a kind of provider. One that is known and does not work yet is told apart from a word that is none."""
    words = ", ".join(sorted(SUPPORTED_PROVIDERS))
    return None if isinstance(value, ProviderKind) else f"must be one of {words}, not {value!r}"


@attrs.frozen
class ProviderSpec:
    """The ``[provider]`` table. ``file`` is what a replay answers from, ``record`` what any kind is recorded into."""

    kind: ProviderKind = judged(_kind_problem, converter=as_member(ProviderKind))
    model: str | None = judged(optional(said_problem), None)
    base_url: str | None = judged(optional(said_problem), None)
    script: str | None = judged(optional(said_problem), None)
    file: str | None = judged(optional(said_problem), None)
    record: str | None = judged(optional(said_problem), None)


def model_of(spec: ProviderSpec) -> str | None:
    """Name the model that answers an agent without one of its own; None when the task does not say."""
    return spec.model or (SCRIPTED_MODEL if spec.kind is ProviderKind.scripted else None)


def provider_of(spec: ProviderSpec, *, going_on: bool = False, answered: Iterable[str] = ()) -> Provider:
    """Make the provider that a task names. ``going_on`` continues a recording, for a run that is resumed.

    ``answered`` are the tasks to which answers were given before: a script goes on behind them. All others
    answer from what they are asked.

    Raises:
        ConfigError: it cannot be made: a script that is not there, an address that is none, a key that is missing.
    """
    provider = _asked(spec)
    if isinstance(provider, Scripted):
        for goal in answered:
            provider.skip(goal)
    if spec.record is None:
        return provider
    # Loaded where it is asked for, as the replay is: most runs are neither recorded nor replayed.
    from actors.providers.recording_provider import RecordingProvider

    try:
        return RecordingProvider(provider, spec.record, going_on=going_on)
    except ConfigError as error:
        raise _at("provider.record", error) from None


def recording_overrides(record: str | None, replay: str | None) -> tuple[str, ...]:
    """Give the overrides of a task that record a run, or replay one, with files of the folder we are in."""
    found = []
    if replay is not None:
        # Its own table: what the task says of a model or an address is not for a replay.
        file = json.dumps(os.path.abspath(replay), ensure_ascii=False)
        found.append(f'provider={{ kind = "replay", file = {file} }}')
    if record is not None:
        found.append(f"provider.record={os.path.abspath(record)}")
    return tuple(found)


def _at(key: str, error: ConfigError) -> ConfigError:
    return ConfigError(*((key, f"{place}: {text}") for place, text in error.problems))


def _asked(spec: ProviderSpec) -> Provider:
    if spec.kind == "scripted":
        assert spec.script is not None, "the task file was checked"
        return Scripted.from_file(spec.script, model=spec.model or SCRIPTED_MODEL)
    if spec.kind == "replay":
        from actors.providers.replay_provider import ReplayProvider

        assert spec.file is not None, "the task file was checked"
        try:
            return ReplayProvider(spec.file)
        except ConfigError as error:
            raise _at("provider.file", error) from None
    if spec.kind in ("openai", "compatible"):
        return OpenAIChat(spec.base_url, model=spec.model, name=spec.kind)
    raise ConfigError(("provider.kind", f"{spec.kind!r} is not supported by this version"))
