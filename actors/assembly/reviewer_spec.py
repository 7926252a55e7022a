"""The ``[reviewer]`` table of a task file, held against the rest of it."""

from __future__ import annotations

from actors.agents.contract import TaskContract
from actors.agents.review_text import same_model
from actors.agents.verification import Review
from actors.assembly.provider_spec import ProviderKind, ProviderSpec, model_of

Problems = list[tuple[str, str]]
_ALONE = "contract.verify.allow_self_review = true"


def review_problems(
    contract: TaskContract, provider: ProviderSpec | None, reviewer: ProviderSpec | None, written: bool
) -> Problems:
    """List why a task cannot be reviewed as it asks to be. What a replay answers as is looked at when it runs."""
    verify = contract.verify
    is_review = isinstance(verify, Review)
    alone = isinstance(verify, Review) and verify.allow_self_review
    if not written:
        if not is_review or alone:
            return []
        text = f"is required: the criterion is a review; write a [reviewer] table, or {_ALONE}"
        return [("reviewer", text)]
    if reviewer is None or provider is None:
        return []
    problems: Problems = []
    opens = (ProviderKind.replay, ProviderKind.scripted)
    if provider.kind is ProviderKind.replay and reviewer.kind not in opens:
        text = f"a replay opens no connection, and {reviewer.kind} does; use one of replay, scripted"
        problems.append(("reviewer.kind", text))
    if alone or ProviderKind.replay in (provider.kind, reviewer.kind):
        return problems
    models = {"provider.model": model_of(provider)}
    models |= {f"agents.{agent.name}.model": agent.model for agent in contract.agents if agent.model is not None}
    if contract.routing is not None:
        models |= {f"contract.routing.{field}": model for field, model in contract.routing.models.items()}
    own = model_of(reviewer)
    if own is None:
        return [*problems, ("reviewer.model", "is required: a reviewer must be told from who did the work")]
    for place, model in models.items():
        if model is None:
            problems.append((place, "is required: the reviewer must be told from who did the work"))
        elif same_model(model, own):
            text = f"is {own}, which does the work ({place}); name another, or write {_ALONE}"
            problems.append(("reviewer.model", text))
    return problems
