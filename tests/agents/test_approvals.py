"""The built-in answers, to approvals and to questions."""

import pytest
import trio

from actors.agents.approvals import ApproveAll, DenyAll, FixedResponder
from actors.agents.ports import Act, Approval, ApprovalRequest, Approver

REQUEST = ApprovalRequest(Act.write, "a.txt", "text", "write it", "root", "*", "operator")


async def test_approve_all_approves_and_deny_all_gives_its_reason():
    approvers: list[Approver] = [ApproveAll(), DenyAll(), DenyAll(reason="not on a Friday")]
    answers = [await approver.decide(REQUEST) for approver in approvers]
    assert answers == [Approval(True), Approval(False, "denied"), Approval(False, "not on a Friday")]


async def test_a_fixed_responder_gives_its_text_whatever_is_asked():
    responder = FixedResponder("use port 8080")
    assert [await responder.answer(question) for question in ("which port?", None)] == ["use port 8080"] * 2


@pytest.mark.parametrize(
    "ask",
    [lambda: ApproveAll().decide(REQUEST), lambda: DenyAll().decide(REQUEST), lambda: FixedResponder("x").answer("?")],
)
async def test_nothing_is_decided_under_a_cancelled_scope(ask):
    decided = []
    with trio.CancelScope() as scope:
        scope.cancel()
        decided.append(await ask())
    assert scope.cancelled_caught
    assert decided == []
