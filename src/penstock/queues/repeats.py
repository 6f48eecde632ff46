"""What was given to whom asked with an attempt id: asked again within five minutes, they get the same batch and leases again.

Packed: an id and 16 bytes for each message of its batch. The oldest are forgotten where there are too many.
"""

import struct

from penstock.queues.commands import ATTEMPT_ID_MS

REPEATS_MAX = 10_000

_TAKEN = struct.Struct("<q")


class Repeats:
    def __init__(self) -> None:
        self.taken: dict[bytes, bytes] = {}  # In the order in which they came: when, then offsets and leases.

    def note(self, attempt_id: bytes, wall_ms: int, batch: list[tuple[int, int]]) -> None:
        self.taken.pop(attempt_id, None)
        flat = [number for pair in batch for number in pair]
        self.taken[attempt_id] = _TAKEN.pack(wall_ms) + struct.pack(f"<{len(flat)}q", *flat)
        if len(self.taken) > REPEATS_MAX:
            del self.taken[next(iter(self.taken))]

    def batch(self, attempt_id: bytes, wall_ms: int) -> list[tuple[int, int]]:
        """(offset, lease) of each; empty where there is none, or it is too old."""
        packed = self.taken.get(attempt_id)
        if packed is None or _TAKEN.unpack_from(packed)[0] + ATTEMPT_ID_MS <= wall_ms:
            return []
        return list(struct.iter_unpack("<qq", packed[_TAKEN.size :]))

    def prune(self, wall_ms: int) -> None:
        while self.taken:
            attempt_id = next(iter(self.taken))
            if _TAKEN.unpack_from(self.taken[attempt_id])[0] + ATTEMPT_ID_MS > wall_ms:
                return
            del self.taken[attempt_id]
