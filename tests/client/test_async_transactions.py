"""Transactions for asyncio: the same promises, the loop runs on, and cancelling leaves nothing half done.

With PENSTOCK_PEER=host:port the tests talk to that broker instead: Apache Kafka must pass them too.
"""

import asyncio
import random

import pytest
from client.client_side import LASTING, numbered
from client.transaction_side import async_transactional, new_topic, read, write
from tiers import pick
from waiting import EXPIRES_S, PATIENCE_S, pause_at_random_async

from penstock.client import AsyncConsumer, Fenced, Message, Outgoing, async_read_process_write

ROUNDS = pick(test=8, slow=20)


async def poll_count(consumer: AsyncConsumer, count: int) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        batch = await consumer.poll(timeout=PATIENCE_S)
        assert batch, f"only {len(found)} of {count} records came"
        found += batch
    return found


def test_what_is_committed_is_read_and_what_is_aborted_is_not(bootstrap: str, topic: str, name: str):
    async def scenario() -> None:
        async with async_transactional(bootstrap, name) as producer:
            async with producer.transaction():
                for value in numbered(3):
                    await producer.send(topic=topic, value=value)
            with pytest.raises(KeyError):
                async with producer.transaction():
                    await (await producer.send(topic=topic, value=b"dropped"))
                    raise KeyError
            async with producer.transaction() as transaction:
                await producer.send(topic=topic, value=b"given up")
                await transaction.abort()

    asyncio.run(scenario())
    assert read(bootstrap, topic) == numbered(3)


def test_a_transaction_whose_task_is_cancelled_is_aborted(bootstrap: str, topic: str, name: str):
    async def scenario() -> None:
        async with async_transactional(bootstrap, name) as producer:
            is_inside = asyncio.Event()

            async def work() -> None:
                async with producer.transaction():
                    await (await producer.send(topic=topic, value=b"dropped"))
                    is_inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await is_inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            async with producer.transaction():
                await producer.send(topic=topic, value=b"next")

    asyncio.run(scenario())
    assert read(bootstrap, topic) == [b"next"]


@pytest.mark.repeats
def test_wherever_it_is_cancelled_it_is_whole_or_not_at_all_and_the_next_one_works(bootstrap: str, topic: str, name: str):
    async def scenario() -> None:
        moments = random.Random(1)
        async with async_transactional(bootstrap, name) as producer:

            async def work(number: int) -> None:
                async with producer.transaction():
                    for part in range(3):
                        await producer.send(topic=topic, value=f"{number}-{part}")

            for number in range(ROUNDS):
                task = asyncio.create_task(work(number))
                await pause_at_random_async(moments, 0.0, 0.06)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await work(ROUNDS)

    asyncio.run(scenario())
    found = read(bootstrap, topic)
    whole = [f"{number}-{part}".encode() for number in range(ROUNDS + 1) for part in range(3) if f"{number}-0".encode() in found]
    assert found == whole
    assert found[-3:] == [f"{ROUNDS}-{part}".encode() for part in range(3)]


def test_a_fenced_producer_is_told(bootstrap: str, topic: str, name: str):
    async def scenario() -> None:
        async with async_transactional(bootstrap, name) as first, async_transactional(bootstrap, name) as second:
            with pytest.raises(Fenced):
                async with first.transaction():
                    await (await first.send(topic=topic, value=b"first"))
                    await second.take_over()

    asyncio.run(scenario())
    assert read(bootstrap, topic) == []


def test_offsets_of_a_consumer_go_with_the_records(bootstrap: str, topic: str, name: str):
    out = new_topic(bootstrap)
    write(bootstrap, topic, numbered(10))

    async def scenario() -> None:
        async with (
            async_transactional(bootstrap, name) as producer,
            AsyncConsumer(group=name, topics=[topic], bootstrap=bootstrap, settings=LASTING) as consumer,
        ):
            for is_kept in (False, True):
                messages = await poll_count(consumer, 10)
                async with producer.transaction(consumer) as transaction:
                    for message in messages:
                        await producer.send(topic=out, value=message.value)
                    if not is_kept:
                        await transaction.abort()
            assert await consumer.poll(timeout=EXPIRES_S) == []
        async with AsyncConsumer(group=name, topics=[topic], bootstrap=bootstrap, settings=LASTING) as consumer:
            assert await consumer.position(topic, 0) == 10

    asyncio.run(scenario())
    assert read(bootstrap, out) == numbered(10)


def test_the_loop_gives_each_record_its_effect_once(bootstrap: str, topic: str, name: str):
    out = new_topic(bootstrap)
    write(bootstrap, topic, numbered(100))

    async def step(message: Message) -> list[Outgoing]:
        await asyncio.sleep(0)
        return [Outgoing(out, value=message.value)]

    async def scenario() -> int:
        async with (
            async_transactional(bootstrap, name) as producer,
            AsyncConsumer(group=name, topics=[topic], bootstrap=bootstrap, settings=LASTING) as consumer,
        ):
            count = 0
            while count < 100:
                count += await async_read_process_write(consumer, producer, step, max_records=30, idle_seconds=EXPIRES_S)
            return count

    assert asyncio.run(scenario()) == 100
    assert read(bootstrap, out) == numbered(100)
