"""The last offset of each key in a part of a log, in a fixed number of bytes per key.

Keys are kept as hashes of 128 bits under a seed of chance: two keys of one topic fall together once in more logs than there will ever be,
and nobody can make them. The table begins small, doubles as it fills, and never passes its bound. Then it is *full*, and the round of
compaction ends there. What a map does not have it cannot decide about, so a batch is entered whole or not at all.
"""

from penstock.vocabulary import Buffer
from penstock.wire.sieve import SLOT_BYTES, Noted, Stop, grow_table, note_keys

SLOTS_MIN = 1 << 10
_FILLED = (3, 4)  # Of the slots: past that, looking for one takes too long.


class KeyMap:
    __slots__ = ("_slots_max", "count", "end_offset", "seed", "table")

    def __init__(self, seed: bytes, bytes_max: int) -> None:
        self.seed = seed
        self._slots_max = _power_of_two(max(2, bytes_max // SLOT_BYTES))
        self.table = bytearray(min(SLOTS_MIN, self._slots_max) * SLOT_BYTES)
        self.count = 0  # Keys.
        self.end_offset = 0  # Every record below this that compaction may look at has been entered.

    def note(self, batches: Buffer, start: int, end: int, *, takes_transactional: bool = False) -> Noted:
        """Enters plain batches; `Stop.FULL` when the next one does not fit any more."""
        added, position = 0, start
        while True:
            noted = note_keys(batches, position, end, self.table, seed=self.seed, room=self._room, takes_transactional=takes_transactional)
            self.count += noted.added
            added, position = added + noted.added, noted.position
            if noted.stop != Stop.FULL or not self._grow():
                return Noted(position, added, noted.stop)

    @property
    def _room(self) -> int:
        return len(self.table) // SLOT_BYTES * _FILLED[0] // _FILLED[1] - self.count

    def _grow(self) -> bool:
        if 2 * len(self.table) > self._slots_max * SLOT_BYTES:
            return False
        self.table = grow_table(self.table)
        return True


def _power_of_two(number: int) -> int:
    """The highest that is not above."""
    return 1 << number.bit_length() - 1
