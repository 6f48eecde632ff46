"""A queue from Python, on a real node: what is sent is lent, settled, tried again, buried and brought back as its messages say."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pytest

from penstock.client import AsyncQueue, Draft, LeaseLost, Producer, Queue, QueueMessage
from penstock.client.queues import AsyncQueueMessage, QueueDiffers, QueueFull, QueueMissing, Refused, list_queues
from penstock.client.queues.spans import moment, wall_ms
from penstock.testing import Broker

SECONDS_MAX = 30.0
SOON = 0.2


@pytest.fixture
def jobs(penstock_broker: Broker) -> Queue:
    return penstock_broker.queue(backoff=0)


def one(queue: Queue, **options: float) -> QueueMessage:
    (message,) = queue.receive(1, wait=SECONDS_MAX, **options)
    return message


def until(claim: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_message_comes_as_it_was_sent_and_is_done_when_it_is_acknowledged(jobs: Queue):
    before = datetime.now(UTC) - timedelta(seconds=1)
    id = jobs.send(b"\xff\x00 raw", key="customer-42", headers={"trace": b"\xfe", "lang": "en"}, priority=7)
    message = one(jobs, lease=60)
    assert (message.id, message.body, message.key) == (id, b"\xff\x00 raw", b"customer-42")
    assert message.headers == {"trace": b"\xfe", "lang": b"en"}
    assert (message.attempt, message.priority, message.dead_letter) == (1, 7, None)
    assert before <= message.sent_at <= datetime.now(UTC) + timedelta(seconds=1)
    assert timedelta(seconds=50) < message.deadline - datetime.now(UTC) < timedelta(seconds=70)
    message.ack()
    assert message.is_settled
    assert jobs.counts().unfinished == 0
    found = jobs.find(id)
    assert found is None or found.state == "finished"


def test_text_and_json_are_a_word_away(jobs: Queue):
    jobs.send('{"to": "Zoë"}')
    message = one(jobs)
    assert (message.text, message.json()) == ('{"to": "Zoë"}', {"to": "Zoë"})
    message.ack()


def test_a_thousand_and_more_go_out_and_come_in_by_few_calls(jobs: Queue):
    bodies = [f"job {number}".encode() for number in range(1_200)]
    assert len(set(jobs.send_many(bodies))) == 1_200
    came: list[bytes] = []
    while len(came) < 1_200:
        messages = jobs.receive(1_000, wait=SECONDS_MAX)
        came += [message.body for message in messages]
        jobs.ack_many(messages)
    assert came == bodies
    assert jobs.counts().unfinished == 0


def test_what_failed_comes_again_with_its_history(jobs: Queue):
    id = jobs.send("hello")
    one(jobs).nack(reason="no paper")
    second = one(jobs)
    assert (second.id, second.attempt) == (id, 2)
    second.nack(delay=60, reason="no ink")
    found = jobs.find(id)
    assert found is not None
    assert (found.state, found.attempts) == ("delayed", 2)
    assert [attempt.reason for attempt in found.history] == ["no paper", "no ink"]
    assert found.history[0].worker.endswith(f":{os.getpid()}")
    assert found.history[0].taken_at <= found.history[0].ended_at <= found.history[1].taken_at
    assert found.ready_at is not None and timedelta(seconds=50) < found.ready_at - datetime.now(UTC) < timedelta(seconds=70)


def test_what_is_given_back_untouched_is_ready_at_once(jobs: Queue):
    jobs.configure(backoff=60, deliveries=1)
    jobs.send("hello")
    for _ in range(3):
        message = one(jobs)
        assert message.attempt == 1, "that was no delivery"
        message.release()
    one(jobs).ack()


def test_a_block_that_ends_well_has_done_its_message_and_one_that_fails_tells_why(jobs: Queue):
    id = jobs.send("hello")
    with pytest.raises(ValueError, match="no address"), one(jobs):
        raise ValueError("no address\nat all")
    found = jobs.find(id)
    assert found is not None and [attempt.reason for attempt in found.history] == ["ValueError: no address at all"]
    with one(jobs) as message:
        assert message.attempt == 2
    assert message.is_settled and jobs.counts().unfinished == 0


def test_a_block_that_is_interrupted_gives_its_message_back_and_one_that_settled_it_is_believed(jobs: Queue):
    jobs.configure(backoff=60, deliveries=2)
    jobs.send("hello")
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt), one(jobs):
            raise KeyboardInterrupt
    with one(jobs) as message:
        message.nack(delay=0, reason="later")
    assert one(jobs).attempt == 2


def test_a_look_goes_on_behind_a_message_that_came_back_from_the_dead_letters(penstock_broker: Broker, jobs: Queue):
    dead = penstock_broker.queue()
    jobs.configure(dead_letters=dead.name)
    id = jobs.send("there and back")
    one(jobs).reject("try later")
    until(lambda: dead.counts().ready == 1)
    dead.redrive().wait()
    until(lambda: jobs.counts().ready == 1)
    jobs.send("last")
    first, second = jobs.peek()
    assert (first.id, first.text, second.text) == (id, "there and back", "last")
    for after in (id, first):
        assert [each.text for each in jobs.peek(after=after)] == ["last"]
    assert jobs.peek(after=second) == []


def test_a_moment_is_the_millisecond_that_a_clock_shows_then():
    assert wall_ms(datetime(1970, 1, 1, 0, 0, 1, 1_999, UTC), "to") == 1_001
    assert [wall_ms(moment(at), "to") for at in (1_700_000_000_001, 4_102_444_800_123)] == [1_700_000_000_001, 4_102_444_800_123]


def test_a_worker_goes_on_after_a_failure_which_is_tried_again_and_told(jobs: Queue, caplog: pytest.LogCaptureFixture):
    jobs.send_many(["good", "odd", "good too"])
    seen: list[tuple[str, int]] = []

    def step(message: QueueMessage) -> None:
        seen.append((message.text, message.attempt))
        if message.text == "odd" and message.attempt == 1:
            raise ValueError("odd")

    assert jobs.work(step, idle=SOON) == 3
    assert sorted(seen) == [("good", 1), ("good too", 1), ("odd", 1), ("odd", 2)]
    assert "failed (attempt 1)" in caplog.text and "ValueError: odd" in caplog.text
    assert jobs.counts().unfinished == 0


def test_a_worker_for_asyncio_has_several_messages_at_once(penstock_broker: Broker, jobs: Queue):
    jobs.send_many(["a", "b", "c"])

    async def scenario() -> int:
        all_three = asyncio.Barrier(3)

        async def step(message: AsyncQueueMessage) -> None:
            await all_three.wait()

        async with AsyncQueue(jobs.name, url=penstock_broker.http_url) as queue, asyncio.timeout(SECONDS_MAX):
            return await queue.work(step, at_once=3, idle=SOON)

    assert asyncio.run(scenario()) == 3
    assert jobs.counts().unfinished == 0


def test_a_lease_is_kept_while_its_block_runs(jobs: Queue):
    jobs.send("hello")
    with one(jobs, lease=0.6) as message:
        first = message.deadline
        assert jobs.receive(1, wait=1.5) == []
        assert message.deadline > first and not message.is_lost
    assert jobs.counts().unfinished == 0


def test_a_lease_is_kept_by_what_the_queue_says_today(penstock_broker: Broker):
    jobs = penstock_broker.queue(lease=30)
    jobs.send("first")
    one(jobs).ack()  # It has learned how long leases are; somebody else changes that.
    Queue(jobs.name, url=penstock_broker.http_url).configure(lease=0.6)
    jobs.send("hello")
    with one(jobs) as message:
        assert jobs.receive(1, wait=1.5) == []
        assert not message.is_lost
    assert jobs.counts().unfinished == 0


def test_many_large_texts_in_any_script_go_out_in_as_many_calls_as_they_need(jobs: Queue):
    body = "\u65e5" * 30_000  # Three bytes each; escaped, it would be six.
    assert len(jobs.send_many([body] * 100)) == 100
    assert jobs.counts().ready == 100


def test_a_lease_has_its_longest(jobs: Queue):
    jobs.send(b"x")
    (message,) = jobs.receive()
    with pytest.raises(Refused, match="twelve hours at most"):
        message.extend(12 * 3600)
    message.ack()  # It was left as it was.


def test_nothing_waits_beyond_the_year_9999(jobs: Queue):
    jobs.send(b"x")
    (message,) = jobs.receive()
    with pytest.raises(Refused, match="DelayMs must lie between"):
        message.nack(delay=8_000 * 365.25 * 86_400)
    message.ack()


def test_a_lease_that_nobody_keeps_lapses_and_the_next_worker_has_the_message(penstock_broker: Broker):
    jobs = penstock_broker.queue(lenient=False, backoff=0)
    jobs.send("hello")
    late = one(jobs, lease=SOON)
    second = one(jobs, lease=60)
    assert (second.id, second.attempt) == (late.id, 2)
    for settle in (late.ack, late.nack, late.extend):
        with pytest.raises(LeaseLost, match="has lapsed"):
            settle()
    assert late.is_lost and not late.is_settled
    with pytest.raises(LeaseLost):
        jobs.ack_many([late, second])
    assert second.is_settled and jobs.counts().unfinished == 0
    with pytest.raises(LeaseLost, match="is finished already"):
        second.extend(5)


def test_a_lenient_queue_takes_late_work_for_done(jobs: Queue):
    jobs.send("hello")
    late = one(jobs, lease=SOON)
    one(jobs, lease=60)
    late.ack()
    assert jobs.counts().unfinished == 0


def test_a_failed_block_tells_its_own_failure_though_its_lease_is_lost(penstock_broker: Broker):
    jobs = Queue(penstock_broker.queue(lenient=False, backoff=0).name, url=penstock_broker.http_url, heartbeat=False)
    jobs.send("hello")
    with pytest.raises(ValueError, match="mine"), one(jobs, lease=SOON):
        one(jobs).ack()
        raise ValueError("mine")


def test_a_delayed_message_comes_when_it_is_due_and_can_be_taken_back_until_then(jobs: Queue):
    soon = jobs.send("soon", delay=timedelta(milliseconds=300))
    far = jobs.send("far", at=datetime.now(UTC) + timedelta(days=100))
    found = jobs.find(far)
    assert found is not None and found.state == "delayed" and found.ready_at is not None
    assert timedelta(days=99) < found.ready_at - datetime.now(UTC) < timedelta(days=101)
    assert jobs.counts().delayed == 2
    assert jobs.receive(1, wait=0) == []
    message = one(jobs)
    assert message.id == soon and datetime.now(UTC) >= message.sent_at + timedelta(milliseconds=250)
    assert not jobs.cancel(soon), "somebody has it"
    message.ack()
    assert jobs.cancel(far)
    assert not jobs.cancel(far), "it is gone"
    assert jobs.counts().unfinished == 0


def test_what_is_no_id_is_told_apart_from_what_is_gone(jobs: Queue):
    with pytest.raises(Refused):
        jobs.cancel("no id at all")


def test_what_nobody_took_in_time_is_dropped(jobs: Queue):
    jobs.pause()
    jobs.send("stale", ttl=SOON)
    jobs.send("fresh")
    until(lambda: jobs.counts().unfinished == 1)
    jobs.resume()
    assert one(jobs).text == "fresh"


def test_the_urgent_ones_come_first_also_when_they_are_tried_again(jobs: Queue):
    jobs.send_many([Draft("low", priority=0), "usual", Draft("high", priority=9), Draft("high too", priority=9)])
    one(jobs).nack(reason="not yet")
    assert [message.text for message in jobs.receive(4)] == ["high", "high too", "usual", "low"]


def test_messages_of_a_group_come_in_order_and_one_at_a_time(penstock_broker: Broker):
    jobs = penstock_broker.queue(fifo=True)
    for step in ("first", "second"):
        for customer in ("ann", "bob"):
            jobs.send(step, group=customer)
    first, second = one(jobs), one(jobs)
    assert [(message.group, message.text) for message in (first, second)] == [("ann", "first"), ("bob", "first")]
    assert jobs.receive(1, wait=0) == [], "the rest of a group waits for what is with a worker"
    second.ack()
    third = one(jobs)
    assert (third.group, third.text) == ("bob", "second")
    first.nack(delay=0)
    assert one(jobs).id == first.id, "and also when that is tried again"


def test_a_dedup_id_stores_one_message(jobs: Queue):
    first = jobs.send("pay", dedup="order-7")
    assert jobs.send("pay again", dedup="order-7") == first
    assert jobs.counts().ready == 1


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
    time.sleep(0.01)  # The two have different milliseconds.
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
    with Producer(penstock_broker.bootstrap) as producer:
        producer.send(topic=jobs.name, key="k", value=b"by the log", headers={"penstock.priority": b"9", "own": b"1"}).result(SECONDS_MAX)
    message = one(jobs)
    assert (message.body, message.key, message.priority, message.headers) == (b"by the log", b"k", 9, {"own": b"1"})


@pytest.mark.parametrize("written", [b"9" * 18, b"9" * 5_000, b"-1", b"soon"])
def test_a_record_whose_notes_make_no_sense_stops_no_worker(penstock_broker: Broker, jobs: Queue, written: bytes):
    notes = {"penstock.source": b"\xff", "penstock.failed-at": written, "penstock.attempts": b'{"count": 1e999, "failures": [[]]}'}
    with Producer(penstock_broker.bootstrap) as producer:
        producer.send(topic=jobs.name, value=b"hello", headers=notes).result(SECONDS_MAX)
    message = one(jobs)
    assert message.dead_letter is not None
    assert (message.text, message.dead_letter.failed_at, message.dead_letter.attempts) == ("hello", None, ())
    assert [found.body for found in jobs.peek()] == [b"hello"]
    message.ack()


def test_threads_share_a_queue_and_none_gets_what_another_has(jobs: Queue):
    ids = jobs.send_many([str(number) for number in range(60)])
    done: list[str] = []

    def work() -> None:
        for message in jobs.messages(ahead=5, idle=0.5):
            with message:
                done.append(message.id)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS_MAX)
    assert sorted(done) == sorted(ids)


def test_a_loop_that_is_left_gives_back_what_it_had_taken_ahead(jobs: Queue):
    jobs.configure(backoff=60)
    jobs.send_many(["a", "b", "c"])
    messages = jobs.messages(ahead=3)
    with next(messages) as first:
        assert first.text == "a"
    messages.close()  # type: ignore[attr-defined]
    assert [message.text for message in jobs.receive(3)] == ["b", "c"]


def test_a_fork_goes_on_with_connections_of_its_own(jobs: Queue):
    jobs.send_many(["done by the child", "by the parent"])
    taken = one(jobs)
    pid = os.fork()
    if pid == 0:
        try:
            taken.ack()
            jobs.send("by the child")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    jobs.send("by the parent again")
    assert [message.text for message in jobs.receive(5)] == ["by the parent", "by the child", "by the parent again"]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A suite that a script has started in the background would pass interrupts over."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_a_wait_and_takes_no_message_along(jobs: Queue):
    timer = threading.Timer(0.3, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        jobs.receive(1, wait=SECONDS_MAX)
    jobs.send("hello")
    assert one(jobs).attempt == 1


def test_the_same_for_asyncio(penstock_broker: Broker, jobs: Queue):
    queue = AsyncQueue(jobs.name, url=penstock_broker.http_url)

    async def scenario() -> None:
        waiting = asyncio.create_task(queue.receive(1, wait=SECONDS_MAX))
        await asyncio.sleep(SOON)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await queue.send_many(["a", "b"])
        async for message in queue:
            async with message:
                assert message.attempt == 1, "a wait that was cancelled has taken it along"
                if message.text == "b":
                    break
        assert (await queue.counts()).unfinished == 0

    asyncio.run(scenario())
    asyncio.run(scenario())  # Another loop, with the same queue.
    asyncio.run(queue.close())


def test_a_queue_of_several_partitions_gives_all_that_was_sent(penstock_broker: Broker):
    queue = penstock_broker.queue(partitions=3)
    ids = queue.send_many([Draft(str(number), key=str(number)) for number in range(30)])
    came: list[str] = []
    while len(came) < 30:
        messages = queue.receive(30, wait=SECONDS_MAX)
        came += [message.id for message in messages]
        queue.ack_many(messages)
    assert sorted(came) == sorted(ids)
    assert all(queue.find(id) is None or queue.find(id).state == "finished" for id in ids[:3])  # type: ignore[union-attr]
