"""What comes back from files and processes, made safe and bounded. Pure.

Bytes become text here: what is no UTF-8, and NULs, read as U+FFFD. The cut
that the model sees is made by the loop, at one place, with `bounded` of
`actors.agents.entry_text`; a `Capture` only keeps what one process prints from
filling the memory, and says by how much it was cut.
"""

import re
from typing import Final

from actors.agents.entry_text import clean as clean_text

SNIFFED: Final = 8_192
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_MARKS: Final = (
    (b"\xff\xfe\x00\x00", "UTF-32 text"),
    (b"\x00\x00\xfe\xff", "UTF-32 text"),
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"\x89PNG\r\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive or an office document"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"\x7fELF", "an ELF program"),
)


def clean(data: bytes | str) -> str:
    """Make text of what came from outside: what no encoding can carry, and NULs, become U+FFFD."""
    return clean_text(data.decode("utf-8", "replace") if isinstance(data, bytes) else data)


def one_line(name: str) -> str:
    """Write the name of a file so that it stays one line of a list, whatever it holds."""
    return _CONTROL.sub("?", clean(name))


def foreign_kind(head: bytes) -> str | None:
    """Name what a file is by its first bytes when it is no text we read, None when it may be text."""
    for mark, kind in _MARKS:
        if head.startswith(mark):
            return kind
    return "a binary file" if b"\x00" in head[:SNIFFED] else None


class Capture:
    """The first and the last bytes of a stream, within a limit; what is left out between them is counted.

    Example::

        capture = Capture(9)
        capture.feed(b"0123456789abcdef")
        capture.text()   # "012345\\n[... 7 bytes left out ...]\\ndef"
    """

    def __init__(self, limit: int) -> None:
        assert limit >= 0
        self._head_limit = limit * 2 // 3
        self._tail_limit = limit - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._seen = 0

    def feed(self, data: bytes) -> None:
        """Take more of the stream."""
        self._seen += len(data)
        room = self._head_limit - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        # Cut now and then and not each time: a copy of the tail for every byte would be quadratic.
        if len(self._tail) > 2 * self._tail_limit + 65_536:
            self._cut()

    def _cut(self) -> None:
        del self._tail[: max(len(self._tail) - self._tail_limit, 0)]

    @property
    def left_out(self) -> int:
        """Count the bytes that were seen and are not kept."""
        return max(self._seen - self._head_limit - self._tail_limit, 0)

    def text(self) -> str:
        """Give what was kept, naming the gap."""
        if not self.left_out:
            return clean(bytes(self._head + self._tail))
        self._cut()
        # The cut may go through a character; its halves are dropped, not shown as broken.
        head = whole_characters(bytes(self._head))
        tail = bytes(self._tail)
        begin = 0
        while begin < min(3, len(tail)) and tail[begin] & 0xC0 == 0x80:
            begin += 1
        lost = self.left_out + len(self._head) - len(head) + begin
        return f"{clean(head)}\n[... {lost} bytes left out ...]\n{clean(tail[begin:])}"


def whole_characters(data: bytes) -> bytes:
    """Drop a character of UTF-8 that is cut by the end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needs = 4 if byte >= 0xF0 else 3 if byte >= 0xE0 else 2 if byte >= 0xC0 else 1
            return data[:-back] if needs > back else data
    return data
