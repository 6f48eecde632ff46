"""Work-queue libraries that know SQS, unchanged, on a real node: Celery with a real worker, kombu, dramatiq-sqs and taskiq-aio-sqs."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from penstock.client import Queue
from penstock.testing import Broker, broker

HERE = Path(__file__).parent
KEYS = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
SECONDS_MAX = 30.0


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with broker() as running:
        yield running


@pytest.fixture
def prefix() -> str:
    return f"lib-{uuid4().hex[:8]}-"


def until_empty(queue: Queue) -> None:
    """Acknowledgements come after the work that was told of."""
    queue.pause()  # Nobody takes anything more: what is left to wait for is settlements.
    finished = threading.Event()
    for _ in range(round(SECONDS_MAX / 0.05)):
        if queue.counts().unfinished == 0:
            return
        finished.wait(0.05)
    raise AssertionError(f"left in {queue.name}: {queue.counts()}")


def told(journal: Queue, count: int) -> list[str]:
    """What the workers have told, in no particular order."""
    words: list[str] = []
    while len(words) < count:
        messages = journal.receive(count, wait=SECONDS_MAX)
        assert messages, f"only {sorted(words)} was told"
        words += [message.text for message in messages]
        journal.ack_many(messages)
    return sorted(words)


@pytest.mark.needs("pycurl")
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
        for number in range(5):
            celery_app.note.delay(f"note {number}")
        celery_app.stumble.delay("stumble")
        celery_app.note.apply_async(("later",), countdown=0.5)
        assert told(journal, 9) == ["later", *[f"note {number}" for number in range(5)], *[f"stumble {attempt}" for attempt in range(3)]]
    finally:
        worker.terminate()
        words = worker.communicate(timeout=SECONDS_MAX)[0].decode()
    assert "Traceback" not in words and "ERROR" not in words, words
    until_empty(Queue(f"{prefix}celery", url=node.http_url))


@pytest.mark.needs("pycurl")
def test_kombu_sends_receives_requeues_and_purges(node: Broker, prefix: str):
    from kombu import Connection

    options = {"is_secure": False, "region": "us-east-1", "queue_name_prefix": prefix, "wait_time_seconds": 1, "visibility_timeout": 30}
    address = node.http_url.removeprefix("http://")
    with Connection(f"sqs://key:secret@{address}//", transport_options=options) as connection:
        jobs = connection.SimpleQueue("jobs")
        for number in range(3):
            jobs.put({"number": number})
        assert jobs.qsize() == 3
        taken = [jobs.get(timeout=SECONDS_MAX) for _ in range(3)]
        assert sorted(message.payload["number"] for message in taken) == [0, 1, 2]
        taken[0].ack()
        taken[1].reject()
        taken[2].requeue()
        again = jobs.get(timeout=SECONDS_MAX)
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

    @dramatiq.actor(broker=jobs, min_backoff=1, max_backoff=2)
    def fail() -> None:
        tell("failed")
        raise RuntimeError("on purpose")

    worker = dramatiq.Worker(jobs, worker_timeout=1_000, worker_threads=2)
    worker.start()
    try:
        note.send("at once")
        note.send_with_options(args=("later",), delay=1_000)
        fail.send()
        for _ in range(5):
            assert heard.acquire(timeout=SECONDS_MAX), happened
        assert sorted(happened) == ["at once", "failed", "failed", "failed", "later"]
        dead = boto3.resource("sqs", endpoint_url=node.http_url, **KEYS).get_queue_by_name(QueueName=f"{prefix}_default_dlq")
        assert len(dead.receive_messages(WaitTimeSeconds=10)) == 1
    finally:
        worker.stop()
        jobs.close()
    until_empty(Queue(f"{prefix}_default", url=node.http_url))


@pytest.mark.parametrize("suffix", ["jobs", "jobs.fifo"])
def test_taskiq_runs_tasks_and_keeps_their_leases(node: Broker, prefix: str, suffix: str):
    from taskiq.api import run_receiver_task
    from taskiq_aio_sqs import SQSBroker

    name = prefix + suffix
    is_fifo = suffix.endswith(".fifo")
    attributes = {"VisibilityTimeout": "2"} | ({"FifoQueue": "true"} if is_fifo else {})
    boto3.client("sqs", endpoint_url=node.http_url, **KEYS).create_queue(QueueName=name, Attributes=attributes)
    happened: list[str] = []
    done = asyncio.Semaphore(0)

    async def scenario() -> None:
        jobs = SQSBroker(
            name, endpoint_url=node.http_url, wait_time_seconds=2, max_number_of_messages=10, enable_heartbeat=True,
            use_task_id_for_deduplication=is_fifo, **KEYS,
        )  # fmt: skip

        async def note(words: str) -> None:
            happened.append(words)
            done.release()

        async def slow() -> None:
            await asyncio.sleep(2.5)  # Longer than the lease: only the heartbeat keeps it from being given out again.
            await note("slow")

        tasks: dict[str, Any] = {each.__name__: jobs.register_task(each, task_name=each.__name__) for each in (note, slow)}
        await jobs.startup()
        receiving = asyncio.create_task(run_receiver_task(jobs))
        try:
            for number in range(5):
                await tasks["note"].kiq(f"note {number}")
            if not is_fifo:
                await tasks["slow"].kiq()
            async with asyncio.timeout(SECONDS_MAX):
                for _ in range(5 if is_fifo else 6):
                    await done.acquire()
        finally:
            receiving.cancel()
            await asyncio.gather(receiving, return_exceptions=True)
            await jobs.shutdown()

    asyncio.run(scenario())
    notes = [f"note {number}" for number in range(5)]
    assert happened == notes if is_fifo else sorted(happened) == [*notes, "slow"]
    until_empty(Queue(name, url=node.http_url))


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
