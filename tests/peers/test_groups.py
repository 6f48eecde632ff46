"""The client's questions about groups, answered by a real broker (ours, or Apache Kafka with PENSTOCK_PEER)."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from uuid import uuid4

import pytest
from peers.refusals import last_refusal
from waiting import PATIENCE_S

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import Refused
from penstock.server.calling import CallerEnv
from penstock.vocabulary import TopicPartition
from penstock.wire.batches import Record, encode_batch

Story = Callable[[Client, str, str], Awaitable[None]]


def talk(address: str, story: Story) -> None:
    async def whole() -> None:
        async with Client(CallerEnv(), address) as client:
            suffix = f"{Random().randrange(1 << 30)}"
            topic, group = f"orders-{suffix}", f"billing-{uuid4()}"
            await client.create_topic(topic, partitions=2)
            await client.produce(topic, 0, encode_batch([Record(value=b"x", timestamp_ms=1)] * 3))
            async with asyncio.timeout(PATIENCE_S):
                await story(client, topic, group)

    asyncio.run(whole())


def test_offsets_of_a_group_without_members_are_set_and_read(kafka_address: str) -> None:
    async def story(client: Client, topic: str, group: str) -> None:
        assert await client.committed_offsets(group) == {}
        await client.commit_offsets(group, {TopicPartition(topic, 1): 0, TopicPartition(topic, 0): 2})
        found = await client.committed_offsets(group)
        assert [(where, each.offset) for where, each in found.items()] == [(TopicPartition(topic, 0), 2), (TopicPartition(topic, 1), 0)]
        assert group in [listed.group for listed in await client.list_groups()]
        described = await client.describe_group(group)
        assert (described.state, described.members) == ("Empty", ())

    talk(kafka_address, story)


def test_a_group_is_deleted_with_its_offsets(kafka_address: str) -> None:
    async def story(client: Client, topic: str, group: str) -> None:
        await client.commit_offsets(group, {TopicPartition(topic, 0): 2})
        await client.delete_group(group)
        assert await client.committed_offsets(group) == {}
        for ask in (client.describe_group, client.delete_group):
            with pytest.raises(Refused) as refused:
                await ask(group)
            assert refused.value.code == ErrorCode.GROUP_ID_NOT_FOUND

    talk(kafka_address, story)


def test_an_offset_for_a_topic_that_is_not_there_is_refused(kafka_address: str) -> None:
    async def story(client: Client, topic: str, group: str) -> None:
        offsets = {TopicPartition("nowhere", 0): 2}
        refused = await last_refusal(lambda deadline_s: client.commit_offsets(group, offsets, deadline_s=deadline_s))
        assert "nowhere-0" in str(refused)

    talk(kafka_address, story)
