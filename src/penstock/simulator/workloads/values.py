"""Records that tell by themselves who wrote them, when, and under which key.

A value is unique in its run: `<writer>.<number>:<key>:<timestamp>|<filling>`. So whoever reads a record can hold its key and its timestamp
against the value, and the value against the diary.
"""

from random import Random

from penstock.wire.batches import Record

HEAD = "head"
_FILLING = bytes(range(33, 127))  # No zeros: to a torn disk a stretch of zeros means something.


def make_record(writer: str, number: int, timestamp_ms: int, *, size: int, key: bytes | None = None) -> Record:
    head = b"%s.%d:%s:%d|" % (writer.encode(), number, key or b"", timestamp_ms)
    filling = _FILLING * (size // len(_FILLING) + 1)
    at = number % len(_FILLING)
    value = head + filling[at : at + max(0, size - len(head))]
    return Record(key, value, (("number", b"%d" % number),), timestamp_ms)


def make_tombstone(writer: str, number: int, timestamp_ms: int, key: bytes) -> Record:
    """A record that deletes its key. What a value would tell stands in a header."""
    head = b"%s.%d:%s:%d|" % (writer.encode(), number, key, timestamp_ms)
    return Record(key, None, (("number", b"%d" % number), (HEAD, head)), timestamp_ms)


def identity_of(record: Record) -> bytes:
    """What no other record of the run is: its value, or what a tombstone has instead."""
    if record.value is not None:
        return record.value
    return dict(record.headers).get(HEAD) or b""


def what_is_wrong(record: Record, *, is_append_time: bool) -> str | None:
    """A sentence, if the record's own parts do not fit each other."""
    try:
        head = identity_of(record).split(b"|", 1)[0]
        name, key, timestamp = head.split(b":")
        number = name.rsplit(b".", 1)[1]
    except (ValueError, IndexError):
        return "its value was never written by anybody"
    if (record.key or b"") != key:
        return f"its key is {record.key!r}, but was {key!r}"
    if not is_append_time and record.timestamp_ms != int(timestamp):
        return f"its timestamp is {record.timestamp_ms}, but was {int(timestamp)}"
    if record.headers[:1] != (("number", number),) or len(record.headers) != 1 + (record.value is None):
        return f"its headers are {record.headers}"
    return None


def timestamp_of(value: bytes) -> int:
    """When it was written, by its writer's clock."""
    return int(value.split(b"|", 1)[0].rsplit(b":", 1)[1])


def draw_size(rng: Random, usual: int) -> int:
    """Around the usual size, now and then many times as large."""
    size = usual * rng.choice((1, 1, 1, 2, 20)) if usual < 4_000 else usual
    return 20 + int(size * rng.random())
