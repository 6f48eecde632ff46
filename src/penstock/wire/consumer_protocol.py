"""What consumers tell each other through their group: which topics they want, and which partitions they were given.

To the broker these bytes are opaque, as to Kafka's: groups pass them on as they came. They are read only to be shown to people, so bytes
that do not parse (another kind of group, a client of its own mind) are no fault: the answer is then that nobody knows.
Both layouts begin with a version; later versions append fields, so reading the first ones is enough for all of them.
"""

from struct import Struct, error

_VERSION = Struct(">h")
_COUNT = Struct(">i")
_LENGTH = Struct(">h")
_ITEMS_MAX = 1_000_000  # More than any group has; a count that bytes merely happen to spell must not be believed.


def read_assignment(content: bytes) -> dict[str, list[int]] | None:
    """The partitions in a member's assignment, by topic; None where the bytes are something else. No bytes: none were given."""
    if not content:
        return {}
    try:
        at = _skip_version(content)
        topics: dict[str, list[int]] = {}
        count, at = _read_count(content, at)
        for _ in range(count):
            topic, at = _read_text(content, at)
            partitions, at = _read_count(content, at)
            numbers = Struct(f">{partitions}i")
            topics.setdefault(topic, []).extend(numbers.unpack_from(content, at))
            at += numbers.size
    except (error, ValueError):
        return None
    return topics


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
