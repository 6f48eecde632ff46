"""ShareAcknowledge, versions 1 and 2 (KIP-932, renewals from 2: KIP-1222).

What becomes of records that a member of a share group holds, without taking others. It goes on with the member's share session as a fetch
does; opening one by it is INVALID_SHARE_SESSION_EPOCH. Closing the session gives back what the member still holds.
"""

from typing import TYPE_CHECKING

from penstock.broker.calls import Call
from penstock.broker.shares.acknowledging import Acknowledging
from penstock.broker.shares.refusals import heard
from penstock.broker.shares.sessions import CLOSES, OPENS, ShareSession
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import Buffer, TopicId
from penstock.wire.share_requests import ShareAcknowledgeRequest, SharedPartition, read_share_acknowledge
from penstock.wire.share_responses import NO_LEADER, SharedRow, write_share_acknowledge_response

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def share_acknowledge(node: "Node", call: Call) -> list[Buffer]:
    request = read_share_acknowledge(call.frame, call.body_at, call.version)
    try:
        session = _find_session(node, call, request)
    except Refusal as refusal:
        return write_share_acknowledge_response(
            call.version, call.correlation_id, {}, error_code=refusal.code, error_message=refusal.reason
        )
    said = [(row, node.shares.acknowledge(session, row, renews=request.renews)) for row in request.partitions]
    topics: dict[TopicId, list[SharedRow]] = {}
    for row, acknowledging in said:
        topics.setdefault(row.topic_id, []).append(await _row(node, row, acknowledging))
    if request.session_epoch == CLOSES:
        node.shares.sessions.close(session)
    return write_share_acknowledge_response(
        call.version,
        call.correlation_id,
        topics,
        lock_ms=node.shares.configs.config_of(session.group).share_record_lock_duration_ms,
        node_endpoints=node.endpoints() if any(row.leader != NO_LEADER for rows in topics.values() for row in rows) else (),
    )


def _find_session(node: "Node", call: Call, request: ShareAcknowledgeRequest) -> ShareSession:
    if not request.group or not request.member_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "a share acknowledgement names its group and its member")
    if request.session_epoch == OPENS:
        raise Refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "a share session is opened by a fetch")
    return node.shares.sessions.resume(request.group, request.member_id, request.session_epoch, call.connection)


async def _row(node: "Node", row: SharedPartition, acknowledging: Acknowledging | Refusal) -> SharedRow:
    refusal = acknowledging if isinstance(acknowledging, Refusal) else await acknowledging.outcome()
    if refusal is None:
        return SharedRow(row.partition)
    code = heard(refusal).code
    is_elsewhere = code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leader = node.shares.leader_of(row.topic_id, row.partition) if is_elsewhere else NO_LEADER
    return SharedRow(row.partition, code, refusal.reason, leader=leader)
