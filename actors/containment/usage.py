"""What one model call used, as the endpoint reported it.

Absent is not zero: where usage is unknown there is no `Usage` at all, and the
call is charged at its reservation and marked estimated.
"""

import attrs

from actors.containment.amounts import exact


@attrs.frozen
class Usage:
    """Token counts of one call.

    ``cache_read_tokens`` and ``cache_write_tokens`` are parts of
    ``prompt_tokens``; ``reasoning_tokens`` is part of ``completion_tokens``.
    ``total_tokens`` is as reported, 0 when the endpoint gave no total.
    """

    prompt_tokens: int = attrs.field(default=0, validator=exact)
    completion_tokens: int = attrs.field(default=0, validator=exact)
    total_tokens: int = attrs.field(default=0, validator=exact)
    cache_read_tokens: int = attrs.field(default=0, validator=exact)
    cache_write_tokens: int = attrs.field(default=0, validator=exact)
    reasoning_tokens: int = attrs.field(default=0, validator=exact)
    server_tool_requests: int = attrs.field(default=0, validator=exact)

    @property
    def tokens(self) -> int:
        """Count what the ledger charges: the reported total, never less than prompt and completion."""
        return max(self.total_tokens, self.prompt_tokens + self.completion_tokens)

    def __add__(self, other: "Usage") -> "Usage":
        """Add two usages field by field. A missing total counts as prompt plus completion."""
        return Usage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            self.tokens + other.tokens,
            self.cache_read_tokens + other.cache_read_tokens,
            self.cache_write_tokens + other.cache_write_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            self.server_tool_requests + other.server_tool_requests,
        )
