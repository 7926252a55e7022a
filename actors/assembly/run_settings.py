"""The ``[run]`` table of a task file, and the tables that a task file may have."""

from enum import StrEnum
from typing import Final

import attrs

from actors.agents.judged_fields import as_float, as_member, flag_problem, judged, one_of, optional, seconds_problem

TABLES: Final = ("contract", "containment", "provider", "policy", "prices", "run", "agents", "reviewer")


class ApproveMode(StrEnum):
    """Who answers where the policy says ask."""

    ask = "ask"
    all = "all"
    deny = "deny"
    # Nobody now: the question waits, for ever if need be, and is answered from any process.
    defer = "defer"


@attrs.frozen
class RunSettings:
    """The ``[run]`` table. ``approve`` None asks on a terminal and denies elsewhere.

    ``agents_from_files``: a tree also has the named agents that its workspace brings along in files.
    """

    cleanup_allowance: float = judged(seconds_problem, 5.0, converter=as_float)
    approve: ApproveMode | None = judged(optional(one_of(ApproveMode)), None, converter=as_member(ApproveMode))
    agents_from_files: bool = judged(flag_problem, True)
