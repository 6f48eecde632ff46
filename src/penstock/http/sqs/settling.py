"""DeleteMessage, ChangeMessageVisibility, and their batches.

A standard queue lets a message be deleted by any handle it was ever given with; a FIFO queue only by one that still holds. Deleting
twice is no error. A visibility can be changed while the handle holds; in a standard queue also later, if nobody else has had the message.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.broker.queues.calls import Order, Outcome, Verb, Verdict
from penstock.http.sqs.answers import Answer
from penstock.http.sqs.batches import Failures, check_entries
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import (
    MESSAGE_NOT_INFLIGHT,
    RECEIPT_HANDLE_IS_INVALID,
    SqsError,
    invalid,
    missing,
)
from penstock.http.sqs.refusals import as_error
from penstock.http.sqs.texts import VISIBILITY_SECONDS_MAX

DONE, OK = Verb.DONE, Outcome.OK

Read = Callable[[Mapping[str, Any], str], Order]
Judge = Callable[[Order, Verdict], None]


async def delete_message(desk: Desk, call: Call) -> Answer:
    return await _settle_one(desk, call, _deletion, _judge_deletion)


async def delete_message_batch(desk: Desk, call: Call) -> Answer:
    return await _settle_batch(desk, call, "DeleteMessageBatchRequestEntry", _deletion, _judge_deletion)


async def change_message_visibility(desk: Desk, call: Call) -> Answer:
    return await _settle_one(desk, call, _change, _judge_change)


async def change_message_visibility_batch(desk: Desk, call: Call) -> Answer:
    return await _settle_batch(desk, call, "ChangeMessageVisibilityBatchRequestEntry", _change, _judge_change)


async def _settle_one(desk: Desk, call: Call, read: Read, judge: Judge) -> Answer:
    queue = desk.queue_of(call)
    order = read(call.body, call.who)
    (verdict,) = await desk.queues.settle(queue.name, [order])
    judge(order, verdict)
    return {}


async def _settle_batch(desk: Desk, call: Call, kind: str, read: Read, judge: Judge) -> Answer:
    queue = desk.queue_of(call)
    entries: list[dict[str, Any]] = call.body["Entries"]
    check_entries(entries, kind)
    failures, orders = Failures(), dict[str, Order]()
    for entry in entries:
        try:
            orders[entry["Id"]] = read(entry, call.who)
        except SqsError as error:
            failures.add(entry["Id"], error)
    verdicts = await desk.queues.settle(queue.name, list(orders.values())) if orders else []
    successful = []
    for (entry_id, order), verdict in zip(orders.items(), verdicts, strict=True):
        try:
            if verdict.outcome is not OK or verdict.refusal is not None:
                judge(order, verdict)
            successful.append({"Id": entry_id})
        except SqsError as error:
            failures.add(entry_id, error)
    return failures.beside(successful)


def _deletion(entry: Mapping[str, Any], who: str) -> Order:
    return Order(entry["ReceiptHandle"], DONE, None, "", who)


def _change(entry: Mapping[str, Any], who: str) -> Order:
    seconds: int | None = entry.get("VisibilityTimeout")
    if seconds is None:
        raise missing("VisibilityTimeout")
    if not 0 <= seconds <= VISIBILITY_SECONDS_MAX:
        raise invalid("VisibilityTimeout", seconds, f"VisibilityTimeout must be an integer between 0 and {VISIBILITY_SECONDS_MAX}.")
    return Order(entry["ReceiptHandle"], Verb.EXTEND, seconds * 1_000, who=who)


def _judge_deletion(order: Order, verdict: Verdict) -> None:
    _judge(order, verdict)
    if verdict.outcome == Outcome.LOST:
        raise invalid("ReceiptHandle", order.handle, "The receipt handle has expired.")


def _judge_change(order: Order, verdict: Verdict) -> None:
    _judge(order, verdict)
    if verdict.outcome == Outcome.GONE:
        reason = "Message does not exist or is not available for visibility timeout change."
        raise invalid("ReceiptHandle", order.handle, reason)
    if verdict.outcome == Outcome.LOST:
        raise SqsError(MESSAGE_NOT_INFLIGHT, "The message referred to isn't in flight by this receipt handle any more.")
    if verdict.outcome == Outcome.TOO_LONG:
        reason = f"Total VisibilityTimeout for the message is beyond the limit [{VISIBILITY_SECONDS_MAX} seconds]."
        raise invalid("VisibilityTimeout", (order.delay_ms or 0) // 1_000, reason)


def _judge(order: Order, verdict: Verdict) -> None:
    if verdict.refusal is not None:
        raise as_error(verdict.refusal)
    if verdict.outcome == Outcome.UNKNOWN:
        raise SqsError(RECEIPT_HANDLE_IS_INVALID, f'The input receipt handle "{order.handle}" is not a valid receipt handle.')
