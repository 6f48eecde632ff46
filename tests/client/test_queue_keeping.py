"""The queue itself, from Python: its dead letters, a look into it, and how it is made, changed, emptied and deleted."""

from datetime import UTC, datetime, timedelta

import pytest
from client.client_side import write
from client.queue_side import one
from waiting import until

from penstock.client import Queue
from penstock.client.queues import QueueDiffers, QueueFull, QueueMissing, Refused, list_queues
from penstock.testing import Broker


def test_dead_letters_know_what_happened_and_are_sent_back(penstock_broker: Broker):
    dead = penstock_broker.queue()
    jobs = penstock_broker.queue(deliveries=2, backoff=0, dead_letters=dead.name)
    jobs.send("unlucky", key="k", headers={"trace": "7"})
    jobs.send("hopeless")
    for _ in range(2):
        for message in jobs.receive(2):
            if message.text == "hopeless" and message.attempt == 2:
                message.reject("never")
            else:
                message.nack(reason=f"Müller: try {message.attempt}")
    until(lambda: dead.counts().ready == 2 and jobs.counts().unfinished == 0)
    letters = {found.text: found for found in dead.peek()}
    letter = letters["unlucky"].dead_letter
    assert letter is not None and (letter.source, letter.reason, letter.deliveries) == (jobs.name, "Müller: try 2", 2)
    assert [attempt.reason for attempt in letter.attempts] == ["Müller: try 1", "Müller: try 2"]
    assert letter.failed_at is not None
    assert (letters["unlucky"].key, letters["unlucky"].headers) == (b"k", {"trace": b"7"})

    dry = dead.redrive(reason="Müller", dry_run=True).wait()
    assert (dry.to_move, dry.moved, dry.by_target) == (1, 0, {jobs.name: 1})
    assert dead.counts().ready == 2
    seen: list[int] = []
    done = dead.redrive(reason="try", rate=100).wait(lambda progress: seen.append(progress.moved))
    assert (done.status, done.moved, done.by_target) == ("completed", 1, {jobs.name: 1})
    assert seen[-1] == 1
    again = one(jobs)
    assert (again.text, again.attempt, again.key) == ("unlucky", 1, b"k")
    again.ack()

    other = penstock_broker.queue()
    moved = dead.redrive(to=other.name, ids=[letters["hopeless"].id]).wait()
    assert moved.by_target == {other.name: 1}
    assert one(other).text == "hopeless"
    assert dead.counts().unfinished == 0


def test_a_queue_can_be_looked_into_held_up_and_emptied(jobs: Queue):
    ids = jobs.send_many(["a", "b", "c"])
    taken = one(jobs)
    peeked = jobs.peek()
    assert [found.id for found in peeked] == ids
    assert [found.state for found in peeked] == ["leased", "ready", "ready"]
    assert [found.id for found in jobs.peek(states=["ready"], after=ids[1])] == [ids[2]]
    counts = jobs.counts()
    assert (counts.ready, counts.leased, counts.is_paused) == (2, 1, False)
    assert counts.oldest_at is not None
    jobs.pause()
    assert jobs.counts().is_paused
    assert jobs.receive(1, wait=0) == []
    taken.ack()
    jobs.resume()
    assert one(jobs).id == ids[1]
    jobs.purge()
    assert jobs.counts().unfinished == 0


def test_a_queue_that_keeps_what_is_done_can_be_rewound(penstock_broker: Broker):
    audit = penstock_broker.queue(keep=True)
    audit.send("before")
    one(audit).ack()
    since = datetime.now(UTC)
    until(lambda: datetime.now(UTC) > since + timedelta(milliseconds=2))  # The two have different milliseconds.
    audit.send_many(["one", "two"])
    audit.ack_many(audit.receive(2))
    assert audit.counts().unfinished == 0
    assert audit.rewind(since) == 2
    assert [message.text for message in audit.receive(5)] == ["one", "two"]


def test_a_queue_is_made_described_changed_and_deleted(penstock_broker: Broker):
    queue = penstock_broker.queue(lease=5, deliveries=3, partitions=2)
    assert queue.name in list_queues(penstock_broker.http_url)
    view = queue.describe()
    assert (view.partitions, view.settings["queue.lease.ms"], view.settings["queue.deliveries.max"]) == (2, "5000", "3")
    assert not queue.ensure(lease=5)
    with pytest.raises(QueueDiffers, match=r"queue\.lease\.ms is 5000, not 6000"):
        queue.ensure(lease=6)
    with pytest.raises(QueueDiffers, match=r"take another name: queue\.deliveries\.max is 3, not 4\n"):  # A backoff of 1 s is as usual.
        queue.ensure(lease=5.0, deliveries=4, backoff=1)
    with pytest.raises(QueueDiffers, match="is there already"):
        queue.create()
    queue.configure(lease=6)
    assert queue.describe().settings["queue.lease.ms"] == "6000"
    with pytest.raises(Refused, match=r"queue\.lease\.ms"):
        queue.configure(lease=timedelta(days=2))
    with pytest.raises(Refused, match="nonsense"):
        queue.configure(settings={"queue.nonsense": "1"})
    queue.delete()
    with pytest.raises(QueueMissing, match=queue.name):
        queue.send("hello")


def test_a_queue_that_is_ensured_has_its_queue_of_dead_letters_too(penstock_broker: Broker):
    jobs = penstock_broker.queue()
    name = f"{jobs.name}-more"
    for is_new in (True, False):
        assert Queue(name, url=penstock_broker.http_url).ensure(deliveries=1, dead_letters=f"{name}-dead", fifo=True) is is_new
    assert Queue(f"{name}-dead", url=penstock_broker.http_url).describe().settings["queue.fifo"] == "true"


def test_a_full_queue_refuses_until_there_is_room(penstock_broker: Broker):
    queue = penstock_broker.queue(limit=1)
    queue.send("one")
    with pytest.raises(QueueFull):
        queue.send("two")
    one(queue).ack()
    queue.send("two")


def test_any_kafka_client_writes_to_a_queue(penstock_broker: Broker, jobs: Queue):
    write(penstock_broker, jobs.name, b"by the log", key="k", headers={"penstock.priority": b"9", "own": b"1"})
    message = one(jobs)
    assert (message.body, message.key, message.priority, message.headers) == (b"by the log", b"k", 9, {"own": b"1"})


@pytest.mark.parametrize("written", [b"9" * 18, b"9" * 5_000, b"-1", b"soon"])
def test_a_record_whose_notes_make_no_sense_stops_no_worker(penstock_broker: Broker, jobs: Queue, written: bytes):
    notes = {"penstock.source": b"\xff", "penstock.failed-at": written, "penstock.attempts": b'{"count": 1e999, "failures": [[]]}'}
    write(penstock_broker, jobs.name, b"hello", headers=notes)
    message = one(jobs)
    assert message.dead_letter is not None
    assert (message.text, message.dead_letter.failed_at, message.dead_letter.attempts) == ("hello", None, ())
    assert [found.body for found in jobs.peek()] == [b"hello"]
    message.ack()
