"""Whether somebody reviews who did not do the work, looked at before the first call is made."""

from __future__ import annotations

from actors.agents.contract import TaskContract
from actors.agents.ports import Provider
from actors.agents.review_text import self_review_problem
from actors.agents.verification import Review
from actors.containment.limits import Containment
from actors.containment.prices import OnUnknownPrice, PriceTable

Problems = list[tuple[str, str]]
_REMEDY = "give a model of its own, or write allow_self_review = true in the criterion"


def reviewer_of(contract: TaskContract, provider: Provider, reviewer: Provider | None) -> Provider | None:
    """Give who reviews: the reviewer, or the run's own provider where the operator allows that and names no other."""
    alone = isinstance(contract.verify, Review) and contract.verify.allow_self_review
    return provider if reviewer is None and alone else reviewer


def reviewer_problems(
    contract: TaskContract,
    provider: Provider,
    reviewer: Provider | None,
    containment: Containment,
    prices: PriceTable,
) -> Problems:
    """List why a run cannot be reviewed as it asks to be."""
    verify = contract.verify
    if reviewer is None:
        if not isinstance(verify, Review) or verify.allow_self_review:
            return []
        return [("reviewer", f"is missing, and the criterion is a review: {_REMEDY}")]
    problems: Problems = []
    if not (isinstance(verify, Review) and verify.allow_self_review):
        # Children may be reviewed even where the root is not.
        models = [getattr(provider, "default_model", None), *(each.model for each in contract.agents if each.model)]
        models += [] if contract.routing is None else contract.routing.models.values()
        own = self_review_problem(reviewer, provider, models)
        if own is not None:
            problems.append(("reviewer", f"{own}: {_REMEDY}"))
    needs_price = containment.max_total_cost is not None and contract.on_unknown_price == OnUnknownPrice.refuse
    model = getattr(reviewer, "default_model", None)
    if needs_price and prices.get(model) is None:
        named = model or "the reviewer's own model"
        problems.append((f'prices."{named}"', "is missing, and a cost ceiling is set"))
    return problems
