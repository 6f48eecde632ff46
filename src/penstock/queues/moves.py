"""Messages that came from another queue, remembered for as long as that queue may send them again.

A dead letter is moved in steps by its source, which may break off between them and begin again, an hour later as well as at once. So the
queue that has got it knows where it came from, however long ago that was, and answers a second copy with the first. When the source owes it
no more, it is forgotten (broker/queues/confirming.py asks). Nothing is recorded for it: the message's own header says it, and checkpoints
keep what is still remembered; therefore the log is not trimmed past it.
"""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from penstock.queues.ids import group_hash
from penstock.vocabulary import TopicId

MOVES_MAX = 100_000  # Of one partition. Beyond it, further ones wait at their source.

_TIME_BITS = 64
_TIME_MASK = (1 << _TIME_BITS) - 1


class Source(NamedTuple):
    """One move of one message: what it is called, in its header."""

    topic_id: TopicId
    partition: int
    offset: int
    lease: int  # Tells moves of the same message apart.
    group_hash: int

    @property
    def text(self) -> str:
        return f"{self.topic_id.hex()}.{self.partition}.{self.offset}.{self.lease}.{self.group_hash:x}"


def source_of(topic_id: TopicId, partition: int, offset: int, lease: int, group: str) -> str:
    return Source(topic_id, partition, offset, lease, group_hash(group)).text


def read_source(text: bytes) -> Source | None:
    """None: it is none of ours."""
    try:
        topic_id, partition, offset, lease, hashed = text.decode("ascii").split(".")
        return Source(TopicId(bytes.fromhex(topic_id)), int(partition), int(offset), int(lease), int(hashed, 16))
    except ValueError:
        return None


class Moves:
    def __init__(self) -> None:
        self._found: dict[bytes, int] = {}  # By source: (offset << 64) + when it was noted, about the oldest first.

    def __len__(self) -> int:
        return len(self._found)

    def find(self, source: bytes) -> int | None:
        """The offset of the message that came from there."""
        found = self._found.get(source)
        return None if found is None else found >> _TIME_BITS

    def note(self, source: bytes, offset: int, wall_ms: int) -> None:
        """The first copy counts. What is learned again is where it was."""
        if source not in self._found:
            self._found[source] = (offset << _TIME_BITS) + max(wall_ms, 0)

    def noted_by(self, wall_ms: int, count: int) -> list[bytes]:
        """Some of those that were noted by then, the oldest first."""
        first = islice(self._found.items(), count)
        return [source for source, found in first if found & _TIME_MASK <= wall_ms]

    def ask_later(self, source: bytes, wall_ms: int) -> None:
        """It is still owed, as far as anybody knows."""
        found = self._found.pop(source, None)
        if found is not None:
            self.note(source, found >> _TIME_BITS, wall_ms)

    def forget(self, source: bytes) -> None:
        self._found.pop(source, None)

    def forget_from(self, offset: int) -> None:
        """The log has lost what was there."""
        for source in [source for source, found in self._found.items() if found >> _TIME_BITS >= offset]:
            del self._found[source]

    @property
    def first_offset(self) -> int | None:
        """None of them is below. Looks at all of them."""
        return min(self._found.values()) >> _TIME_BITS if self._found else None

    def entries(self, end_offset: int) -> Iterator[tuple[bytes, int, int]]:
        """(source, offset, when) of the messages below this offset, whatever is noted meanwhile."""
        found = self._found.copy()
        return ((source, each >> _TIME_BITS, each & _TIME_MASK) for source, each in found.items() if each >> _TIME_BITS < end_offset)
