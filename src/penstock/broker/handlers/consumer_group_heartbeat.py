"""ConsumerGroupHeartbeat, versions 0 and 1 (KIP-848; patterns and member ids of the client's making from 1).

The whole protocol of a member: it joins, says what it reads and has, is told what it shall have, and leaves. Nothing is parked.
An empty pattern, which librdkafka sends, is none. What a member at rest says, and hears, goes by a short way.
"""

from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.askers import Asker, Body
from penstock.broker.calls import Call
from penstock.broker.group_answers import heartbeat_body
from penstock.errors import ErrorCode
from penstock.groups.commands import ConsumerHeartbeat
from penstock.groups.consumer.partitions import gathered
from penstock.groups.replies import ConsumerHeartbeatReply
from penstock.wire import schemas
from penstock.wire.consumer_heartbeat import QuietHeartbeat, read_quiet_heartbeat, write_quiet_answer

if TYPE_CHECKING:
    from penstock.broker.node import Node

_OWN_IDS_FROM = 1
JOINS = 0


def consumer_group_heartbeat(node: "Node", call: Call) -> None:
    write = partial(_written, call.correlation_id)
    quiet = read_quiet_heartbeat(call.version, call.frame, call.body_at)
    if quiet is not None and quiet.member_id and quiet.member_epoch > JOINS:
        node.groups.put(call, quiet.group, partial(_quiet_order, call, quiet), write=write, refuse=_refused, needs_name=False)
        return
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    owned, regex = request.topic_partitions, getattr(request, "subscribed_topic_regex", None)

    def order(asker: Asker) -> ConsumerHeartbeat:
        return ConsumerHeartbeat(
            token=asker,
            group=request.group_id,
            member_id=request.member_id,
            fresh_member_id=request.member_id or node.groups.new_member_id(call.client_id, request.instance_id),
            member_epoch=request.member_epoch,
            instance_id=request.instance_id,
            rack_id=request.rack_id,
            client_id=call.client_id or "",
            client_host=f"/{call.connection.client_host}",  # With Java's slash: tools show it.
            rebalance_timeout_ms=schemas.milliseconds(request.rebalance_timeout),
            topics=request.subscribed_topic_names,
            regex=regex,
            assignor=request.server_assignor,
            owned=None if owned is None else gathered((schemas.topic_id_bytes(row.topic_id), row.partitions) for row in owned),
            brings_member_id=call.version >= _OWN_IDS_FROM,
        )

    joins = request.member_epoch == JOINS
    node.groups.put(call, request.group_id, order, write=write, refuse=_refused, needs_name=False, may_begin=joins, pattern=regex)


def _quiet_order(call: Call, quiet: QuietHeartbeat, asker: Asker) -> ConsumerHeartbeat:
    return ConsumerHeartbeat(
        token=asker, group=quiet.group, member_id=quiet.member_id, fresh_member_id=quiet.member_id, member_epoch=quiet.member_epoch,
        instance_id=quiet.instance_id, client_id=call.client_id or "", client_host=f"/{call.connection.client_host}",
    )  # fmt: skip


def _refused(code: ErrorCode) -> ConsumerHeartbeatReply:
    return ConsumerHeartbeatReply(error=code)


def _written(correlation_id: int, _: int, reply: ConsumerHeartbeatReply) -> Body:
    if reply.error is ErrorCode.NONE and reply.assignment is None and reply.member_id is not None:
        frame = write_quiet_answer(correlation_id, reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms)
        if frame is not None:
            return frame
    return heartbeat_body(reply)
