"""ShareFetch, versions 1 and 2 (KIP-932 share sessions, KIP-1206 acquire modes, KIP-1222 renewals).

A member says what becomes of records that it holds, and takes others. Both are decided when the request comes, so one flush makes both
durable; where nothing is ready it waits for as long as it said. Batches leave as they are stored; which of their records were acquired, and
how often each was delivered, stands beside them. Only records that are committed and not aborted are lent: `share.isolation.level` is
read_committed, and can be nothing else. At most as many records are acquired as were asked for, in either acquire mode; the batch size is a
hint that needs none.
Opening a session with acknowledgements: INVALID_REQUEST, as Kafka has it. A request that renews takes nothing.
"""

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.connection import Reply
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.shares.acquiring import Lot, Taking, lot_at_hand
from penstock.broker.shares.sessions import CLOSES, OPENS, Place, ShareSession
from penstock.broker.shares.shares import told
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
        "_correlation_id", "_held_bytes", "_is_over", "_node", "_reply", "_request", "_rows", "_session", "_straight", "_task",
    )  # fmt: skip

    def __init__(self, node: "Node", correlation_id: int, request: ShareFetchRequest, session: ShareSession, reply: Reply) -> None:
        self._node = node
        self._correlation_id = correlation_id
        self._request = request
        self._session = session
        self._reply = reply
        self._rows: dict[Place, SharedRow] = {}
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

    # Straight on

    def _went_straight(self, told: Taken | Refusal | None) -> None:
        """All that was decided is durable."""
        self._node.request_room.let_go(self._held_bytes)
        try:
            self._go_on(told)
        except Exception:  # Others are yet to hear of what was decided with it.
            log.exception("a share fetch failed")
            self._reply.connection.close()  # There will be no answer.

    def _go_on(self, told: Taken | Refusal | None) -> None:
        straight = self._straight
        assert straight is not None
        if told is None:
            self._node.spawn(self._run(self._everything()))
        elif isinstance(told, Refusal):
            if straight.row is not None:
                self._note(straight.row, told)
            self._answer([])
        elif self._is_over:
            straight.queue.give_back(self._session.group, told.deliveries)
        else:
            self._answer_straight(straight, told)

    def _answer_straight(self, straight: Straight, taken: Taken) -> None:
        lots = self._lots_at_hand(straight.queue, taken) if taken.deliveries else None if self._request.wait_ms > 0 else []
        if lots:
            self._answer_plainly(lots[0])
            return
        if straight.row is not None:
            self._note(straight.row, None)
        if lots is None:
            self._node.spawn(self._run(self._rest(straight.queue, taken)))
        else:
            self._answer(lots)

    def _lots_at_hand(self, queue: QueuePartition, taken: Taken) -> list[Lot] | None:
        """None: they are to be read from the disk."""
        try:
            lot = lot_at_hand(queue, self._session.group, taken.deliveries, self._bytes_max())
        except DiskFailed as failure:
            queue.give_back(self._session.group, taken.deliveries)
            self._report(failure)
            return []
        return None if lot is None else [lot] if lot.acquired else []

    async def _rest(self, queue: QueuePartition, taken: Taken) -> None:
        """Waits, where nothing was taken; reads what was."""
        if self._is_over:
            queue.give_back(self._session.group, taken.deliveries)
            return
        self._answer(await self._lots([queue], max(0, self._request.wait_ms) / 1000, taken))

    # In all other cases

    async def _everything(self) -> None:
        request, session = self._request, self._session
        if self._is_over:
            return
        said = [(row, self._node.shares.acknowledge(session, row, renews=request.renews)) for row in request.partitions if row.acknowledged]
        lots = await self._take() if self._takes else []
        for row, acknowledging in said:
            self._note(row, acknowledging if isinstance(acknowledging, Refusal) else await acknowledging.outcome())
        if request.session_epoch == CLOSES:
            self._node.shares.sessions.close(session)
        self._answer(lots)

    async def _take(self) -> list[Lot]:
        queues = [queue for place in self._session.turn() if (queue := await self._opened(place)) is not None]
        return await self._lots(queues, 0.0 if self._rows else max(0, self._request.wait_ms) / 1000)

    async def _opened(self, place: Place) -> QueuePartition | None:
        """None: the row says why not."""
        shares, group = self._node.shares, self._session.group
        queue = shares.find(*place)
        if queue is not None and queue.state.has(group):
            return queue
        try:
            return await shares.begin(*place, group)
        except Refusal as refusal:
            code = told(refusal).code
            self._rows[place] = SharedRow(place[1], code, refusal.reason, leader=self._leader(place, code))
            return None

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

    async def _lots(self, queues: Sequence[QueuePartition], wait_s: float, taken: Taken | None = None) -> list[Lot]:
        """`taken`: what was taken already, of the only one of them."""
        session = self._session
        try:
            return await Taking(
                queues, session.group, session.who, count=self._count, bytes_max=self._bytes_max(), wait_s=wait_s, taken=taken
            ).lots()
        except DiskFailed as failure:
            self._report(failure)
            return []

    def _report(self, failure: DiskFailed) -> None:
        self._node.report(f"records for share group {self._session.group} cannot be read: {failure}")

    # Answering

    def _note(self, row: SharedPartition, refusal: Refusal | None) -> None:
        """What became of acknowledgements."""
        place = (row.topic_id, row.partition)
        before = self._rows.get(place, SharedRow(row.partition))
        if refusal is not None:
            code = told(refusal).code
            before = before._replace(acknowledge_code=code, acknowledge_message=refusal.reason, leader=self._leader(place, code))
        self._rows[place] = before

    def _answer_plainly(self, lot: Lot) -> None:
        """Nothing is wrong anywhere."""
        node, data = self._node, lot.queue.data
        node.metrics.bytes_out += lot.size
        lock_ms = node.shares.configs.config_of(self._session.group).share_record_lock_duration_ms
        pieces = write_acquired_response(self._correlation_id, data.topic_id, data.index, lot.records, lot.acquired, lock_ms=lock_ms)
        self._reply.send(pieces, lot.size)

    def _answer(self, lots: Sequence[Lot]) -> None:
        size = 0
        for lot in lots:
            place = (lot.queue.data.topic_id, lot.queue.data.index)
            before = self._rows.get(place, SharedRow(place[1]))
            self._rows[place] = before._replace(records=lot.records, acquired=lot.acquired)
            size += lot.size
        topics: dict[TopicId, list[SharedRow]] = {}
        for place, row in self._rows.items():
            topics.setdefault(place[0], []).append(row)
        self._node.metrics.bytes_out += size
        pieces = write_share_fetch_response(
            self._correlation_id,
            topics,
            lock_ms=self._node.shares.configs.config_of(self._session.group).share_record_lock_duration_ms,
            node_endpoints=self._node.endpoints() if any(row.leader != NO_LEADER for row in self._rows.values()) else (),
        )
        self._reply.send(pieces, sum(map(len, pieces)))

    def _leader(self, place: Place, code: ErrorCode) -> tuple[int, int]:
        return self._node.shares.leader_of(*place) if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else NO_LEADER
