"""Whether the boundary that a run asks for by name can be held here, found out before anything is started."""

import os

from actors.agents.contract import TaskContract
from actors.agents.policy import Policy
from actors.errors import ConfigError
from actors.tools.sandbox import sandbox_problem


def check_boundary(contract: TaskContract, policy: Policy) -> None:
    """Refuse a run whose commands could not be kept where it says.

    Raises:
        ConfigError: the boundary cannot be held; names the key and the remedy.
    """
    root = os.path.realpath(contract.root or contract.file.parent)
    problem = sandbox_problem(contract.exec_sandbox, policy, root)
    if problem is not None:
        raise ConfigError(("contract.exec_sandbox", problem))
