"""A provider that answers as told, without a model and without a socket.

It keeps every request with all its turns (a gigabyte after ten thousand steps of
one agent), and counts what an endpoint would have billed by itself, so that a
test can hold the ledger against it. Time passes on trio's clock only: under a
mock clock a delayed answer comes at its exact second.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Self

import attrs
import trio

from actors.agents.ports import Completion, CompletionRequest, Estimate, ToolCall
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError
from actors.providers.estimates import raw_prompt_tokens
from actors.providers.script_file import ANSWER_KEYS, AnswerBook, ScriptedAnswer, call_pairs, goal_of, load_script

NOTHING: Final = Usage()
Calls = Sequence[tuple[str, Any] | ToolCall]


class Scripted:
    """Give call i the i-th answer, and an empty answer after the end.

        Scripted([[("write_file", {"path": "a", "content": "x"})], ScriptedAnswer(text="done")])

    An answer is a `ScriptedAnswer`, or only its calls: pairs of a tool's name and its
    arguments. Answers with ``when`` go to requests whose goal holds that text (see
    `script_file`). The model that serves is the one asked for, else ``model``.
    ``usage`` and ``delay`` are those of the answers given by their calls only.
    """

    def __init__(
        self,
        answers: Sequence[ScriptedAnswer | Calls] = (),
        *,
        name: str = "scripted",
        model: str = "configured-model",
        usage: Usage | None = NOTHING,
        delay: float = 0.0,
    ) -> None:
        plain = ScriptedAnswer(usage=usage, delay=delay)
        self._book = AnswerBook([_as_answer(answer, place, plain) for place, answer in enumerate(answers)])
        self._name = name
        self._model = model
        self.requests: list[CompletionRequest] = []
        self.billed_tokens = 0
        self.working = 0
        self.peak = 0

    @classmethod
    def from_file(cls, path: str | Path, *, name: str = "scripted", model: str = "configured-model") -> Self:
        """Read a script file.

        Raises:
            ConfigError: it cannot be read, or it holds something unknown; all problems, with their paths.
        """
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ConfigError((str(path), f"cannot be read: {error}")) from error
        return cls(load_script(text, str(path), ANSWER_KEYS, ScriptedAnswer), name=name, model=model)

    def __repr__(self) -> str:
        return f"Scripted({self._name!r}, {len(self.requests)} calls, {len(self._book)} answers left)"

    @property
    def name(self) -> str:
        """Name the provider in rows and messages."""
        return self._name

    @property
    def takes_effort(self) -> bool:
        """Say that ``effort`` is taken, as a model is: it is kept with the request, and changes no answer."""
        return True

    @property
    def default_model(self) -> str:
        """Give the model that serves when a request names none."""
        return self._model

    @property
    def endpoint(self) -> None:
        """Say that no connection is opened."""
        return

    @property
    def calls(self) -> int:
        """Count the calls that arrived, failed ones too."""
        return len(self.requests)

    def skip(self, goal: str) -> None:
        """Strike out the next answer for a goal: a process that is gone was given it."""
        self._book.take(goal)

    def estimate(self, request: CompletionRequest) -> Estimate:
        """Give the total of the answer this request would get next.

        It is exact while nobody with the same goal asks in between. An answer without
        usage is estimated from the request, as at a real endpoint.
        """
        answer = self._book.peek(goal_of(request)) or ScriptedAnswer()
        usage = _cost(answer)
        if usage is None:
            return Estimate(raw_prompt_tokens(request), request.max_output_tokens)
        return Estimate(usage.prompt_tokens, usage.tokens - usage.prompt_tokens)

    async def complete(self, request: CompletionRequest) -> Completion:
        """Give the next answer, after its delay.

        Checkpoint: always.
        Cancellation: the answer is used up and counts as billed, as an endpoint may do.

        Raises:
            ProviderError: the script says so.
        """
        self.requests.append(request)
        # Taken before the first await, so answers go out in the order the calls came in.
        answer = self._book.take(goal_of(request)) or ScriptedAnswer()
        usage = _cost(answer)
        self.billed_tokens += usage.tokens if usage is not None else 0
        self.working += 1
        self.peak = max(self.peak, self.working)
        try:
            if answer.hang:
                await trio.sleep_forever()
            await trio.sleep(answer.delay)
        finally:
            self.working -= 1
        if answer.error is not None:
            raise _again(answer.error)
        return Completion(
            text=answer.text,
            calls=answer.calls,
            usage=answer.usage,
            model=request.model or self._model,
            finish_reason=answer.finish_reason or ("tool_calls" if answer.calls else "stop"),
        )


def _as_answer(answer: ScriptedAnswer | Calls, place: int, plain: ScriptedAnswer) -> ScriptedAnswer:
    try:
        if isinstance(answer, ScriptedAnswer):
            # The record may have been written with plain pairs.
            return attrs.evolve(answer, calls=call_pairs(answer.calls))
        return attrs.evolve(plain, calls=call_pairs(answer))
    except TypeError as error:
        raise ConfigError((f"answers[{place}]", str(error))) from error
    except ConfigError as error:
        raise ConfigError(*((f"answers[{place}].calls{path}", text) for path, text in error.problems)) from error


def _cost(answer: ScriptedAnswer) -> Usage | None:
    """Give what an answer costs, told or untold; None when the script leaves it open."""
    told = answer.error.usage if answer.error is not None else None
    return told if isinstance(told, Usage) else answer.usage


def _again(error: ProviderError) -> ProviderError:
    """Copy an error: one that is raised twice would collect the tracebacks of both."""
    return ProviderError(
        error.kind, error.message, status=error.status, retry_after=error.retry_after, usage=error.usage
    )
