"""What went wrong with a message, packed: when, who, for how long, which error. The last sixteen failures are kept."""

import struct

from penstock.queues.commands import REASON_BYTES_MAX, WHO_BYTES_MAX
from penstock.queues.views import Failure

FAILURES_MAX = 16
LAPSED = b"lapsed"

_ENTRY = struct.Struct("<qqBB")  # taken, ended, lengths of who and reason


def cut(text: str, bytes_max: int) -> bytes:
    """As UTF-8, without half a character at its end."""
    if not text:
        return b""
    encoded = text.encode(errors="replace")
    return encoded if len(encoded) <= bytes_max else encoded[:bytes_max].decode(errors="ignore").encode()


def appended(history: bytes, taken_ms: int, ended_ms: int, who: bytes, reason: bytes) -> bytes:
    who, reason = who[:WHO_BYTES_MAX], reason[:REASON_BYTES_MAX]
    grown = history + _ENTRY.pack(taken_ms, ended_ms, len(who), len(reason)) + who + reason
    starts = _starts(grown)
    return grown[starts[-FAILURES_MAX] :] if len(starts) > FAILURES_MAX else grown


def last(history: bytes) -> bytes:
    """The newest failure alone."""
    return history[_starts(history)[-1] :] if history else b""


def failures(history: bytes) -> tuple[Failure, ...]:
    found = []
    for at in _starts(history):
        taken_ms, ended_ms, who_bytes, reason_bytes = _ENTRY.unpack_from(history, at)
        at += _ENTRY.size
        who, reason = history[at : at + who_bytes], history[at + who_bytes : at + who_bytes + reason_bytes]
        found.append(Failure(taken_ms, ended_ms, who.decode(errors="replace"), reason.decode(errors="replace")))
    return tuple(found)


def _starts(history: bytes) -> list[int]:
    starts, at = [], 0
    while at < len(history):
        starts.append(at)
        at += _ENTRY.size + history[at + 16] + history[at + 17]
    return starts
