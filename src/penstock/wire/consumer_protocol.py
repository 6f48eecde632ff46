"""What consumers tell each other through their group: which topics they want, and which partitions they were given.

To the broker these bytes are opaque, as to Kafka's: groups pass them on as they came. They are read to be shown to people, and where
members of the classic protocol stand in a group of the new one, which assigns for them. Bytes that do not parse (another kind of group, a
client of its own mind) are no fault: the answer is then that nobody knows.
Both layouts begin with a version; later versions append fields, so reading the first ones is enough for all of them.
"""

from collections.abc import Mapping, Sequence
from struct import Struct, error

_VERSION = Struct(">h")
_COUNT = Struct(">i")
_LENGTH = Struct(">h")
_NO_BYTES = _COUNT.pack(-1)
_ITEMS_MAX = 1_000_000  # More than any group has; a count that bytes merely happen to spell must not be believed.


def read_assignment(content: bytes) -> dict[str, list[int]] | None:
    """The partitions in a member's assignment, by topic; None where the bytes are something else. No bytes: none were given."""
    if not content:
        return {}
    try:
        return _read_partitions(content, _skip_version(content))
    except (error, ValueError):
        return None


def read_subscription(content: bytes) -> list[str] | None:
    """The topics that a member wants; None where the bytes are something else."""
    try:
        at = _skip_version(content)
        topics = []
        count, at = _read_count(content, at)
        for _ in range(count):
            topic, at = _read_text(content, at)
            topics.append(topic)
    except (error, ValueError):
        return None
    return topics


def read_owned(content: bytes) -> dict[str, list[int]] | None:
    """The partitions that a member says to have, by topic (KIP-429, from version 1); None where the bytes are something else."""
    try:
        version, at = _VERSION.unpack_from(content)[0], _skip_version(content)
        count, at = _read_count(content, at)
        for _ in range(count):
            _, at = _read_text(content, at)
        (length,) = _COUNT.unpack_from(content, at)
        at += _COUNT.size + max(length, 0)
        return _read_partitions(content, at) if version >= 1 else {}
    except (error, ValueError):
        return None


def write_assignment(topics: Mapping[str, Sequence[int]], version: int = 0) -> bytes:
    """An assignment as a member expects it: in the version of its subscription."""
    pieces = [_VERSION.pack(version), _COUNT.pack(len(topics))]
    for topic in sorted(topics):
        numbers = topics[topic]
        pieces += (_written_text(topic), _COUNT.pack(len(numbers)), Struct(f">{len(numbers)}i").pack(*numbers))
    pieces.append(_NO_BYTES)
    return b"".join(pieces)


def write_subscription(topics: Sequence[str]) -> bytes:
    """A subscription of version 0."""
    return b"".join([_VERSION.pack(0), _COUNT.pack(len(topics)), *map(_written_text, topics), _NO_BYTES])


def version_of(content: bytes) -> int:
    """Of a subscription or an assignment; 0 where the bytes are something else."""
    return max(int(_VERSION.unpack_from(content)[0]), 0) if len(content) >= _VERSION.size else 0


def _read_partitions(content: bytes, at: int) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    count, at = _read_count(content, at)
    for _ in range(count):
        topic, at = _read_text(content, at)
        partitions, at = _read_count(content, at)
        numbers = Struct(f">{partitions}i")
        topics.setdefault(topic, []).extend(numbers.unpack_from(content, at))
        at += numbers.size
    return topics


def _written_text(text: str) -> bytes:
    encoded = text.encode()
    return _LENGTH.pack(len(encoded)) + encoded


def _skip_version(content: bytes) -> int:
    (version,) = _VERSION.unpack_from(content)
    if version < 0:
        raise ValueError("a version is negative")
    return _VERSION.size


def _read_count(content: bytes, at: int) -> tuple[int, int]:
    (count,) = _COUNT.unpack_from(content, at)
    if not 0 <= count <= min(_ITEMS_MAX, len(content)):
        raise ValueError("more items than bytes")
    return count, at + _COUNT.size


def _read_text(content: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(content, at)
    at += _LENGTH.size
    if not 0 <= length <= len(content) - at:
        raise ValueError("a text reaches past the end")
    return content[at : at + length].decode(), at + length
