"""How long the HTTP port waits for its peers, and who has to go when there are too many of them.

A peer is waited for while it has begun a request and not ended it, and while it has not taken its answers. It must get on meanwhile: the
body of a request, or each mebibyte of a large one, and so each mebibyte of an answer, has `connections.max.stalled.ms`. So neither silence
nor a trickle holds memory for long. All connections are looked at once in a second, and none has a timer for this. (A head has its own
time, and so has a connection between two requests.)

When all places are taken, those whose peers have been waited for longest are closed in favour of new ones. Should all be at work, a few
more are let in, to be asked after the node's health and nothing else: a node that is busy must not look like one that is dead.
"""

from collections.abc import Iterable
from heapq import nsmallest
from typing import TYPE_CHECKING

from penstock.http.sqs.door import QueueDoor
from penstock.settings import MIB

if TYPE_CHECKING:
    from penstock.http.queue_http import QueueHttp

STEP_BYTES = 1 * MIB
STALLED_SECONDS_MAX = 60.0  # Where there is no node to say it.
STALLED_SECONDS_WHEN_CROWDED = 5.0  # While answers that nobody takes fill their room.
CLOSED_AT_ONCE = 8  # To look for them costs more than to close them.
PLACES_FOR_HEALTH = 16


_NOTHING = object()


class Patience:
    """With one peer."""

    __slots__ = ("_cycle", "_received", "_unsent", "since_s")

    def __init__(self, now_s: float) -> None:
        self.since_s = now_s  # When the peer last got on, as far as those who look can tell,
        self._received = self._unsent = 0  # and how far it was then.
        self._cycle: object = _NOTHING  # The last request that was seen.

    def begin_anew(self) -> None:
        """The peer has taken what was sent to it, or nearly."""
        self._cycle = _NOTHING

    def waited_s(self, http: "QueueHttp", now_s: float) -> float:
        unsent = http.transport.get_write_buffer_size()
        gets_on = (
            http.cycle is not self._cycle
            or unsent > self._unsent  # An answer has come since the last look: that is ours, and the peer has all its time for it.
            or (self._unsent - unsent >= STEP_BYTES if unsent else http.received_bytes - self._received >= STEP_BYTES)
            or not (unsent or http.is_peers_turn)
        )
        if gets_on:
            self._cycle, self.since_s, self._received, self._unsent = http.cycle, now_s, http.received_bytes, unsent
        return now_s - self.since_s


class Watch:
    """Over all connections of a port."""

    def __init__(self, queues: QueueDoor | None, *, connections_max: int) -> None:
        self._queues = queues
        self.connections_max = connections_max

    def look(self, connections: Iterable["QueueHttp"], now_s: float) -> None:
        queues = self._queues
        most = STALLED_SECONDS_MAX if queues is None else queues.stalled_seconds_max
        most_of_answers = min(most, STALLED_SECONDS_WHEN_CROWDED) if queues is not None and queues.replies.is_crowded else most
        for http in list(connections):
            waited_s = http.patience.waited_s(http, now_s)
            if waited_s > (most_of_answers if http.has_unsent else most):
                http.cut_off()
                if queues is not None:
                    queues.note_stalled()

    def has_place(self, newcomer: "QueueHttp", connections: Iterable["QueueHttp"]) -> bool:
        """Whether it may be served as all others are; one that may not be served at all is closed."""
        present = [each for each in connections if not each.transport.is_closing()]
        surplus = len(present) - self.connections_max
        if surplus <= 0:
            return True
        waiting = [(since_s, at) for at, each in enumerate(present) if each is not newcomer and (since_s := each.waits_since_s) is not None]
        for _, at in nsmallest(max(surplus, CLOSED_AT_ONCE), waiting):
            present[at].transport.abort()
        surplus -= len(waiting)
        if surplus > PLACES_FOR_HEALTH:
            newcomer.transport.abort()
        return surplus <= 0
