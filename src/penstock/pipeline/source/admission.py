"""How much one micro-batch takes: at most so many offsets, and not before there are enough of them.

`maxOffsetsPerTrigger` is shared out in proportion to what each partition has, and none that has something goes without.
`minOffsetsPerTrigger` lets small batches wait, but not for longer than `maxTriggerDelay` since the last one; the first does not wait.
"""

from collections.abc import Mapping

from penstock.pipeline.source.options import Admission
from penstock.vocabulary import Instant, TopicPartition

Positions = Mapping[TopicPartition, int]


def waiting(start: Positions, latest: Positions) -> dict[TopicPartition, int]:
    """How many offsets each partition has that were not read; only those that have some."""
    counts = {where: end - start.get(where, 0) for where, end in latest.items()}
    return {where: count for where, count in counts.items() if count > 0}


def at_most(start: Positions, latest: Positions, offsets_max: int) -> dict[TopicPartition, int]:
    """Where a batch ends that takes this many: `latest`, or earlier."""
    sizes = waiting(start, latest)
    total = sum(sizes.values())
    if total <= offsets_max:
        return dict(latest)
    shares = {where: max(1, offsets_max * size // total) for where, size in sizes.items()}
    left = offsets_max - sum(shares.values())
    # What rounding left goes to those with the most, and what it gave too much comes from them.
    for where in sorted(sizes, key=lambda each: (-sizes[each], each)):
        more = max(1 - shares[where], min(left, sizes[where] - shares[where]))
        shares[where] += more
        left -= more
    return {where: start.get(where, 0) + shares[where] if where in shares else end for where, end in latest.items()}


class Patience:
    """Whether what there is makes a batch yet."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._last_at: Instant | None = None

    def is_enough(self, start: Positions, latest: Positions, now: Instant) -> bool:
        """Asked once for each batch that could be made; a yes starts the wait for the next."""
        wanted = self._admission.offsets_min
        if wanted is None:
            return True
        is_due = self._last_at is None or now - self._last_at >= self._admission.delay_s
        if not is_due and sum(waiting(start, latest).values()) < wanted:
            return False
        self._last_at = now
        return True
