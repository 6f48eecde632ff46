"""A queue from Python, on a real node: what is sent is lent, settled and tried again as its messages say."""

import asyncio
import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from client.client_side import holds_unless_the_machine_stalls
from client.queue_side import one, work_until
from waiting import EXPIRES_S, NEVER_S, PATIENCE_S, until

from penstock.client import AsyncQueue, Draft, LeaseLost, Queue, QueueMessage
from penstock.client.queues import AsyncQueueMessage, Refused
from penstock.client.queues.spans import moment, wall_ms
from penstock.testing import Broker

A_MINUTE = timedelta(minutes=1)


def now_ms() -> datetime:
    """The time now, in the whole milliseconds that messages have."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1_000 * 1_000)


def test_a_message_comes_as_it_was_sent_and_is_done_when_it_is_acknowledged(jobs: Queue):
    before = now_ms()
    id = jobs.send(b"\xff\x00 raw", key="customer-42", headers={"trace": b"\xfe", "lang": "en"}, priority=7)
    message = one(jobs, lease=60)
    assert (message.id, message.body, message.key) == (id, b"\xff\x00 raw", b"customer-42")
    assert message.headers == {"trace": b"\xfe", "lang": b"en"}
    assert (message.attempt, message.priority, message.dead_letter) == (1, 7, None)
    assert before <= message.sent_at <= now_ms()
    assert before + A_MINUTE <= message.deadline <= now_ms() + A_MINUTE
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
        messages = jobs.receive(1_000, wait=PATIENCE_S)
        came += [message.body for message in messages]
        jobs.ack_many(messages)
    assert came == bodies
    assert jobs.counts().unfinished == 0


def test_what_failed_comes_again_with_its_history(jobs: Queue):
    id = jobs.send("hello")
    one(jobs).nack(reason="no paper")
    second = one(jobs)
    assert (second.id, second.attempt) == (id, 2)
    before = now_ms()
    second.nack(delay=A_MINUTE, reason="no ink")
    after = now_ms()
    found = jobs.find(id)
    assert found is not None
    assert (found.state, found.attempts) == ("delayed", 2)
    assert [attempt.reason for attempt in found.history] == ["no paper", "no ink"]
    assert found.history[0].worker.endswith(f":{os.getpid()}")
    assert found.history[0].taken_at <= found.history[0].ended_at <= found.history[1].taken_at
    assert found.ready_at is not None and before + A_MINUTE <= found.ready_at <= after + A_MINUTE


def test_what_is_given_back_untouched_is_ready_at_once(jobs: Queue):
    jobs.configure(backoff=NEVER_S, deliveries=1)
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
    jobs.configure(backoff=NEVER_S, deliveries=2)
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

    work_until(jobs, 3, step)
    assert sorted(seen) == [("good", 1), ("good too", 1), ("odd", 1), ("odd", 2)]
    assert "failed (attempt 1)" in caplog.text and "ValueError: odd" in caplog.text
    assert jobs.counts().unfinished == 0


def test_a_worker_for_asyncio_has_several_messages_at_once(penstock_broker: Broker, jobs: Queue):
    jobs.send_many(["a", "b", "c"])

    async def scenario() -> None:
        all_three = asyncio.Barrier(3)

        async def together(message: AsyncQueueMessage) -> None:
            await all_three.wait()

        async def alone(message: AsyncQueueMessage) -> None:
            assert message.text == "d"

        async with AsyncQueue(jobs.name, url=penstock_broker.http_url) as queue, asyncio.timeout(PATIENCE_S):
            working = asyncio.create_task(queue.work(together, at_once=3))
            while (await queue.counts()).unfinished:
                pass
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            await queue.send("d")
            while not (count := await queue.work(alone, at_once=3, idle=EXPIRES_S)):
                pass
            assert count == 1

    asyncio.run(scenario())
    assert jobs.counts().unfinished == 0


def test_a_lease_is_kept_while_its_block_runs(penstock_broker: Broker):
    def is_kept(lease_s: float) -> bool:
        jobs = penstock_broker.queue(backoff=0)
        jobs.send("hello")
        with suppress(LeaseLost), one(jobs, lease=lease_s) as message:
            first = message.deadline
            until(lambda: datetime.now(UTC) > first or message.is_lost)
            is_kept = jobs.receive(1, wait=lease_s / 2) == [] and message.deadline > first and not message.is_lost
        return is_kept and jobs.counts().unfinished == 0

    holds_unless_the_machine_stalls(is_kept)


def test_a_lease_is_kept_by_what_the_queue_says_today(penstock_broker: Broker):
    def is_kept(lease_s: float) -> bool:
        jobs = penstock_broker.queue(lease=NEVER_S)
        jobs.send("first")
        one(jobs).ack()  # It has learned how long leases are; somebody else changes that.
        Queue(jobs.name, url=penstock_broker.http_url).configure(lease=lease_s)
        jobs.send("hello")
        with suppress(LeaseLost), one(jobs) as message:
            first = message.deadline
            until(lambda: datetime.now(UTC) > first or message.is_lost)
            is_kept = jobs.receive(1, wait=lease_s / 2) == [] and message.deadline > first and not message.is_lost
        return is_kept and jobs.counts().unfinished == 0

    holds_unless_the_machine_stalls(is_kept)


def test_many_large_texts_in_any_script_go_out_in_as_many_calls_as_they_need(jobs: Queue):
    body = "\u65e5" * 30_000  # Three bytes each; escaped, it would be six.
    assert len(jobs.send_many([body] * 100)) == 100
    assert jobs.counts().ready == 100


def test_a_lease_has_its_longest(jobs: Queue):
    jobs.send(b"x")
    (message,) = jobs.receive()
    with pytest.raises(Refused, match="twelve hours at most"):
        message.extend(12 * 3600 + 1)  # Exactly twelve hours are too long only if a millisecond has passed since it was received.
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
    late = one(jobs, lease=EXPIRES_S)
    second = one(jobs, lease=NEVER_S)
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
    late = one(jobs, lease=EXPIRES_S)
    one(jobs, lease=NEVER_S)
    late.ack()
    assert jobs.counts().unfinished == 0


def test_a_failed_block_tells_its_own_failure_though_its_lease_is_lost(penstock_broker: Broker):
    jobs = Queue(penstock_broker.queue(lenient=False, backoff=0).name, url=penstock_broker.http_url, heartbeat=False)
    jobs.send("hello")
    with pytest.raises(ValueError, match="mine"), one(jobs, lease=EXPIRES_S):
        one(jobs).ack()
        raise ValueError("mine")


def test_a_delayed_message_comes_when_it_is_due_and_can_be_taken_back_until_then(jobs: Queue):
    due = datetime.now(UTC) + timedelta(days=100)
    far, farther = jobs.send("far", at=due), jobs.send("farther", delay=timedelta(days=101))
    found = jobs.find(far)
    assert found is not None and found.state == "delayed" and found.ready_at is not None
    assert timedelta(0) <= due - found.ready_at < timedelta(milliseconds=1)
    assert jobs.counts().delayed == 2
    assert jobs.receive(1, wait=0) == []
    delay = timedelta(seconds=EXPIRES_S)
    soon = jobs.send("soon", delay=delay)
    message = one(jobs)
    assert message.id == soon and now_ms() >= message.sent_at + 0.8 * delay, "the node's two clocks may differ a little"
    assert not jobs.cancel(soon), "somebody has it"
    message.ack()
    for id in (far, farther):
        assert jobs.cancel(id)
        assert not jobs.cancel(id), "it is gone"
    assert jobs.counts().unfinished == 0


def test_what_is_no_id_is_told_apart_from_what_is_gone(jobs: Queue):
    with pytest.raises(Refused):
        jobs.cancel("no id at all")


def test_what_nobody_took_in_time_is_dropped(jobs: Queue):
    jobs.pause()
    jobs.send("stale", ttl=EXPIRES_S)
    jobs.send("fresh")
    until(lambda: jobs.counts().unfinished == 1)
    jobs.resume()
    assert one(jobs).text == "fresh"


def test_the_urgent_ones_come_first_also_when_they_are_tried_again(jobs: Queue):
    jobs.send_many([Draft("low", priority=0), "usual", Draft("high", priority=9), Draft("high too", priority=9)])
    one(jobs).nack(reason="not yet")
    told = [(message.text, message.priority) for message in jobs.receive(4)]
    assert told == [("high", 9), ("high too", 9), ("usual", 4), ("low", 0)]


def test_messages_of_a_group_come_in_order_and_one_at_a_time(penstock_broker: Broker):
    jobs = penstock_broker.queue(fifo=True, backoff=NEVER_S, lease=NEVER_S)
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
