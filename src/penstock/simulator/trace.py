"""What happened in a run, in order, as one number: two runs of one seed that differ anywhere differ here.

Only facts that a seed decides go in: virtual times, the order of processes, bytes that were delivered. Never an address, an `id`, a task's
name, or anything that follows the order of a set. With `record` the same facts are kept as text, to find where two runs part.
"""

from hashlib import blake2b
from struct import Struct

_HASHED_AT_BYTES = 1 << 16  # One call of the hash for many facts: it is the call that costs.
_FACT = Struct("<dHI")


class Trace:
    def __init__(self, *, record: bool = False) -> None:
        self.lines: list[str] | None = [] if record else None
        self.facts = 0
        self._hash = blake2b(digest_size=16)
        self._pending = bytearray()

    def note(self, now: float, who: int, what: str, number: int = 0, content: bytes = b"") -> None:
        """One fact: when, which process, what, a number that belongs to it, the bytes that it moved."""
        self.facts += 1
        pending = self._pending
        pending += _FACT.pack(now, who, number & 0xFFFFFFFF)
        pending += what.encode()
        pending += content
        if len(pending) >= _HASHED_AT_BYTES:
            self._hash.update(pending)
            pending.clear()
        if self.lines is not None:
            self.lines.append(f"{now:.9f} {who} {what} {number} {bytes(content[:64]).hex()}")

    def digest(self) -> str:
        whole = self._hash.copy()
        whole.update(self._pending)
        return whole.hexdigest()
