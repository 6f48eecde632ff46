"""How far moves have come, by the sizes of logs: what a new replica has of what an old one has.

Two looks tell how fast a move is, and that it stands still: nothing was added between them. Sizes are all that nodes tell of it, so a log
that shrinks meanwhile (retention, compaction) makes a move seem slower than it is, never further.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.cli.cluster_disks import Disks
from penstock.peers.cluster import Moving
from penstock.vocabulary import TopicPartition

LOOKS_MAX = 10  # Over which a rate is taken.


@dataclass(frozen=True, slots=True)
class MoveProgress:
    where: TopicPartition
    old: tuple[int, ...]
    new: tuple[int, ...]
    copied_bytes: int | None  # None where no new replica could be asked.
    whole_bytes: int | None  # None where no old replica could be asked.
    bytes_per_second: float | None  # None after the first look.
    still_since: float | None  # When something was added last, or the first look was; None while something is added.

    @property
    def seconds_left(self) -> float | None:
        if self.copied_bytes is None or self.whole_bytes is None or not self.bytes_per_second:
            return None
        return max(0, self.whole_bytes - self.copied_bytes) / self.bytes_per_second

    @property
    def is_copied(self) -> bool:
        """Every byte is there; a replica may still have to be found in sync."""
        return self.copied_bytes is not None and self.whole_bytes is not None and self.copied_bytes >= self.whole_bytes


def measured(moving: Moving, where: TopicPartition, disks: Disks) -> tuple[int | None, int | None]:
    """Bytes that the new replicas have, and that they will have. Each counts for no more than an old one has."""
    full = disks.size(where, [node for node in moving.replicas if node not in moving.adding])
    sizes = [disks.told[node].sizes.get(where, 0) for node in moving.adding if node in disks.told]
    copied = None if moving.adding and not sizes else sum(size if full is None else min(full, size) for size in sizes)
    return copied, None if full is None else full * len(moving.adding)


@dataclass(slots=True)
class _History:
    looks: deque[tuple[float, int]]
    grew_at: float


class MoveTracker:
    """Remembers earlier looks. A move that has ended is forgotten."""

    def __init__(self, still_after_s: float = 0.0) -> None:
        """A move stands still when nothing was added for so long, or, by default, since the look before."""
        self._still_after_s = still_after_s
        self._histories: dict[TopicPartition, _History] = {}

    def look(self, moving: Mapping[TopicPartition, Moving], disks: Disks, now: float) -> list[MoveProgress]:
        self._histories = {where: history for where, history in self._histories.items() if where in moving}
        return [self._progress(where, each, disks, now) for where, each in moving.items()]

    def _progress(self, where: TopicPartition, moving: Moving, disks: Disks, now: float) -> MoveProgress:
        copied, whole = measured(moving, where, disks)
        rate, still_since = self._pace(where, copied, now)
        old = tuple(node for node in moving.replicas if node not in moving.adding)
        new = tuple(node for node in moving.replicas if node not in moving.removing)
        return MoveProgress(where, old, new, copied, whole, rate, still_since)

    def _pace(self, where: TopicPartition, copied: int | None, now: float) -> tuple[float | None, float | None]:
        if copied is None:
            return None, None
        history = self._histories.get(where)
        if history is None:
            self._histories[where] = _History(deque([(now, copied)], maxlen=LOOKS_MAX), now)
            return None, None
        (first_at, first_copied), (_, last_copied) = history.looks[0], history.looks[-1]
        history.looks.append((now, copied))
        if copied > last_copied:
            history.grew_at = now
        rate = max(0, copied - first_copied) / (now - first_at) if now > first_at else None
        is_still = copied <= last_copied and now - history.grew_at >= self._still_after_s
        return rate, history.grew_at if is_still else None
