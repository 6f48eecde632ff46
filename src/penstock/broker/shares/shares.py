"""Share groups as a node serves them: sessions of members that fetch here, and ledgers of groups wherever they are.

A member fetches from the leader of a partition; the group's coordinator knows nothing of records. What an admin wants of a group's ledgers
is asked of their leaders over links, and refused as a whole with COORDINATOR_NOT_AVAILABLE where one cannot be reached.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.queues.asking import Place, Question
from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.refusals import NotHere
from penstock.broker.quorum_calls import catch_up
from penstock.broker.shares import ledger_calls
from penstock.broker.shares.acknowledging import Acknowledging, check
from penstock.broker.shares.beginning import Beginnings
from penstock.broker.shares.configs import GroupConfigs
from penstock.broker.shares.ledger_calls import Standing
from penstock.broker.shares.sessions import ShareSession, ShareSessions
from penstock.broker.shares.sweeping import Sweeping
from penstock.broker.together import together
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.groups.share.records import Ledgers
from penstock.links.share_calls import LedgerQuestion
from penstock.queues.commands import COUNT_MAX, ReleaseAll
from penstock.queues.replies import Done
from penstock.vocabulary import NO_NODE, TopicId
from penstock.wire.share_requests import SharedPartition

if TYPE_CHECKING:
    from penstock.broker.node import Node

LEADER_LOOKED_FOR_SECONDS = 5.0  # For the ledger of a partition that this node leads: its companion may just have been made.
LOOKED_AGAIN_SECONDS = 0.01


class _Leaving:
    """A member that is gone gives back what it has, piece by piece. Whatever keeps the ledger from it, leases end by themselves."""

    __slots__ = ("_group", "_queue", "_who")

    def __init__(self, queue: QueuePartition, group: str, who: str) -> None:
        self._queue = queue
        self._group = group
        self._who = who

    def begin(self) -> None:
        self._queue.coordinator.submit(ReleaseAll(self, self._group, self._who), self)

    def answered(self, reply: Done) -> None:
        if reply.count == COUNT_MAX:
            self.begin()

    def refused(self, code: ErrorCode, reason: str) -> None:
        pass


class Shares:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self.configs = GroupConfigs(node)
        self.beginnings = Beginnings(node)
        self.sweeping = Sweeping(node, self.beginnings)
        self.sessions = ShareSessions(lambda: node.settings.group_share_sessions, self.release)

    # Fetching

    def find(self, topic_id: TopicId, index: int) -> QueuePartition | None:
        """The partition, where it is led here and its ledger answers. None: `begin` says why not, or makes it so."""
        queue = self._node.ledgers.find(topic_id, index)
        return queue if queue is not None and queue.coordinator.state is not None else None

    async def begin(self, topic_id: TopicId, index: int, group: str) -> QueuePartition:
        """Makes the group's ledger on a partition that this node leads, where the group's coordinator says so. Raises Refusal."""
        self.check_leads(topic_id, index)
        if self._node.image.companion_of(topic_id) is None:
            await self.beginnings.check(LedgerQuestion(group, topic_id, index))  # Nothing is made for a group that nobody knows.
        await self._node.ledgers.prepare(topic_id)
        queue = await self._loaded(topic_id, index)
        try:
            await self.beginnings.begin(queue, group)
        except NotHere:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this node has just stopped to lead the partition") from None
        except QueueRefusal as refusal:
            code = ErrorCode.INVALID_REQUEST if refusal.code is Code.INVALID else _as_refusal(refusal).code
            raise Refusal(code, refusal.words) from None
        except DiskFailed as failure:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"the partition's log cannot be read: {failure}") from None
        return queue

    async def _loaded(self, topic_id: TopicId, index: int) -> QueuePartition:
        ends = self._node.env.now() + LEADER_LOOKED_FOR_SECONDS
        while (queue := self.find(topic_id, index)) is None:
            self.check_leads(topic_id, index)
            if self._node.env.now() > ends:
                raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's ledger is not loaded yet; ask again")
            await asyncio.sleep(LOOKED_AGAIN_SECONDS)
        return queue

    def check_leads(self, topic_id: TopicId, index: int) -> None:
        """Raises Refusal where this node does not lead the partition."""
        partition = self._node.partitions.find_by_id(topic_id, index)
        if partition is None or partition.leader is None:
            raise Refusal(*self._node.why_not_here(topic_id, index))
        if partition.is_internal:
            raise Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "topics of the cluster's own have no share groups")

    def leader_of(self, topic_id: TopicId, index: int) -> tuple[int, int]:
        """(node, epoch), as far as is known."""
        state = self._node.image.partition(topic_id, index)
        return (NO_NODE, -1) if state is None else (int(state.leader), int(state.leader_epoch))

    def acknowledge(self, session: ShareSession, row: SharedPartition, *, renews: bool) -> Acknowledging | Refusal:
        """Decides what a member says of records of one partition, or tells why not."""
        config = self.configs.config_of(session.group)
        try:
            check(row.acknowledged, renews=renews and config.share_renew_acknowledge_enable)
            self.check_leads(row.topic_id, row.partition)
            queue = self.find(row.topic_id, row.partition)
            if queue is None:
                raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the partition's ledger is not loaded yet; ask again")
        except Refusal as refusal:
            return refusal
        return Acknowledging(queue, session.group, session.who, row.acknowledged, config.share_record_lock_duration_ms)

    def release(self, session: ShareSession) -> None:
        """What the member holds goes back at once."""
        for place in session.ever:
            queue = self.find(*place)
            if queue is not None and queue.state.has(session.group):
                _Leaving(queue, session.group, session.who).begin()

    # Admins

    async def learn_of_ledgers(self, places: Iterable[Place]) -> None:
        """Catches up with the metadata where this node knows of no ledger at one of these places: the partition's leader may have made one
        of which this node has not heard yet. Raises Refusal."""
        if all(map(self._may_have_ledgers, places)):
            return
        try:
            await catch_up(self._node)
        except Refusal as refusal:
            raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, refusal.reason) from None

    def _may_have_ledgers(self, place: Place) -> bool:
        image = self._node.image
        return image.partition(*place) is not None and image.companion_of(place.topic_id) is not None

    async def standing(self, topic_id: TopicId, index: int, group: str) -> Standing:
        """For a node that has learned of ledgers. Raises Refusal."""
        if self._node.image.companion_of(topic_id) is None:
            return Standing()  # Nobody has ever fetched.
        there = Question("share.standing", {"group": group}, lambda answer: Standing(*answer.fields["standing"]))
        try:
            return await self._node.queues.asking.ask(Place(topic_id, index), lambda queue: ledger_calls.standing(queue, group), there)
        except QueueRefusal as refusal:
            raise _as_refusal(refusal) from None

    async def start(self, topic_id: TopicId, index: int, group: str, offset: int) -> None:
        """Begins the group's ledger at an offset, anew if it has begun. Raises Refusal."""
        await self._node.ledgers.prepare(topic_id)
        there = Question("share.start", {"group": group, "offset": offset}, lambda answer: None)
        try:
            await self._node.queues.asking.ask(Place(topic_id, index), lambda queue: ledger_calls.start(queue, group, offset), there)
        except QueueRefusal as refusal:
            raise _as_refusal(refusal) from None

    async def forget_all(self, group: str, ledgers: Ledgers) -> None:
        """Raises Refusal where one of them may still be there."""
        places = [Place(topic_id, index) for topic_id, each in ledgers.items() for index in each.partitions]
        await self.forget(group, places)

    async def forget(self, group: str, places: Sequence[Place]) -> None:
        """Raises Refusal where one of them may still be there."""
        await self.learn_of_ledgers(places)
        await together(partial(self._forget, group, place) for place in places)

    async def _forget(self, group: str, place: Place) -> None:
        if not self._may_have_ledgers(place):
            return  # It went with its topic, or was never made.
        there = Question("share.forget", {"group": group}, lambda answer: None)
        try:
            await self._node.queues.asking.ask(place, lambda queue: ledger_calls.forget(queue, group), there)
        except QueueRefusal as refusal:
            if refusal.code is not Code.NO_SUCH_QUEUE:
                raise _as_refusal(refusal) from None


_CODES = {Code.NO_SUCH_QUEUE: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, Code.FULL: ErrorCode.POLICY_VIOLATION}


def _as_refusal(refusal: QueueRefusal) -> Refusal:
    """COORDINATOR_NOT_AVAILABLE: it may have been done, or not."""
    return Refusal(_CODES.get(refusal.code, ErrorCode.COORDINATOR_NOT_AVAILABLE), refusal.words)
