"""What a call to a model costs at most, and what it has cost. Pure.

The model is the one that was asked for, else the provider's own; what was served
has its own price if there is one.
"""

from actors.agents.model_input import estimate_of
from actors.agents.ports import CompletionRequest, Provider
from actors.containment.ledger_state import Quote
from actors.containment.prices import PriceTable
from actors.containment.usage import Usage


def quote_of(provider: Provider, request: CompletionRequest, prices: PriceTable, *, needs_price: bool) -> Quote:
    """Give the worst case of a call; unpriced where no price is known and one is needed."""
    estimate = estimate_of(provider, request)
    price = prices.get(priced_model(provider, request.model))
    figures = (estimate.prompt_tokens, estimate.output_tokens, estimate.minimal_output)
    return Quote(*figures, priced=not needs_price) if price is None else price.quote(*figures)


def cost_of(
    provider: Provider, usage: Usage | None, served: str | None, prices: PriceTable, asked: str | None = None
) -> int:
    """Give what was billed, in microdollars."""
    price = prices.get(served) or prices.get(priced_model(provider, asked))
    return 0 if price is None or usage is None else price.cost(usage)


def priced_model(provider: Provider, asked: str | None) -> str | None:
    """Name the model whose price counts; None when it has no name."""
    return asked or getattr(provider, "default_model", None)
