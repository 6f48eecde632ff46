"""Nodes and workers of a queue are killed under load: every job is done, what always fails is a dead letter, nothing is left.

Three nodes, three replicas, min.insync.replicas 2; workers are processes that use the Python client. One node at a time is killed and comes
back before the next; workers are killed at any time, and replaced. PENSTOCK_ROUNDS sets how often.
"""

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from system import queue_worker
from system.clusters import Cluster, until

from penstock.client import Queue
from penstock.client.queues import InDoubt, NotAvailable, Unreachable

pytestmark = pytest.mark.paired

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "10"))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "50"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])

QUEUE, DEAD = "jobs", "jobs-dead"
WORKERS = 3
DELIVERIES_MAX = 5
BAD_EVERY = 20
PER_SECOND = 60
SETTINGS = {"broker.session.timeout.ms": 1_000, "broker.heartbeat.interval.ms": 150, "replica.lag.time.max.ms": 3_000}


class Crew:
    """Workers in processes, each with a diary of its own."""

    def __init__(self, urls: str, directory: Path) -> None:
        self._urls = urls
        self._directory = directory
        self._processes: list[subprocess.Popen[bytes]] = []
        self._diaries: list[Path] = []

    def hire(self) -> None:
        path = self._directory / f"worker-{len(self._diaries)}"
        self._diaries.append(path)
        self._processes.append(subprocess.Popen([sys.executable, queue_worker.__file__, self._urls, QUEUE, str(path)]))

    def kill(self, rng: random.Random) -> None:
        process = self._processes.pop(rng.randrange(len(self._processes)))
        process.kill()
        process.wait()

    def dismiss(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def told(self) -> Iterator[tuple[str, str, int]]:
        for path in self._diaries:
            yield from queue_worker.lines(path)


class Sender(threading.Thread):
    """Sends job after job, each with an id, so that one whose answer got lost may be sent again."""

    def __init__(self, urls: str) -> None:
        super().__init__(daemon=True)
        self._queue = Queue(QUEUE, url=urls)
        self._stopping = threading.Event()
        self.sent: list[str] = []

    def run(self) -> None:
        number = 0
        while not self._stopping.wait(1 / PER_SECOND):
            job = f"{'bad' if number % BAD_EVERY == 0 else 'job'}-{number}"
            while True:
                try:
                    self._queue.send(job, dedup=job)
                    break
                except (InDoubt, NotAvailable, Unreachable):
                    continue
            self.sent.append(job)
            number += 1

    def stop(self) -> None:
        self._stopping.set()
        self.join(60.0)
        assert not self.is_alive(), "a job could not be sent for a minute"


@contextmanager
def hired(crew: Crew) -> Iterator[Crew]:
    try:
        for _ in range(WORKERS):
            crew.hire()
        yield crew
    finally:
        crew.dismiss()


def dead_letters(urls: str) -> dict[str, int]:
    """Every dead letter and how often it was delivered; none is there twice."""
    found: dict[str, int] = {}
    dead = Queue(DEAD, url=urls, heartbeat=False)
    while letters := dead.receive(100, wait=0):
        for letter in letters:
            assert letter.text not in found, f"{letter.text} is a dead letter twice"
            assert letter.dead_letter is not None
            found[letter.text] = len(letter.dead_letter.attempts)
            letter.ack()
    return found


def is_empty(queue: Queue) -> bool:
    counts = queue.counts()
    return not (counts.ready or counts.leased or counts.delayed or counts.burying)


@both
def test_every_job_is_done_though_nodes_and_workers_die(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(f"workers die {rounds}")
    with Cluster(tmp_path, settings=SETTINGS) as cluster:
        urls = ",".join(f"http://{member.host}:{member.http_port}" for member in cluster.members)
        queue, safe = Queue(QUEUE, url=urls), {"min.insync.replicas": "2"}
        Queue(DEAD, url=urls).ensure(partitions=1, replicas=3, settings=safe)
        queue.ensure(partitions=3, replicas=3, deliveries=DELIVERIES_MAX, dead_letters=DEAD, backoff=0, dedup_window=3_600, settings=safe)
        sender = Sender(urls)
        with hired(Crew(urls, tmp_path)) as crew:
            sender.start()
            until(lambda: any(crew.told()), "somebody works")
            for number in range(rounds):
                time.sleep(rng.uniform(0.1, 0.5))
                if number % 2:
                    crew.kill(rng)
                    crew.hire()
                else:
                    victim = cluster.random_member(rng)
                    victim.kill()
                    crew.kill(rng)
                    victim.start()
                    crew.hire()
                    cluster.wait_until_full(QUEUE, DEAD)
            sender.stop()
            until(lambda: is_empty(queue), "every job is finished", why=lambda: str(queue.counts()))
        told = list(crew.told())
        judge(sender.sent, told, dead_letters(urls))
        print(f"{len(sender.sent)} jobs, {len(told)} deliveries")
        assert len(sender.sent) > rounds * 5
        assert cluster.complaints() == []


def judge(sent: list[str], told: list[tuple[str, str, int]], dead: dict[str, int]) -> None:
    done = {job for deed, job, _ in told if deed == "did"}
    assert {job for job in sent if job.startswith("job")} - done - set(dead) == set(), "every job is done, or has failed as often as it may"
    assert {job for job in sent if job.startswith("bad")} - set(dead) == set(), "what always fails is a dead letter"
    assert {job: count for job, count in dead.items() if count != DELIVERIES_MAX} == {}, "and nothing is before its time"
    assert (done | set(dead)) - set(sent) == set()
    attempts = Counter((job, attempt) for _, job, attempt in told)
    assert {each: times for each, times in attempts.items() if times > 1} == {}, "no attempt is given to two workers"
    assert {job: attempt for job, attempt in attempts if attempt > DELIVERIES_MAX} == {}
