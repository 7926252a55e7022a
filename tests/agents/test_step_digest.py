"""The digest of a step: which bytes it is taken over, and what changes it."""

import json
from hashlib import sha256
from typing import Any

import attrs
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.ports import ObservationKind
from actors.agents.step_digest import step_digest

SEEN = ((ObservationKind.read, "a.txt", "1: x", False), ("child", "root/1.1", "ended", None))


@attrs.frozen
class Step:
    """What is digested."""

    previous: str | None = "sha256:ab"
    run_id: str = "abc/1.1"
    step: int = 2
    text: str | None = "so"
    calls_text: str = '[["read_file", "{}"]]'
    finish_reason: str | None = "tool_calls"
    tokens: int = 100
    seen: Any = SEEN

    def digest(self) -> str:
        return step_digest(**attrs.asdict(self, recurse=False))


def by_hand(step: Step) -> str:
    facts = attrs.asdict(step, recurse=False)
    facts["calls"] = facts.pop("calls_text")
    canonical = json.dumps(facts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return "sha256:" + sha256(canonical.encode()).hexdigest()[:32]


texts = st.text(max_size=8)


@given(
    st.builds(
        Step,
        previous=st.none() | texts,
        run_id=texts,
        step=st.integers(0, 2**40),
        text=st.none() | texts,
        calls_text=texts,
        finish_reason=st.none() | texts,
        tokens=st.integers(0, 2**63 - 1),
        seen=st.lists(st.tuples(texts, texts, texts, st.none() | st.booleans()), max_size=3),
    )
)
def test_anybody_can_make_the_bytes_again_with_plain_json(step: Step) -> None:
    assert step.digest() == by_hand(step)


def test_control_and_other_characters_are_written_as_plain_json_writes_them() -> None:
    every = "".join(map(chr, range(0x500)))
    assert Step(text=every).digest() == by_hand(Step(text=every))


def test_a_small_change_anywhere_is_another_digest() -> None:
    steps = [
        Step(),
        Step(previous=None),
        Step(previous=""),
        Step(run_id="abc/1.2"),
        Step(step=3),
        Step(text=None),
        Step(text=""),
        Step(calls_text="[]"),
        Step(finish_reason=None),
        Step(finish_reason=""),
        Step(tokens=101),
        Step(seen=SEEN[:1]),
        Step(seen=SEEN[::-1]),
        Step(seen=(("read", "a.txt", "1: x", True), SEEN[1])),
        Step(seen=(("read", "a.txt", "1: x", None), SEEN[1])),
        Step(seen=(("read", "a.txt1: x", "", False), SEEN[1])),
    ]
    assert len({step.digest() for step in steps}) == len(steps)


def test_a_kind_is_digested_as_its_word() -> None:
    assert Step().digest() == Step(seen=(("read", "a.txt", "1: x", False), SEEN[1])).digest()


def test_broken_text_has_the_digest_of_what_the_store_keeps_of_it() -> None:
    assert Step(text="a\ud800b").digest() == Step(text="a\ufffdb").digest()
    assert (
        Step(seen=[("read", "\ud83d\ude00", "x", False)]).digest() == Step(seen=[("read", "😀", "x", False)]).digest()
    )


def test_a_digest_is_short_and_names_its_kind() -> None:
    digest = Step().digest()
    assert digest.startswith("sha256:") and len(digest) == len("sha256:") + 32
