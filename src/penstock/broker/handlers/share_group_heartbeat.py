"""ShareGroupHeartbeat, version 1 (KIP-932; version 0 was Kafka 4.0's early access and is gone from clients).

The whole protocol of a share group's member: it joins under an id of its own making, says what it reads, is told from which partitions it
fetches, and leaves. Nothing is parked.
"""

from typing import TYPE_CHECKING

from penstock.broker.askers import Asker, Body
from penstock.broker.calls import Call
from penstock.broker.group_answers import heartbeat_body
from penstock.errors import ErrorCode
from penstock.groups.commands import ShareHeartbeat
from penstock.groups.replies import ShareHeartbeatReply
from penstock.groups.share.heartbeating import JOINS
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


def share_group_heartbeat(node: "Node", call: Call) -> None:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)

    def order(asker: Asker) -> ShareHeartbeat:
        return ShareHeartbeat(
            token=asker,
            group=request.group_id,
            member_id=request.member_id,
            member_epoch=request.member_epoch,
            rack_id=request.rack_id,
            client_id=call.client_id or "",
            client_host=f"/{call.connection.client_host}",  # With Java's slash: tools show it.
            topics=request.subscribed_topic_names,
        )

    joins = request.member_epoch == JOINS
    node.groups.put(call, request.group_id, order, write=_written, refuse=_refused, needs_name=False, may_begin=joins)


def _refused(code: ErrorCode) -> ShareHeartbeatReply:
    return ShareHeartbeatReply(error=code)


def _written(_: int, reply: ShareHeartbeatReply) -> Body:
    return heartbeat_body(reply)
