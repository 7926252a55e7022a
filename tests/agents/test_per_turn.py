"""What is worked out for a turn is worked out once, and forgotten with it."""

import gc

from actors.agents.per_turn import PerTurn
from actors.agents.ports import UserTurn


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
