"""What the tests of queues share: the next message, work until so much is done, and whether somebody waits. Not here: claims."""

from collections.abc import Callable
from urllib.request import urlopen

from waiting import EXPIRES_S, PATIENCE_S, until

from penstock.client import Queue, QueueMessage
from penstock.testing import Broker


def one(queue: Queue, **options: float) -> QueueMessage:
    (message,) = queue.receive(1, wait=PATIENCE_S, **options)
    return message


def work_until(queue: Queue, count: int, step: Callable[[QueueMessage], object]) -> None:
    """Works until `count` messages are done, and no more."""
    done: list[int] = []

    def is_done() -> bool:
        done.append(queue.work(step, idle=EXPIRES_S))
        return sum(done) >= count

    until(is_done, lambda: f"only {sum(done)} of {count} messages were done")
    assert sum(done) == count


def waiting_for(node: Broker, queue: Queue) -> int:
    """How many receives wait at the node for a message of this queue."""
    with urlopen(f"{node.http_url}/metrics") as answer:
        metrics = answer.read().decode()
    name = f'penstock_queue_waiting{{queue="{queue.name}"}} '
    return int(next((line.removeprefix(name) for line in metrics.splitlines() if line.startswith(name)), 0))
