"""A worker of a queue in a process of its own, to be killed: it takes jobs, and writes down what it did before it says so.

Its arguments are URLS QUEUE DIARY; it is a fork of this program. A job whose body begins with "bad" fails whenever it is tried. A line is
in the diary before the job is settled, so whatever was finished stands there, and a job that stands there may be tried again.
"""

import gc
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.client import Queue
from penstock.client.queues import QueueError, QueueMessage

sys.path.append(str(Path(__file__).parents[1]))
from waiting import pause_at_random
from warm import serve

LEASE_SECONDS = 2.0
WAIT_SECONDS = 2.0
SHORTEST_S, LONGEST_S = 0.02, 0.1  # Until the nodes are asked again, when they could not answer.


def main(urls: str, name: str, path: str) -> None:
    rng = random.Random(path)
    queue = Queue(name, url=urls, lease=LEASE_SECONDS, heartbeat=False)
    diary = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        for message in taken(queue, rng):
            is_bad = message.text.startswith("bad")
            os.write(diary, f"{'failed' if is_bad else 'did'} {message.text} {message.attempt} {time.time():.3f}\n".encode())
            try:
                if is_bad:
                    message.nack(reason="it is bad", delay=0.01)
                else:
                    message.ack()
            except QueueError:
                pass  # Lost, or nobody knows: somebody tries it again.


def taken(queue: Queue, rng: random.Random) -> Iterator[QueueMessage]:
    try:
        yield from queue.receive(5, wait=WAIT_SECONDS)
    except QueueError:
        pause_at_random(rng, SHORTEST_S, LONGEST_S)


def lines(path: Path) -> Iterator[tuple[str, str, int]]:
    """What a diary tells: the deed, the job, which attempt it was. A last line that was cut off is none."""
    for line in path.read_text().split("\n")[:-1] if path.exists() else ():
        deed, job, attempt, _ = line.split(" ")  # The last is for people: when it was.
        yield deed, job, int(attempt)


if __name__ == "__main__":
    import penstock.client.queues.async_queue  # noqa: F401

    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
    main(*sys.argv[1:])
