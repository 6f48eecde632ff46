"""What the tests of queues share: the next message, and waiting until something is so. Not here: claims."""

import time
from collections.abc import Callable

from penstock.client import Queue, QueueMessage

SECONDS_MAX = 30.0
SOON = 0.2


def one(queue: Queue, **options: float) -> QueueMessage:
    (message,) = queue.receive(1, wait=SECONDS_MAX, **options)
    return message


def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)
