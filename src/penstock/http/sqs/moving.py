"""ListDeadLetterSourceQueues, and message move tasks: StartMessageMoveTask, CancelMessageMoveTask, ListMessageMoveTasks.

A task is a redrive of everything that is in a dead letters' queue. Whichever node leads that queue runs it, any node lists and cancels it.
"""

import json
from base64 import b64decode, b64encode
from typing import Any

from penstock.broker.queues.calls import Code, QueueRefusal, Redrive, RedriveTask, TaskStatus
from penstock.http.sqs.addresses import name_in_arn, queue_arn
from penstock.http.sqs.answers import Answer
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import INVALID_PARAMETER_VALUE, RESOURCE_NOT_FOUND, SqsError
from penstock.http.sqs.making import find_or_none
from penstock.http.sqs.paging import page_of
from penstock.http.sqs.queue_records import SqsQueue
from penstock.http.sqs.refusals import as_error
from penstock.http.sqs.texts import number_of

TASKS_SHOWN_MAX = 10
PER_SECOND_MAX = 500
# AWS's name for a letter that was never moved here by a queue, and a part of what the task itself says of one (broker/queues/redriving.py).
NO_SOURCE_REASON, NO_SOURCE_WORDS = "CouldNotDetermineMessageSource", "does not say which queue it comes from"


async def list_dead_letter_source_queues(desk: Desk, call: Call) -> Answer:
    page = page_of(_sources(desk, desk.queue_of(call).name), call.body)
    return {"queueUrls": [desk.url(call, name) for name in page.names], **page.token}


async def start_message_move_task(desk: Desk, call: Call) -> Answer:
    per_second = number_of(call.body, "MaxNumberOfMessagesPerSecond", 1, PER_SECOND_MAX)
    source = _queue_of_arn(desk, call, "SourceArn")
    if not _sources(desk, source.name):
        raise SqsError(INVALID_PARAMETER_VALUE, "Source queue must be configured as a Dead Letter Queue.")
    target = _queue_of_arn(desk, call, "DestinationArn") if call.body.get("DestinationArn") else None
    if target is not None:
        _check_target(source, target)
    try:
        task = await desk.queues.redrive(source.name, Redrive(target=target.name if target else "", per_second_max=per_second or 0))
    except QueueRefusal as refusal:
        if refusal.code != Code.BUSY:
            raise
        words = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        raise SqsError(INVALID_PARAMETER_VALUE, words) from None
    return {"TaskHandle": _task_handle(task)}


async def cancel_message_move_task(desk: Desk, call: Call) -> Answer:
    handle, source = _read_task_handle(call.body["TaskHandle"])
    if find_or_none(desk, source) is None:
        raise _no_such("SourceArn")
    try:
        task = await desk.queues.cancel_task(handle)
    except QueueRefusal as refusal:
        if refusal.code != Code.NO_SUCH_TASK:
            raise as_error(refusal) from None
        raise SqsError(RESOURCE_NOT_FOUND, "Task does not exist.") from None
    return {"ApproximateNumberOfMessagesMoved": task.moved}


async def list_message_move_tasks(desk: Desk, call: Call) -> Answer:
    count = number_of(call.body, "MaxResults", 1, TASKS_SHOWN_MAX) or 1
    source = _queue_of_arn(desk, call, "SourceArn")
    tasks = [task for task in await desk.queues.tasks(source.name) if not task.wish.is_dry_run]
    return {"Results": [_shown(task) for task in tasks[:count]]}


def _check_target(source: SqsQueue, target: SqsQueue) -> None:
    if target.name == source.name:
        raise SqsError(INVALID_PARAMETER_VALUE, "The DestinationArn must be another queue than the SourceArn.")
    if target.is_fifo != source.is_fifo:
        raise SqsError(INVALID_PARAMETER_VALUE, "Destination queue must be same type of queue as the source.")


def _sources(desk: Desk, target: str) -> list[str]:
    """The queues whose dead letters go there."""
    redrives = ((queue.name, queue.redrive) for queue in desk.all())
    return [name for name, policy in redrives if policy is not None and policy.target == target]


def _queue_of_arn(desk: Desk, call: Call, parameter: str) -> SqsQueue:
    queue = find_or_none(desk, name_in_arn(call.body[parameter], parameter))
    if queue is None:
        raise _no_such(parameter)
    return queue


def _no_such(parameter: str) -> SqsError:
    return SqsError(RESOURCE_NOT_FOUND, f"The resource that you specified for the {parameter} parameter doesn't exist.")


def _shown(task: RedriveTask) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "Status": task.status.upper(),
        "SourceArn": queue_arn(task.queue),
        "ApproximateNumberOfMessagesMoved": task.moved,
        "ApproximateNumberOfMessagesToMove": task.to_move,
        "StartedTimestamp": task.started_ms,
    }
    if task.wish.target:
        shown["DestinationArn"] = queue_arn(task.wish.target)
    if task.wish.per_second_max:
        shown["MaxNumberOfMessagesPerSecond"] = task.wish.per_second_max
    if task.status == TaskStatus.RUNNING:
        shown["TaskHandle"] = _task_handle(task)
    if task.failure:
        shown["FailureReason"] = NO_SOURCE_REASON if NO_SOURCE_WORDS in task.failure else task.failure
    return shown


def _task_handle(task: RedriveTask) -> str:
    return b64encode(json.dumps({"taskId": task.handle, "sourceArn": queue_arn(task.queue)}).encode()).decode()


def _read_task_handle(text: str) -> tuple[str, str]:
    try:
        found = json.loads(b64decode(text, validate=True))
        return str(found["taskId"]), name_in_arn(found["sourceArn"], "SourceArn")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, SqsError):
        raise SqsError(INVALID_PARAMETER_VALUE, "Value for parameter TaskHandle is invalid.") from None
