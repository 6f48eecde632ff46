"""How much memory requests and replies in flight may take, so that no crowd of clients can make the node outgrow its bound.

Requests: a connection reserves room before it gathers a large one, and stops reading while there is none. Who came first is served first.
Replies: a fetch may fill at most an eighth of the room that slow readers have left. So a crowd that never reads gets ever smaller
replies, and the room never runs out for the others.
"""

from collections.abc import Callable

from penstock.settings import KIB, MIB

BASE_BYTES = 80 * MIB  # The interpreter, the code and the node's own tables, before any client comes.
REPLY_BYTES_MIN = 16 * KIB


class RequestRoom:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0
        self._waiting: dict[Callable[[], None], int] = {}  # Who came first stands first. Leaving costs the same wherever one stands.

    @property
    def is_crowded(self) -> bool:
        return bool(self._waiting)

    def take(self, size: int, when_free: Callable[[], None]) -> bool:
        """Reserves room. False: there is none now; `when_free` is called once it has been reserved."""
        if not self._waiting and (self.bytes_taken == 0 or self.bytes_taken + size <= self.bytes_max):
            self.bytes_taken += size
            return True
        self._waiting[when_free] = size
        return False

    def hold(self, size: int) -> None:
        """Counts what is there already: bytes of a request that outlive the buffer in which it came. Nobody waits for that."""
        self.bytes_taken += size

    def give_back(self, size: int) -> None:
        self.bytes_taken -= size
        while self._waiting:
            when_free, wanted = next(iter(self._waiting.items()))
            if self.bytes_taken and self.bytes_taken + wanted > self.bytes_max:
                break
            del self._waiting[when_free]
            self.bytes_taken += wanted
            when_free()

    def leave_queue(self, when_free: Callable[[], None]) -> None:
        """Somebody who waited is gone."""
        self._waiting.pop(when_free, None)


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
