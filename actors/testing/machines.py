"""A machine that can do what a test says, in place of the one that it runs on."""

from actors.tools.sandbox_plan import Capabilities


class Machine:
    """Stands for `actors.tools.sandbox.detect`: a machine that can do what is said, and has been asked before."""

    currsize = 1

    def __init__(self, can: Capabilities) -> None:
        self._can = can

    def __call__(self) -> Capabilities:
        """Tell what it can do."""
        return self._can

    def cache_info(self) -> "Machine":
        """Tell that it has been asked."""
        return self
