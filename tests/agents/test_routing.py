"""Which model is asked is decided from the request and from the checks alone, and the stronger model wins."""

import json

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.agents.contract import TaskContract
from actors.agents.past import PastAgent, PastAnswer, PastStep
from actors.agents.ports import AssistantTurn, CompletionRequest, ResultsTurn, ToolCall, ToolSpec, UserTurn
from actors.agents.routing import Route, Routing, Why, request_bytes, route
from actors.errors import ConfigError

BOTH = Routing(escalate_after=2, escalate_to="strong", downshift_under=50, downshift_to="small")
SHORT = CompletionRequest("s" * 10, (UserTurn("u" * 10),), model="own")
LONG = attrs.evolve(SHORT, turns=(UserTurn("u" * 40),))


@pytest.mark.parametrize(
    ("routing", "request_", "non_passes", "expected"),
    [
        (BOTH, LONG, 0, Route("own", Why.own)),
        (BOTH, LONG, 1, Route("own", Why.own)),
        (BOTH, LONG, 2, Route("strong", Why.escalated)),
        (BOTH, LONG, 3, Route("strong", Why.escalated)),
        (BOTH, SHORT, 1, Route("small", Why.downshifted)),
        # Both apply: the stronger one is asked.
        (BOTH, SHORT, 2, Route("strong", Why.escalated)),
        (Routing(downshift_under=50, downshift_to="small"), SHORT, 9, Route("small", Why.downshifted)),
        (Routing(escalate_after=1, escalate_to="strong"), SHORT, 0, Route("own", Why.own)),
        (BOTH, attrs.evolve(LONG, model=None), 0, Route(None, Why.own)),
    ],
)
def test_the_model_follows_from_the_checks_and_the_size(
    routing: Routing, request_: CompletionRequest, non_passes: int, expected: Route
) -> None:
    assert route(routing, request_, non_passes) == expected


def test_a_request_of_exactly_so_many_bytes_is_not_under() -> None:
    assert request_bytes(LONG) == 50
    assert route(BOTH, LONG, 0).why is Why.own
    assert route(attrs.evolve(BOTH, downshift_under=51), LONG, 0).why is Why.downshifted


@given(st.text(), st.text(), st.lists(st.text(), max_size=3), st.text(max_size=5), st.text(max_size=5))
def test_the_size_is_that_of_every_text_a_model_reads(
    system: str, said: str, results: list[str], name: str, arguments: str
) -> None:
    tool = ToolSpec(name, said, {"type": "object", "title": system})
    turns = (UserTurn(said), AssistantTurn(None, (ToolCall(name, arguments),)), ResultsTurn(tuple(results)))
    texts = [system, said, name, arguments, *results, name, said, json.dumps(tool.parameters, ensure_ascii=False)]
    request = CompletionRequest(system, turns, (tool,))
    # Twice: what is known of a turn must be the same as what was found first.
    assert [request_bytes(request)] * 2 == [len("".join(texts).encode()), request_bytes(request)]


def test_half_a_character_fails_no_size() -> None:
    assert request_bytes(CompletionRequest("\ud800a", ())) == 2


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"escalate_after": 1}, "escalate_after and escalate_to go together"),
        ({"escalate_to": "m"}, "escalate_after and escalate_to go together"),
        ({"downshift_under": 9, "escalate_after": 1, "escalate_to": "m"}, "downshift_under and downshift_to go together"),
        ({}, "says nothing"),
        ({"escalate_after": 0, "escalate_to": "m"}, "escalate_after must be at least 1"),
        ({"escalate_after": True, "escalate_to": "m"}, "escalate_after must be a whole number"),
        ({"downshift_under": 9, "downshift_to": " "}, "downshift_to must not be blank"),
        ({"downshift_under": 9, "downshift_to": "a\nb"}, "downshift_to must be 1 to 200 printable"),
    ],
)
def test_half_a_rule_is_refused_by_name_in_python_and_in_a_file(fields: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Routing(**fields)  # type: ignore[arg-type]
    with pytest.raises(ConfigError) as refused:
        TaskContract.from_dict({"goal": "g", "root": "r", "routing": fields})
    assert text.split(" ", 1)[1] in str(refused.value) and "contract.routing" in str(refused.value)


def test_a_key_that_nobody_knows_is_refused() -> None:
    plain = {"escalate_after": 1, "escalate_to": "m", "require_primary": True}
    with pytest.raises(ConfigError, match=r"contract\.routing\.require_primary"):
        TaskContract.from_dict({"goal": "g", "root": "r", "routing": plain})


def test_the_rules_survive_being_written_down_and_are_left_out_when_there_are_none() -> None:
    contract = TaskContract.workspace("g", "r").with_routing(BOTH)
    assert TaskContract.from_dict(json.loads(json.dumps(contract.to_dict()))) == contract
    assert contract.with_routing(None).to_dict()["routing"] is None


# ── what a process before this one left ─────────────────────────────────────


def past(*gates: str | None, pending: bool = False, attempts: int = 0, taken_over: int = 0) -> PastAgent:
    steps = tuple(PastStep(number, None, (), None, (), (), gate) for number, gate in enumerate(gates, 1))
    answer = PastAnswer(len(gates) + 1, None, (), None, (), 0) if pending else None
    return PastAgent("root", 0.0, steps, answer, attempts=attempts, taken_over=taken_over)


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (past(), 0),
        (past("failed", "errored", pending=True), 2),
        (past("failed", "failed", attempts=1), 2),
        # The last verdict stands, and whether the work goes on from it is decided once more.
        (past("failed", "failed"), 1),
        (past("failed", None), 1),
        (past("failed", "passed", "failed", pending=True), 1),
        # The steps of a run that was reopened were judged there.
        (past(None, None, "failed", pending=True, taken_over=2), 1),
    ],
)
def test_the_checks_that_did_not_pass_are_counted_from_what_stands(agent: PastAgent, expected: int) -> None:
    assert agent.non_passes == expected
