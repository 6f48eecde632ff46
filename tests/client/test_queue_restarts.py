"""A node that stops and starts again under a queue's client: it waits, goes on, and loses nothing."""

import threading
from pathlib import Path

from ports import free_port

from penstock.client import Queue, QueueMessage
from penstock.testing import Broker

SECONDS_MAX = 30.0


def start(directory: Path, port: int) -> Broker:
    return Broker({"http": f"127.0.0.1:{port}"}, directory).start()


def test_a_waiting_receive_and_a_held_lease_outlive_a_restart(tmp_path: Path):
    port = free_port()
    node = start(tmp_path, port)
    jobs = Queue("jobs", url=f"http://127.0.0.1:{port}", heartbeat=False)
    jobs.ensure(backoff=0)
    jobs.send("held", delay=0)
    (held,) = jobs.receive(1, lease=SECONDS_MAX)
    far = jobs.send("far", delay=3600)
    came: list[QueueMessage] = []
    waiting = threading.Thread(target=lambda: came.extend(jobs.receive(1, wait=SECONDS_MAX)))
    waiting.start()
    node.stop()
    node = start(tmp_path, port)
    try:
        jobs.send("after the restart")
        waiting.join(SECONDS_MAX)
        assert [(message.text, message.attempt) for message in came] == [("after the restart", 1)]
        held.ack()  # Its lease was kept with it: nobody else has got it.
        found = jobs.find(far)
        assert found is not None and found.state == "delayed"
        counts = jobs.counts()
        assert (counts.ready, counts.leased, counts.delayed) == (0, 1, 1)
    finally:
        node.stop()
