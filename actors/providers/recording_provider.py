"""A provider that writes down what another one is asked and answers, so that a run can be replayed.

Nothing is paid that cannot be kept: a request is refused before it leaves while the file takes no more, and an
answer that came meanwhile is kept in memory, and written before the next request.

Each exchange is one line, handed to the system in one piece and in the running step: a process that is killed
leaves whole lines, and at worst a last one that was cut. Writing is no waiting, so whoever is cancelled has its
answer written or none. Headers and keys never come here: what a provider is asked and answers holds none.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from collections import OrderedDict, deque
from pathlib import Path
from typing import Final

from actors.agents.model_input import clean_answer, estimate_of
from actors.agents.ports import Completion, CompletionRequest, Estimate, Provider
from actors.agents.secret_values import Redactor
from actors.containment.usage import Usage
from actors.errors import ConfigError, ProviderError, ProviderErrorKind
from actors.providers.closing import Closing
from actors.providers.exchange_codec import (
    BadLine,
    Exchange,
    Start,
    decode_line,
    encode_line,
    linked,
)
from actors.providers.recording_file import first_line, own_version, whole_end

log = logging.getLogger("actors.providers")

# Between its estimate and its call a request waits for what it may spend: so many may wait at once.
REMEMBERED: Final = 4096
# A recording holds what a model was told and said; that is for its owner.
MODE: Final = 0o600


class RecordingProvider(Closing):
    """Ask another provider, and write each exchange to a file.

        RecordingProvider(OpenAIChat(model="m"), "run.jsonl")

    The file is begun at the first request. One that holds a recording already is refused, since the answers of two
    runs to one question cannot be told apart; with ``going_on`` it is continued, for a run that is resumed.
    ``aclose`` closes the other provider as well.

    Raises:
        ConfigError: the file cannot be written there, or holds something that cannot be continued.
    """

    def __init__(self, provider: Provider, path: str | Path, *, going_on: bool = False) -> None:
        self._provider = provider
        self._path = Path(path)
        self._going_on = going_on
        # What a provider of the caller's own repeats of a credential is kept nowhere.
        self._hide = Redactor.of(os.environ).hide
        self._start = Start(provider.name, getattr(provider, "default_model", None), own_version())
        self._file: int | None = None
        self._asked = 0
        # Lines that the file could not take, no more than there are requests on their way.
        self._owed: deque[bytes] = deque()
        # What was estimated for which content, and for which request.
        self._estimates: OrderedDict[str, tuple[str, Estimate]] = OrderedDict()
        self._check_place()

    def __repr__(self) -> str:
        return f"RecordingProvider({self._provider!r}, {str(self._path)!r}, {self._asked} calls)"

    @property
    def name(self) -> str:
        """Name the provider that is recorded, as it does itself."""
        return self._provider.name

    @property
    def default_model(self) -> str | None:
        """Give the model that the recorded provider is configured with."""
        return self._start.model

    @property
    def takes_effort(self) -> bool:
        """Tell whether the recorded provider sends ``effort``."""
        return getattr(self._provider, "takes_effort", False) is True

    @property
    def endpoint(self) -> str | None:
        """Give the endpoint of the recorded provider."""
        endpoint: str | None = getattr(self._provider, "endpoint", None)
        return endpoint

    def estimate(self, request: CompletionRequest) -> Estimate:
        """Give the recorded provider's estimate; it is written with the answer, so that a replay reserves the same."""
        estimate = estimate_of(self._provider, request)
        asked = linked(request, self)
        self._estimates[asked.content] = (asked.key, estimate)
        self._estimates.move_to_end(asked.content)
        if len(self._estimates) > REMEMBERED:
            self._estimates.popitem(last=False)
        return estimate

    async def complete(self, request: CompletionRequest) -> Completion:
        """Ask the recorded provider, and write down what came: an answer, or a typed error, without credentials.

        Cancellation: as of the recorded provider; nothing of the request is written.

        Raises:
            ProviderError: that of the recorded provider; or the file takes no more lines, and nothing was sent.
        """
        asked = linked(request, self)
        self._make_ready()
        self._asked += 1
        # Counted before the first await: equal requests are replayed in the order in which they were made.
        number = self._asked
        estimated_as, estimate = self._estimates.get(asked.content) or (asked.key, estimate_of(self._provider, request))
        known_as = None if estimated_as == asked.key else estimated_as
        try:
            came = clean_answer(await self._provider.complete(request), self._hide)
        except ProviderError as error:
            told = ProviderError(
                error.kind, self._hide(error.message),
                status=error.status, retry_after=error.retry_after, usage=error.usage,
            )  # fmt: skip
            self._keep(Exchange(number, asked.written(number), estimate, known_as, told))
            raise
        self._keep(Exchange(number, asked.written(number), estimate, known_as, came))
        return came

    async def aclose(self) -> None:
        """Close the file and the recorded provider.

        Cancellation: both are closed all the same.
        """
        if self._file is not None:
            try:
                self._pay()
            except OSError as error:
                log.warning("%s: %d answers could not be recorded: %s", self._path, len(self._owed), error)
            os.close(self._file)
            self._file = None
        close = getattr(self._provider, "aclose", None)
        if close is not None:
            await close()

    # ── the file ────────────────────────────────────────────────────────────

    def _check_place(self) -> None:
        """Look whether a recording may stand there. Makes nothing."""
        above = self._path.parent
        if not above.is_dir():
            raise self._wrong(f"{above} is not a directory")
        if not self._path.exists():
            if not os.access(above, os.W_OK):
                raise self._wrong(f"{above} may not be written")
            return
        if not self._path.is_file() or not os.access(self._path, os.R_OK | os.W_OK):
            raise self._wrong("is no file that may be read and written")
        self._check_held(self._path.stat().st_size)

    def _check_held(self, size: int) -> None:
        if size and not self._going_on:
            raise self._wrong("holds something already: remove it, or name another file")
        if size:
            self._check_start()

    def _check_start(self) -> None:
        try:
            found = decode_line(first_line(self._path))
        except BadLine as error:
            raise self._wrong(f"is no recording: {error}") from None
        if not isinstance(found, Start) or (found.provider, found.model) != (self._start.provider, self._start.model):
            raise self._wrong(f"is no recording of {self._start.provider} with model {self._start.model}")

    def _wrong(self, text: str) -> ConfigError:
        return ConfigError((str(self._path), text))

    def _make_ready(self) -> None:
        """See that the next line can be written.

        Raises:
            ProviderError: it cannot; nothing was sent.
        """
        try:
            if self._file is None:
                self._file = self._open()
                self._owed.append(encode_line(self._start))
            self._pay()
        except (OSError, ConfigError) as error:
            why = error.problems[0][1] if isinstance(error, ConfigError) else str(error)
            text = f"{self._path}: nothing can be recorded, and so nothing is sent: {why}"
            raise ProviderError(ProviderErrorKind.request, text, usage=Usage()) from error

    def _open(self) -> int:
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, MODE)
        try:
            # Held until the file is closed, also by the end of the process.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(file).st_size
            self._check_held(size)
            # What a killed process wrote of its last line would swallow the next one.
            os.ftruncate(file, whole_end(file, size))
        except BlockingIOError:
            os.close(file)
            raise self._wrong("is written by another process") from None
        except BaseException:
            os.close(file)
            raise
        return file

    def _keep(self, exchange: Exchange) -> None:
        """Write a line. One that cannot be written is owed: the answer is paid, and its agent goes on."""
        self._owed.append(encode_line(exchange))
        try:
            self._pay()
        except OSError as error:
            log.warning("%s: an answer is not recorded yet: %s", self._path, error)

    def _pay(self) -> None:
        while self._owed:
            self._write(self._owed[0])
            self._owed.popleft()

    def _write(self, line: bytes) -> None:
        """Write a whole line or nothing of it."""
        if self._file is None:
            raise OSError(errno.EBADF, "the recording was closed")
        size = os.fstat(self._file).st_size
        if os.write(self._file, line) < len(line):
            # The disk became full within the line. Nobody else writes: the file is locked.
            os.ftruncate(self._file, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
