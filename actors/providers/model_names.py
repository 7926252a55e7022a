"""Model strings: ``provider:model`` and ``provider/model``. Pure.

Names of models hold both separators themselves (``llama3:8b``,
``openai/gpt-4o`` at a gateway), so only a known provider in front of the
first separator is split off, and nothing behind it is looked at.
"""

import re
from collections.abc import Collection
from typing import Final

import attrs

from actors.errors import ConfigError

PROVIDER_KINDS: Final = frozenset({"openai", "anthropic", "openrouter", "compatible", "scripted", "replay"})
_SEPARATOR: Final = re.compile("[:/]")


@attrs.frozen
class ModelName:
    """A model, and the kind of provider it was written with; None when it was written without."""

    provider: str | None
    model: str


def split_model(text: str, kinds: Collection[str] = PROVIDER_KINDS) -> ModelName:
    """Split a model string at its first separator, when a known kind stands in front of it.

    Raises:
        ConfigError: no model is named.
    """
    parts = _SEPARATOR.split(text.strip(), maxsplit=1)
    name = ModelName(parts[0], parts[1]) if len(parts) == 2 and parts[0] in kinds else ModelName(None, text.strip())
    if not name.model.strip():
        raise ConfigError(("model", f"{text!r} names no model: write provider:model, or the model alone"))
    return name
