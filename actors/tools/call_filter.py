"""The filter of system calls that stands around a command: no socket that leads out, and no keys of the kernel. Pure.

What would be got wrong:

- A namespace of the network is none for every kind of socket: that to the host of a
  virtual machine knows no namespaces. So only named families pass.
- The keyrings of the kernel know no namespace of processes or mounts. Whoever has our
  user may read the keys of our user (and a new session keyring hides only that of the
  session), so their calls are refused whether or not the network is open.
- Programs of another machine call by other numbers. Where the network is closed they
  are ended; where it is open they run, and the numbers that they have are refused too.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs


@attrs.frozen
class Machine:
    """The numbers of a machine: its own in a filter, and those of its calls; ``keys`` are those about keyrings.

    ``narrow`` is what else its kernel runs: the number of that machine, and its calls about keyrings.
    """

    number: int
    socket: int
    ring: int
    keys: tuple[int, ...]
    narrow: tuple[int, tuple[int, ...]]


# The ring (io_uring_setup) makes sockets too. Keys: add_key, request_key, keyctl.
MACHINES: Final = {
    "x86_64": Machine(0xC000003E, 41, 425, (248, 249, 250), (0x40000003, (286, 287, 288))),
    "aarch64": Machine(0xC00000B7, 198, 425, (217, 218, 219), (0x40000028, (309, 310, 311))),
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 13, 0x80000000
# Where the number of the call, that of the machine, and the first argument stand.
_CALL, _MACHINE, _FIRST = 0, 4, 16
_OTHER_TABLE: Final = 0x40000000
# Local, and in a namespace of the network also IPv4, IPv6 and netlink.
LOCAL: Final = (1,)
OF_NAMESPACES: Final = (1, 2, 10, 16)


def call_filter(machine: str, families: Sequence[int] | None = LOCAL) -> bytes | None:
    """Write the filter that lets sockets of some families be made, None for all; None for a machine not known here."""
    known = MACHINES.get(machine)
    if known is None:
        return None
    return _with_open_net(known) if families is None else _with_families(known, families)


# A step: what it does, with which number, and where it goes on where that fits and where not; "" is the next one.
_Step = tuple[int, int, str, str]
_NOWHERE: Final[Mapping[str, int]] = {}


def _with_families(known: Machine, families: Sequence[int]) -> bytes:
    return _written([
        (_LOAD, _MACHINE, "", ""),
        (_EQUAL, known.number, "", "kill"),
        (_LOAD, _CALL, "", ""),
        (_AT_LEAST, _OTHER_TABLE, "refuse", ""),
        *((_EQUAL, number, "refuse", "") for number in (known.ring, *known.keys)),
        (_EQUAL, known.socket, "", "allow"),
        (_LOAD, _FIRST, "", ""),
        *((_EQUAL, family, "allow", "") for family in families),
        (_EQUAL, 0xFFFFFFFF, "refuse", "refuse"),
    ])


def _with_open_net(known: Machine) -> bytes:
    machine, keys = known.narrow
    # Those of the other table have the same numbers, above it.
    own = (*known.keys, *(_OTHER_TABLE | number for number in known.keys))
    first = 2 + len(own) + len(keys)
    return _written([
        (_LOAD, _CALL, "", ""),
        *((_EQUAL, number, "own", "") for number in own),
        *((_EQUAL, number, "narrow", "") for number in keys),
        (_EQUAL, 0xFFFFFFFF, "allow", "allow"),
        (_LOAD, _MACHINE, "", ""),
        (_EQUAL, known.number, "refuse", "allow"),
        (_LOAD, _MACHINE, "", ""),
        (_EQUAL, machine, "refuse", "allow"),
    ], {"own": first, "narrow": first + 2})  # fmt: skip


def _written(steps: Sequence[_Step], places: Mapping[str, int] = _NOWHERE) -> bytes:
    """Write steps as the kernel reads them; the three endings stand behind them."""
    ends: list[_Step] = [(_RETURN, _REFUSE, "", ""), (_RETURN, _ALLOW, "", ""), (_RETURN, _KILL, "", "")]
    at_end = {name: len(steps) + number for number, name in enumerate(("refuse", "allow", "kill"))}
    known = {**places, **at_end}
    written = b""
    for at, (code, value, yes, no) in enumerate([*steps, *ends]):
        # Only forwards, and no further than a byte tells: `bytes` refuses all else.
        jumps = bytes(0 if not name else known[name] - at - 1 for name in (yes, no))
        written += code.to_bytes(2, "little") + jumps + value.to_bytes(4, "little")
    return written
