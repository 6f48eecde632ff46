"""The faces for asyncio: the same, the loop runs on, and whatever is cancelled loses and doubles nothing."""

import asyncio
from uuid import uuid4

import pytest
from client.client_side import SECONDS_MAX, numbered, read_all, silent_address, values, write

from penstock.client import AsyncConsumer, AsyncProducer, BufferFull, Message, NotDelivered, Placed, TimedOut
from penstock.testing import Broker, broker


async def poll_count(consumer: AsyncConsumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        batch = await consumer.poll(timeout=SECONDS_MAX)
        assert batch, f"only {len(found)} of {count} records came"
        found += batch
    return found


def test_records_are_written_and_read(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        async with AsyncProducer(penstock_broker.bootstrap) as producer:
            receipt = await producer.send(topic=penstock_topic, key="k", value=b"v", headers={"h": b"1"})
            assert await receipt == await receipt.result(SECONDS_MAX) == Placed(penstock_topic, 0, 0)
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
            waiting = asyncio.create_task(consumer.poll(timeout=SECONDS_MAX))
            async with AsyncProducer(penstock_broker.bootstrap) as producer:
                await producer.send(topic=penstock_topic, value=b"v")
            assert values(await waiting) == [b"v"], "the producer could only be reached because the poll did not hold the loop"

    asyncio.run(scenario())


def test_a_cancelled_poll_loses_and_doubles_nothing(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        found: list[Message] = []
        cancelled = 0
        async with (
            AsyncProducer(penstock_broker.bootstrap, linger_ms=1) as producer,
            AsyncConsumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer,
        ):

            async def write_all() -> None:
                for value in numbered(600):
                    await producer.send(topic=penstock_topic, value=value)
                    await asyncio.sleep(0.001)

            writing = asyncio.create_task(write_all())
            while len(found) < 600:
                try:
                    async with asyncio.timeout(0.002 + 0.004 * (cancelled % 5)):
                        found += await consumer.poll(max_records=9, timeout=5.0)
                except TimeoutError:
                    cancelled += 1
            await writing
        assert cancelled, "nothing was cancelled, so nothing was shown"
        assert values(found) == numbered(600)

    asyncio.run(scenario())


def test_what_a_cancelled_poll_fetched_is_not_committed_before_it_is_handed_out(penstock_broker: Broker, penstock_topic: str):
    """Otherwise a commit between the two would skip those records for the next member."""
    options = {"topics": [penstock_topic], "group": f"group-{uuid4().hex[:8]}", "bootstrap": penstock_broker.bootstrap}

    async def scenario() -> None:
        async with AsyncConsumer(**options) as consumer:
            while not consumer.assignment():
                await consumer.poll(timeout=0.1)
            waiting = asyncio.create_task(consumer.poll(timeout=SECONDS_MAX))
            await asyncio.sleep(0.05)
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
    options = {"topics": [penstock_topic], "group": f"group-{uuid4().hex[:8]}", "bootstrap": penstock_broker.bootstrap}

    async def scenario() -> None:
        async with AsyncConsumer(**options) as consumer:
            async for message in consumer:
                await consumer.commit()
                if message.offset == 6:
                    break
        async with AsyncConsumer(**options) as consumer:
            assert values(await poll_count(consumer, 3)) == numbered(3, start=7)

    asyncio.run(scenario())


def test_a_slow_loop_stays_in_its_group_also_with_what_a_cancelled_poll_left():
    hasty = {"max.poll.interval.ms": 1_500, "heartbeat.interval.ms": 200}
    seen: list[int] = []

    async def scenario(node: Broker, topic: str) -> None:
        options = {"group": "slow", "topics": [topic], "bootstrap": node.bootstrap, "session_seconds": 1, "settings": hasty}
        async with AsyncConsumer(**options) as consumer:
            left_over = asyncio.create_task(consumer.poll(timeout=SECONDS_MAX))
            await asyncio.sleep(0.05)
            left_over.cancel()
            async for message in consumer:
                await asyncio.sleep(0.15)
                seen.append(message.offset)
                await consumer.commit()
                if len(seen) == 14:
                    break

    with broker(group_min_session_timeout_ms=1_000) as node:
        topic = node.create_topic()
        write(node, topic, *numbered(14))
        asyncio.run(scenario(node, topic))
    assert seen == list(range(14)), "what is delivered twice tells of a member that was thrown out and came back"


def test_a_loop_that_was_cancelled_goes_on_where_it_was(penstock_broker: Broker, penstock_topic: str):
    write(penstock_broker, penstock_topic, *numbered(300))

    async def scenario() -> None:
        found: list[Message] = []

        async def read() -> None:
            async for message in consumer:
                found.append(message)
                await asyncio.sleep(0.001)

        async with AsyncConsumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap) as consumer:
            while len(found) < 300:
                reading = asyncio.create_task(read())
                await asyncio.sleep(0.05)
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
        assert values(found) == numbered(300)

    asyncio.run(scenario())


def test_closing_does_not_wait_for_a_long_poll(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        consumer = AsyncConsumer(topics=[penstock_topic], bootstrap=penstock_broker.bootstrap)
        waiting = asyncio.create_task(consumer.poll(timeout=3_600))
        await asyncio.sleep(0.3)
        async with asyncio.timeout(SECONDS_MAX):
            await consumer.close()
            assert await waiting == []
        await consumer.close()

    asyncio.run(scenario())


def test_a_full_buffer_is_waited_for_without_holding_the_loop(penstock_broker: Broker, penstock_topic: str):
    async def scenario() -> None:
        async with AsyncProducer(penstock_broker.bootstrap, buffer_records=20) as producer:
            for value in numbered(500):
                await producer.send(topic=penstock_topic, value=value)

    asyncio.run(scenario())
    assert values(read_all(penstock_broker, penstock_topic, 500)) == numbered(500)


def test_a_full_buffer_raises_when_asked_to_and_a_cancelled_send_sends_nothing():
    async def scenario(address: str) -> None:
        impatient = AsyncProducer(address, buffer_records=2, when_full="raise")
        patient = AsyncProducer(address, buffer_records=2)
        for producer in (impatient, patient):
            for _ in range(2):
                await producer.send(topic="t", value=b"v")
        with pytest.raises(BufferFull):
            await impatient.send(topic="t", value=b"one too many")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await patient.send(topic="t", value=b"one too many")
        for producer in (impatient, patient):
            with pytest.raises(TimedOut, match="2 records"):
                await producer.close(0.1)

    with silent_address() as address:
        asyncio.run(scenario(address))


def test_a_receipt_can_be_given_up_and_awaited_again():
    async def scenario(address: str) -> None:
        async with AsyncProducer(address, delivery_seconds=1) as producer:
            receipt = await producer.send(topic="t", value=b"v")
            with pytest.raises(TimedOut, match="await it again"):
                await receipt.result(0.01)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await receipt
            with pytest.raises(NotDelivered):
                await receipt

    with silent_address() as address:
        asyncio.run(scenario(address))


def test_a_partitioner_is_asked_without_holding_the_loop(penstock_broker: Broker):
    topic = penstock_broker.create_topic(partitions=4)

    async def scenario() -> None:
        async with AsyncProducer(penstock_broker.bootstrap, partitioner=lambda topic, key, partitions: partitions - 1) as producer:
            receipts = [await producer.send(topic=topic, value=b"v") for _ in range(3)]
            assert [(await receipt).partition for receipt in receipts] == [3, 3, 3]

    asyncio.run(scenario())
