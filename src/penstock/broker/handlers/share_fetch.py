"""ShareFetch, versions 1 and 2 (KIP-932 share sessions, KIP-1206 acquire modes, KIP-1222 renewals).

A member says what becomes of records that it holds, and takes others. Both are decided when the request comes, so one flush makes both
durable; where nothing is ready it waits for as long as it said. Batches leave as they are stored; which of their records were acquired, and
how often each was delivered, stands beside them. Only records that are committed and not aborted are lent: `share.isolation.level` is
read_committed, and can be nothing else. At most as many records are acquired as were asked for, in either acquire mode; the batch size is a
hint that needs none.
Opening a session with acknowledgements: INVALID_SHARE_SESSION_EPOCH. A request that renews takes nothing.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.broker.calls import Call
from penstock.broker.connection import Reply
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.shares.acknowledging import Acknowledging
from penstock.broker.shares.acquiring import Lot, Taking
from penstock.broker.shares.sessions import CLOSES, OPENS, Place, ShareSession
from penstock.broker.shares.shares import told
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.vocabulary import TopicId
from penstock.wire.share_requests import SharedPartition, ShareFetchRequest, read_share_fetch
from penstock.wire.share_responses import NO_LEADER, SharedRow, write_share_fetch_response

if TYPE_CHECKING:
    from penstock.broker.node import Node

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
    fetch = ShareFetch(node, call.correlation_id, request, session, reply)
    reply.parked = fetch
    node.spawn(fetch.run())


def _find_session(node: "Node", call: Call, request: ShareFetchRequest) -> ShareSession:
    if not request.group or not request.member_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a share fetch names its group and its member")
    sessions, connection = node.shares.sessions, call.connection
    places = [(row.topic_id, row.partition) for row in request.partitions]
    if request.session_epoch == OPENS:
        if any(row.acknowledged for row in request.partitions):
            raise Refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a share session that opens has nothing to acknowledge")
        return sessions.open(request.group, request.member_id, connection, places)
    session = sessions.resume(request.group, request.member_id, request.session_epoch, connection)
    session.change(places if request.session_epoch != CLOSES else (), request.forgotten)
    return session


class ShareFetch:
    """One request until it is answered."""

    def __init__(self, node: "Node", correlation_id: int, request: ShareFetchRequest, session: ShareSession, reply: Reply) -> None:
        self._node = node
        self._correlation_id = correlation_id
        self._request = request
        self._session = session
        self._reply = reply
        self._rows: dict[Place, SharedRow] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_over = False

    def cancel(self) -> None:
        """Its client is gone."""
        self._is_over = True
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> None:
        if self._is_over:
            return
        node, self._task = self._node, asyncio.current_task()
        held_bytes = HELD_BYTES + HELD_BYTES_EACH * len(self._session.places)
        node.request_room.hold(held_bytes)
        try:
            await self._run()
        except Exception:
            self._reply.connection.close()  # There will be no answer; the node's top reports what went wrong.
            raise
        finally:
            node.request_room.let_go(held_bytes)

    async def _run(self) -> None:
        request, session = self._request, self._session
        said = [(row, self._node.shares.acknowledge(session, row, renews=request.renews)) for row in request.partitions if row.acknowledged]
        takes = request.session_epoch != CLOSES and not request.renews and request.records_max > 0 and request.bytes_max > 0
        lots = await self._take() if takes else []
        for row, acknowledging in said:
            await self._note_outcome(row, acknowledging)
        if request.session_epoch == CLOSES:
            self._node.shares.sessions.close(session)
        self._answer(lots)

    # Acknowledging

    async def _note_outcome(self, row: SharedPartition, acknowledging: Acknowledging | Refusal) -> None:
        place = (row.topic_id, row.partition)
        before = self._rows.setdefault(place, SharedRow(row.partition))
        try:
            if isinstance(acknowledging, Refusal):
                raise acknowledging
            await acknowledging.outcome()
        except Refusal as refusal:
            code = told(refusal).code
            self._rows[place] = before._replace(acknowledge_code=code, acknowledge_message=refusal.reason, leader=self._leader(place, code))

    # Taking

    async def _take(self) -> list[Lot]:
        node, request, session = self._node, self._request, self._session
        queues = [queue for place in session.turn() if (queue := await self._opened(place)) is not None]
        bytes_max = min(request.bytes_max, node.settings.fetch_max_bytes, node.reply_room.fair_share())
        wait_s = 0.0 if self._rows else max(0, request.wait_ms) / 1000
        count = min(request.records_max, RECORDS_MAX)
        try:
            return await Taking(queues, session.group, session.who, count=count, bytes_max=bytes_max, wait_s=wait_s).lots()
        except DiskFailed as failure:
            node.report(f"records for share group {session.group} cannot be read: {failure}")
            return []

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

    # Answering

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
