"""Dedup ids and the messages that have them: for a window of time, a second message with the same id is none.

An id counts from when its message was written, whatever became of the message since. It counts from the append on, before the message is
learned of, so that of two senders at once one hears of the other's message.

Ids that a client has drawn by itself, only to be able to send again what may have been lost, are as many as its messages. Of those the
newest `DRAWN_MAX` count, which is more than anybody sends while they wait for an answer. They begin with `DRAWN`: it has a blank, which no
id of SQS may have.
"""

from collections import deque
from collections.abc import Iterator

DRAWN = b"drawn "
DRAWN_MAX = 200_000

_TIME_BITS = 64
_TIME_MASK = (1 << _TIME_BITS) - 1


class DedupWindow:
    def __init__(self) -> None:
        self._found: dict[bytes, int] = {}  # (offset << 64) + when it stops to count.
        self._keys: deque[bytes] = deque()  # As they came, which is about as they go.
        self.ends: deque[int] = deque()
        self._drawn: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._found)

    def find(self, key: bytes, wall_ms: int) -> int | None:
        """The offset of the message that has this id."""
        found = self._found.get(key)
        return None if found is None or found & _TIME_MASK <= wall_ms else found >> _TIME_BITS

    def note(self, key: bytes, offset: int, until_ms: int) -> None:
        if key not in self._found and is_drawn(key):
            self._drawn.append(key)
            if len(self._drawn) > DRAWN_MAX:
                self._found.pop(self._drawn.popleft(), None)
        self._found[key] = (offset << _TIME_BITS) + until_ms
        self._keys.append(key)
        self.ends.append(until_ms)

    def prune(self, wall_ms: int, window_ms: int) -> None:
        """Forgets what does not count any more. What a sender with a wrong clock has dated in the future counts for one window from now."""
        while self.ends and not wall_ms < self.ends[0] <= wall_ms + window_ms:
            self.ends.popleft()
            key = self._keys.popleft()
            found = self._found.get(key, wall_ms + 1)
            until_ms = found & _TIME_MASK
            if until_ms <= wall_ms:
                del self._found[key]
            elif until_ms > wall_ms + window_ms:
                self.note(key, found >> _TIME_BITS, wall_ms + window_ms)

    @property
    def first_offset(self) -> int | None:
        """About the oldest message whose id counts; none that does is below. None: there is none."""
        while self._keys:
            found = self._found.get(self._keys[0])
            if found is not None:
                return found >> _TIME_BITS
            self._keys.popleft()
            self.ends.popleft()
        return None

    def clear(self) -> None:
        self._found.clear()
        self._keys.clear()
        self.ends.clear()
        self._drawn.clear()

    def entries(self, end_offset: int) -> Iterator[tuple[bytes, int, int]]:
        """(key, offset, until) of the messages below this offset, whatever is noted meanwhile."""
        found = self._found.copy()
        return ((key, each >> _TIME_BITS, each & _TIME_MASK) for key, each in found.items() if each >> _TIME_BITS < end_offset)


def is_drawn(key: bytes) -> bool:
    """Also where it stands behind the name of a group."""
    return key.startswith(DRAWN) or b"\0" + DRAWN in key
