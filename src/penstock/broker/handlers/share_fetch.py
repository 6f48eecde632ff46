"""ShareFetch, versions 1 and 2 (KIP-932 share sessions, KIP-1206 acquire modes, KIP-1222 renewals).

A member says what becomes of records that it holds, and takes others. Both are decided when the request comes, so one flush makes both
durable; where nothing is ready it waits for as long as it said. Batches leave as they are stored; which of their records were acquired, and
how often each was delivered, stands beside them. Only records that are committed and not aborted are lent: `share.isolation.level` is
read_committed, and can be nothing else. At most as many records are acquired as were asked for, in either acquire mode; the batch size is a
hint that needs none.
A partition that cannot give anything says so in its row; what others give is sent all the same. What was taken and cannot be sent is given
back, and was no delivery; only where the connection ends while it is being taken does it count, with all else that the member had (Kafka
counts it, too).
Opening a session with acknowledgements: INVALID_REQUEST, as Kafka has it. A request that renews takes nothing.
"""

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.connection import Reply
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.shares.acquiring import Lot, Lots, lot_at_hand
from penstock.broker.shares.gathering import Gathering, leave_alone
from penstock.broker.shares.opening import Place
from penstock.broker.shares.refusals import heard
from penstock.broker.shares.sessions import CLOSES, OPENS, ShareSession
from penstock.broker.shares.straight import Straight
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.queues.replies import Taken
from penstock.vocabulary import TopicId
from penstock.wire.share_requests import SharedPartition, ShareFetchRequest, read_share_fetch
from penstock.wire.share_responses import NO_LEADER, SharedRow, write_acquired_response, write_share_fetch_response

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

RECORDS_MAX = 10_000  # Taken by one request.
HELD_BYTES = 2_000  # What a request takes in memory while it waits, about,
HELD_BYTES_EACH = 300  # and for each of its partitions.
NOTHING = Taken(())


def share_fetch(node: "Node", call: Call) -> None:
    request = read_share_fetch(call.frame, call.body_at, call.version)
    reply = call.connection.new_reply()
    try:
        session = _find_session(node, call, request)
    except Refusal as refusal:
        reply.send(write_share_fetch_response(call.correlation_id, {}, error_code=refusal.code, error_message=refusal.reason))
        return
    reply.parked = fetch = ShareFetch(node, call.correlation_id, request, session, reply)
    fetch.begin()


def _find_session(node: "Node", call: Call, request: ShareFetchRequest) -> ShareSession:
    if not request.group or not request.member_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a share fetch names its group and its member")
    sessions, connection = node.shares.sessions, call.connection
    places = [(row.topic_id, row.partition) for row in request.partitions]
    if request.session_epoch == OPENS:
        if any(row.acknowledged for row in request.partitions):
            raise Refusal(ErrorCode.INVALID_REQUEST, "a share session that opens has nothing to acknowledge")
        return sessions.open(request.group, request.member_id, connection, places)
    return sessions.resume(
        request.group, request.member_id, request.session_epoch, connection,
        wanted=places, forgotten=request.forgotten, holds=partial(_holds, node, request.group),
    )  # fmt: skip


def _holds(node: "Node", group: str, place: Place) -> bool:
    """Whether members of the group may hold records of a partition: who knows, where its ledger does not answer."""
    queue = node.ledgers.find(*place)
    if queue is None or queue.coordinator.state is None:
        return queue is not None
    return queue.state.has(group) and queue.state.ledgers[group].leased > 0


class ShareFetch:
    """One request until it is answered."""

    __slots__ = (
        "_correlation_id", "_held_bytes", "_is_over", "_lots", "_node", "_reply", "_request", "_rows", "_session", "_straight", "_task",
    )  # fmt: skip

    def __init__(self, node: "Node", correlation_id: int, request: ShareFetchRequest, session: ShareSession, reply: Reply) -> None:
        self._node = node
        self._correlation_id = correlation_id
        self._request = request
        self._session = session
        self._reply = reply
        self._rows: dict[Place, SharedRow] = {}
        self._lots = Lots()  # What it is given, until it is answered.
        self._held_bytes = HELD_BYTES + HELD_BYTES_EACH * len(session.places)
        self._straight: Straight | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def cancel(self) -> None:
        """Its client is gone."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    def begin(self) -> None:
        self._straight = Straight.of(self._node.shares, self._request, self._session) if self._takes else None
        if self._straight is None:
            self._node.spawn(self._run(self._everything()))
        else:
            self._node.request_room.hold(self._held_bytes)
            self._straight.begin(self._count, self._bytes_max(), self._went_straight)

    async def _run(self, work: Coroutine[Any, Any, None]) -> None:
        node, self._task = self._node, asyncio.current_task()
        node.request_room.hold(self._held_bytes)
        try:
            await work
        except Exception:
            self._reply.connection.close()  # There will be no answer; the node's top reports what went wrong.
            raise
        finally:
            node.request_room.let_go(self._held_bytes)
            if self._reply.pieces is None:
                self._lots.cancel()

    # Straight on

    def _went_straight(self, told: Taken | Refusal | None) -> None:
        """All that was decided is durable."""
        self._node.request_room.let_go(self._held_bytes)
        try:
            self._go_on(told)
        except Exception:  # Others are yet to hear of what was decided with it.
            log.exception("a share fetch failed")
            self._reply.connection.close()  # There will be no answer.
            if isinstance(told, Taken) and self._straight is not None and self._reply.pieces is None:
                self._straight.queue.give_back(self._session.group, told.deliveries)

    def _go_on(self, told: Taken | Refusal | None) -> None:
        straight = self._straight
        assert straight is not None
        if told is None:
            self._node.spawn(self._run(self._everything()))
        elif isinstance(told, Refusal):
            self._go_on_without(straight, told)
        elif self._is_over:
            straight.queue.give_back(self._session.group, told.deliveries)
        else:
            self._answer_straight(straight, told)

    def _go_on_without(self, straight: Straight, refusal: Refusal) -> None:
        """The ledger has decided nothing."""
        if straight.row is not None:
            self._note(straight.row, refusal)
        if straight.queue.coordinator.state is not None:  # Else it is looked for again.
            leave_alone(self._node, self._session, _place_of(straight.queue), refusal)
        self._node.spawn(self._run(self._rest(straight.queue, NOTHING)))

    def _answer_straight(self, straight: Straight, taken: Taken) -> None:
        lot = self._lot_at_hand(straight.queue, taken) if taken.deliveries else None
        if lot is not None and lot.acquired:
            self._answer_plainly(lot)
            return
        if straight.row is not None:
            self._note(straight.row, None)
        if lot is None and (taken.deliveries or self._request.wait_ms > 0):
            self._node.spawn(self._run(self._rest(straight.queue, taken)))
        else:
            self._answer()

    def _lot_at_hand(self, queue: QueuePartition, taken: Taken) -> Lot | None:
        """None: it is to be read from the disk, which may yet be able to."""
        try:
            return lot_at_hand(queue, self._session.group, taken.deliveries, self._bytes_max())
        except DiskFailed:
            return None

    async def _rest(self, queue: QueuePartition, taken: Taken) -> None:
        """Reads what was taken; waits, where that is nothing."""
        if self._is_over:
            queue.give_back(self._session.group, taken.deliveries)
            return
        gathering = self._gathering()
        if taken.deliveries:
            await gathering.read(queue, taken)
        if not self._lots:
            await gathering.run(NOTHING)
        self._refuse(gathering.refused)
        self._answer()

    # In all other cases

    async def _everything(self) -> None:
        request, session = self._request, self._session
        if self._is_over:
            return
        said = [(row, self._node.shares.acknowledge(session, row, renews=request.renews)) for row in request.partitions if row.acknowledged]
        if self._takes:
            gathering = self._gathering()
            await gathering.run()
            self._refuse(gathering.refused)
        for row, acknowledging in said:
            self._note(row, acknowledging if isinstance(acknowledging, Refusal) else await acknowledging.outcome())
        if request.session_epoch == CLOSES:
            self._node.shares.sessions.close(session)
        self._answer()

    # Taking

    @property
    def _takes(self) -> bool:
        request = self._request
        return request.session_epoch != CLOSES and not request.renews and request.records_max > 0 and request.bytes_max > 0

    @property
    def _count(self) -> int:
        return min(self._request.records_max, RECORDS_MAX)

    def _bytes_max(self) -> int:
        node = self._node
        return min(self._request.bytes_max, node.settings.fetch_max_bytes, node.reply_room.fair_share())

    def _gathering(self) -> Gathering:
        wait_s = max(0, self._request.wait_ms) / 1000
        return Gathering(self._node, self._session, self._lots, count=self._count, bytes_max=self._bytes_max(), wait_s=wait_s)

    # Answering

    def _note(self, row: SharedPartition, refusal: Refusal | None) -> None:
        """What became of acknowledgements."""
        place = (row.topic_id, row.partition)
        before = self._rows.get(place, SharedRow(row.partition))
        if refusal is not None:
            code = heard(refusal).code
            before = before._replace(acknowledge_code=code, acknowledge_message=refusal.reason, leader=self._leader(place, code))
        self._rows[place] = before

    def _refuse(self, refused: Mapping[Place, Refusal]) -> None:
        """Why partitions gave nothing."""
        for place, refusal in refused.items():
            code = refusal.code
            before = self._rows.get(place, SharedRow(place[1]))
            self._rows[place] = before._replace(error_code=code, error_message=refusal.reason, leader=self._leader(place, code))

    def _answer_plainly(self, lot: Lot) -> None:
        """Nothing is wrong anywhere."""
        node, data = self._node, lot.queue.data
        node.metrics.bytes_out += lot.size
        lock_ms = node.shares.configs.config_of(self._session.group).share_record_lock_duration_ms
        pieces = write_acquired_response(self._correlation_id, data.topic_id, data.index, lot.records, lot.acquired, lock_ms=lock_ms)
        self._reply.send(pieces, lot.size)
        self._reply.parked = lot  # It goes back if the connection ends before this is written.

    def _answer(self) -> None:
        for lot in self._lots:
            place = _place_of(lot.queue)
            before = self._rows.get(place, SharedRow(place[1]))
            self._rows[place] = before._replace(records=lot.records, acquired=lot.acquired)
        topics: dict[TopicId, list[SharedRow]] = {}
        for place, row in self._rows.items():
            topics.setdefault(place[0], []).append(row)
        self._node.metrics.bytes_out += self._lots.size
        pieces = write_share_fetch_response(
            self._correlation_id,
            topics,
            lock_ms=self._node.shares.configs.config_of(self._session.group).share_record_lock_duration_ms,
            node_endpoints=self._node.endpoints() if any(row.leader != NO_LEADER for row in self._rows.values()) else (),
        )
        self._reply.send(pieces, sum(map(len, pieces)))
        self._reply.parked = self._lots

    def _leader(self, place: Place, code: ErrorCode) -> tuple[int, int]:
        return self._node.shares.leader_of(*place) if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else NO_LEADER


def _place_of(queue: QueuePartition) -> Place:
    return queue.data.topic_id, queue.data.index
