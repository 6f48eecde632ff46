"""How much memory requests and replies in flight may take, so that no crowd of clients can make the node outgrow its bound.

Requests: a connection reserves room before it gathers a large one, and stops reading while there is none. Who came first is served first.
Replies: a fetch may fill at most an eighth of the room that slow readers have left. So a crowd that never reads gets ever smaller
replies, and the room never runs out for the others.
"""

from collections import deque
from collections.abc import Callable

from penstock.settings import KIB, MIB

BASE_BYTES = 80 * MIB  # The interpreter, the code and the node's own tables, before any client comes.
REPLY_BYTES_MIN = 16 * KIB


class RequestRoom:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def is_crowded(self) -> bool:
        return bool(self._waiting)

    def take(self, size: int, when_free: Callable[[], None]) -> bool:
        """Reserves room. False: there is none now; `when_free` is called once it has been reserved."""
        if not self._waiting and (self.bytes_taken == 0 or self.bytes_taken + size <= self.bytes_max):
            self.bytes_taken += size
            return True
        self._waiting.append((size, when_free))
        return False

    def give_back(self, size: int) -> None:
        self.bytes_taken -= size
        while self._waiting and (self.bytes_taken == 0 or self.bytes_taken + self._waiting[0][0] <= self.bytes_max):
            waiting_size, when_free = self._waiting.popleft()
            self.bytes_taken += waiting_size
            when_free()

    def leave_queue(self, when_free: Callable[[], None]) -> None:
        """Somebody who waited is gone."""
        for place, (_, waiting) in enumerate(self._waiting):
            if waiting == when_free:
                del self._waiting[place]
                return


class ReplyRoom:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0  # Of replies that are ready or written but not yet taken by their clients.

    def fair_share(self) -> int:
        """How large the next reply may be."""
        return max(REPLY_BYTES_MIN, (self.bytes_max - self.bytes_taken) // 8)

    def take(self, size: int) -> None:
        self.bytes_taken += size

    def give_back(self, size: int) -> None:
        self.bytes_taken -= size


def split_memory(memory_bytes_max: int) -> tuple[RequestRoom, ReplyRoom]:
    """A quarter of what is free for requests and a quarter for replies; the rest is slack for copies, decompression and the allocator."""
    free = memory_bytes_max - BASE_BYTES
    return RequestRoom(free // 4), ReplyRoom(free // 4)
