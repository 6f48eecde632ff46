"""How much memory requests and replies in flight may take, so that no crowd of clients can make the node outgrow its bound.

Requests: a connection reserves room before it gathers a large one, and stops reading while there is none. Who came first is served first,
except that those who have begun go before those who have not. What somebody holds counts until it is let go, also while they wait for
more; should all who hold room wait for more, the node closes those who have held it longest (housekeeping). Requests that wait at the node
itself are counted too (parked fetches, batches that are unpacked): once they hold a quarter of the room, a fetch is answered at once.
Replies: a fetch may fill at most an eighth of the room that slow readers have left. So a crowd that never reads gets ever smaller
replies, and the room never runs out for the others. Messages of queues are counted in the same room.
"""

from collections.abc import Callable

from penstock.settings import KIB, MIB

BASE_BYTES = 80 * MIB  # The interpreter, the code and the node's own tables, before any client comes.
REPLY_BYTES_MIN = 16 * KIB


class RequestRoom:
    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_taken = 0
        self._bytes_gathered = 0  # Of those: by requests that are on their way in,
        self._bytes_held = 0  # and by requests that wait at the node.
        # Who came first stands first. Leaving costs the same wherever one stands.
        self._growing: dict[Callable[[], None], tuple[int, int]] = {}  # What they want, and what they hold.
        self._waiting: dict[Callable[[], None], tuple[int, int]] = {}

    @property
    def is_crowded(self) -> bool:
        return bool(self._waiting or self._growing)

    def take(self, size: int, when_free: Callable[[], None], *, held: int = 0) -> bool:
        """Reserves room, `held` being what the asker has already. False: there is none now; `when_free` is called once it is reserved."""
        if not (self._growing if held else self.is_crowded) and self._has_room_for(size, held):
            self._take(size)
            return True
        (self._growing if held else self._waiting)[when_free] = (size, held)
        return False

    def give_back(self, size: int) -> None:
        self._take(-size)
        self._serve_queue()

    def may_hold(self, size: int) -> bool:
        """Whether a request may wait at the node: whoever can be answered now must not take what others need."""
        return self._bytes_held + size <= self._held_bytes_max

    def hold(self, size: int) -> None:
        """Counts what is there already: what of a request outlives the buffer in which it came."""
        self.bytes_taken += size
        self._bytes_held += size

    def let_go(self, size: int) -> None:
        self.bytes_taken -= size
        self._bytes_held -= size
        self._serve_queue()

    def leave_queue(self, when_free: Callable[[], None]) -> None:
        """Somebody who waited is gone."""
        self._growing.pop(when_free, None)
        self._waiting.pop(when_free, None)

    def _serve_queue(self) -> None:
        while queue := self._growing or self._waiting:
            when_free, (wanted, held) = next(iter(queue.items()))
            if not self._has_room_for(wanted, held):
                break
            del queue[when_free]
            self._take(wanted)
            when_free()

    def _take(self, size: int) -> None:
        self.bytes_taken += size
        self._bytes_gathered += size

    def _has_room_for(self, size: int, held: int) -> bool:
        """A request that is larger than all the room comes in alone: beside those who only wait, but not beside another of its kind."""
        is_alone = self._bytes_gathered == held and self._bytes_held <= self._held_bytes_max
        return is_alone or self.bytes_taken + size <= self.bytes_max

    @property
    def _held_bytes_max(self) -> int:
        return self.bytes_max // 4


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


class PartOfRoom(ReplyRoom):
    """What the answers of one door take of the room, counted there and by itself."""

    def __init__(self, whole: ReplyRoom) -> None:
        super().__init__(whole.bytes_max)
        self._whole = whole

    @property
    def is_crowded(self) -> bool:
        return self.bytes_taken > self.bytes_max * 3 // 4

    def fair_share(self) -> int:
        return self._whole.fair_share()

    def take(self, size: int) -> None:
        self.bytes_taken += size
        self._whole.take(size)

    def give_back(self, size: int) -> None:
        self.bytes_taken -= size
        self._whole.give_back(size)


class HeldReply:
    """What one answer takes of the room: counted as it grows, until it is sent."""

    __slots__ = ("_bytes", "_room")

    def __init__(self, room: ReplyRoom) -> None:
        self._room = room
        self._bytes = 0

    def add(self, size: int) -> None:
        self._room.take(size)
        self._bytes += size

    def grow_to(self, size: int) -> None:
        """It has so many bytes as it is sent, which may be more than what it was made of."""
        if size > self._bytes:
            self.add(size - self._bytes)

    def let_go(self) -> None:
        self._room.give_back(self._bytes)
        self._bytes = 0


def split_memory(memory_bytes_max: int) -> tuple[RequestRoom, ReplyRoom]:
    """A quarter of what is free for requests and a quarter for replies; the rest is slack for copies, decompression and the allocator."""
    free = memory_bytes_max - BASE_BYTES
    return RequestRoom(free // 4), ReplyRoom(free // 4)
