"""A queue's settings read, changed and written back, so that no change of anybody else is lost.

Changes through this node come one after the other. Those through another one are noticed by the controller: what is to be written must
still be as it was read. Otherwise it is read again, and changed again.
"""

from collections.abc import Callable, Mapping

from penstock.broker.queues.calls import Code, QueueRefusal
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.queue_records import SqsQueue

TRIES_MAX = 50  # Each time somebody else has succeeded.

Settings = Mapping[str, str | None]


async def change(desk: Desk, call: Call, changed: Callable[[SqsQueue], Settings]) -> None:
    """`changed` tells what to set, from the queue as it is; nothing where it tells nothing. It may refuse."""
    async with desk.changing:
        for tries_left in reversed(range(TRIES_MAX)):
            queue = desk.queue_of(call)
            held, settings = desk.queues.describe(queue.name).settings, changed(queue)
            if not settings:
                return
            try:
                await desk.queues.configure(queue.name, settings, expected={name: held.get(name) for name in settings})
                return
            except QueueRefusal as refusal:
                if refusal.code is not Code.CHANGED or not tries_left:
                    raise
