"""The options of a message, as headers of its record: what a sender may ask for, and what Penstock notes on a message that it moves.

All are ASCII texts, so that any Kafka client can write and read them. Who sends through a queue's door hears of a wrong one (`write`
raises ValueError); in a record that is in the log already, a header that makes no sense is as good as none: nobody is left to be told,
and the message itself must not be lost.
Not here: how headers lie in a batch (wire/messages.py).
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.settings import LONG_MAX

PREFIX = "penstock."  # Of all that the ledger has to know; no other header is looked at.

PRIORITY = "penstock.priority"
DELIVER_AT = "penstock.deliver-at"
EXPIRES_AT = "penstock.expires-at"
GROUP = "penstock.group"
DEDUP = "penstock.dedup"
FIRST = "penstock.first"  # Its door has looked: no other message had its dedup id.

# Of a message that was moved from another queue.
ID = "penstock.id"
ATTEMPTS = "penstock.attempts"  # JSON: the deliveries that failed.
SOURCE = "penstock.source"
REASON = "penstock.reason"
FAILED_AT = "penstock.failed-at"
MOVED = "penstock.moved"  # Which move of which message brought it here: a second copy of the same is none.
SENT_AT = "penstock.sent-at"  # Of a dead letter: when its message was sent.
SENT_DEDUP = "penstock.sent-dedup"  # The dedup id that it was sent with. It is shown, and counts no more: a move is no second send.

# The SQS door's own.
SQS_ATTRIBUTES = "sqs.attributes"
SQS_SYSTEM = "sqs.system"
SQS_SENDER = "sqs.sender"

PRIORITY_MIN, PRIORITY_DEFAULT, PRIORITY_MAX = 0, 4, 9
NAME_BYTES_MAX = 128  # Of a group or a dedup id, as SQS has it.
TIME_MS_MAX = 253_402_300_799_999  # The last millisecond of the year 9999: later ones cannot be shown as a date.
_DIGITS_MAX = len(str(LONG_MAX))

Header = tuple[str, bytes | None]


class Traits(NamedTuple):
    """What a message has that plain ones have not. Times are wall milliseconds; 0 is none."""

    priority: int = PRIORITY_DEFAULT
    deliver_at: int = 0
    expires_at: int = 0
    group: bytes = b""
    dedup: bytes = b""
    written_ms: int = 0  # The record's own timestamp.
    moved: bytes = b""
    is_first: bool = False  # With its dedup id.


PLAIN = Traits()


def parse(headers: Iterable[Header], written_ms: int) -> Traits:
    """The options among the headers. Of a name that is there twice, the last one counts, as Kafka's `lastHeader` has it."""
    found = {name: content for name, content in headers if content is not None}
    return Traits(
        priority=_number(found.get(PRIORITY), PRIORITY_MIN, PRIORITY_MAX, PRIORITY_DEFAULT),
        deliver_at=_number(found.get(DELIVER_AT), 0, TIME_MS_MAX, 0),
        expires_at=_number(found.get(EXPIRES_AT), 0, TIME_MS_MAX, 0),
        group=_name(found.get(GROUP)),
        dedup=_name(found.get(DEDUP)),
        written_ms=written_ms,
        moved=_name(found.get(MOVED)),
        is_first=FIRST in found,
    )


def write(traits: Traits) -> list[Header]:
    """The headers that say so. Raises ValueError, with a sentence for the sender, where a value is out of bounds."""
    _check_number("priority", traits.priority, PRIORITY_MIN, PRIORITY_MAX)
    _check_number("time of delivery", traits.deliver_at, 0, TIME_MS_MAX)
    _check_number("time of expiry", traits.expires_at, 0, TIME_MS_MAX)
    _check_name("group", traits.group)
    _check_name("deduplication id", traits.dedup)
    _check_name("source", traits.moved)
    headers: list[Header] = []
    if traits.priority != PRIORITY_DEFAULT:
        headers.append((PRIORITY, b"%d" % traits.priority))
    if traits.deliver_at:
        headers.append((DELIVER_AT, b"%d" % traits.deliver_at))
    if traits.expires_at:
        headers.append((EXPIRES_AT, b"%d" % traits.expires_at))
    if traits.group:
        headers.append((GROUP, traits.group))
    if traits.dedup:
        headers.append((DEDUP, traits.dedup))
        if traits.is_first:
            headers.append((FIRST, b""))
    if traits.moved:
        headers.append((MOVED, traits.moved))
    return headers


def _number(text: bytes | None, low: int, high: int, default: int) -> int:
    if text is None or len(text) > _DIGITS_MAX or not text.isdigit():
        return default
    number = int(text)
    return number if low <= number <= high else default


def _name(text: bytes | None) -> bytes:
    return text if text is not None and len(text) <= NAME_BYTES_MAX and text.isascii() else b""


def _check_number(what: str, value: int, low: int, high: int) -> None:
    if not low <= value <= high:
        raise ValueError(f"the {what} must lie between {low} and {high}, not {value}")


def _check_name(what: str, text: bytes) -> None:
    if len(text) > NAME_BYTES_MAX or not text.isascii():
        raise ValueError(f"the {what} must have at most {NAME_BYTES_MAX} ASCII characters, not {len(text)} bytes: {text[:40]!r}")
