"""How long to wait before a model is asked again. Pure: the agent loop sleeps, and draws the jitter."""

import math

import attrs


def retry_delay(retry: int, *, base: float, max: float, retry_after: float | None = None, jitter: float = 0.0) -> float:
    """Give the seconds to wait before retry number ``retry``, from 1.

    What the endpoint asked for stands as it is, even above ``max``: earlier would be
    refused again. Else ``base`` doubles with each retry up to ``max``, and grows by the
    share ``jitter`` (0 to 1, drawn by the caller), so that siblings do not come back
    in one instant.
    """
    if retry_after is not None and math.isfinite(retry_after) and retry_after >= 0:
        return retry_after
    # Past 2^60 the product is beyond any cap; a float would overflow at 1,024.
    grown = base * 2.0 ** min(retry - 1, 60)
    return min(grown, max) * (1.0 + jitter)


@attrs.define
class RateGate:
    """Until when each provider asked to be left alone: one 429 slows all who share it.

    Keys are the caller's, one for each provider and key of its account; times are on
    the caller's clock. A passed time is forgotten when it is looked at, so there are
    never more entries than providers.
    """

    _until: dict[str, float] = attrs.Factory(dict)

    def note(self, key: str, until: float) -> None:
        """Close the gate of one provider until then. A time before the one that stands changes nothing."""
        self._until[key] = max(until, self._until.get(key, -math.inf))

    def wait_needed(self, key: str, now: float) -> float:
        """Give the seconds until the provider may be asked; 0 when it may be asked now."""
        until = self._until.get(key)
        if until is None:
            return 0.0
        if until <= now:
            del self._until[key]
            return 0.0
        return until - now
