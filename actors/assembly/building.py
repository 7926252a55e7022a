"""The objects that a task file asks for by words."""

from actors.agents.approvals import ApproveAll, DenyAll
from actors.agents.policy import Policy
from actors.agents.ports import Approver, Provider
from actors.assembly.task_file import ProviderSpec, Task
from actors.errors import ConfigError
from actors.providers.openai_chat import OpenAIChat
from actors.providers.scripted import Scripted

# The model that a script answers as when the task names none.
SCRIPTED_MODEL = "configured-model"


def provider_of(spec: ProviderSpec) -> Provider:
    """Make the provider that a task names.

    Raises:
        ConfigError: it cannot be made: a script that is not there, an address that is none, a key that is missing.
    """
    if spec.kind == "scripted":
        assert spec.script is not None, "the task file was checked"
        return Scripted.from_file(spec.script, model=spec.model or SCRIPTED_MODEL)
    if spec.kind in ("openai", "compatible"):
        return OpenAIChat(spec.base_url, model=spec.model, name=spec.kind)
    raise ConfigError(("provider.kind", f"{spec.kind!r} is not supported by this version"))


def policy_of(task: Task) -> Policy:
    """Give the policy that a task is under; without one, the default."""
    return Policy.default() if task.policy is None else task.policy


def approver_of(mode: str, terminal: Approver) -> Approver:
    """Give who is asked: everybody yes, everybody no, or the ``terminal``."""
    who: dict[str, Approver] = {"all": ApproveAll(), "deny": DenyAll(), "ask": terminal}
    return who[mode]
