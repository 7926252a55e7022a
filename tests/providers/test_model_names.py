"""A provider's kind is split off at the first separator, and nothing else is."""

import pytest

from actors.errors import ConfigError
from actors.providers.model_names import ModelName, split_model


@pytest.mark.parametrize(
    ("text", "provider", "model"),
    [
        ("openai:gpt-5.6", "openai", "gpt-5.6"),
        ("openai/gpt-5.6", "openai", "gpt-5.6"),
        (" openai:gpt-5.6 ", "openai", "gpt-5.6"),
        ("openrouter/openai/gpt-4o", "openrouter", "openai/gpt-4o"),
        ("compatible:llama3:8b", "compatible", "llama3:8b"),
        ("openai/gpt:x/y", "openai", "gpt:x/y"),
        ("llama3:8b", None, "llama3:8b"),
        ("meta/llama:70b", None, "meta/llama:70b"),
        ("gpt-5.6", None, "gpt-5.6"),
        ("openai", None, "openai"),
        (":x", None, ":x"),
    ],
)
def test_a_model_string_splits_at_the_first_separator_of_a_known_kind(text, provider, model):
    assert split_model(text) == ModelName(provider, model)


@pytest.mark.parametrize("text", ["", "  ", "openai:", "openai/ "])
def test_a_string_without_a_model_is_refused(text):
    with pytest.raises(ConfigError, match="names no model"):
        split_model(text)
