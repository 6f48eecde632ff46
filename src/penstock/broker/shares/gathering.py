"""What a share fetch gathers from the partitions of its session, where that is more than one decision (straight.py).

What is ready is taken first. Where nothing is, the member waits at all partitions that are open, for as long as it said; those that are
being opened join them as they come. Only where none is open at all does the fetch wait for that, longer than it said if need be, but once.

A partition that gives nothing for now is left alone for a moment, and its row says why. Clients come back at once with whatever they hear
(refusals.py), so a fetch that has nothing else to tell is answered a moment after it began, or when its time is up. Only that another node
leads is told at once: there the client finds what it wants.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.queues.leading import QueuePartition
from penstock.broker.shares.acquiring import Lots, Taking
from penstock.broker.shares.opening import Place
from penstock.broker.shares.refusals import heard
from penstock.broker.shares.sessions import ShareSession
from penstock.broker.shares.shares import LEADER_LOOKED_FOR_SECONDS
from penstock.errors import ErrorCode, Refusal
from penstock.queues.replies import Taken
from penstock.vocabulary import NO_NODE, Instant

if TYPE_CHECKING:
    from penstock.broker.node import Node

LEFT_ALONE_SECONDS = 0.5  # As long as clients wait for records if nobody says otherwise (fetch.max.wait.ms): they come no more often.
SIDE_BY_SIDE_SECONDS = 0.1  # Those that are opened together come one after the other within this.
LOOKED_AGAIN_SECONDS = 0.01


class Gathering:
    def __init__(self, node: "Node", session: ShareSession, lots: Lots, *, count: int, bytes_max: int, wait_s: float) -> None:
        """`lots` is where everything goes that is taken."""
        self._node = node
        self._session = session
        self._lots = lots
        self._count = count
        self._bytes_max = bytes_max
        now = node.env.now()
        self._ends = Instant(now + wait_s)
        self._moment_ends = Instant(now + LEFT_ALONE_SECONDS)
        self.refused: dict[Place, Refusal] = {}  # Partitions that give nothing for now, as the member hears of it.

    async def read(self, queue: QueuePartition, taken: Taken) -> None:
        """What was taken of the session's only partition a moment ago, and was not at hand."""
        await self._take([queue], taken)

    async def run(self, nothing: Taken | None = None) -> None:
        """`nothing`: what the session's only partition had a moment ago."""
        openings, places, is_patient = self._session.openings, self._session.turn(), True
        while True:
            ended, queues, known = openings.next_end(), self._look_at(places), len(self.refused)
            if queues:
                is_to_go_on = await self._take(queues, nothing, ended)
            elif is_to_go_on := is_patient and len(openings) > 0:
                is_patient = False
                await openings.settle(self._node, first_s=LEADER_LOOKED_FOR_SECONDS, others_s=SIDE_BY_SIDE_SECONDS)
                self._give_up_unless(ended)
            else:
                await asyncio.sleep(self._left_s)
            nothing = None
            if self._lots or not (is_to_go_on or ended.done() or len(self.refused) > known):
                return

    # Looking

    def _look_at(self, places: Sequence[Place]) -> list[QueuePartition]:
        """Those that are open. The others are being opened, or it is known why they are not."""
        shares, session, found = self._node.shares, self._session, []
        for place in places:
            if place in self.refused:
                continue
            if session.refused and (refusal := session.why_not(place, self._node.env.now())) is not None:
                self._note(place, refusal)
                continue
            queue = shares.find(*place)
            if queue is not None and queue.state.has(session.group):
                found.append(queue)
            else:
                self._open(place)
        return found

    def _open(self, place: Place) -> None:
        node, session = self._node, self._session
        failure = session.openings.why_not(place)
        if failure is not None:
            self._refuse(place, failure)
            return
        try:
            node.shares.check_leads(*place)
        except Refusal as refusal:
            self._note(place, refusal)
        else:
            session.openings.begin(node, session.group, place)

    def _give_up_unless(self, ended: asyncio.Future[None]) -> None:
        if not ended.done():
            for place in self._session.openings.under_way():
                self._note(place, Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's ledger is not loaded yet; ask again"))

    # Taking

    async def _take(self, queues: Sequence[QueuePartition], taken: Taken | None, ended: asyncio.Future[None] | None = None) -> bool:
        """Ends early when `ended` does. True: somebody has refused, and it is to be found out who."""
        session = self._session
        taking = Taking(
            queues, session.group, session.who, count=self._count, bytes_max=self._bytes_max, wait_s=self._left_s, taken=taken
        )
        if ended is not None:
            ended.add_done_callback(taking.hurry)
        try:
            await taking.into(self._lots)
        finally:
            if ended is not None:
                ended.remove_done_callback(taking.hurry)
        for queue, refusal in taking.refused:
            self._refuse((queue.data.topic_id, queue.data.index), refusal)
        if taking.is_unclear:
            await asyncio.sleep(LOOKED_AGAIN_SECONDS)
        return taking.is_unclear

    @property
    def _left_s(self) -> float:
        return max(0.0, self._ends - self._node.env.now())

    # Refusing

    def _refuse(self, place: Place, refusal: Refusal) -> None:
        leave_alone(self._node, self._session, place, refusal)
        self._note(place, refusal)

    def _note(self, place: Place, refusal: Refusal) -> None:
        self.refused[place] = refusal = heard(refusal)
        is_elsewhere = refusal.code is ErrorCode.NOT_LEADER_OR_FOLLOWER and self._is_elsewhere(place)
        self._ends = min(self._ends, self._node.env.now() if is_elsewhere else self._moment_ends)

    def _is_elsewhere(self, place: Place) -> bool:
        leader, _ = self._node.shares.leader_of(*place)
        return leader not in (NO_NODE, self._node.settings.node_id)


def leave_alone(node: "Node", session: ShareSession, place: Place, refusal: Refusal) -> None:
    """The session asks nothing of the partition for a moment: each time would be in vain, and may be written down."""
    session.refused[place] = refusal, Instant(node.env.now() + LEFT_ALONE_SECONDS)
