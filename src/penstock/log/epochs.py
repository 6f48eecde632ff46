"""Which leader wrote what: the first offset of every leader epoch, in order.

Kept because followers agree by it, and because nothing else vouches for the epoch in a stored batch: the batch's own checksum does
not cover that field. What a read returns is checked against this history. The history itself is checksummed with the checkpoint, which
is due as soon as an epoch begins, and rebuilt from the batches above it, where epochs must neither go back nor pass the leader's own.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from struct import Struct

from penstock.packed import rows_of
from penstock.vocabulary import Buffer

NO_EPOCH = -1
NEVER = 2**63 - 1

_COUNT = Struct("<I")
_ENTRY = Struct("<iq")


class Epochs:
    """Iterates as (epoch, start offset)."""

    __slots__ = ("_epochs", "_starts", "latest", "latest_start")

    def __init__(self) -> None:
        self._epochs = array("i")
        self._starts = array("q")
        self.latest = NO_EPOCH
        self.latest_start = 0

    def __len__(self) -> int:
        return len(self._epochs)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._epochs, self._starts, strict=True))

    def begin(self, epoch: int, start_offset: int) -> None:
        """A batch of a later epoch than any before it starts at this offset."""
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest, self.latest_start = epoch, start_offset

    def epoch_at(self, offset: int) -> int:
        """The epoch in which the record at this offset was written."""
        if offset >= self.latest_start:
            return self.latest
        found = bisect_right(self._starts, offset) - 1
        return self._epochs[found] if found >= 0 else NO_EPOCH

    def next_start(self, offset: int) -> int:
        """Where the epoch after the offset's own begins; `NEVER` for the latest."""
        if offset >= self.latest_start:
            return NEVER
        return self._starts[bisect_right(self._starts, offset)]

    def copy(self) -> "Epochs":
        """The history as it is now, for a reader that retention may overtake."""
        same = Epochs()
        same._epochs, same._starts, same.latest, same.latest_start = self._epochs[:], self._starts[:], self.latest, self.latest_start
        return same

    def first_above(self, epoch: int) -> int:
        """Where the first epoch later than this one begins."""
        found = bisect_right(self._epochs, epoch)
        return self._starts[found] if found < len(self._starts) else NEVER

    def last_up_to(self, epoch: int, log_end: int) -> tuple[int, int]:
        """The last epoch not after this one that wrote anything, `NO_EPOCH` for none, and where everything up to it ends."""
        found = bisect_right(self._epochs, epoch)
        return self._epochs[found - 1] if found else NO_EPOCH, self._starts[found] if found < len(self._starts) else log_end

    def cut(self, end_offset: int) -> None:
        """Forgets the epochs that begin at or after the offset."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        self._note_latest()

    def drop_below(self, start_offset: int) -> None:
        """Forgets the epochs that end at or before the offset."""
        kept_from = max(0, bisect_right(self._starts, start_offset) - 1)
        del self._epochs[:kept_from]
        del self._starts[:kept_from]

    def encode(self) -> bytes:
        return _COUNT.pack(len(self)) + b"".join(_ENTRY.pack(*entry) for entry in self)

    @classmethod
    def decode(cls, content: Buffer, at: int) -> tuple["Epochs", int]:
        if len(content) < at + _COUNT.size:
            raise ValueError("the epochs are cut off")
        (count,) = _COUNT.unpack_from(content, at)
        at += _COUNT.size
        end = at + count * _ENTRY.size
        if len(content) < end:
            raise ValueError("the epochs are cut off")
        epochs = cls()
        for epoch, start_offset in rows_of(_ENTRY, content[at:end]):
            epochs.begin(epoch, start_offset)
        return epochs, end

    def _note_latest(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else NO_EPOCH
        self.latest_start = self._starts[-1] if self._starts else 0
