"""Calls of other nodes about partitions that this one leads: read, carried out, answered.

Each runs beside the others and may wait long. It ends when its asker tells that nobody waits any more, or is gone: what was being lent by
then is given back, and the asker hears that nothing was.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from penstock.broker.memory import HeldReply
from penstock.broker.queues import confirming, looking, ordering, sending, taking
from penstock.broker.queues.asking import Place
from penstock.broker.queues.calls import Code, QueueRefusal, State
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.lines import Wish
from penstock.broker.queues.packing import (
    pack_counts,
    pack_lent,
    pack_peeked,
    pack_sent,
    pack_verdicts,
    unpack_drafts,
    unpack_orders,
)
from penstock.broker.queues.redriving import REDRIVE_OPERATIONS
from penstock.broker.queues.refusals import NotHere
from penstock.broker.shares.ledger_calls import SHARE_OPERATIONS
from penstock.errors import DiskFailed
from penstock.links.door import Asked
from penstock.links.queue_calls import NOT_HERE, QueueAnswer, QueueCall, read_call, read_over, write_answer
from penstock.queues.ids import Handle
from penstock.vocabulary import NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node

Operation = Callable[[QueuePartition, QueueCall], Awaitable[QueueAnswer]]


_CUT_SHORT = QueueAnswer(str(Code.NOT_AVAILABLE), "the queue's leader stops: what was sent may be there or not")


class Answering:
    """A call that is cut short is as if it had not been, and may be made again elsewhere. Only what was sent is not taken back."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self._under_way: dict[tuple[NodeId, int], asyncio.Task[Any]] = {}

    def asked(self, asked: Asked) -> None:
        """Raises MalformedInput."""
        self._node.spawn(self._answer(asked, read_call(asked.body)))

    def over(self, sender: NodeId, body: memoryview) -> None:
        """Nobody waits for the answer to this call any more."""
        task = self._under_way.get((sender, read_over(body)))
        if task is not None:
            task.cancel()

    async def _answer(self, asked: Asked, call: QueueCall) -> None:
        task, key = asyncio.current_task(), (asked.node, call.number)
        assert task is not None
        self._under_way[key] = task
        asked.parked = _Parked(task)
        try:
            asked.answer(write_answer(await self._carry_out(call)))
        except asyncio.CancelledError:
            asked.answer(write_answer(_CUT_SHORT if call.operation == "send" else QueueAnswer(NOT_HERE)))
            raise
        finally:
            del self._under_way[key]

    async def _carry_out(self, call: QueueCall) -> QueueAnswer:
        queue = self._node.queues.asking.here(Place(call.topic_id, call.partition))
        operation = _OPERATIONS.get(call.operation)
        try:
            if queue is None:
                raise NotHere
            if operation is None:
                raise QueueRefusal(Code.NOT_AVAILABLE, f"the queue's leader is of an older version, and knows no {call.operation!r}")
            return await operation(queue, call)
        except NotHere:
            return QueueAnswer(NOT_HERE)
        except QueueRefusal as refusal:
            return QueueAnswer(str(refusal.code), refusal.words)
        except DiskFailed as failure:
            return QueueAnswer(str(Code.NOT_AVAILABLE), f"the queue's log cannot be read: {failure}")
        except (TypeError, ValueError, KeyError) as wrong:
            return QueueAnswer(str(Code.NOT_AVAILABLE), f"the call is not what it should be: {wrong}")


class _Parked:
    __slots__ = ("_task",)

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task

    def cancel(self) -> None:
        """Its asker is gone."""
        self._task.cancel()


async def _send(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    results = await sending.send(queue, unpack_drafts(call.fields["drafts"], call.blobs))
    return QueueAnswer("", fields={"sent": pack_sent(results)})


async def _take(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    fields = call.fields
    held, attempt_id = HeldReply(queue.node.reply_room), str(fields["attempt_id"]).encode()
    wish = Wish(str(fields["group"]), int(fields["count"]), fields["lease_ms"], str(fields["who"]), attempt_id, held)
    wish.only_again = bool(fields.get("only_again"))
    try:
        rows, blobs = pack_lent(await taking.take([queue], wish, float(fields["wait_s"])))
    finally:
        held.let_go()  # The link has it at once.
    return QueueAnswer("", fields={"lent": rows}, blobs=blobs)


async def _settle(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    orders = unpack_orders(call.fields["orders"])
    places = [(int(offset), int(lease)) for offset, lease in call.fields["places"]]
    chosen = [(Handle(b"", queue.data.index, *place, 0), order) for place, order in zip(places, orders, strict=True)]
    return QueueAnswer("", fields={"verdicts": pack_verdicts(await queue.settle(str(call.fields["group"]), chosen))})


async def _counts(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    return QueueAnswer("", fields={"counts": pack_counts(await looking.counts(queue, str(call.fields["group"])))})


async def _peek(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    fields = call.fields
    states = [State(each) for each in fields["states"]]
    rows, blobs = pack_peeked(await looking.peek(queue, str(fields["group"]), states, int(fields["first"]), int(fields["count"])))
    return QueueAnswer("", fields={"peeked": rows}, blobs=blobs)


async def _find(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    found = await looking.find(queue, str(call.fields["group"]), int(call.fields["offset"]))
    rows, blobs = pack_peeked([] if found is None else [found])
    return QueueAnswer("", fields={"peeked": rows}, blobs=blobs)


async def _cancel(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    verdicts = await ordering.cancel(queue, str(call.fields["group"]), [int(each) for each in call.fields["offsets"]])
    return QueueAnswer("", fields={"verdicts": pack_verdicts(verdicts)})


async def _purge(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    fields = call.fields
    pause_ms, is_trial = int(fields.get("pause_ms", 0)), bool(fields.get("is_trial"))
    return QueueAnswer("", fields={"count": await ordering.purge(queue, str(fields["group"]), pause_ms, is_trial=is_trial)})


async def _pause(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    count = await ordering.pause(queue, str(call.fields["group"]), is_over=bool(call.fields["is_over"]))
    return QueueAnswer("", fields={"count": count})


async def _rewind(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    fields, group = call.fields, str(call.fields["group"])
    if "offset" in fields:
        return QueueAnswer("", fields={"count": await ordering.rewind_to(queue, group, int(fields["offset"]))})
    return QueueAnswer("", fields={"count": await ordering.rewind(queue, group, int(fields["to_ms"]))})


async def _owed(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    moves = [(int(hashed), int(offset), int(lease)) for hashed, offset, lease in call.fields["moves"]]
    return QueueAnswer("", fields={"owed": await confirming.owed(queue, moves)})


async def _moves_over(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    await confirming.over(queue, [str(each) for each in call.fields["moves"]])
    return QueueAnswer("")


_OPERATIONS: dict[str, Operation] = {
    "send": _send, "take": _take, "settle": _settle, "counts": _counts, "peek": _peek, "find": _find, "cancel": _cancel,
    "purge": _purge, "pause": _pause, "rewind": _rewind, "owed": _owed, "moves_over": _moves_over,
    **REDRIVE_OPERATIONS, **SHARE_OPERATIONS,
}  # fmt: skip
