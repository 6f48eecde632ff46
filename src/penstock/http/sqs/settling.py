"""DeleteMessage, ChangeMessageVisibility, and their batches.

A standard queue lets a message be deleted by any handle it was ever given with; a FIFO queue only by one that still holds. Deleting
twice is no error. A visibility can be changed while the handle holds; in a standard queue also later, if nobody else has had the message.
"""

from collections.abc import Callable, Mapping
from typing import Any

from penstock.broker.queues.calls import Code, Order, Outcome, Verb, Verdict
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

DONE, GOOD = Verb.DONE, Verdict()

_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.

Judge = Callable[[Order, Verdict], None]


async def delete_message(desk: Desk, call: Call) -> Answer:
    queue, order = desk.queue_of(call), Order(call.body["ReceiptHandle"], DONE, who=call.who)
    (verdict,) = await desk.queues.settle(queue.name, [order])
    _judge_deletion(order, verdict)
    return {}


async def delete_message_batch(desk: Desk, call: Call) -> Answer:
    queue, who = desk.queue_of(call), call.who
    entries: list[dict[str, Any]] = call.body["Entries"]
    check_entries(entries, "DeleteMessageBatchRequestEntry")
    orders = [_new_tuple(Order, (entry["ReceiptHandle"], DONE, None, "", who)) for entry in entries]
    verdicts = await desk.queues.settle(queue.name, orders)
    if verdicts.count(GOOD) == len(entries):
        return {"Successful": [{"Id": entry["Id"]} for entry in entries]}
    return _judged([entry["Id"] for entry in entries], orders, verdicts, _judge_deletion, Failures())


async def change_message_visibility(desk: Desk, call: Call) -> Answer:
    queue, order = desk.queue_of(call), _change(call.body, call.who)
    (verdict,) = await desk.queues.settle(queue.name, [order])
    _judge_change(order, verdict)
    return {}


async def change_message_visibility_batch(desk: Desk, call: Call) -> Answer:
    queue = desk.queue_of(call)
    entries: list[dict[str, Any]] = call.body["Entries"]
    check_entries(entries, "ChangeMessageVisibilityBatchRequestEntry")
    failures, orders = Failures(), dict[str, Order]()
    for entry in entries:
        try:
            orders[entry["Id"]] = _change(entry, call.who)
        except SqsError as error:
            failures.add(entry["Id"], error)
    verdicts = await desk.queues.settle(queue.name, [*orders.values()]) if orders else []
    return _judged([*orders], [*orders.values()], verdicts, _judge_change, failures)


def _judged(ids: list[str], orders: list[Order], verdicts: list[Verdict], judge: Judge, failures: Failures) -> Answer:
    successful = []
    for entry_id, order, verdict in zip(ids, orders, verdicts, strict=True):
        try:
            judge(order, verdict)
            successful.append({"Id": entry_id})
        except SqsError as error:
            failures.add(entry_id, error)
    return failures.beside(successful)


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
    is_no_handle = verdict.outcome == Outcome.UNKNOWN if verdict.refusal is None else verdict.refusal.code == Code.INVALID_HANDLE
    if verdict.refusal is not None and not is_no_handle:
        raise as_error(verdict.refusal)
    if is_no_handle:
        raise SqsError(RECEIPT_HANDLE_IS_INVALID, f'The input receipt handle "{order.handle}" is not a valid receipt handle.')
