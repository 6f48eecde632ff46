"""A member under the new group protocol, before a real broker: ours, or Apache Kafka with PENSTOCK_PEER."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from peers.scripted import TestEnv
from waiting import PATIENCE_MS, PATIENCE_S, until_async

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.consumer_member import JOINS, ConsumerMember, Subscription
from penstock.peers.failures import MemberFenced, MustAbort, Refused
from penstock.peers.transactions import GroupIdentity, TransactionalProducer, TransactionSettings
from penstock.vocabulary import TopicPartition

pytestmark = pytest.mark.invariant("groups.consumer-one-owner", "groups.consumer-epochs-grow", "groups.consumer-all-assigned")

PARTITIONS = 6
BEAT_S = 0.05
Story = Callable[[Client, str], Awaitable[None]]


def play(address: str, story: Story) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), Client(TestEnv(Random().randrange(1 << 40)), address) as client:
            topic = f"joined-{Random().randrange(1 << 40)}"
            await client.create_topic(topic, partitions=PARTITIONS)
            await story(client, topic)

    asyncio.run(whole())


def member_of(client: Client, topic: str, **subscription: str) -> ConsumerMember:
    return ConsumerMember(client, f"group-{topic}", Subscription([topic], **subscription))


def owned(*members: ConsumerMember) -> list[TopicPartition]:
    return sorted(where for member in members for where in member.owned)


def everything(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, index) for index in range(PARTITIONS)]


async def settle(topic: str, *members: ConsumerMember, shares: list[int]) -> list[int]:
    """Beats with each in turn until each owns its share. Returns how many partitions were taken from each on the way."""
    revoked = [0] * len(members)

    async def beat_and_look() -> bool:
        for place, member in enumerate(members):
            revoked[place] += len((await member.beat()).revoked)
            assert len(owned(*members)) == len(set(owned(*members))), "two own one"
        return sorted(len(member.owned) for member in members) == sorted(shares) and owned(*members) == everything(topic)

    await until_async(beat_and_look, every_s=BEAT_S)
    return revoked


def test_a_member_alone_gets_everything(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        member = member_of(client, topic)
        await settle(topic, member, shares=[PARTITIONS])
        assert member.epoch > 0 and member.interval_s > 0
        assert not await member.beat(), "nothing is told twice"
        await member.leave()
        assert member.owned == ()

    play(kafka_address, story)


def test_only_partitions_that_change_hands_are_taken_away(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        first, second, third = (member_of(client, topic) for _ in range(3))
        await settle(topic, first, shares=[6])
        assert await settle(topic, first, second, shares=[3, 3]) == [3, 0]
        assert sum(await settle(topic, first, second, third, shares=[2, 2, 2])) == 2
        await second.leave()
        assert await settle(topic, first, third, shares=[3, 3]) == [0, 0]

    play(kafka_address, story)


def test_a_member_with_a_wrong_epoch_is_fenced_and_joins_anew(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        member = member_of(client, topic)
        await settle(topic, member, shares=[PARTITIONS])
        member.epoch += 7
        with pytest.raises(MemberFenced):
            await member.beat()
        assert (member.owned, member.epoch) == ((), JOINS)
        await settle(topic, member, shares=[PARTITIONS])

    play(kafka_address, story)


def test_offsets_are_committed_in_the_epoch_of_the_member(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        member, where = member_of(client, topic), TopicPartition(topic, 2)
        await settle(topic, member, shares=[PARTITIONS])
        await member.commit({where: 5})
        assert await member.committed(everything(topic)) == {where: 5}
        epoch, member.epoch = member.epoch, member.epoch + 1
        with pytest.raises(Refused) as refused:
            await member.commit({where: 9})
        assert refused.value.code == ErrorCode.STALE_MEMBER_EPOCH
        with pytest.raises(Refused) as refused:
            await member.committed([where])
        assert refused.value.code == ErrorCode.STALE_MEMBER_EPOCH
        member.epoch = epoch
        assert await member.committed([where]) == {where: 5}

    play(kafka_address, story)


def test_a_pattern_subscribes_to_what_it_matches(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        member = ConsumerMember(client, f"group-{topic}", Subscription(regex=f"{topic[:-2]}.."))
        await settle(topic, member, shares=[PARTITIONS])
        member.subscription = Subscription(regex="nothing-is-called-so")

        async def owns_nothing() -> bool:
            await member.beat()
            return not member.owned

        await until_async(owns_nothing, every_s=BEAT_S)

    play(kafka_address, story)


def test_a_pattern_that_is_none_is_refused(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        member = ConsumerMember(client, f"group-{topic}", Subscription(regex="(unclosed"))
        with pytest.raises(Refused) as refused:
            await member.beat()
        assert refused.value.code == ErrorCode.INVALID_REGULAR_EXPRESSION

    play(kafka_address, story)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_the_group_uses_the_assignor_that_is_asked_for(kafka_address: str, assignor: str) -> None:
    async def story(client: Client, topic: str) -> None:
        members = [member_of(client, topic, assignor=assignor) for _ in range(2)]
        await settle(topic, *members, shares=[3, 3])

    play(kafka_address, story)


def test_an_assignor_that_nobody_knows_is_refused(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        with pytest.raises(Refused) as refused:
            await member_of(client, topic, assignor="by chance").beat()
        assert refused.value.code == ErrorCode.UNSUPPORTED_ASSIGNOR

    play(kafka_address, story)


def test_a_static_member_comes_back_to_what_it_had(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        first, other = member_of(client, topic, instance_id="one"), member_of(client, topic)
        await settle(topic, first, other, shares=[3, 3])
        before = first.owned
        await first.leave()
        again = member_of(client, topic, instance_id="one")

        async def is_back() -> bool:
            assert not (await other.beat()).added
            await again.beat()
            return bool(again.owned)

        await until_async(is_back, every_s=BEAT_S)
        assert again.owned == before

    play(kafka_address, story)


def test_a_member_commits_in_a_transaction_and_a_stale_one_cannot(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        member, where = member_of(client, topic), TopicPartition(topic, 0)
        await settle(topic, member, shares=[PARTITIONS])
        async with TransactionalProducer(client, TransactionSettings(f"id-{topic}", timeout_ms=PATIENCE_MS)) as producer:
            producer.begin()
            await producer.send_offsets({where: 4}, member.identity)
            await producer.commit()
            assert await member.committed([where]) == {where: 4}
            producer.begin()
            stale = GroupIdentity(member.group, member.member_id, member.epoch - 1)
            with pytest.raises(MustAbort):
                await producer.send_offsets({where: 9}, stale)
            await producer.abort()
        assert await member.committed([where]) == {where: 4}

    play(kafka_address, story)
