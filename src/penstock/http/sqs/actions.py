"""Every action of this door: what its request must look like, and the function that does it."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec

from penstock.http.sqs import attribute_calls, labels, making, moving, native_messages, native_queues, receiving, sending, settling
from penstock.http.sqs.answers import Answer
from penstock.http.sqs.aws_shapes import AWS_SHAPES
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import UNKNOWN_OPERATION, SqsError
from penstock.http.sqs.native_shapes import NATIVE_SHAPES
from penstock.http.sqs.shapes import Shape

AWS_PREFIX, NATIVE_PREFIX = "AmazonSQS.", "Penstock."

# Raises SqsError, QueueRefusal or Refusal, and nothing else that a client could be the cause of. The call's body is of the action's shape.
Do = Callable[[Desk, Call], Awaitable[Answer]]


class Action(NamedTuple):
    shape: Shape
    do: Do
    quick: Callable[[bytes], dict[str, Any]]  # Reads the JSON of a request that is as its shape says (reading.py).
    shows_messages: bool  # Its answer may be large, and is counted.


_AWS: dict[str, Do] = {
    "AddPermission": labels.add_permission,
    "CancelMessageMoveTask": moving.cancel_message_move_task,
    "ChangeMessageVisibility": settling.change_message_visibility,
    "ChangeMessageVisibilityBatch": settling.change_message_visibility_batch,
    "CreateQueue": making.create_queue,
    "DeleteMessage": settling.delete_message,
    "DeleteMessageBatch": settling.delete_message_batch,
    "DeleteQueue": making.delete_queue,
    "GetQueueAttributes": attribute_calls.get_queue_attributes,
    "GetQueueUrl": making.get_queue_url,
    "ListDeadLetterSourceQueues": moving.list_dead_letter_source_queues,
    "ListMessageMoveTasks": moving.list_message_move_tasks,
    "ListQueueTags": labels.list_queue_tags,
    "ListQueues": making.list_queues,
    "PurgeQueue": making.purge_queue,
    "ReceiveMessage": receiving.receive_message,
    "RemovePermission": labels.remove_permission,
    "SendMessage": sending.send_message,
    "SendMessageBatch": sending.send_message_batch,
    "SetQueueAttributes": attribute_calls.set_queue_attributes,
    "StartMessageMoveTask": moving.start_message_move_task,
    "TagQueue": labels.tag_queue,
    "UntagQueue": labels.untag_queue,
}

_NATIVE: dict[str, Do] = {
    "CreateQueue": native_queues.create_queue,
    "ConfigureQueue": native_queues.configure_queue,
    "DeleteQueue": native_queues.delete_queue,
    "DescribeQueue": native_queues.describe_queue,
    "ListQueues": native_queues.list_queues,
    "Send": native_messages.send,
    "Receive": native_messages.receive,
    "Settle": native_messages.settle,
    "Cancel": native_messages.cancel,
    "Find": native_messages.find,
    "Peek": native_messages.peek,
    "Purge": native_queues.purge,
    "Pause": native_queues.pause,
    "Resume": native_queues.resume,
    "Rewind": native_queues.rewind,
    "Counts": native_queues.counts,
    "Redrive": native_queues.redrive,
    "RedriveTasks": native_queues.redrive_tasks,
    "CancelRedrive": native_queues.cancel_redrive,
}

_SHOWING: tuple[Do, ...] = (receiving.receive_message, native_messages.receive, native_messages.peek, native_messages.find)


def _action(shape: Shape, do: Do) -> Action:
    return Action(shape, do, msgspec.json.Decoder(shape.form).decode, do in _SHOWING)


ACTIONS: dict[str, Action] = {
    **{AWS_PREFIX + name: _action(AWS_SHAPES[name], do) for name, do in _AWS.items()},
    **{NATIVE_PREFIX + name: _action(NATIVE_SHAPES[name], do) for name, do in _NATIVE.items()},
}


def no_such_action(target: str) -> SqsError:
    return SqsError(UNKNOWN_OPERATION, f"There is no action {target!r} here: this door has SQS's ({AWS_PREFIX}…) and {NATIVE_PREFIX}….")
