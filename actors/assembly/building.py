"""The objects that a task file asks for by words."""

from actors.agents.approvals import ApproveAll, DeferAll, DenyAll
from actors.agents.policy import Policy
from actors.agents.ports import Approver
from actors.assembly.task_file import Task


def policy_of(task: Task) -> Policy:
    """Give the policy that a task is under; without one, the default, or none where there is only one file."""
    if task.policy is not None:
        return task.policy
    return Policy.permissive() if task.contract.is_single_file else Policy.default()


def approver_of(mode: str, terminal: Approver) -> Approver:
    """Give who is asked: everybody yes, everybody no, nobody now, or the ``terminal``."""
    who: dict[str, Approver] = {"all": ApproveAll(), "deny": DenyAll(), "defer": DeferAll(), "ask": terminal}
    return who[mode]
