"""The ends of transactions, carried from their coordinators to the partitions that they wrote to, until every one of them has its marker.

What is owed is read from the coordinator's state and believed once all of that state is durable: a marker is a promise. It is read again
whenever the state changes, after a failover too, so nothing needs to be remembered here but what is under way. Of each node that leads some
of the partitions is asked once for all that is owed to it at that moment; one that does not answer keeps nobody else waiting.
A partition that was deleted with its topic needs no marker any more. That this node does not know a partition does not say so: the leader
that added it to the transaction may have heard of it first. So it counts as deleted only after this node has caught up (`_find_out`).
Not here: how a marker is written (marker_writing.py), what is owed (transactions/).
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from penstock.broker.quorum_calls import catch_up
from penstock.errors import ErrorCode, MalformedInput, Refusal
from penstock.links.failures import LinkFailure
from penstock.links.kinds import Kind
from penstock.links.transaction_calls import Ended, Place, read_codes, write_ended
from penstock.transactions.commands import MarkersWritten
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.records import TransactionPartition
from penstock.transactions.views import MarkersOwed
from penstock.vocabulary import NO_NODE, NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node
    from penstock.broker.transactions import TransactionsPartition

log = logging.getLogger("penstock")

ASKED_SECONDS = 10.0  # A leader answers when its marker is committed: that may take as long as a follower is given.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 1.0
PLACES_AT_ONCE_MAX = 5_000  # In one question: its bytes are bounded.

# The marker is there; or it needs none, as a later producer with this id has written to the partition.
_DONE = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
# What no leader should say to the coordinator of a transaction. Everything else passes by itself: leaders move, replicas come back.
_STRANGE = (ErrorCode.TRANSACTION_COORDINATOR_FENCED, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_REQUEST)
_UnderWay = tuple[str, int, TransactionPartition]  # A transactional id, the transaction's number, a partition.
_Wanted = list[tuple[MarkersOwed, list[TransactionPartition]]]


class MarkerSending:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._looking: dict[TransactionsPartition, bool] = {}  # Whether to look once more.
        self._wants_all: dict[TransactionsPartition, None] = {}  # Something was not done: look at all that is owed, not at news alone.
        self._under_way: dict[TransactionsPartition, dict[_UnderWay, None]] = {}
        self._pauses: dict[TransactionsPartition, float] = {}

    def look_soon(self, coordinator: "TransactionsPartition") -> None:
        """Something may be owed that was not before."""
        if coordinator.state is None or next(coordinator.state.owed(), None) is None:
            return
        if coordinator in self._looking:
            self._looking[coordinator] = True
            return
        self._looking[coordinator] = False
        self._node.spawn(self._look(coordinator))

    def forget(self, coordinator: "TransactionsPartition") -> None:
        """Another node coordinates, and reads from the log what is owed."""
        for table in (self._under_way, self._pauses, self._wants_all):
            table.pop(coordinator, None)

    async def _look(self, coordinator: "TransactionsPartition") -> None:
        try:
            while True:
                self._looking[coordinator] = False
                look = _all_owed if self._wants_all.pop(coordinator, self) is None else _newly_owed
                self._send(coordinator, await coordinator.read(look))
                if not self._looking[coordinator]:
                    return
        except Refusal:
            if coordinator.state is not None:  # Nothing is committed for a while. Somebody else looks after it, or we do, later.
                self._look_again(coordinator)
            else:
                self.forget(coordinator)
        finally:
            del self._looking[coordinator]

    def _send(self, coordinator: "TransactionsPartition", owed: list[MarkersOwed]) -> None:
        under_way = self._under_way.setdefault(coordinator, {})
        by_leader: dict[int, _Wanted] = {}
        unknown: _Wanted = []
        waits = False
        for each in owed:
            places: dict[int, list[TransactionPartition]] = {}
            for place in each.partitions:
                if (each.transactional_id, each.number, place) not in under_way:
                    places.setdefault(self._leader_of(place), []).append(place)
            if theirs := places.pop(_UNKNOWN, []):
                unknown.append((each, theirs))
            waits |= bool(places.pop(NO_NODE, []))
            for leader, theirs in places.items():
                by_leader.setdefault(leader, []).append((each, theirs))
        for leader, wanted in by_leader.items():
            for piece in _pieces(wanted):
                self._begin(coordinator, piece)
                self._node.spawn(self._send_to(coordinator, NodeId(leader), piece))
        if unknown:
            self._begin(coordinator, unknown)
            self._node.spawn(self._find_out(coordinator, unknown))
        if waits:
            self._look_again(coordinator)

    async def _find_out(self, coordinator: "TransactionsPartition", unknown: _Wanted) -> None:
        """Looks once more for partitions that this node did not know, when it knows everything that their leaders knew."""
        try:
            await catch_up(self._node)
            for each, places in unknown:
                if deleted := [place for place in places if self._leader_of(place) == _UNKNOWN]:
                    self._written(coordinator, each, deleted)
        except Refusal as refusal:
            log.debug("whether partitions of transactions are deleted is asked again: %s", refusal.reason)
        finally:
            self._end(coordinator, unknown)
        self._look_again(coordinator)

    async def _send_to(self, coordinator: "TransactionsPartition", leader: NodeId, wanted: _Wanted) -> None:
        epoch = int(coordinator.partition.epoch)
        ends = [
            Ended(
                each.producer_id, each.producer_epoch, each.number, each.is_commit, each.is_v2, epoch,
                tuple(Place(*place) for place in places),
            )
            for each, places in wanted
        ]  # fmt: skip
        try:
            codes = await self._ask(leader, ends)
        finally:
            self._end(coordinator, wanted)
        if codes is None or len(codes) != len(wanted):
            self._look_again(coordinator)
            return
        is_all = True
        for (each, places), row in zip(wanted, codes, strict=True):
            done = [place for place, code in zip(places, row, strict=False) if code in _DONE]
            is_all &= len(done) == len(places)
            for place, code in zip(places, row, strict=False):
                if code in _STRANGE and place not in done:
                    self._node.report(
                        f"the end of a transaction of {each.transactional_id!r} is refused by {place.topic}-{place.partition}: "
                        f"{code.name}; readers of committed records wait there, and it is tried again"
                    )
            if done:
                self._written(coordinator, each, done)
        if is_all:
            self._pauses.pop(coordinator, None)
        else:
            self._look_again(coordinator)

    async def _ask(self, leader: NodeId, ends: list[Ended]) -> list[tuple[ErrorCode, ...]] | None:
        """None: nobody knows what became of them."""
        if leader == self._node.settings.node_id:
            return await self._node.marker_writing.write_all(ends)
        if self._node.links is None:
            return None
        try:
            return read_codes(await self._node.links.ask(leader, Kind.WRITE_MARKERS, write_ended(ends), timeout_s=ASKED_SECONDS))
        except (LinkFailure, MalformedInput) as failure:
            log.debug("markers for node %d are sent again: %s", leader, failure)
            return None

    def _written(self, coordinator: "TransactionsPartition", each: MarkersOwed, places: list[TransactionPartition]) -> None:
        if coordinator.state is not None:
            coordinator.order(
                MarkersWritten(
                    transactional_id=each.transactional_id, producer_id=each.producer_id, producer_epoch=each.producer_epoch,
                    number=each.number, partitions=tuple(places),
                )
            )  # fmt: skip

    def _look_again(self, coordinator: "TransactionsPartition") -> None:
        if coordinator.state is None:
            return
        self._wants_all[coordinator] = None
        pause = self._pauses.get(coordinator, PAUSE_SECONDS_MIN)
        self._pauses[coordinator] = min(2 * pause, PAUSE_SECONDS_MAX)
        asyncio.get_running_loop().call_later(pause, self.look_soon, coordinator)

    def _leader_of(self, place: TransactionPartition) -> int:
        topic = self._node.image.topics_by_id.get(place.topic_id)
        if topic is None or place.partition >= len(topic.partitions):
            return _UNKNOWN
        return topic.partitions[place.partition].leader

    def _begin(self, coordinator: "TransactionsPartition", wanted: _Wanted) -> None:
        self._under_way.setdefault(coordinator, {}).update((_key(each, place), None) for each, places in wanted for place in places)

    def _end(self, coordinator: "TransactionsPartition", wanted: _Wanted) -> None:
        under_way = self._under_way.get(coordinator, {})
        for each, places in wanted:
            for place in places:
                under_way.pop(_key(each, place), None)


_UNKNOWN = -2  # In place of a leader.


def _all_owed(state: TransactionCoordinator) -> list[MarkersOwed]:
    return list(state.owed())


def _newly_owed(state: TransactionCoordinator) -> list[MarkersOwed]:
    return state.newly_owed()


def _key(each: MarkersOwed, place: TransactionPartition) -> _UnderWay:
    return each.transactional_id, each.number, place


def _pieces(wanted: _Wanted) -> list[_Wanted]:
    """In questions of bounded size."""
    pieces: list[_Wanted] = [[]]
    room = PLACES_AT_ONCE_MAX
    for each, places in wanted:
        for at in range(0, len(places), PLACES_AT_ONCE_MAX):
            part = places[at : at + PLACES_AT_ONCE_MAX]
            if len(part) > room:
                pieces.append([])
                room = PLACES_AT_ONCE_MAX
            pieces[-1].append((each, part))
            room -= len(part)
    return [piece for piece in pieces if piece]
