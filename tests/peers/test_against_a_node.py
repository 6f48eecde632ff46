"""The client against a real node: what is sent is what is read."""

import asyncio
from collections import Counter

import pytest
from peers.scripted import TestEnv
from waiting import PATIENCE_S

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure, Refused, UnknownTopic
from penstock.peers.offsets import EARLIEST, LATEST, MAX_TIMESTAMP
from penstock.peers.partitioner import partition_of_key
from penstock.peers.positions import FROM_EARLIEST, FROM_LATEST, Start, at_offset, at_timestamp
from penstock.peers.producer import Producer, ProducerSettings
from penstock.peers.reader import Reader, ReaderSettings
from penstock.vocabulary import TopicPartition
from penstock.wire.batches import Record, encode_batch
from penstock.wire.compression import Codec

T0 = 1_700_000_000_000


def places(topic: str, count: int, start: Start = FROM_EARLIEST) -> dict[TopicPartition, Start]:
    return {TopicPartition(topic, partition): start for partition in range(count)}


def run(address: str, scenario):
    async def whole():
        async with asyncio.timeout(PATIENCE_S), Client(TestEnv(), address) as client:
            return await scenario(client)

    return asyncio.run(whole())


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("uses_sessions", [True, False])
def test_everything_sent_is_read_back_in_order_and_in_its_place(kafka_address: str, codec: Codec, uses_sessions: bool):
    topic = f"round-{codec.name}-{uses_sessions}"

    async def scenario(client: Client):
        await client.create_topic(topic, partitions=3)
        async with Producer(client, ProducerSettings(codec=codec, batch_bytes_max=2_000)) as producer:
            futures = []
            for number in range(1_000):
                key = b"key %d" % (number % 17)
                headers = (("number", b"%d" % number), ("nothing", None))
                futures.append(await producer.send(topic, b"%d" % number, key=key, headers=headers, timestamp_ms=T0 + number))
        async with Reader(client, places(topic, 3), ReaderSettings(uses_sessions=uses_sessions)) as reader:
            return [future.result() for future in futures], [record async for record in reader]

    delivered, records = run(kafka_address, scenario)
    assert len(records) == 1_000
    by_place = {(record.partition, record.offset): record for record in records}
    for number, where in enumerate(delivered):
        record = by_place[where.partition, where.offset]
        assert (record.value, record.timestamp_ms) == (b"%d" % number, T0 + number)
        assert record.headers == (("number", b"%d" % number), ("nothing", None))
        assert record.partition == partition_of_key(record.key, 3)
    for partition in range(3):
        offsets = [record.offset for record in records if record.partition == partition]
        assert offsets == list(range(len(offsets))), "dense, and in order"


def test_a_follower_sees_what_is_sent_while_it_waits(kafka_address: str):
    async def scenario(client: Client):
        await client.create_topic("followed", partitions=2)
        async with (
            Reader(client, places("followed", 2, FROM_LATEST), ReaderSettings(is_following=True)) as reader,
            Producer(client, ProducerSettings(linger_s=0.0)) as producer,
        ):
            seen = []
            for number in range(50):
                await producer.send("followed", b"%d" % number, partition=number % 2)
                seen.append((await anext(reader)).value)
            return seen

    assert run(kafka_address, scenario) == [b"%d" % number for number in range(50)]


def test_offsets_are_found_by_time(kafka_address: str):
    where = TopicPartition("timed", 0)

    async def scenario(client: Client):
        await client.create_topic("timed")
        async with Producer(client) as producer:
            for number in range(10):
                await producer.send("timed", b"%d" % number, timestamp_ms=T0 + 10 * number)
        found = {}
        for wish in (EARLIEST, LATEST, MAX_TIMESTAMP, T0 + 45, T0 + 1_000):
            found[wish] = (await client.list_offsets({where: wish}))[where].offset
        async with Reader(client, {where: at_timestamp(T0 + 75)}) as reader:
            return found, [record.value async for record in reader]

    found, values = run(kafka_address, scenario)
    assert found == {EARLIEST: 0, LATEST: 10, MAX_TIMESTAMP: 9, T0 + 45: 5, T0 + 1_000: -1}
    assert values == [b"8", b"9"]


def test_reading_begins_inside_a_batch(kafka_address: str):
    async def scenario(client: Client):
        await client.create_topic("inside")
        await client.produce("inside", 0, encode_batch([Record(None, b"%d" % number, (), T0) for number in range(100)]))
        async with Reader(client, {TopicPartition("inside", 0): at_offset(97)}) as reader:
            return [(record.offset, record.value) async for record in reader]

    assert run(kafka_address, scenario) == [(97, b"97"), (98, b"98"), (99, b"99")]


def test_the_same_batch_sent_twice_is_stored_once(kafka_address: str):
    async def scenario(client: Client):
        await client.create_topic("once")
        identity = await client.init_producer_id()
        batch = encode_batch([Record(None, b"v", (), T0)], producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=0)
        first, second = await client.produce("once", 0, batch), await client.produce("once", 0, batch)
        ends = await client.list_offsets({TopicPartition("once", 0): LATEST})
        return first.base_offset, second.base_offset, ends[TopicPartition("once", 0)].offset

    assert run(kafka_address, scenario) == (0, 0, 1)


def test_a_gap_in_the_sequence_breaks_the_producer(kafka_address: str):
    async def scenario(client: Client):
        await client.create_topic("gap")
        async with Producer(client) as producer:
            await (await producer.send("gap", b"0"))
            producer._lanes[TopicPartition("gap", 0)].sequence = 7
            lost = await producer.send("gap", b"1")
            await producer.flush()
            return lost.exception(), producer.failure

    refused, failure = run(kafka_address, scenario)
    assert isinstance(refused, Refused) and refused.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert failure is not None and "start a new producer" in str(failure)


def test_records_without_a_key_spread_over_the_partitions(kafka_address: str):
    async def scenario(client: Client):
        await client.create_topic("spread", partitions=4)
        async with Producer(client, ProducerSettings(batch_bytes_max=1_000)) as producer:
            futures = [await producer.send("spread", bytes(100)) for _ in range(400)]
        return Counter(future.result().partition for future in futures)

    shares = run(kafka_address, scenario)
    assert sorted(shares) == [0, 1, 2, 3] and min(shares.values()) >= 20


def test_producing_to_a_topic_that_is_not_there_makes_it(kafka_address: str):
    async def scenario(client: Client):
        async with Producer(client) as producer:
            delivered = await (await producer.send("made-by-use", b"v"))
        return delivered.offset, (await client.describe("made-by-use")).name

    assert run(kafka_address, scenario) == (0, "made-by-use")


def test_topics_come_and_go(kafka_address: str):
    async def scenario(client: Client):
        made = await client.create_topic("passing", partitions=2, config={"retention.ms": "1000000"})
        assert [partition.leader for partition in made.partitions] == [1, 1]
        with pytest.raises(Refused, match="TOPIC_ALREADY_EXISTS"):
            await client.create_topic("passing")
        assert "passing" in [topic.name for topic in (await client.metadata()).topics]
        await client.delete_topic("passing")
        with pytest.raises(UnknownTopic):
            await client.describe("passing")
        again = await client.create_topic("passing", partitions=1)
        return made.topic_id, again.topic_id

    before, after = run(kafka_address, scenario)
    assert before != after, "another topic under the same name"


def test_a_reader_does_not_take_a_topic_made_again_for_its_own(kafka_address: str):
    async def scenario(client: Client):
        await client.create_topic("remade")
        async with Producer(client) as producer:
            await (await producer.send("remade", b"old"))
        async with Reader(client, places("remade", 1), ReaderSettings(is_following=True)) as reader:
            assert (await anext(reader)).value == b"old"
            await client.delete_topic("remade")
            await client.create_topic("remade")
            await reader.read()

    with pytest.raises(PeerFailure, match="deleted and made again"):
        run(kafka_address, scenario)


def test_a_wrong_setting_is_told_in_the_nodes_words(kafka_address: str):
    async def scenario(client: Client):
        await client.create_topic("wrong", config={"retention.ms": "soon"})

    with pytest.raises(Refused, match=r"create topic 'wrong': the node answered INVALID_CONFIG \(.*retention\.ms"):
        run(kafka_address, scenario)


def test_many_producers_and_readers_share_one_client(kafka_address: str):
    async def scenario(client: Client):
        await client.create_topic("shared", partitions=4)

        async def produce(number: int):
            async with Producer(client) as producer:
                for count in range(100):
                    await producer.send("shared", b"%d/%d" % (number, count), partition=number % 4)

        async def read(number: int):
            async with Reader(client, {TopicPartition("shared", number): FROM_EARLIEST}, ReaderSettings(is_following=True)) as reader:
                return [(await anext(reader)).value for _ in range(200)]

        readings = [asyncio.create_task(read(number)) for number in range(4)]
        await asyncio.gather(*(produce(number) for number in range(8)))
        return [await reading for reading in readings]

    for partition, values in enumerate(run(kafka_address, scenario)):
        for producer in (partition, partition + 4):
            assert [value for value in values if value.startswith(b"%d/" % producer)] == [
                b"%d/%d" % (producer, count) for count in range(100)
            ]
