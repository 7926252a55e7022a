"""A streamed answer, put together from the data of its server-sent events. Pure.

A stream is whole only with both a finish reason and ``[DONE]``: a connection
that closes early looks like an ordinary end, and half an answer must not pass
as one. Usage comes in a last chunk whose choices are empty.
"""

from typing import Any, Final

import attrs
import msgspec

from actors.agents.ports import Completion, ToolCall
from actors.containment.usage import Usage
from actors.errors import ProviderError
from actors.providers.chat_wire import load_json, malformed, read_call, read_content, read_usage, read_word
from actors.providers.http_errors import embedded_error

DONE: Final = "[DONE]"
MOST_CALLS: Final = 10_000


@attrs.define
class _Call:
    name: str
    pieces: list[str] = attrs.Factory(list)

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


@attrs.define
class StreamDecoder:
    """Take the data of one event after the other, then give the completion.

    ``usage`` is what was reported so far, None while unknown: an error raised in the
    middle carries it.
    """

    usage: Usage | None = None
    done: bool = False
    _texts: list[str] = attrs.Factory(list)
    _calls: list[_Call] = attrs.Factory(list)
    # The place in `_calls` of each index the endpoint used.
    _places: dict[int, int] = attrs.Factory(dict)
    _model: str | None = None
    _finish_reason: str | None = None

    @property
    def started(self) -> bool:
        """Whether any text or call has come."""
        return bool(self._texts or self._calls)

    def feed(self, data: str) -> bool:
        """Take the data of one event; True when it was the end mark. Events after that are ignored.

        Raises:
            ProviderError: the event is an error, or no chunk of a completion.
        """
        if self.done or not data.strip():
            return self.done
        if data.strip() == DONE:
            self.done = True
            return True
        try:
            self._take(load_json(data.encode("utf-8", "surrogatepass")))
        except ProviderError as error:
            error.usage = error.usage or self.usage
            raise
        return False

    def finish(self) -> Completion:
        """Give the whole answer.

        Raises:
            ProviderError: of kind malformed, with the usage so far: the stream broke off, or was empty.
        """
        if not self.done or self._finish_reason is None:
            raise malformed("the stream ended before its end mark", self.usage)
        if not self.started and self.usage is None:
            raise malformed("the stream was empty", None)
        return Completion(
            text=read_content("".join(self._texts)) if self._texts else None,
            calls=tuple(self._whole(call) for call in self._calls),
            usage=self.usage,
            model=self._model,
            finish_reason=self._finish_reason,
        )

    def _whole(self, call: _Call) -> ToolCall:
        return read_call({"function": {"name": call.name, "arguments": call.arguments}}, self.usage)

    def _take(self, chunk: Any) -> None:
        if not isinstance(chunk, dict):
            raise malformed("a chunk of the stream is no JSON object")
        if chunk.get("error") is not None:
            raise embedded_error(chunk["error"])
        self.usage = read_usage(chunk.get("usage")) or self.usage
        self._model = self._model or read_word(chunk.get("model"))
        choices = chunk.get("choices")
        if not choices:
            return
        choice = choices[0] if isinstance(choices, list) else None
        if not isinstance(choice, dict):
            raise malformed("a chunk of the stream holds no choice")
        self._finish_reason = read_word(choice.get("finish_reason")) or self._finish_reason
        # Only the delta counts: some endpoints repeat the whole message in the last chunk.
        delta = choice.get("delta")
        if delta is None:
            return
        if not isinstance(delta, dict):
            raise malformed("a chunk of the stream holds no delta")
        self._take_delta(delta)

    def _take_delta(self, delta: dict[str, Any]) -> None:
        for key in ("content", "refusal"):
            try:
                # Halves of one character may come in two chunks, so cleaning waits for the whole.
                piece = delta.get(key) if isinstance(delta.get(key), str) else read_content(delta.get(key))
            except ValueError as error:
                raise malformed(str(error)) from None
            if piece:
                self._texts.append(piece)
        calls = delta.get("tool_calls")
        if calls is None:
            return
        if not isinstance(calls, list):
            raise malformed("tool_calls is no list")
        for entry in calls:
            self._take_call(entry)

    def _take_call(self, entry: Any) -> None:
        function = entry.get("function") if isinstance(entry, dict) else None
        if not isinstance(function, dict):
            raise malformed("a piece of a tool call holds no function")
        name, piece = function.get("name"), function.get("arguments")
        name = name if isinstance(name, str) else ""
        piece = piece if isinstance(piece, str) else ""
        call = self._known(entry.get("index"), name, piece)
        if call is None:
            self._begin(entry.get("index"), name, piece)
        # The same call once more, whole, is the final event telling what was streamed.
        elif not (name and piece and (name, piece) == (call.name, call.arguments)):
            call.pieces.append(piece)

    def _known(self, index: Any, name: str, piece: str) -> _Call | None:
        """Find the call that a piece goes on with; None when it begins one."""
        if type(index) is int:
            place = self._places.get(index)
            call = None if place is None else self._calls[place]
        else:
            # Without an index a name begins a call, and a piece without one goes on with the last.
            call = None if name or not self._calls else self._calls[-1]
        if call is None or not (name and piece):
            return call
        # Some endpoints give every call of an answer the same index: a name after a whole object begins another.
        repeats = (name, piece) == (call.name, call.arguments)
        return call if repeats or not _is_object(call.arguments) else None

    def _begin(self, index: Any, name: str, piece: str) -> None:
        if not name:
            raise malformed("a tool call begins without a name")
        if len(self._calls) >= MOST_CALLS:
            raise malformed(f"more than {MOST_CALLS} calls in one answer")
        if type(index) is int:
            self._places[index] = len(self._calls)
        self._calls.append(_Call(name, [piece]))


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False
    return True
