"""Work-queue libraries that know SQS, unchanged, on a real node: Celery with a real worker, kombu, dramatiq-sqs and taskiq-aio-sqs."""

import asyncio
import math
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest
from client.client_side import holds_unless_the_machine_stalls
from tiers import pick
from waiting import PATIENCE_S, until

from penstock.client import Queue
from penstock.testing import Broker, broker

HERE = Path(__file__).parent
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
NOTES = pick(test=3, slow=5)


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture
def prefix() -> str:
    return f"lib-{uuid4().hex[:8]}-"


def until_empty(queue: Queue) -> None:
    """Acknowledgements come after the work that was told of."""
    queue.pause()  # No worker takes anything more: what is left to wait for is settlements.
    until(lambda: queue.counts().unfinished == 0, lambda: f"{queue.name} is empty: {queue.counts()}")


def told(journal: Queue, count: int) -> list[str]:
    """What the workers have told, in no particular order."""
    words: list[str] = []
    while len(words) < count:
        messages = journal.receive(count, wait=PATIENCE_S)
        assert messages, f"only {sorted(words)} was told"
        words += [message.text for message in messages]
        journal.ack_many(messages)
    return sorted(words)


@pytest.mark.needs("pycurl")
@pytest.mark.repeats
def test_celery_runs_tasks_retries_and_countdowns_on_a_real_worker(node: Broker, prefix: str, monkeypatch: pytest.MonkeyPatch):
    address = node.http_url.removeprefix("http://")
    environment = {"NODE": address, "PREFIX": prefix}
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.syspath_prepend(str(HERE))
    import celery_app

    journal = node.queue(f"{prefix}journal")
    command = [sys.executable, "-m", "celery", "-A", "celery_app", "worker", "--concurrency", "1", "--without-gossip", "--without-mingle"]
    worker = subprocess.Popen(
        [*command, "--without-heartbeat", "--loglevel", "INFO"],
        cwd=HERE,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    try:
        for number in range(NOTES):
            celery_app.note.delay(f"note {number}")
        celery_app.stumble.delay("stumble")
        celery_app.note.apply_async(("later",), countdown=0.5)
        notes, attempts = [f"note {number}" for number in range(NOTES)], [f"stumble {number}" for number in range(3)]
        assert told(journal, 1 + NOTES + 3) == ["later", *notes, *attempts]
    finally:
        worker.terminate()
        words = worker.communicate(timeout=PATIENCE_S)[0].decode()
    assert "Traceback" not in words and "ERROR" not in words, words
    until_empty(Queue(f"{prefix}celery", url=node.http_url))


@pytest.mark.needs("pycurl")
def test_kombu_sends_receives_requeues_and_purges(node: Broker, prefix: str):
    from kombu import Connection

    options = {"is_secure": False, "region": "us-east-1", "queue_name_prefix": prefix, "wait_time_seconds": 1, "visibility_timeout": 3_600}
    address = node.http_url.removeprefix("http://")
    with Connection(f"sqs://key:secret@{address}//", transport_options=options) as connection:
        jobs = connection.SimpleQueue("jobs")
        for number in range(3):
            jobs.put({"number": number})
        assert jobs.qsize() == 3
        taken = [jobs.get(timeout=PATIENCE_S) for _ in range(3)]
        assert sorted(message.payload["number"] for message in taken) == [0, 1, 2]
        taken[0].ack()
        taken[1].reject()
        taken[2].requeue()
        again = jobs.get(timeout=PATIENCE_S)
        assert again.payload == taken[2].payload
        again.ack()
        jobs.put({"number": 3})
        jobs.clear()
        assert jobs.qsize() == 0
        jobs.close()


def test_dramatiq_retries_delays_and_buries(node: Broker, prefix: str):
    import dramatiq
    from dramatiq.middleware import Retries
    from dramatiq_sqs import SQSBroker

    jobs = SQSBroker(namespace=prefix, dead_letter=True, middleware=[Retries(max_retries=2)], endpoint_url=node.http_url, **KEYS)
    happened: list[str] = []
    heard = threading.Semaphore(0)

    def tell(words: str) -> None:
        happened.append(words)
        heard.release()

    @dramatiq.actor(broker=jobs)
    def note(words: str) -> None:
        tell(words)

    @dramatiq.actor(broker=jobs, min_backoff=1, max_backoff=2)  # Milliseconds.
    def fail() -> None:
        tell("failed")
        raise RuntimeError("on purpose")

    worker = dramatiq.Worker(jobs, worker_timeout=1_000, worker_threads=2)
    worker.start()
    try:
        note.send("at once")
        note.send_with_options(args=("later",), delay=200)
        fail.send()
        for _ in range(5):
            assert heard.acquire(timeout=PATIENCE_S), happened
        assert sorted(happened) == ["at once", "failed", "failed", "failed", "later"]
        dead = boto3.resource("sqs", endpoint_url=node.http_url, **KEYS).get_queue_by_name(QueueName=f"{prefix}_default_dlq")
        assert len(until(lambda: dead.receive_messages(WaitTimeSeconds=10))) == 1
    finally:
        worker.stop()
        jobs.close()
    until_empty(Queue(f"{prefix}_default", url=node.http_url))


class Taskiq:
    """Tasks of taskiq on one queue and the worker that runs them, in this process."""

    def __init__(self, node: Broker, queue: str, lease_s: int, **options: Any) -> None:
        from taskiq_aio_sqs import SQSBroker

        attributes = {"VisibilityTimeout": str(lease_s)} | ({"FifoQueue": "true"} if queue.endswith(".fifo") else {})
        boto3.client("sqs", endpoint_url=node.http_url, **KEYS).create_queue(QueueName=queue, Attributes=attributes)
        self.jobs = SQSBroker(queue, endpoint_url=node.http_url, wait_time_seconds=1, max_number_of_messages=10, **options, **KEYS)
        self._queue = Queue(queue, url=node.http_url)

    async def work(self, task: Callable[..., Any], arguments: Sequence[tuple[str, ...]], is_done: asyncio.Semaphore) -> None:
        """Sends the task once for each of the arguments, and runs the worker until it has said so often that one is done."""
        from taskiq.api import run_receiver_task

        sent = self.jobs.register_task(task, task_name=task.__name__)
        await self.jobs.startup()
        receiving = asyncio.create_task(run_receiver_task(self.jobs))
        try:
            for each in arguments:
                await sent.kiq(*each)
            async with asyncio.timeout(PATIENCE_S):
                for _ in arguments:
                    await is_done.acquire()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            await self.jobs.shutdown()
        until_empty(self._queue)


@pytest.mark.parametrize("suffix", ["jobs", "jobs.fifo"])
def test_taskiq_runs_tasks(node: Broker, prefix: str, suffix: str):
    is_fifo = suffix.endswith(".fifo")
    taskiq = Taskiq(node, prefix + suffix, 3_600, use_task_id_for_deduplication=is_fifo)
    happened: list[str] = []
    is_done = asyncio.Semaphore(0)

    async def note(words: str) -> None:
        happened.append(words)
        is_done.release()

    notes = [f"note {number}" for number in range(5)]
    asyncio.run(taskiq.work(note, [(words,) for words in notes], is_done))
    assert happened == notes if is_fifo else sorted(happened) == notes


def test_taskiq_keeps_the_lease_of_a_task_that_takes_longer(node: Broker, prefix: str):
    def is_kept_for(span_s: float) -> bool:
        lease_s = math.ceil(span_s)  # SQS knows whole seconds only.
        return is_kept(node, f"{prefix}{lease_s}", lease_s)

    holds_unless_the_machine_stalls(is_kept_for)


def is_kept(node: Broker, name: str, lease_s: int) -> bool:
    """Whether a task was run once that ended after another lease had lapsed, which began when the task did and was not extended."""
    taskiq = Taskiq(node, name, lease_s, enable_heartbeat=True, heartbeat_interval=lease_s / 10)
    other = node.queue(lease=lease_s)
    other.send("not extended")
    happened: list[str] = []
    is_done = asyncio.Semaphore(0)

    def lapse() -> None:
        assert other.receive(1)
        (again,) = other.receive(1, wait=PATIENCE_S)
        again.ack()

    async def slow() -> None:
        happened.append("slow")
        if len(happened) == 1:
            await asyncio.to_thread(lapse)
        is_done.release()

    asyncio.run(taskiq.work(slow, [()], is_done))
    return happened == ["slow"]


def test_boto3_and_python_share_one_ledger(node: Broker, prefix: str):
    sqs = boto3.client("sqs", endpoint_url=node.http_url, **KEYS)
    url = sqs.create_queue(QueueName=f"{prefix}shared", Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
    jobs = Queue(f"{prefix}shared", url=node.http_url)
    attribute = {"DataType": "String", "StringValue": "7"}
    by_boto3 = sqs.send_message(QueueUrl=url, MessageBody="by boto3", MessageAttributes={"trace": attribute})["MessageId"]
    by_python = jobs.send("by Python")
    (first,) = jobs.receive(1)
    assert (first.id, first.text) == (by_boto3, "by boto3")
    (second,) = sqs.receive_message(QueueUrl=url)["Messages"]
    assert (second["MessageId"], second["Body"]) == (by_python, "by Python")
    first.nack(delay=0, reason="not mine")
    (again,) = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])["Messages"]
    assert (again["MessageId"], again["Attributes"]["ApproximateReceiveCount"]) == (by_boto3, "2")
    assert again["MessageAttributes"] == {"trace": attribute}
    found = jobs.find(by_boto3)
    assert found is not None and (found.state, [attempt.reason for attempt in found.history]) == ("leased", ["not mine"])
    for message in (second, again):
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert jobs.counts().unfinished == 0
