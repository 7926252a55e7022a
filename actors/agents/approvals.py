"""Who answers without a human: the built-in approvers and responders.

Only what the policy says ask about reaches an approver; what it denies never
does. An answer of `ApproveAll` is an approval of that one act, not a rule.
"""

import attrs
import trio

from actors.agents.ports import Approval, ApprovalRequest, Defer


@attrs.frozen
class ApproveAll:
    """Approve every act that is asked about. For tests, and for a workspace that may be thrown away."""

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Approve.

        Checkpoint: always.
        Cancellation: nothing was decided, and the act is not done.
        """
        await trio.lowlevel.checkpoint()
        return Approval(True)


@attrs.frozen
class DenyAll:
    """Deny every act that is asked about; the model reads ``reason``."""

    reason: str = "denied"

    async def decide(self, request: ApprovalRequest) -> Approval:
        """Deny with the reason.

        Checkpoint: always.
        Cancellation: nothing was decided, and the act is not done.
        """
        await trio.lowlevel.checkpoint()
        return Approval(False, self.reason)


@attrs.frozen
class DeferAll:
    """Put every question off: it waits in the store until somebody decides it, from whichever process."""

    async def decide(self, request: ApprovalRequest) -> Defer:
        """Answer nothing now.

        Checkpoint: always.
        Cancellation: nothing was decided, and the act is not done.
        """
        await trio.lowlevel.checkpoint()
        return Defer()


@attrs.frozen
class FixedResponder:
    """Answer every question of an agent with one text. An answer grants nothing."""

    text: str

    async def answer(self, question: object) -> str:
        """Give the text, whatever was asked.

        Checkpoint: always.
        Cancellation: the question stays unanswered.
        """
        await trio.lowlevel.checkpoint()
        return self.text
