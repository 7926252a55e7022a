"""What links a step to the one before it, so that a changed or missing row is seen. Pure.

The digest is taken over what a reader of the file finds in the rows of the step:
its answer, its observations in order, its tokens, and the digest of the step
before. The bytes are canonical JSON: sorted keys, no blanks, characters as they
are in UTF-8; null is not an empty text. Anybody can make them again.

There is no key in it: it shows a mistake and a careless hand, and does not stop
someone who writes the whole chain anew.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, Final

import msgspec

PREFIX: Final = "sha256:"
# 128 bits of it: no two steps meet by accident, and a row stays short.
HEX_DIGITS: Final = 32

# Kind, target, text, and whether bytes in the workspace changed (None: not known).
Seen = tuple[str, str, str, bool | None]

_encode = msgspec.json.Encoder().encode


def step_digest(
    previous: str | None,
    run_id: str,
    step: int,
    text: str | None,
    calls_text: str,
    finish_reason: str | None,
    tokens: int,
    seen: Sequence[Seen],
) -> str:
    """Digest one step; ``previous`` is the digest of the step before it, None for the first.

    ``calls_text`` is the JSON text of the stored answer, and ``seen`` is every
    observation of the step, in order.
    """
    facts = {
        # In sorted order, so that nothing has to sort them.
        "calls": calls_text,
        "finish_reason": finish_reason,
        "previous": previous,
        "run_id": run_id,
        "seen": seen,
        "step": step,
        "text": text,
        "tokens": tokens,
    }
    try:
        canonical = _encode(facts)
    except UnicodeEncodeError:
        canonical = _encode({name: _mended(fact) for name, fact in facts.items()})
    return PREFIX + sha256(canonical).hexdigest()[:HEX_DIGITS]


def _mended(fact: Any) -> Any:
    """Give broken text as the store keeps it, so that the row that is read has the same digest."""
    if isinstance(fact, str):
        return fact.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(fact, (list, tuple)):
        return [_mended(part) for part in fact]
    return fact
