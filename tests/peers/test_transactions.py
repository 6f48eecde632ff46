"""Transactions as `peers/` has them, before a real broker: ours, or Apache Kafka with PENSTOCK_PEER. Both versions of the protocol."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest
from peers.refusals import last_refusal
from peers.scripted import TestEnv
from waiting import PATIENCE_MS, PATIENCE_S, pause_at_random_async, until_async

from penstock.errors import ErrorCode
from penstock.peers.appending import ProducerIdentity
from penstock.peers.client import Client
from penstock.peers.failures import MustAbort, ProducerBroken, ProducerFenced, Refused
from penstock.peers.fetching import FetchLimits
from penstock.peers.offsets import LATEST
from penstock.peers.positions import FROM_EARLIEST, at_offset
from penstock.peers.producer import ProducerSettings
from penstock.peers.reader import Reader, ReaderSettings
from penstock.peers.transaction_admin import describe_transactions
from penstock.peers.transaction_calls import TransactionCalls
from penstock.peers.transactions import GroupIdentity, TransactionalProducer, TransactionSettings
from penstock.vocabulary import NO_PRODUCER, TopicPartition

pytestmark = pytest.mark.invariant("transactions.all-or-nothing")

COMMITTED = ReaderSettings(fetch=FetchLimits(is_committed_only=True))
EVERYTHING = ReaderSettings()

Story = Callable[[Client, str], Awaitable[None]]


@pytest.fixture(params=[True, False], ids=["version 2", "version 1"])
def is_v2(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def play(address: str, story: Story) -> None:
    async def whole() -> None:
        async with asyncio.timeout(PATIENCE_S), Client(TestEnv(), address) as client:
            topic = f"transacted-{Random().randrange(1 << 40)}"
            await client.create_topic(topic, partitions=2)
            await story(client, topic)

    asyncio.run(whole())


def producer_of(client: Client, name: str, is_v2: bool, **settings: int) -> TransactionalProducer:
    """By now `name` is unique: it is a topic's."""
    settings = {"timeout_ms": PATIENCE_MS} | settings
    return TransactionalProducer(client, TransactionSettings(f"id-{name}", may_use_v2=is_v2, **settings), ProducerSettings(linger_s=0.0))


async def values(client: Client, topic: str, settings: ReaderSettings, *, partition: int | None = None) -> list[bytes | None]:
    starts = {TopicPartition(topic, index): FROM_EARLIEST for index in ((0, 1) if partition is None else (partition,))}
    async with Reader(client, starts, settings) as reader:
        return sorted([record.value async for record in reader])


async def until_stable(client: Client, topic: str) -> None:
    """Until every marker that is owed is written: the coordinator answers before."""
    wishes = {TopicPartition(topic, 0): LATEST, TopicPartition(topic, 1): LATEST}

    async def is_stable() -> bool:
        return await client.list_offsets(wishes) == await client.list_offsets(wishes, is_committed_only=True)

    await until_async(is_stable)


def test_what_is_committed_is_seen_together_and_not_before(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as producer:
            assert producer.is_v2 is is_v2
            producer.begin()
            for number in range(6):
                await producer.send(topic, b"%d" % number, partition=number % 2)
            await producer.flush()
            assert await values(client, topic, COMMITTED) == []
            assert len(await values(client, topic, EVERYTHING)) == 6
            await producer.commit()
            await until_stable(client, topic)
            assert await values(client, topic, COMMITTED) == [b"%d" % number for number in range(6)]

    play(kafka_address, story)


def test_what_is_aborted_is_left_out_by_readers_of_committed_records_only(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as producer:
            for number in range(8):
                producer.begin()
                for place in range(3):
                    await producer.send(topic, b"%d.%d" % (number, place), partition=0)
                await (producer.commit() if number % 3 == 0 else producer.abort())
        await until_stable(client, topic)
        kept = [b"%d.%d" % (number, place) for number in (0, 3, 6) for place in range(3)]
        assert await values(client, topic, COMMITTED) == kept
        assert set(kept) <= set(await values(client, topic, EVERYTHING))

    play(kafka_address, story)


def test_reading_may_begin_inside_an_aborted_transaction(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as producer:
            for is_kept in (False, True):
                producer.begin()
                for place in range(4):
                    await (await producer.send(topic, b"%d.%d" % (is_kept, place), partition=0))
                await (producer.commit() if is_kept else producer.abort())
        await until_stable(client, topic)
        for first in range(4):
            async with Reader(client, {TopicPartition(topic, 0): at_offset(first)}, COMMITTED) as reader:
                assert [record.value async for record in reader] == [b"1.%d" % place for place in range(4)]

    play(kafka_address, story)


def test_transactions_of_several_producers_lie_side_by_side(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, f"a-{topic}", is_v2) as one, producer_of(client, f"b-{topic}", is_v2) as other:
            one.begin()
            other.begin()
            for number in range(4):
                await (await one.send(topic, b"one %d" % number, partition=0))
                await (await other.send(topic, b"other %d" % number, partition=0))
            await one.commit()
            assert await values(client, topic, COMMITTED, partition=0) in ([], [b"one 0"]), "the other one is open from offset 1 on"
            await other.abort()
            await until_stable(client, topic)
            assert await values(client, topic, COMMITTED) == [b"one %d" % number for number in range(4)]

    play(kafka_address, story)


def test_the_epoch_grows_with_each_transaction_of_version_2_and_only_there(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as producer:
            epochs = []
            for number in range(4):
                producer.begin()
                epochs.append(producer.identity.epoch)
                await (await producer.send(topic, b"%d" % number, partition=0))
                await (producer.abort() if number == 2 else producer.commit())
        first = epochs[0]
        assert epochs == ([first, first + 1, first + 2, first + 3] if is_v2 else [first] * 4)

    play(kafka_address, story)


def test_a_transaction_without_anything_in_it_ends_at_once(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as producer:
            before = producer.identity
            producer.begin()
            await producer.commit()
            producer.begin()
            await producer.abort()
            assert producer.identity == before

    play(kafka_address, story)


@pytest.mark.parametrize("is_kept", [True, False], ids=["committed", "aborted"])
def test_input_offsets_count_with_the_records(kafka_address: str, is_v2: bool, is_kept: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        group, before = GroupIdentity(f"group-{topic}"), {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 5}
        await client.commit_offsets(group.group, before)
        async with producer_of(client, topic, is_v2) as producer:
            producer.begin()
            await producer.send(topic, b"out", partition=1)
            await producer.send_offsets({TopicPartition(topic, 0): 4}, group)
            held = await last_refusal(lambda deadline_s: client.stable_offsets(group.group, list(before), deadline_s=deadline_s))
            assert held.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            await (producer.commit() if is_kept else producer.abort())
        after = {TopicPartition(topic, 0): 4 if is_kept else 3, TopicPartition(topic, 1): 5}
        assert await client.stable_offsets(group.group, list(before)) == after

    play(kafka_address, story)


def test_an_offset_that_only_an_open_transaction_has_is_waited_for(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        group, where = GroupIdentity(f"group-{topic}"), TopicPartition(topic, 0)
        async with producer_of(client, topic, is_v2) as producer:
            producer.begin()
            await producer.send_offsets({where: 4}, group)
            held = await last_refusal(lambda deadline_s: client.stable_offsets(group.group, [where], deadline_s=deadline_s))
            assert held.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            await producer.commit()
        assert await client.stable_offsets(group.group, [where]) == {where: 4}

    play(kafka_address, story)


def test_a_new_producer_fences_the_old_one_and_ends_what_it_left_open(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as zombie:
            zombie.begin()
            await (await zombie.send(topic, b"zombie", partition=0))
            async with producer_of(client, topic, is_v2) as heir:
                heir.begin()
                await heir.send(topic, b"heir", partition=0)
                late = await zombie.send(topic, b"late", partition=1)
                await zombie.flush()
                assert late.exception() is not None
                with pytest.raises((ProducerFenced, MustAbort)):
                    await zombie.commit()
                if zombie.failure is None:
                    with pytest.raises(ProducerFenced):
                        await zombie.abort()
                assert isinstance(zombie.failure, ProducerFenced)
                with pytest.raises(ProducerFenced):
                    zombie.begin()
                await heir.commit()
        await until_stable(client, topic)
        assert await values(client, topic, COMMITTED) == [b"heir"]

    play(kafka_address, story)


def test_a_zombie_that_only_commits_is_fenced(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as zombie:
            zombie.begin()
            await (await zombie.send(topic, b"zombie", partition=0))
            async with producer_of(client, topic, is_v2):
                with pytest.raises(ProducerFenced) as fenced:
                    await zombie.commit()
                assert not fenced.value.may_have_happened
        await until_stable(client, topic)
        assert await values(client, topic, COMMITTED) == []

    play(kafka_address, story)


def test_a_record_that_is_refused_dooms_its_transaction_and_not_the_next(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as producer:
            producer.begin()
            await (await producer.send(topic, b"small", partition=0))
            refused = await producer.send(topic, bytes(2 << 20), partition=0)
            await producer.flush()
            assert isinstance(refused.exception(), Refused)
            with pytest.raises(MustAbort):
                await producer.commit()
            with pytest.raises(MustAbort):
                await producer.send(topic, b"more", partition=0)
            await producer.abort()
            producer.begin()
            await producer.send(topic, b"next", partition=0)
            await producer.commit()
        await until_stable(client, topic)
        assert await values(client, topic, COMMITTED) == [b"next"]

    play(kafka_address, story)


def test_offsets_of_a_member_that_is_none_doom_the_transaction(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as producer:
            producer.begin()
            with pytest.raises(MustAbort):
                await producer.send_offsets({TopicPartition(topic, 0): 1}, GroupIdentity(f"group-{topic}", "nobody", 3))
            await producer.abort()
            producer.begin()
            await producer.send(topic, b"next", partition=0)
            await producer.commit()
        await until_stable(client, topic)
        assert await values(client, topic, COMMITTED) == [b"next"]

    play(kafka_address, story)


def test_a_time_out_longer_than_the_coordinator_allows_is_refused(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        producer = producer_of(client, topic, is_v2, timeout_ms=2_000_000_000)
        with pytest.raises(Refused) as refused:
            await producer.init()
        assert refused.value.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT

    play(kafka_address, story)


def test_nothing_is_sent_outside_of_a_transaction(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        async with producer_of(client, topic, is_v2) as producer:
            for attempt in (producer.send(topic, b"v"), producer.commit(), producer.abort()):
                with pytest.raises(ProducerBroken, match="the producer is ready"):
                    await attempt
            producer.begin()
            await producer.send(topic, b"kept", partition=0)
            await producer.commit()
        await until_stable(client, topic)
        assert await values(client, topic, EVERYTHING) == [b"kept"]

    play(kafka_address, story)


def test_an_impatient_abort_gives_up_what_is_on_its_way_and_the_next_transaction_is_whole(kafka_address: str, is_v2: bool) -> None:
    async def story(client: Client, topic: str) -> None:
        settings = TransactionSettings(f"id-{topic}", may_use_v2=is_v2, abort_patience_s=0.0, timeout_ms=PATIENCE_MS)
        rng = Random(1)
        async with TransactionalProducer(client, settings, ProducerSettings(linger_s=0.0, batch_bytes_max=200)) as producer:
            for number in range(10):
                producer.begin()
                for place in range(20):
                    await producer.send(topic, b"%d.%02d" % (number, place), partition=place % 2)
                await pause_at_random_async(rng, 0, 0.01)
                await producer.abort()
            producer.begin()
            for place in range(20):
                await producer.send(topic, b"%02d" % place, partition=place % 2)
            await producer.commit()
        await until_stable(client, topic)
        assert await values(client, topic, COMMITTED) == [b"%02d" % place for place in range(20)]

    play(kafka_address, story)


def test_many_transactions_are_described_at_once_and_unknown_ones_left_out(kafka_address: str) -> None:
    async def story(client: Client, topic: str) -> None:
        names = [f"{topic}-many-{number}" for number in range(5)]
        identities = {}
        for name in names:
            calls = TransactionCalls(client, name, deadline_s=PATIENCE_S)
            identities[name] = await calls.init(ProducerIdentity(NO_PRODUCER, -1), timeout_ms=PATIENCE_MS)
        await TransactionCalls(client, names[0], deadline_s=PATIENCE_S).announce(identities[names[0]], [TopicPartition(topic, 1)])
        found = await describe_transactions(client.router, [*names, f"{topic}-nobody", names[0]], client.router.deadline(PATIENCE_S))
        assert sorted(found) == names
        assert {name: (one.producer_id, one.producer_epoch) for name, one in found.items()} == identities
        assert {name: one.state for name, one in found.items()} == dict.fromkeys(names, "Empty") | {names[0]: "Ongoing"}
        assert found[names[0]].partitions == (TopicPartition(topic, 1),)
        told = TransactionCalls(client, names[0], deadline_s=PATIENCE_S, coordinator=found[names[0]].coordinator)
        await told.end(identities[names[0]], is_commit=False, is_v2=False)

    play(kafka_address, story)
