"""Why a queue's partition does not do what it was asked for, in the words of the queues' doors."""

from typing import TYPE_CHECKING, Any

from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.broker.quorum_calls import catch_up
from penstock.errors import Refusal
from penstock.queues.replies import Fault

if TYPE_CHECKING:
    from penstock.broker.node import Node


class NotHere(Exception):
    """This node does not lead the partition, or its ledger is not loaded: nothing was done. Another node does, or this one will soon."""


def checked(reply: Any) -> Any:
    if reply.fault is not Fault.NONE:
        raise refusal_of(reply.fault)
    return reply


def refusal_of(fault: Fault) -> QueueRefusal:
    if fault is Fault.NO_SUCH_GROUP:
        return QueueRefusal(Code.INVALID, "the queue has no such group")
    if fault is Fault.TOO_SOON:
        return QueueRefusal(Code.BUSY, "the queue was purged a moment ago: wait, or purge it through another door")
    if fault is Fault.TOO_MANY_NOTES:
        return QueueRefusal(Code.NOT_AVAILABLE, "as much is kept with the queue as may be")
    if fault is Fault.TOO_MANY_GROUPS:
        return QueueRefusal(Code.NOT_AVAILABLE, "the queue has as many groups as it may")
    return QueueRefusal(Code.INVALID, "more was asked for at once than may be")


def not_available(refusal: Refusal) -> QueueRefusal:
    return QueueRefusal(Code.NOT_AVAILABLE, f"the queue's ledger cannot answer now ({refusal.reason}); ask again")


async def caught_up(node: "Node") -> None:
    """Waits until this node knows every queue that was there before the call. Raises QueueRefusal."""
    try:
        await catch_up(node)
    except Refusal as refusal:
        raise QueueRefusal(Code.NOT_AVAILABLE, refusal.reason) from None
