"""A node that stops and starts again under a queue's client, which waits, goes on, and loses nothing; and a node that knows keys."""

import threading
from pathlib import Path

import pytest
from client.queue_side import waiting_for
from ports import free_port
from waiting import NEVER_S, PATIENCE_S, until

from penstock.client import Queue, QueueMessage
from penstock.client.queues import NotAllowed
from penstock.testing import Broker

KEY, SECRET = "AKIDTEST", "a-secret-of-some-length"


def start(directory: Path, port: int) -> Broker:
    keys = directory.parent / "keys"
    keys.write_text(f"{KEY} {SECRET}\n")
    keys.chmod(0o600)
    return Broker({"http": f"127.0.0.1:{port}", "sqs.keys.file": str(keys)}, directory).start()


def test_a_waiting_receive_and_a_held_lease_outlive_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    port = free_port()
    directory = tmp_path / "data"
    url = f"http://127.0.0.1:{port}"
    node = start(directory, port)
    with pytest.raises(NotAllowed, match="PENSTOCK_ACCESS_KEY"):
        Queue("jobs", url=url).ensure()
    with pytest.raises(NotAllowed):
        Queue("jobs", url=url, access_key=KEY, secret_key="another secret").ensure()
    monkeypatch.setenv("PENSTOCK_ACCESS_KEY", KEY)
    monkeypatch.setenv("PENSTOCK_SECRET_KEY", SECRET)
    monkeypatch.setattr("penstock.client.queues.caller.ANSWER_SECONDS", NEVER_S)  # It hears that the node has gone, and waits no longer.
    jobs = Queue("jobs", url=url, heartbeat=False, patience=NEVER_S)
    jobs.ensure(backoff=0)
    jobs.send("held")
    (held,) = jobs.receive(1, lease=NEVER_S)
    far = jobs.send("far", delay=3600)
    came: list[QueueMessage] = []
    waiting = threading.Thread(target=lambda: came.extend(jobs.receive(1, wait=PATIENCE_S)), daemon=True)
    waiting.start()
    until(lambda: waiting_for(node, jobs))
    node.stop()
    assert "Traceback" not in node.said()
    node = start(directory, port)
    try:
        jobs.send("after the restart")
        waiting.join(PATIENCE_S)
        assert [(message.text, message.attempt) for message in came] == [("after the restart", 1)]
        held.ack()  # Its lease was kept with it: nobody else has got it.
        found = jobs.find(far)
        assert found is not None and found.state == "delayed"
        counts = jobs.counts()
        assert (counts.ready, counts.leased, counts.delayed) == (0, 1, 1)
    finally:
        node.stop()
