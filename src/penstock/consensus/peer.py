"""What a leader knows of one other replica, and the pace at which it sends to it.

Probing: where the logs agree is not known; one append at a time, and refusals move `next` back to where they may agree.
Streaming: they agree; appends follow each other without waiting, a bounded number of them. `next` runs ahead of what is acknowledged, and
a refusal (something was lost on the way) leads back to probing.
Installing: entries that it needs are gone; the snapshot goes to it piece by piece.
"""

from collections import deque
from enum import Enum

from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import AppendReply, ChunkReply
from penstock.consensus.nouns import ANY_DIRECTORY, Replica
from penstock.consensus.tail import WrittenLog
from penstock.vocabulary import Instant, Offset


class Pace(Enum):
    PROBING = "probing"
    STREAMING = "streaming"
    INSTALLING = "installing"


class Peer:
    __slots__ = (
        "committed_end", "head", "heard_at", "in_flight", "is_waiting", "match_end", "next", "pace", "position", "replica", "round",
    )  # fmt: skip

    def __init__(self, replica: Replica, next_offset: Offset, now: Instant) -> None:
        self.replica = replica
        self.next = next_offset  # The next to be sent.
        self.match_end = Offset(0)  # Every entry below this is the leader's, and on the peer's disk.
        self.heard_at = now
        self.round = 0  # The latest question of the leader that it answered.
        self.committed_end = Offset(0)  # What it was last told about.
        self.pace = Pace.PROBING
        self.is_waiting = False  # For the answer to a probe or a piece.
        self.in_flight: deque[Offset] = deque()  # Ends of appends that were not answered.
        self.head: SnapshotHead | None = None
        self.position = 0

    def identify(self, replica: Replica) -> None:
        """A voter that was known by its node alone says which directory it has. If it changes its mind, nothing is left of the first."""
        if self.replica.directory not in (replica.directory, ANY_DIRECTORY):
            self.match_end, self.round = Offset(0), 0
            self.probe(Offset(0))
        self.replica = replica

    def heard(self, round_number: int, now: Instant) -> None:
        self.heard_at = now
        self.round = max(self.round, round_number)

    def accepted(self, end: Offset) -> None:
        self.match_end = max(self.match_end, end)
        self.next = max(self.next, self.match_end)
        while self.in_flight and self.in_flight[0] <= self.match_end:
            self.in_flight.popleft()
        if self.pace is Pace.INSTALLING and self.head is not None and self.match_end < self.head.end:
            return
        self.pace, self.is_waiting, self.head = Pace.STREAMING, False, None

    def refused(self, reply: AppendReply, log: WrittenLog) -> None:
        if reply.first <= self.match_end or self.pace is Pace.INSTALLING:
            return  # An old refusal: it has accepted more since.
        if self.pace is Pace.PROBING and reply.first != self.next:
            return
        hint = min(reply.end, Offset(reply.first - 1), log.end)
        if hint > log.start:
            hint = log.end_not_above(reply.last_term, hint)
        self.probe(max(hint, self.match_end))

    def probe(self, next_offset: Offset) -> None:
        self.pace, self.next, self.is_waiting, self.head = Pace.PROBING, next_offset, False, None
        self.in_flight.clear()

    def install(self, head: SnapshotHead) -> None:
        self.pace, self.head, self.position, self.is_waiting = Pace.INSTALLING, head, 0, False
        self.in_flight.clear()

    def kept(self, reply: ChunkReply) -> None:
        if self.head is not None and reply.end == self.head.end:
            self.position, self.is_waiting = reply.position, False
