"""A worker of a queue in a process of its own, to be killed: it takes jobs, and writes down what it did before it says so.

    python queue_worker.py URLS QUEUE DIARY

A job whose body begins with "bad" fails whenever it is tried. A line is in the diary before the job is settled, so whatever was finished
stands there, and a job that stands there may be tried again.
"""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from penstock.client import Queue
from penstock.client.queues import QueueError, QueueMessage

LEASE_SECONDS = 2.0
WAIT_SECONDS = 2.0


def main(urls: str, name: str, path: str) -> None:
    queue = Queue(name, url=urls, lease=LEASE_SECONDS, heartbeat=False)
    diary = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    while True:
        for message in taken(queue):
            is_bad = message.text.startswith("bad")
            os.write(diary, f"{'failed' if is_bad else 'did'} {message.text} {message.attempt} {time.time():.3f}\n".encode())
            try:
                if is_bad:
                    message.nack(reason="it is bad", delay=0.01)
                else:
                    message.ack()
            except QueueError:
                pass  # Lost, or nobody knows: somebody tries it again.


def taken(queue: Queue) -> Iterator[QueueMessage]:
    try:
        yield from queue.receive(5, wait=WAIT_SECONDS)
    except QueueError:
        return


def lines(path: Path) -> Iterator[tuple[str, str, int]]:
    """What a diary tells: the deed, the job, which attempt it was. A last line that was cut off is none."""
    for line in path.read_text().split("\n")[:-1] if path.exists() else ():
        deed, job, attempt, _ = line.split(" ")  # The last is for people: when it was.
        yield deed, job, int(attempt)


if __name__ == "__main__":
    main(*sys.argv[1:])
