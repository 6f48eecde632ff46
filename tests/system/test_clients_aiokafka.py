"""aiokafka (old request versions, its own codecs) finds in a node what it finds in Apache Kafka."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError
from system.conftest import Broker
from system.librdkafka import make_topic, unique
from waiting import ASK_MS, PATIENCE_MS, PATIENCE_S, until_async


def on_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(PATIENCE_S):
                await test(*arguments, **named)

        asyncio.run(bounded())

    return run


@asynccontextmanager
async def producer(broker: Broker, **config: Any) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, **config)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@asynccontextmanager
async def consumer(broker: Broker, topic: str, partition: int = 0, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    client = AIOKafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None, enable_auto_commit=False, **config)
    client.assign([TopicPartition(topic, partition)])
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def read(broker: Broker, topic: str, count: int) -> list[Any]:
    async with consumer(broker, topic) as client:
        await client.seek_to_beginning()
        return [await client.getone() for _ in range(count)]


@on_a_loop
async def test_a_record_comes_back_whole(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"))
    headers = [("trace", b"abc"), ("trace", b"again"), ("empty", b"")]
    sent_ms = int(time.time() * 1000) - 60_000
    async with producer(broker) as client:
        place = await client.send_and_wait(topic, b"v", key=b"k", headers=headers, timestamp_ms=sent_ms)
        await client.send_and_wait(topic, None, key=b"k")
        await client.send_and_wait(topic, b"", key=None)
    assert (place.partition, place.offset) == (0, 0)
    first, tombstone, keyless = await read(broker, topic, 3)
    assert (first.key, first.value, list(first.headers), first.timestamp) == (b"k", b"v", headers, sent_ms)
    assert (tombstone.key, tombstone.value, keyless.key, keyless.value) == (b"k", None, None, b"")


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@on_a_loop
async def test_every_codec_goes_in_and_comes_out(broker: Broker, codec: str | None) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"))
    values = [b"value %d " % number * 20 for number in range(1_000)]
    async with producer(broker, compression_type=codec, linger_ms=5) as client:
        await asyncio.gather(*[await client.send(topic, value) for value in values])
    assert [record.value for record in await read(broker, topic, 1_000)] == values


@pytest.mark.parametrize("config", [{"acks": 0}, {"acks": 1}, {"acks": "all"}, {"enable_idempotence": True}])
@on_a_loop
async def test_every_kind_of_acknowledgement_and_idempotence_keep_order(broker: Broker, config: dict[str, Any]) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"))
    async with producer(broker, **config) as client:
        await asyncio.gather(*[await client.send(topic, b"%06d" % number) for number in range(1_000)])
    assert [record.value for record in await read(broker, topic, 1_000)] == [b"%06d" % number for number in range(1_000)]


@on_a_loop
async def test_seeking_by_time_and_by_offset(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"))
    start_ms = int(time.time() * 1000) - 1_000_000
    async with producer(broker, linger_ms=20) as client:
        await asyncio.gather(*[await client.send(topic, b"%d" % number, timestamp_ms=start_ms + number * 1_000) for number in range(100)])
    where = TopicPartition(topic, 0)
    async with consumer(broker, topic, fetch_max_wait_ms=ASK_MS) as client:
        assert await client.beginning_offsets([where]) == {where: 0}
        assert await client.end_offsets([where]) == {where: 100}
        found = (await client.offsets_for_times({where: start_ms + 41_500}))[where]
        assert found is not None and (found.offset, found.timestamp) == (42, start_ms + 42_000)
        assert (await client.offsets_for_times({where: start_ms + 999_000}))[where] is None
        client.seek(where, found.offset)
        assert (await client.getone()).value == b"42"


@on_a_loop
async def test_an_offset_past_the_end_is_an_error(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"))
    async with consumer(broker, topic, auto_offset_reset="none") as client:
        client.seek(TopicPartition(topic, 0), 1_000)
        with pytest.raises(OffsetOutOfRangeError):
            await client.getone()


@on_a_loop
async def test_a_message_over_the_limit_is_refused(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"))
    async with producer(broker, max_request_size=3_000_000) as client:
        await client.send_and_wait(topic, bytes(1_000_000))
        with pytest.raises(MessageSizeTooLargeError):
            await client.send_and_wait(topic, bytes(1_500_000))
    assert len((await read(broker, topic, 1))[0].value) == 1_000_000


@on_a_loop
async def test_log_append_time(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"), message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000) - 5
    async with producer(broker) as client:
        await client.send_and_wait(topic, b"x", timestamp_ms=1_000)
    (record,) = await read(broker, topic, 1)
    assert record.timestamp_type == 1 and record.timestamp >= before_ms


@on_a_loop
async def test_a_topic_is_made_when_somebody_writes_to_it(broker: Broker) -> None:
    topic = unique("aio-self-made")
    async with producer(broker) as client:
        await client.send_and_wait(topic, b"x")
    assert (await read(broker, topic, 1))[0].value == b"x"


@on_a_loop
async def test_topics_are_made_listed_and_deleted(broker: Broker) -> None:
    topic = unique("aio-admin")
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        await admin.delete_topics([topic])
        assert topic not in await admin.list_topics()
    finally:
        await admin.close()


@on_a_loop
async def test_a_waiting_consumer_hears_of_a_new_record_at_once(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"))
    before = broker.fetches()
    # A fetch that the record does not end would go on for longer than this test may take.
    patient = {"fetch_max_wait_ms": 3 * PATIENCE_MS, "request_timeout_ms": 4 * PATIENCE_MS}
    async with consumer(broker, topic, **patient) as reader, producer(broker) as writer:
        waiting = asyncio.create_task(reader.getone())
        await until_async(lambda: broker.has_more_fetches(before), "the consumer's fetch waits")
        await writer.send_and_wait(topic, b"news")
        assert (await waiting).value == b"news"
