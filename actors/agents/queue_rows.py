"""The rows of an agent that waits for its first slot: who made it, by which call."""

from actors.agents.agent import Agent
from actors.agents.rows import QueueEntered, QueueLeft


def queue_rows(agent: Agent) -> QueueEntered:
    """Give the row of an agent that waits for its first slot."""
    assert isinstance(agent.parent, Agent)
    step, ordinal = agent.place
    return QueueEntered(agent.parent.run_id, step, ordinal or _tail(agent), agent.about.goal, agent.depth)


def left_queue_row(agent: Agent) -> QueueLeft:
    """Give the row that takes an agent out of the queue."""
    assert isinstance(agent.parent, Agent)
    step, ordinal = agent.place
    return QueueLeft(agent.parent.run_id, step, ordinal or _tail(agent))


def _tail(agent: Agent) -> int:
    return int(agent.path.rpartition("/")[2])
