"""The faces for asyncio: the same, the loop runs on, and whatever is cancelled loses and doubles nothing."""

import asyncio
import random
from contextlib import suppress
from uuid import uuid4

import pytest
from client.client_side import (
    LASTING,
    hasty,
    holds_unless_the_machine_stalls,
    numbered,
    read_all,
    silent_address,
    values,
    write,
)
from tiers import pick
from waiting import ASK_S, EXPIRES_S, NEVER_S, PATIENCE_S, pause_at_random_async, stays_async

from penstock.client import AsyncConsumer, AsyncProducer, BufferFull, CommitFailed, Message, NotDelivered, Placed, TimedOut
from penstock.client.options import Protocol
from penstock.testing import Broker

SLOW_RECORDS = pick(test=10, slow=14)


async def poll_count(consumer: AsyncConsumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        batch = await consumer.poll(timeout=PATIENCE_S)
        assert batch, f"only {len(found)} of {count} records came"
        found += batch
    return found


def test_records_are_written_and_read(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        async with AsyncProducer(penstock_broker.bootstrap) as producer:
            receipt = await producer.send(topic=penstock_topic, key="k", value=b"v", headers={"h": b"1"})
            assert await receipt == await receipt.result(PATIENCE_S) == Placed(penstock_topic, 0, 0)
            assert receipt.done()
            receipts = [await producer.send(topic=penstock_topic, value=value) for value in numbered(500)]
            await producer.flush()
            assert [(await receipt).offset for receipt in receipts] == list(range(1, 501))
        async with AsyncConsumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
            found = await poll_count(consumer, 501)
            assert (found[0].key, found[0].value, found[0].headers) == (b"k", b"v", (("h", b"1"),))
            assert values(found[1:]) == numbered(500)
            await consumer.seek(penstock_topic, 0, 499)
            assert await consumer.position(penstock_topic, 0) == 499
            assert [message.offset for message in await poll_count(consumer, 2)] == [499, 500]

    asyncio.run(scenario())


def test_the_loop_runs_on_while_a_poll_waits(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        async with AsyncConsumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
            waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE_S))
            async with AsyncProducer(penstock_broker.bootstrap) as producer:
                await producer.send(topic=penstock_topic, value=b"v")
            assert values(await waiting) == [b"v"], "the producer could only be reached because the poll did not hold the loop"

    asyncio.run(scenario())


def test_a_cancelled_poll_loses_and_doubles_nothing(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        found: list[Message] = []
        cancelled_at: list[int] = []  # How many records had come by then.
        async with (
            AsyncProducer(penstock_broker.bootstrap, linger_ms=1) as producer,
            AsyncConsumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer,
            asyncio.timeout(PATIENCE_S),
        ):
            for written in range(0, 601, 10):
                while cancelled_at[-1:] < [written]:  # Some are cancelled while records come, and one when all have come.
                    try:
                        async with asyncio.timeout(0.002 + 0.004 * (len(cancelled_at) % 5)):
                            found += await consumer.poll(max_records=9, timeout=PATIENCE_S)
                    except TimeoutError:
                        cancelled_at.append(len(found))
                for value in numbered(10, written) if written < 600 else ():
                    await producer.send(topic=penstock_topic, value=value)  # For the poll that was cancelled.
        assert values(found) == numbered(600)
        assert len([count for count in cancelled_at if 0 < count < 600]) >= 59

    asyncio.run(scenario())


def test_what_a_cancelled_poll_fetched_is_not_committed_before_it_is_handed_out(penstock_broker: Broker, penstock_topic: str):
    """Otherwise a commit between the two would skip those records for the next member."""
    options = {"topics": [penstock_topic], "group": f"group-{uuid4().hex[:8]}", "bootstrap": penstock_broker.bootstrap, "settings": LASTING}

    async def scenario() -> None:
        async with AsyncConsumer(**options) as consumer:
            while not consumer.assignment():
                await consumer.poll(timeout=ASK_S)
            waiting = asyncio.create_task(consumer.poll(timeout=PATIENCE_S))
            await stays_async(lambda: not waiting.done())
            waiting.cancel()
            await asyncio.to_thread(write, penstock_broker, penstock_topic, *numbered(5))
            await consumer.commit()  # Behind the fetch that was cancelled: it has the records, the caller has none.
        async with AsyncConsumer(**options) as consumer:
            assert values(await poll_count(consumer, 5)) == numbered(5)
            await consumer.commit()
            assert await consumer.position(penstock_topic, 0) == 5

    asyncio.run(scenario())


def test_a_loop_over_records_can_commit_as_it_goes(penstock_broker: Broker, penstock_topic: str):
    write(penstock_broker, penstock_topic, *numbered(10))
    options = {"topics": [penstock_topic], "group": f"group-{uuid4().hex[:8]}", "bootstrap": penstock_broker.bootstrap, "settings": LASTING}

    async def scenario() -> None:
        async with AsyncConsumer(**options) as consumer:
            async for message in consumer:
                await consumer.commit()
                if message.offset == 6:
                    break
        async with AsyncConsumer(**options) as consumer:
            assert values(await poll_count(consumer, 3)) == numbered(3, start=7)

    asyncio.run(scenario())


@pytest.mark.repeats
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_slow_loop_stays_in_its_group_also_with_what_a_cancelled_poll_left(
    short_session_broker: Broker, caplog: pytest.LogCaptureFixture, protocol: Protocol
):
    async def seen_by_slow_loop(interval_s: float, topic: str) -> tuple[list[int], int]:
        seen: list[int] = []
        commits = 0
        options = {"group": f"of-{topic}", "topics": [topic], "bootstrap": short_session_broker.bootstrap, "protocol": protocol}
        async with AsyncConsumer(**options, settings=hasty(protocol, interval_s)) as consumer:
            left_over = asyncio.create_task(consumer.poll(timeout=PATIENCE_S))
            await stays_async(lambda: not left_over.done())
            left_over.cancel()
            await asyncio.to_thread(write, short_session_broker, topic, *numbered(SLOW_RECORDS))
            async for message in consumer:
                await stays_async(consumer.assignment, interval_s / 4)
                seen.append(message.offset)
                with suppress(CommitFailed):
                    await consumer.commit()
                    commits += 1
                if len(seen) == SLOW_RECORDS:
                    break
        return seen, commits

    def stays_in(interval_s: float) -> bool:
        caplog.clear()
        seen, commits = asyncio.run(seen_by_slow_loop(interval_s, short_session_broker.create_topic()))
        # What is delivered twice tells of a member that was thrown out and came back.
        return (seen, commits) == (list(range(SLOW_RECORDS)), SLOW_RECORDS) and "maximum poll interval" not in caplog.text

    holds_unless_the_machine_stalls(stays_in)


def test_a_loop_that_was_cancelled_goes_on_where_it_was(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        found: list[Message] = []
        moments = random.Random(1)

        async def read() -> None:
            async for message in consumer:
                found.append(message)
                await pause_at_random_async(moments, 0.0, 0.002)

        async with AsyncConsumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer, asyncio.timeout(PATIENCE_S):
            for start in range(0, 300, 50):  # The loop is cancelled between any two of these at least, and at any record.
                await asyncio.to_thread(write, penstock_broker, penstock_topic, *numbered(50, start))
                while len(found) < start + 50:
                    reading = asyncio.create_task(read())
                    await pause_at_random_async(moments, 0.0, 0.1)
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
        assert values(found) == numbered(300)

    asyncio.run(scenario())


def test_closing_does_not_wait_for_a_long_poll(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        consumer = AsyncConsumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap)
        waiting = asyncio.create_task(consumer.poll(timeout=3_600))
        await stays_async(lambda: not waiting.done())
        async with asyncio.timeout(PATIENCE_S):
            await consumer.close()
            assert await waiting == []
        await consumer.close()

    asyncio.run(scenario())


def test_a_full_buffer_is_waited_for_without_holding_the_loop(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        async with AsyncProducer(penstock_broker.bootstrap, buffer_records=20, block_seconds=NEVER_S) as producer:
            for value in numbered(500):
                await producer.send(topic=penstock_topic, value=value)

    asyncio.run(scenario())
    assert values(read_all(penstock_broker, penstock_topic, 500)) == numbered(500)


def test_a_full_buffer_raises_when_asked_to_and_a_cancelled_send_sends_nothing():
    async def scenario(address: str) -> None:
        impatient = AsyncProducer(address, buffer_records=2, when_full="raise", block_seconds=NEVER_S)
        patient = AsyncProducer(address, buffer_records=2, block_seconds=NEVER_S)
        for producer in (impatient, patient):
            for _ in range(2):
                await producer.send(topic="t", value=b"v")
        with pytest.raises(BufferFull):
            async with asyncio.timeout(PATIENCE_S):
                await impatient.send(topic="t", value=b"one too many")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(EXPIRES_S):
                await patient.send(topic="t", value=b"one too many")
        for producer in (impatient, patient):
            with pytest.raises(TimedOut, match="2 records"):
                await producer.close(EXPIRES_S)

    with silent_address() as address:
        asyncio.run(scenario(address))


def test_a_receipt_can_be_given_up_and_awaited_again():
    async def scenario(address: str) -> None:
        producer = AsyncProducer(address)
        receipt = await producer.send(topic="t", value=b"v")
        with pytest.raises(TimedOut, match="await it again"):
            await receipt.result(EXPIRES_S)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(EXPIRES_S):
                await receipt
        again = asyncio.ensure_future(receipt.result())
        with pytest.raises(TimedOut, match="1 record"):
            await producer.close(EXPIRES_S)
        for each in (again, receipt):
            with pytest.raises(NotDelivered):
                await each

    with silent_address() as address:
        asyncio.run(scenario(address))


def test_where_nobody_listens_the_awaited_receipt_says_so():
    async def scenario(address: str) -> None:
        async with AsyncProducer(address, delivery_seconds=EXPIRES_S) as producer:
            receipt = await producer.send(topic="t", value=b"v")
            with pytest.raises(NotDelivered, match="look whether the broker is up") as told:
                async with asyncio.timeout(PATIENCE_S / 2):  # Much less than what it keeps trying for where nothing is said.
                    await receipt
        assert told.value.code == "_MSG_TIMED_OUT"
        assert told.value.may_have_happened

    with silent_address() as address:
        asyncio.run(scenario(address))


def test_a_partitioner_is_asked_without_holding_the_loop(penstock_broker: Broker):
    topic = penstock_broker.create_topic(partitions=4)

    async def scenario() -> None:
        async with AsyncProducer(penstock_broker.bootstrap, partitioner=lambda topic, key, partitions: partitions - 1) as producer:
            receipts = [await producer.send(topic=topic, value=b"v") for _ in range(3)]
            assert [(await receipt).partition for receipt in receipts] == [3, 3, 3]

    asyncio.run(scenario())
