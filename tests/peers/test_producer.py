"""Records in, batches out: order, once-ness, bounds, and what breaks a producer."""

import asyncio
from contextlib import asynccontextmanager

import pytest
import serving
from all_loops import OnLoop
from peers.pretend_node import THEN_HANG_UP, TOPIC, PretendNode, pretend_node
from peers.scripted import HANG_UP, NO_ANSWER, virtually
from serving import virtual_timeout
from waiting import until_async

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import GaveUp, PeerFailure, ProducerBroken, Refused
from penstock.peers.partitioner import partition_of_key
from penstock.peers.producer import Producer, ProducerSettings
from penstock.simulator.env import SimEnv
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import read_header
from penstock.wire.compression import Codec


@asynccontextmanager
async def producing(env: SimEnv, node: PretendNode, **settings):
    async with Client(env, [node.peer.address]) as client:
        producer = Producer(client, ProducerSettings(**{"linger_s": 0.0} | settings))
        try:
            yield producer
        finally:
            await producer.abandon()


async def outcome_of(future):
    return (await asyncio.gather(future, return_exceptions=True))[0]


def test_each_record_learns_where_it_is_stored(on_loop):
    async def scenario(env):
        async with pretend_node(partitions=3) as node, producing(env, node) as producer:
            node.store(b"before", partition=2)
            keyed = await producer.send(TOPIC, b"v", key=b"abc", headers=[("h", b"1"), ("n", None)], timestamp_ms=77)
            chosen = [await producer.send(TOPIC, b"v%d" % number, partition=2) for number in range(3)]
            await producer.flush()
            return (await keyed).partition, [(each.partition, each.offset) for each in [await future for future in chosen]]

    partition, chosen = on_loop(scenario)
    assert partition == partition_of_key(b"abc", 3) == 0
    assert chosen == [(2, 1), (2, 2), (2, 3)]


def test_sequences_count_the_records_of_each_partition(on_loop):
    async def scenario(env):
        async with pretend_node(partitions=2) as node, producing(env, node) as producer:
            for count in (1, 3, 2):
                for _ in range(count):
                    await producer.send(TOPIC, b"v", partition=0)
                await producer.flush()
            await producer.send(TOPIC, b"v", partition=1)
            await producer.flush()
            return [
                (partition, read.producer_id, read.base_sequence, read.record_count)
                for (partition, _), read in zip(node.received, node.received_headers, strict=True)
            ]

    assert on_loop(scenario) == [(0, 7, 0, 1), (0, 7, 1, 3), (0, 7, 4, 2), (1, 7, 0, 1)]


def test_a_lost_answer_is_followed_by_the_very_same_bytes(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node) as producer:
            node.produce_script.extend([THEN_HANG_UP, ErrorCode.NONE])
            first = await producer.send(TOPIC, b"first")
            await until_async(lambda: node.received)
            second = await producer.send(TOPIC, b"second")
            await producer.flush()
            await first, await second
            return node.received, [header.base_sequence for header in node.received_headers]

    received, sequences = on_loop(scenario)
    assert received[0] == received[1], "the node can only tell a retry by its sequence"
    assert sequences == [0, 0, 1]


def test_nothing_overtakes_a_batch_that_is_tried_again(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, batch_bytes_max=1) as producer:
            node.produce_script.extend([ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE])
            for number in range(5):
                await producer.send(TOPIC, b"%d" % number)
            await producer.flush()
            return node.stored_values()

    assert on_loop(scenario) == [b"0", b"1", b"2", b"3", b"4"]


def test_a_refused_batch_leaves_no_gap_in_the_sequence(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node) as producer:
            node.produce_script.append(ErrorCode.INVALID_TIMESTAMP)
            bad = await producer.send(TOPIC, b"bad")
            await producer.flush()
            good = await producer.send(TOPIC, b"good")
            await producer.flush()
            return await outcome_of(bad), await good, [header.base_sequence for header in node.received_headers]

    bad, good, sequences = on_loop(scenario)
    assert isinstance(bad, Refused) and bad.code == ErrorCode.INVALID_TIMESTAMP
    assert good.offset == 0 and sequences == [0, 0]


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID, ErrorCode.INVALID_PRODUCER_EPOCH])
def test_a_node_that_knows_the_producer_differently_breaks_it(on_loop: OnLoop, code: ErrorCode):
    async def scenario(env):
        async with pretend_node(partitions=2) as node, producing(env, node, batch_bytes_max=1) as producer:
            node.produce_script.append(code)
            refused = await producer.send(TOPIC, b"a", partition=0)
            queued = await producer.send(TOPIC, b"b", partition=0)
            await producer.flush()
            with pytest.raises(ProducerBroken) as later:
                await producer.send(TOPIC, b"c", partition=1)
            return await outcome_of(refused), await outcome_of(queued), later.value, len(node.received)

    refused, queued, later, sent = on_loop(scenario)
    assert isinstance(refused, Refused) and refused.code == code
    assert isinstance(queued, ProducerBroken) and not queued.may_have_happened
    assert code.name in str(later) and "start a new producer" in str(later)
    assert sent == 1


@pytest.mark.virtual_time("a request is not answered, and its deadline must expire")
def test_an_unknown_outcome_breaks_the_producer_rather_than_its_promise():
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, batch_bytes_max=1, delivery_s=40) as producer:
            node.produce_script.extend([NO_ANSWER] * 100)
            unknown = await producer.send(TOPIC, b"a")
            queued = await producer.send(TOPIC, b"b")
            await producer.flush()
            return await outcome_of(unknown), await outcome_of(queued), producer.failure

    unknown, queued, failure = virtually(scenario)
    assert isinstance(unknown, GaveUp) and unknown.may_have_happened
    assert isinstance(queued, PeerFailure) and not queued.may_have_happened, "it was never sent"
    assert failure is not None and "not known whether a batch for orders-0 was stored" in str(failure)


def test_without_idempotence_an_unknown_outcome_concerns_its_own_records_only(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, is_idempotent=False, acks=1, delivery_s=40) as producer:
            node.produce_script.extend([NO_ANSWER] * 100)
            unknown = await producer.send(TOPIC, b"a")
            await producer.flush()
            node.produce_script.clear()
            good = await producer.send(TOPIC, b"b")
            await producer.flush()
            return await outcome_of(unknown), await good, {header.producer_id for header in node.received_headers}

    unknown, good, producer_ids = on_loop(scenario)
    assert isinstance(unknown, GaveUp) and unknown.may_have_happened
    assert good.offset == 0 and producer_ids == {-1}


def test_a_batch_that_is_too_large_for_the_topic_is_halved_in_order(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node) as producer:
            node.batch_bytes_max = 300
            futures = [await producer.send(TOPIC, b"%d" % number + bytes(40)) for number in range(16)]
            await producer.flush()
            offsets = [(await future).offset for future in futures]
            accepted = [header for header in node.received_headers if header.size <= 300]
            return offsets, [header.base_sequence for header in accepted], [header.record_count for header in accepted]

    offsets, sequences, counts = on_loop(scenario)
    assert offsets == list(range(16))
    assert sequences == [sum(counts[:place]) for place in range(len(counts))]


def test_a_single_record_that_is_too_large_fails_alone(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node) as producer:
            node.batch_bytes_max = 300
            futures = [await producer.send(TOPIC, bytes(size)) for size in (10, 10, 900, 10)]
            await producer.flush()
            return [await outcome_of(future) for future in futures]

    first, second, large, last = on_loop(scenario)
    assert isinstance(large, Refused) and large.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "send smaller records, or raise the topic's max.message.bytes" in str(large)
    assert [first.offset, second.offset, last.offset] == [0, 1, 2]


@pytest.mark.virtual_time("it moves time by hand")
def test_a_full_buffer_makes_senders_wait():
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, buffer_bytes_max=1_000, batch_bytes_max=100) as producer:
            gate, honest = asyncio.Event(), node.peer.handlers[ApiKey.PRODUCE]

            async def answer_late(question):
                await gate.wait()
                return honest(question)

            node.peer.handlers[ApiKey.PRODUCE] = answer_late
            futures = []

            async def send_many():
                for _ in range(50):
                    futures.append(await producer.send(TOPIC, bytes(76)))

            sending = asyncio.create_task(send_many())
            await asyncio.sleep(0.05)
            accepted = len(futures)
            gate.set()
            await sending
            await producer.flush()
            return accepted, producer._room.bytes_taken, len({(await future).offset for future in futures})

    accepted, taken, stored = virtually(scenario)
    assert accepted == 10, "each takes 100 bytes of 1,000"
    assert taken == 0 and stored == 50


@pytest.mark.virtual_time("it moves time by hand")
def test_a_sender_who_stops_waiting_for_room_lets_the_next_one_in():
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, buffer_bytes_max=1_000) as producer:
            gate, honest = asyncio.Event(), node.peer.handlers[ApiKey.PRODUCE]

            async def answer_late(question):
                await gate.wait()
                return honest(question)

            node.peer.handlers[ApiKey.PRODUCE] = answer_late
            await producer.send(TOPIC, bytes(700))
            large = asyncio.create_task(producer.send(TOPIC, bytes(600)))
            small = asyncio.create_task(producer.send(TOPIC, bytes(10)))
            await asyncio.sleep(0.02)
            assert not small.done(), "first come, first served"
            large.cancel()
            await asyncio.sleep(0.02)
            assert small.done()
            gate.set()
            await producer.flush()
            assert producer._room.bytes_taken == 0

    virtually(scenario)


def test_a_record_that_can_never_fit_is_refused_at_once(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, buffer_bytes_max=1_000) as producer:
            with pytest.raises(ValueError, match="raise buffer_bytes_max"):
                await producer.send(TOPIC, bytes(1_000))

    on_loop(scenario)


@pytest.mark.virtual_time("it moves time by hand")
def test_records_wait_for_company_but_not_longer_than_told():
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, linger_s=0.1) as producer:
            loop = asyncio.get_running_loop()
            began = loop.time()
            futures = []
            for _ in range(5):
                futures.append(await producer.send(TOPIC, b"v"))
                await asyncio.sleep(0.005)
            await asyncio.gather(*futures)
            return loop.time() - began, [header.record_count for header in node.received_headers]

    took_s, counts = virtually(scenario)
    assert counts == [5]
    assert took_s == pytest.approx(0.1, abs=0.01)


def test_a_full_batch_does_not_wait_for_company(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, linger_s=30.0, batch_bytes_max=1_000) as producer:
            futures = [await producer.send(TOPIC, bytes(400)) for _ in range(3)]
            began = env.now()
            await futures[0]
            assert not futures[2].done(), "the last one still waits"
            await producer.flush()
            return [header.record_count for header in node.received_headers], env.now() - began

    counts, took_s = on_loop(scenario)
    assert counts == [2, 1]
    assert took_s < 1


@pytest.mark.virtual_time("each turn of the simulated loop takes its time")
def test_a_busy_sender_lets_the_loop_send():
    async def scenario(world, env):
        async with pretend_node() as node, producing(env, node, batch_bytes_max=1_000) as producer:
            await producer.send(TOPIC, b"v")
            await producer.flush()
            world.slow("node", 0.000_1)  # Each turn of the loop takes its time, as it does for a processor.
            for _ in range(500):
                await producer.send(TOPIC, bytes(100))
            return len(node.received)

    assert serving.virtually(scenario) > 5, "much of it has left before the sender pauses"


def test_leaving_the_producer_flushes_it(on_loop):
    async def scenario(env):
        async with pretend_node() as node, Client(env, [node.peer.address]) as client:
            async with Producer(client, ProducerSettings(linger_s=30.0)) as producer:
                future = await producer.send(TOPIC, b"v")
            with pytest.raises(ProducerBroken, match="the producer was closed"):
                await producer.send(TOPIC, b"late")
            return future.result().offset

    assert on_loop(scenario) == 0


def test_leaving_the_producer_with_an_error_drops_what_was_not_settled(on_loop):
    async def scenario(env):
        async with pretend_node() as node, Client(env, [node.peer.address]) as client:
            node.produce_script.append(NO_ANSWER)
            futures = []
            with pytest.raises(KeyError):
                async with Producer(client, ProducerSettings(linger_s=0.0, batch_bytes_max=1)) as producer:
                    futures.append(await producer.send(TOPIC, b"on its way"))
                    futures.append(await producer.send(TOPIC, b"queued"))
                    await until_async(lambda: node.received)
                    raise KeyError
            return [await outcome_of(future) for future in futures]

    on_its_way, queued = on_loop(scenario)
    assert isinstance(on_its_way, ProducerBroken) and on_its_way.may_have_happened
    assert isinstance(queued, ProducerBroken) and not queued.may_have_happened


def test_cancelling_a_delivery_future_disturbs_nobody(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node) as producer:
            futures = [await producer.send(TOPIC, b"%d" % number) for number in range(3)]
            futures[1].cancel()
            async with virtual_timeout(5):
                await producer.flush()
            return [futures[0].result().offset, futures[2].result().offset]

    assert on_loop(scenario) == [0, 2]


def test_a_partition_that_is_not_there_is_told_with_the_count(on_loop):
    async def scenario(env):
        async with pretend_node(partitions=2) as node, producing(env, node) as producer:
            with pytest.raises(PeerFailure, match="topic 'orders' has no partition 2: it has 2, counted from 0"):
                await producer.send(TOPIC, b"v", partition=2)
            assert producer._room.bytes_taken == 0

    on_loop(scenario)


@pytest.mark.parametrize("codec", list(Codec))
def test_batches_are_packed_with_the_chosen_codec(on_loop: OnLoop, codec: Codec):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, codec=codec) as producer:
            await producer.send(TOPIC, b"text " * 100)
            await producer.flush()
            return node.received_headers[0].codec, node.stored_values()

    assert on_loop(scenario) == (codec, [b"text " * 100])


def test_an_idempotent_producer_insists_on_all_acks(on_loop):
    async def scenario(env):
        async with pretend_node() as node, Client(env, [node.peer.address]) as client:
            with pytest.raises(ValueError, match="needs acks all"):
                Producer(client, ProducerSettings(acks=1))

    on_loop(scenario)


def test_acks_none_settles_without_an_offset(on_loop):
    async def scenario(env):
        async with pretend_node() as node, producing(env, node, acks=0, is_idempotent=False) as producer:
            future = await producer.send(TOPIC, b"v")
            await producer.flush()
            await until_async(lambda: node.received)
            return future.result().offset

    assert on_loop(scenario) == -1


def test_a_node_that_comes_back_gets_everything_once(on_loop):
    """The connection is lost at every second batch, before or after it was stored; the node drops doubles by their sequence."""

    async def scenario(env):
        async with pretend_node() as node, producing(env, node, batch_bytes_max=60) as producer:
            honest, stored = node.peer.handlers[ApiKey.PRODUCE], {}

            def store_once(question):
                sequence = read_header(question.body.topic_data[0].partition_data[0].records).base_sequence
                if sequence in stored:
                    row = {"index": 0, "base_offset": stored[sequence]}
                    return {"responses": [{"topic_id": node.topic_id, "partition_responses": [row]}]}
                end_offset = node.end_offset()
                answer = honest(question)
                if node.end_offset() > end_offset:
                    stored[sequence] = end_offset
                return answer

            node.peer.handlers[ApiKey.PRODUCE] = store_once
            node.produce_script.extend([THEN_HANG_UP, ErrorCode.NONE, HANG_UP, ErrorCode.NONE] * 20)
            futures = [await producer.send(TOPIC, b"%d" % number) for number in range(40)]
            await producer.flush()
            return [future.result().offset for future in futures], node.stored_values()

    offsets, values = on_loop(scenario)
    assert offsets == list(range(40))
    assert values == [b"%d" % number for number in range(40)]
