"""Each turn is measured once, and what is sent is what it was without that."""

import gc

from actors.agents.model_input import estimate_of
from actors.agents.per_turn import PerTurn
from actors.agents.ports import CompletionRequest, ResultsTurn, UserTurn
from actors.agents.prompt import fitted


def test_each_turn_is_worked_out_once_and_forgotten_with_it() -> None:
    asked: list[str] = []

    def size(turn: UserTurn) -> int:
        asked.append(turn.text)
        return len(turn.text)

    known = PerTurn(size)
    turns = [UserTurn("one"), UserTurn("one"), UserTurn("three")]
    assert [known(turn) for turn in (*turns, *turns)] == [3, 3, 5, 3, 3, 5]
    assert asked == ["one", "one", "three"]
    del turns
    gc.collect()
    assert known._known == {}


def test_a_long_transcript_costs_only_its_new_turns() -> None:
    class Nobody:
        name = "nobody"

    turns = [UserTurn("go"), *(ResultsTurn((f"{number} " + "x" * 2_000,)) for number in range(200))]
    first, again = fitted(turns, 10_000), fitted(turns, 10_000)
    # The very objects: what was cut once is not cut, nor measured, again.
    assert all(one is other for one, other in zip(first, again, strict=True))
    assert len(first[1].texts[0]) < 2_000 and first[-1] is turns[-1]  # type: ignore[union-attr]
    request = CompletionRequest("system", first, (), None, 100, None)
    size = len(b"system") + sum(len(repr(turn).encode()) for turn in first)
    for _ in range(2):
        assert estimate_of(Nobody(), request).prompt_tokens == size // 3 + 8 * (len(first) + 1)  # type: ignore[arg-type]
