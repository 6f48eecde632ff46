"""aiokafka's admin client (the oldest request versions that are still served) through the admin APIs. PENSTOCK_PEER: Kafka too."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import InvalidPartitionsError, OffsetOutOfRangeError
from system.conftest import Broker
from system.librdkafka import make_topic, unique, watermarks
from waiting import PATIENCE_S, until_async


@asynccontextmanager
async def admin(broker: Broker) -> AsyncIterator[AIOKafkaAdminClient]:
    client = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await client.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            yield client
    finally:
        await client.close()


async def settings_of(client: AIOKafkaAdminClient, kind: ConfigResourceType, name: str, *names: str) -> dict[str, str]:
    (answer,) = await client.describe_configs([ConfigResource(kind, name, dict.fromkeys(names))])
    ((code, _, _, _, configs),) = answer.resources
    assert code == 0
    return {config[0]: config[1] for config in configs}


def test_settings_of_a_topic_and_a_node_are_told_and_altered(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"), retention_ms=60_000)

    async def scenario() -> None:
        async with admin(broker) as client:
            assert await settings_of(client, ConfigResourceType.TOPIC, topic, "retention.ms") == {"retention.ms": "60000"}
            assert len(await settings_of(client, ConfigResourceType.TOPIC, topic)) > 10
            assert (await settings_of(client, ConfigResourceType.BROKER, "1"))["node.id"] == "1"
            (answer,) = await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "5000"})])
            assert [row[0] for row in answer.resources] == [0]

            async def is_changed() -> bool:
                return await settings_of(client, ConfigResourceType.TOPIC, topic, "segment.ms") == {"segment.ms": "5000"}

            await until_async(is_changed, "Apache Kafka hears of it a little later")
            (answer,) = await client.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"segment.ms": "0"})])
            assert [row[0] for row in answer.resources] == [40]

    asyncio.run(scenario())


def test_a_topic_grows(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"), partitions=2)

    async def scenario() -> None:
        async with admin(broker) as client:
            await client.create_partitions({topic: NewPartitions(4)})
            described: list[Any] = await client.describe_topics([topic])
            assert len(described[0]["partitions"]) == 4
            with pytest.raises(InvalidPartitionsError):
                await client.create_partitions({topic: NewPartitions(3)})

    asyncio.run(scenario())


def test_records_are_deleted_up_to_an_offset(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap, unique("aio"))
    where = TopicPartition(topic, 0)

    async def scenario() -> None:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap)
        await producer.start()
        try:
            for number in range(5):
                await producer.send_and_wait(topic, b"%d" % number)
        finally:
            await producer.stop()
        async with admin(broker) as client:
            assert await client.delete_records({where: RecordsToDelete(3)}) == {where: 3}
            with pytest.raises(OffsetOutOfRangeError):
                await client.delete_records({where: RecordsToDelete(9)})

    asyncio.run(scenario())
    assert watermarks(broker.bootstrap, topic) == (3, 5)
