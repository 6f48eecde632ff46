"""Nodes and workers of a queue are killed under load: every job is done, what always fails is a dead letter, nothing is left.

Three nodes, three replicas, min.insync.replicas 2; workers are processes that use the Python client. One node at a time is killed and comes
back before the next; workers are killed at any time, and replaced. PENSTOCK_ROUNDS sets how often.
"""

import os
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest
from system import queue_worker
from system.clusters import Cluster, until
from tiers import pick
from waiting import PATIENCE_S, paced, pause_at_random
from warm import Forked, Warm

from penstock.client import Queue
from penstock.client.queues import InDoubt, NotAvailable, QueueError, Unreachable

pytestmark = [pytest.mark.paired, pytest.mark.timeout(900), pytest.mark.invariant("queues.kills-under-load")]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", pick(test=4, slow=10)))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "50"))
both = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])

QUEUE, DEAD = "jobs", "jobs-dead"
WORKERS = 3
DELIVERIES_MAX = 5
BAD_EVERY = 10
PER_SECOND = pick(test=30, slow=60)
SHORTEST_S, LONGEST_S = 0.02, 0.1  # Between two tries to send a job.


@cache
def workers() -> Warm:
    return Warm(queue_worker.__file__)


class Crew:
    """Workers in processes, each with a diary of its own."""

    def __init__(self, urls: str, directory: Path) -> None:
        self._urls = urls
        self._directory = directory
        self._processes: list[Forked] = []
        self._diaries: list[Path] = []

    def hire(self) -> None:
        path = self._directory / f"worker-{len(self._diaries)}"
        self._diaries.append(path)
        with open(os.devnull, "r+b") as nothing:
            streams = [nothing.fileno(), nothing.fileno(), 2]
            self._processes.append(workers().start([self._urls, QUEUE, str(path)], streams, os.environ, str(self._directory)))

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

    def __init__(self, urls: str, *, per_second: int) -> None:
        super().__init__(daemon=True)
        self._queue = Queue(QUEUE, url=urls, patience=PATIENCE_S)
        self._per_second = per_second
        self._stopping = threading.Event()
        self.sent: list[str] = []

    def run(self) -> None:
        rng = random.Random("sender")
        for number, _ in enumerate(paced(self._per_second, self._stopping)):
            job = f"{'bad' if number % BAD_EVERY == 0 else 'job'}-{number}"
            while True:
                try:
                    self._queue.send(job, dedup=job)
                    break
                except (InDoubt, NotAvailable, Unreachable):
                    pause_at_random(rng, SHORTEST_S, LONGEST_S)
            self.sent.append(job)

    def wait_for_more(self, count: int) -> None:
        enough = len(self.sent) + count
        until(lambda: len(self.sent) >= enough, f"{count} more jobs are sent")

    def stop(self) -> None:
        self._stopping.set()
        self.join(PATIENCE_S)
        assert not self.is_alive(), f"a job could not be sent for {PATIENCE_S:.0f} s"


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
    dead = Queue(DEAD, url=urls, heartbeat=False, patience=PATIENCE_S)
    while letters := dead.receive(100, wait=0):
        for letter in letters:
            assert letter.text not in found, f"{letter.text} is a dead letter twice"
            assert letter.dead_letter is not None
            found[letter.text] = len(letter.dead_letter.attempts)
            letter.ack()
    return found


def is_empty(queue: Queue) -> bool:
    try:
        counts = queue.counts()
    except QueueError:  # The node that was asked, or the leader behind it, is not there now.
        return False
    return not (counts.ready or counts.leased or counts.delayed or counts.burying)


@pytest.mark.repeats
@both
def test_every_job_is_done_though_nodes_and_workers_die(tmp_path: Path, rounds: int) -> None:
    rng = random.Random(f"workers die {rounds}")
    with Cluster(tmp_path) as cluster:
        urls = ",".join(f"http://{member.host}:{member.http_port}" for member in cluster.members)
        queue, safe = Queue(QUEUE, url=urls, patience=PATIENCE_S), {"min.insync.replicas": "2"}
        Queue(DEAD, url=urls, patience=PATIENCE_S).ensure(partitions=1, replicas=3, settings=safe)
        queue.ensure(partitions=3, replicas=3, deliveries=DELIVERIES_MAX, dead_letters=DEAD, backoff=0, dedup_window=3_600, settings=safe)
        sender = Sender(urls, per_second=PER_SECOND)
        with hired(Crew(urls, tmp_path)) as crew:
            sender.start()
            until(lambda: any(crew.told()), "somebody works")
            for number in range(rounds):
                sender.wait_for_more(10)
                pause_at_random(rng, 0, 0.4)
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
            until(lambda: is_empty(queue), "every job is finished", why=lambda: f"{len(sender.sent)} were sent")
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
