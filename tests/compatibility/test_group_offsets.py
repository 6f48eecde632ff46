"""Committed offsets with three client libraries: committed, fetched, sought, reset, and administered."""

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from compatibility.kafka_python import subscribe
from confluent_kafka import Consumer, ConsumerGroupState, ConsumerGroupTopicPartitions, KafkaError, KafkaException, Message, TopicPartition
from kafka import KafkaAdminClient, KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.structs import OffsetAndMetadata
from system.conftest import Broker
from system.librdkafka import SECONDS_MAX, admin, consumer, make_topic, poll_records, produce_all, unique
from waiting import ASK_MS, ASK_S, METADATA_AGE_MS, NEVER_MS, PATIENCE_MS, PATIENCE_S, until

COUNT = 20


@pytest.fixture
def topic(broker: Broker) -> str:
    name = make_topic(broker.bootstrap, unique("offsets"), 2)
    produce_all(broker.bootstrap, name, [{"value": b"%d" % number, "partition": 0} for number in range(COUNT)])
    return name


def rebalanced(reader: Consumer) -> list[TopicPartition]:
    def assignment() -> list[TopicPartition]:
        reader.poll(ASK_S)
        return list(reader.assignment())

    return until(assignment, "it has partitions")


# confluent-kafka


def test_confluent_reads_on_where_it_committed(broker: Broker, topic: str) -> None:
    group = unique("group")
    with consumer(broker.bootstrap, group_id=group) as reader:
        reader.subscribe([topic])
        poll_records(reader, 7)
        reader.commit(asynchronous=False)
    with consumer(broker.bootstrap, group_id=group) as reader:
        reader.subscribe([topic])
        assert [message.offset() for message in poll_records(reader, COUNT - 7)] == list(range(7, COUNT))


def test_confluent_finds_what_was_committed_with_its_note(broker: Broker, topic: str) -> None:
    group = unique("group")
    with consumer(broker.bootstrap, group_id=group) as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 5, metadata="half past", leader_epoch=0)], asynchronous=False)
        found, missing = reader.committed([TopicPartition(topic, 0), TopicPartition(topic, 1)], timeout=SECONDS_MAX)
        assert (found.offset, found.metadata, found.leader_epoch) == (5, "half past", 0)
        assert missing.offset < 0
        reader.assign([TopicPartition(topic, 0, found.offset)])
        assert poll_records(reader, 1)[0].offset() == 5
        reader.seek(TopicPartition(topic, 0, 2))
        assert poll_records(reader, 1)[0].offset() == 2


def test_confluent_begins_at_the_start_when_told_so(broker: Broker, topic: str) -> None:
    with consumer(broker.bootstrap, group_id=unique("group"), auto_offset_reset="earliest") as reader:
        reader.subscribe([topic])
        assert poll_records(reader, 1)[0].offset() == 0


def test_confluent_begins_at_the_end_when_told_so(broker: Broker, topic: str) -> None:
    with consumer(broker.bootstrap, group_id=unique("group"), auto_offset_reset="latest") as reader:
        reader.subscribe([topic])
        rebalanced(reader)

        def written() -> Message | None:
            produce_all(broker.bootstrap, topic, [{"value": b"new", "partition": 0}])
            return reader.poll(ASK_S)

        message = until(written, "what is written now is read")
        assert message.error() is None
        assert message.value() == b"new"


def test_confluent_without_a_commit_and_a_reset_is_told(broker: Broker, topic: str) -> None:
    with consumer(broker.bootstrap, group_id=unique("group"), auto_offset_reset="error") as reader:
        reader.subscribe([topic])
        message = until(lambda: reader.poll(ASK_S), "it is told")
        assert message.error() is not None and message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_confluent_is_refused_what_it_may_not_commit(broker: Broker, topic: str) -> None:
    with consumer(broker.bootstrap, group_id=unique("group")) as reader:
        reader.subscribe([topic])
        rebalanced(reader)
        with consumer(broker.bootstrap, group_id="somebody-else") as stranger:
            (done,) = stranger.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
            assert done.error is None
        with pytest.raises(KafkaException) as refused:
            reader.commit(offsets=[TopicPartition(topic, 0, 3, metadata="x" * 5_000)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.OFFSET_METADATA_TOO_LARGE


def test_confluent_administers_groups(broker: Broker, topic: str) -> None:
    group, client = unique("group"), admin(broker.bootstrap)
    with consumer(broker.bootstrap, group_id=group, client_id="somebody") as reader:
        reader.subscribe([topic])
        rebalanced(reader)
        described = client.describe_consumer_groups([group])[group].result(SECONDS_MAX)
        assert described.state == ConsumerGroupState.STABLE
        (row,) = described.members
        assert (row.client_id, row.host) == ("somebody", "/127.0.0.1")
        assert {one.partition for one in row.assignment.topic_partitions} == {0, 1}
        with pytest.raises(KafkaException) as refused:
            client.delete_consumer_groups([group])[group].result(SECONDS_MAX)
        assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
        listed = client.list_consumer_groups(states={ConsumerGroupState.STABLE}).result()
        assert group in {one.group_id for one in listed.valid}
        assert listed.errors == []
    moved = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, 9), TopicPartition(topic, 1, 0)])]
    client.alter_consumer_group_offsets(moved)[group].result(SECONDS_MAX)
    found = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(SECONDS_MAX)
    assert {(one.partition, one.offset) for one in found.topic_partitions} == {(0, 9), (1, 0)}
    client.delete_consumer_groups([group])[group].result(SECONDS_MAX)
    assert client.describe_consumer_groups([group])[group].result(SECONDS_MAX).state == ConsumerGroupState.DEAD


# kafka-python


def python_consumer(broker: Broker, group: str, **config: Any) -> KafkaConsumer:
    defaults = {"enable_auto_commit": False, "auto_offset_reset": "earliest", "session_timeout_ms": NEVER_MS}
    return KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group, metadata_max_age_ms=METADATA_AGE_MS, **(defaults | config))


def python_read(client: KafkaConsumer, count: int) -> list[Any]:
    found: list[Any] = []

    def have_come() -> bool:
        found.extend(one for batch in client.poll(PATIENCE_MS, max_records=count - len(found)).values() for one in batch)
        return len(found) >= count

    until(have_come, lambda: f"{count} records come, not only {len(found)}")
    return found


def test_kafka_python_commits_fetches_and_seeks(broker: Broker, topic: str) -> None:
    group, where = unique("group"), PythonPartition(topic, 0)
    with python_consumer(broker, group) as client:
        subscribe(client, topic)
        python_read(client, 7)
        client.commit()
    with python_consumer(broker, group) as client:
        subscribe(client, topic)
        assert [one.offset for one in python_read(client, COUNT - 7)] == list(range(7, COUNT))
        client.commit({where: OffsetAndMetadata(4, "a note", -1)})
        assert client.committed(where) == 4
        assert client.committed(where, metadata=True).metadata == "a note"
        client.seek(where, 2)
        assert python_read(client, 1)[0].offset == 2
        client.seek_to_beginning(where)
        assert python_read(client, 1)[0].offset == 0
        assert client.committed(PythonPartition(topic, 1)) == 0, "a commit without offsets commits all positions"


def test_kafka_python_begins_at_the_end_when_told_so(broker: Broker, topic: str) -> None:
    with python_consumer(broker, unique("group"), auto_offset_reset="latest") as client:
        subscribe(client, topic)
        until(lambda: client.poll(ASK_MS) or client.assignment(), "it has partitions")
        assert client.position(PythonPartition(topic, 0)) == COUNT


def test_kafka_python_administers_groups(broker: Broker, topic: str) -> None:
    group = unique("group")
    client = KafkaAdminClient(bootstrap_servers=broker.bootstrap)
    try:
        with python_consumer(broker, group) as reader:
            subscribe(reader, topic)
            python_read(reader, 3)
            reader.commit()
            assert group in str(client.list_groups())
            assert "Stable" in str(client.describe_groups([group]))
        assert "3" in str(client.list_group_offsets({group: None}))
        client.delete_groups([group])
        assert group not in str(client.list_groups())
    finally:
        client.close()


# aiokafka


def test_aiokafka_commits_fetches_and_seeks(broker: Broker, topic: str) -> None:
    from aiokafka import TopicPartition as AioPartition

    group, where = unique("group"), AioPartition(topic, 0)

    async def one_life(count: int) -> list[int]:
        client = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            session_timeout_ms=NEVER_MS,
        )  # fmt: skip
        await client.start()
        try:
            read = [(await client.getone()).offset for _ in range(count)]
            await client.commit()
            assert await client.committed(where) == read[-1] + 1
            await client.commit({where: (read[-1] + 1, "a note")})
            client.seek(where, 1)
            assert (await client.getone()).offset == 1
            assert await client.committed(AioPartition(topic, 1)) in (None, 0)
            return read
        finally:
            await client.stop()

    async def scenario() -> None:
        async with asyncio.timeout(PATIENCE_S):
            assert await one_life(7) == list(range(7))
            assert await one_life(COUNT - 7) == list(range(7, COUNT))

    asyncio.run(scenario())


def test_aiokafka_administers_groups(broker: Broker, topic: str) -> None:
    group = unique("group")
    with consumer(broker.bootstrap, group_id=group) as reader:
        reader.commit(offsets=[TopicPartition(topic, 0, 5)], asynchronous=False)

    async def scenario() -> None:
        client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await client.start()
        try:
            assert group in {name for name, _ in await client.list_consumer_groups()}
            assert "Empty" in str(await client.describe_consumer_groups([group]))
            offsets = await client.list_consumer_group_offsets(group)
            assert {(where.partition, found.offset) for where, found in offsets.items()} == {(0, 5)}
        finally:
            await client.close()

    asyncio.run(scenario())
