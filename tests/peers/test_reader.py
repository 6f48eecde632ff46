"""Partitions read from a start to an end or for ever, past everything that can come in between."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from all_loops import OnLoop
from peers.pretend_node import TOPIC, PretendNode, pretend_node
from peers.scripted import HANG_UP, virtually
from serving import virtual_timeout
from waiting import until_async

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import GaveUp, OffsetLost, PeerFailure, Refused, UnknownTopic
from penstock.peers.positions import FROM_EARLIEST, FROM_LATEST, Start, at_offset, at_timestamp
from penstock.peers.reader import OutOfRange, Reader, ReaderSettings
from penstock.simulator.env import SimEnv
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch
from penstock.wire.compression import Codec


@asynccontextmanager
async def reading(env: SimEnv, node: PretendNode, *starts: Start, **settings):
    """A reader of as many partitions as there are starts."""
    places = {TopicPartition(TOPIC, partition): start for partition, start in enumerate(starts)}
    async with (
        Client(env, [node.peer.address]) as client,
        Reader(client, places, ReaderSettings(**settings)) as reader,
    ):
        yield reader


async def values_of(reader: Reader) -> list[bytes | None]:
    async with virtual_timeout(10):  # Less than the patience of a reader: trouble must not cost it.
        return [record.value async for record in reader]


async def next_value(reader: Reader) -> bytes | None:
    async with virtual_timeout(10):
        return (await anext(reader)).value


def read_to_the_end(on_loop: OnLoop, *starts: Start, prepare, **settings) -> list[bytes | None]:
    async def scenario(env):
        async with pretend_node(partitions=max(1, len(starts))) as node:
            prepare(node)
            async with reading(env, node, *starts, **settings) as reader:
                return await values_of(reader)

    return on_loop(scenario)


def five_in_two_batches(node: PretendNode) -> None:
    node.store(b"0", b"1", b"2")
    node.store(b"3", b"4")


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (FROM_EARLIEST, [b"0", b"1", b"2", b"3", b"4"]),
        (at_offset(1), [b"1", b"2", b"3", b"4"]),
        (at_offset(4), [b"4"]),
        (at_offset(5), []),
        (FROM_LATEST, []),
    ],
)
def test_reading_begins_where_it_is_told(on_loop: OnLoop, start: Start, expected: list[bytes]):
    assert read_to_the_end(on_loop, start, prepare=five_in_two_batches) == expected


def test_a_timestamp_younger_than_every_record_begins_at_the_end(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            five_in_two_batches(node)
            honest = node.list_offsets

            def no_record_is_that_young(question):
                answer = honest(question)
                if question.body.topics[0].partitions[0].timestamp == 99:
                    answer["topics"][0]["partitions"][0]["offset"] = -1
                return answer

            node.peer.handlers[ApiKey.LIST_OFFSETS] = no_record_is_that_young
            async with reading(env, node, at_timestamp(99)) as reader:
                return await values_of(reader), list(reader.positions.values())

    assert on_loop(scenario) == ([], [5])


def test_a_record_carries_where_and_when_it_was(on_loop):
    async def scenario(env):
        async with pretend_node(partitions=2) as node:
            batch = encode_batch([Record(b"k", b"v", (("h", b"1"), ("n", None)), 123)])
            node.batches[1].append(bytes(batch))
            async with reading(env, node, FROM_EARLIEST, FROM_EARLIEST) as reader:
                return [record async for record in reader]

    assert on_loop(scenario) == [(TOPIC, 1, 0, 123, b"k", b"v", (("h", b"1"), ("n", None)))]


def test_reading_ends_at_the_end_that_was_seen_at_the_start(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            node.store(b"0")
            async with reading(env, node, FROM_EARLIEST) as reader:
                node.store(b"came later")
                return await values_of(reader)

    assert on_loop(scenario) == [b"0"]


def test_an_end_inside_a_batch_is_kept(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            five_in_two_batches(node)
            async with reading(env, node, FROM_EARLIEST) as reader:
                reader._positions[TopicPartition(TOPIC, 0)].end_offset = 4
                return await values_of(reader)

    assert on_loop(scenario) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize("uses_sessions", [True, False])
@pytest.mark.parametrize("keeps_sessions", [True, False])
def test_following_goes_on_as_records_come(on_loop: OnLoop, uses_sessions: bool, keeps_sessions: bool):
    async def scenario(env):
        async with pretend_node(partitions=2) as node:
            node.keeps_sessions = keeps_sessions
            node.store(b"old")
            async with reading(env, node, FROM_LATEST, FROM_EARLIEST, is_following=True, uses_sessions=uses_sessions) as reader:
                seen = []
                for number in range(4):
                    node.store(b"%d" % number, partition=number % 2)
                    seen.append(await next_value(reader))
                return seen, node.session_epochs

    seen, epochs = on_loop(scenario)
    assert seen == [b"0", b"1", b"2", b"3"]
    if not uses_sessions:
        assert set(epochs) == {(0, -1)}
    elif keeps_sessions:
        assert epochs[:3] == [(0, 0), (5, 1), (5, 2)]
    else:
        assert set(epochs) == {(0, 0)}


def test_control_batches_and_gaps_are_passed_over(on_loop):
    def prepare(node: PretendNode):
        node.store(b"0")
        node.store(b"\0\0\0\0\0\0", is_control=True, is_transactional=True)
        node.store(b"2", gap=7)
        node.store(b"\0\0\0\0\0\0", is_control=True, is_transactional=True)

    assert read_to_the_end(on_loop, FROM_EARLIEST, prepare=prepare) == [b"0", b"2"], (
        "it must also end, although the last offset has no record"
    )


@pytest.mark.parametrize("codec", list(Codec))
def test_packed_batches_are_read(on_loop: OnLoop, codec: Codec):
    assert read_to_the_end(on_loop, FROM_EARLIEST, prepare=lambda node: node.store(b"text " * 100, codec=codec)) == [b"text " * 100]


def test_a_last_batch_that_is_cut_off_is_fetched_again(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            five_in_two_batches(node)
            honest = node._fetch_row

            def cut(*asked):
                row = honest(*asked)
                return row | {"records": row["records"][:-5]} if len(node.session_epochs) == 1 else row

            node._fetch_row = cut
            async with reading(env, node, FROM_EARLIEST) as reader:
                return await values_of(reader), len(node.session_epochs)

    assert on_loop(scenario) == ([b"0", b"1", b"2", b"3", b"4"], 2)


def test_bytes_that_were_changed_on_the_way_are_fetched_again(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            five_in_two_batches(node)
            honest = node._fetch_row

            def flip(*asked):
                row = honest(*asked)
                if len(node.session_epochs) > 2:
                    return row
                return row | {"records": row["records"][:-1] + bytes([row["records"][-1] ^ 1])}

            node._fetch_row = flip
            async with reading(env, node, FROM_EARLIEST) as reader:
                return await values_of(reader)

    assert on_loop(scenario) == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.virtual_time("it tries until a deadline")
def test_bytes_that_stay_damaged_end_the_reader_after_what_stands_before_them():
    async def scenario(env):
        async with pretend_node() as node:
            five_in_two_batches(node)
            node.batches[0][1] = node.batches[0][1][:-1] + b"\xff"
            seen = []
            async with reading(env, node, FROM_EARLIEST, patience_s=20) as reader:
                with pytest.raises(GaveUp) as told:
                    while True:
                        seen += [record.value for record in await reader.read()]
            return seen, str(told.value)

    seen, text = virtually(scenario)
    assert seen == [b"0", b"1", b"2"]
    assert "read orders-0: gave up after 20 s. what was fetched of orders-0 at offset 3 is damaged" in text
    assert "does not match its checksum" in text


def test_a_batch_that_unpacks_to_too_much_ends_the_reader_with_a_way_around_it(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            node.store(b"fine")
            node.store(bytes(1 << 20), codec=Codec.ZSTD)
            seen = []
            async with reading(env, node, FROM_EARLIEST, unpacked_bytes_max=100_000) as reader:
                with pytest.raises(PeerFailure) as told:
                    while True:
                        seen += [record.value for record in await reader.read()]
            return seen, str(told.value)

    seen, text = on_loop(scenario)
    assert seen == [b"fine"]
    assert text == (
        "orders-0: the batch at offset 1 cannot be unpacked: compressed bytes unpack to more than 100000\n"
        "  read on from offset 2 to leave it out"
    )


@pytest.mark.parametrize(("policy", "expected"), [(OutOfRange.EARLIEST, [b"3", b"4"]), (OutOfRange.LATEST, [])])
def test_an_offset_that_is_gone_is_left_for_the_earliest_or_the_latest(on_loop: OnLoop, policy: OutOfRange, expected: list[bytes]):
    def prepare(node: PretendNode):
        five_in_two_batches(node)
        del node.batches[0][0]
        node.start_offset = 3

    assert read_to_the_end(on_loop, at_offset(1), prepare=prepare, out_of_range=policy) == expected


def test_an_offset_that_is_gone_ends_the_reader_unless_told_otherwise(on_loop):
    def prepare(node: PretendNode):
        five_in_two_batches(node)
        del node.batches[0][0]
        node.start_offset = 3

    with pytest.raises(OffsetLost, match="orders-0: offset 1 is not there: the partition begins at 3 and ends before 5"):
        read_to_the_end(on_loop, at_offset(1), prepare=prepare)


@pytest.mark.parametrize("is_following", [True, False])
def test_an_offset_past_the_end_is_told(on_loop: OnLoop, is_following: bool):
    with pytest.raises(OffsetLost, match="offset 99 is not there: the partition begins at 0 and ends before 5"):
        read_to_the_end(on_loop, at_offset(99), prepare=five_in_two_batches, is_following=is_following)


@pytest.mark.parametrize(
    "trouble",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        HANG_UP,
    ],
)
def test_trouble_that_passes_costs_no_record(on_loop, trouble):
    async def scenario(env):
        async with pretend_node() as node:
            node.keeps_sessions = True
            async with reading(env, node, FROM_EARLIEST, is_following=True) as reader:
                seen = []
                for number in range(6):
                    node.store(b"%d" % number)
                    seen.append(await next_value(reader))
                    node.fetch_script.append(trouble)
                return seen

    assert on_loop(scenario) == [b"0", b"1", b"2", b"3", b"4", b"5"]


@pytest.mark.virtual_time("it tries until a deadline")
@pytest.mark.parametrize(
    ("code", "patience_s", "why"),
    [
        (ErrorCode.CORRUPT_MESSAGE, 3.0, "the bytes there on its disk have changed, and no replica in sync has mended them"),
        (ErrorCode.KAFKA_STORAGE_ERROR, 20.0, "the bytes there on its disk have changed or cannot be read, and it has not mended them yet"),
    ],
)
def test_a_place_that_stays_unreadable_is_told_with_its_node_its_offset_and_what_to_do(
    code: ErrorCode, patience_s: float, why: str
):
    async def scenario(env: SimEnv):
        told = []
        async with pretend_node(node_id=7) as node:
            five_in_two_batches(node)
            settings = {"patience_s": 20.0, "corrupt_patience_s": 3.0, "on_trouble": lambda *trouble: told.append(trouble)}
            async with reading(env, node, at_offset(3), is_following=True, **settings) as reader:
                node.fetch_script.extend([code] * 10_000)
                began = env.now()
                with pytest.raises(GaveUp) as ended:
                    await reader.read()
                return told, ended.value, env.now() - began

    told, ended, lasted_s = virtually(scenario)
    problem = f"node 7 cannot read orders-0 at offset 3 ({code.name}): {why}"
    assert (told[0][0].problem, told[0][1]) == (problem, 0.0), "at once"
    assert ended.problem == f"read orders-0: gave up after {patience_s:g} s. {problem}"
    assert "penstock cluster scrub --topic orders" in ended.advice
    assert "penstock cluster lead NODE --topic orders --partition 0" in ended.advice
    assert "penstock consume orders --partition 0 --from 4" in ended.advice
    assert patience_s <= lasted_s < patience_s + 3.0


def test_a_reader_follows_the_leader_to_another_node(on_loop):
    async def scenario(env):
        async with pretend_node(node_id=1) as old, pretend_node(node_id=2) as new:
            nodes = {1: old.peer.address, 2: new.peer.address}
            old.nodes, new.nodes = nodes, nodes
            old.store(b"0")
            new.store(b"0")
            new.store(b"1")
            async with reading(env, old, FROM_EARLIEST, is_following=True) as reader:
                seen = [await next_value(reader)]
                old.leaders[0] = new.leaders[0] = 2
                old.leader_epoch = new.leader_epoch = 1
                old.fetch_script.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 50)
                seen.append(await next_value(reader))
                return seen, new.peer.of(ApiKey.FETCH)[0].body.topics[0].partitions[0].current_leader_epoch

    assert on_loop(scenario) == ([b"0", b"1"], 1)


@pytest.mark.virtual_time("it moves time by hand")
def test_a_partition_in_trouble_does_not_hold_up_the_others():
    async def scenario(env):
        async with pretend_node(node_id=1, partitions=2) as good, pretend_node(node_id=2, partitions=2) as bad:
            nodes = {1: good.peer.address, 2: bad.peer.address}
            good.nodes, bad.nodes = nodes, nodes
            good.leaders = bad.leaders = {0: 1, 1: 2}
            bad.fetch_script.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000)
            async with reading(env, good, FROM_EARLIEST, FROM_EARLIEST, is_following=True) as reader:
                seen = []
                for number in range(20):
                    good.store(b"%d" % number)
                    seen.append(await next_value(reader))
                    await asyncio.sleep(0.005)
                bad.store(b"at last", partition=1)
                bad.fetch_script.clear()
                seen.append(await next_value(reader))
                return seen

    assert virtually(scenario) == [b"%d" % number for number in range(20)] + [b"at last"]


@pytest.mark.virtual_time("it tries until a deadline")
def test_trouble_that_does_not_pass_ends_the_reader():
    async def scenario(env):
        async with pretend_node() as node:
            node.store(b"0")
            node.fetch_script.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 10_000)
            async with reading(env, node, FROM_EARLIEST, patience_s=20) as reader:
                await reader.read()

    with pytest.raises(GaveUp, match=r"read orders-0: gave up after 20 s.*NOT_LEADER_OR_FOLLOWER"):
        virtually(scenario)


@pytest.mark.virtual_time("a deadline must expire")
@pytest.mark.parametrize("keeps_sessions", [True, False])
def test_an_end_that_is_gone_is_not_awaited_for_ever(keeps_sessions: bool):
    async def scenario(env):
        async with pretend_node() as node:
            node.keeps_sessions = keeps_sessions
            five_in_two_batches(node)
            async with reading(env, node, FROM_EARLIEST, patience_s=20) as reader:
                del node.batches[0][1]
                await reader.read()
                await reader.read()

    with pytest.raises(OffsetLost, match="orders-0: it reached to offset 5 when reading began, and now there is nothing from 3 on"):
        virtually(scenario)


def test_a_final_refusal_ends_the_reader_at_once(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            node.store(b"0")
            node.fetch_script.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            async with reading(env, node, FROM_EARLIEST) as reader:
                await reader.read()

    with pytest.raises(Refused, match="TOPIC_AUTHORIZATION_FAILED"):
        on_loop(scenario)


def test_a_topic_that_was_made_again_ends_the_reader(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            node.store(b"0")
            async with reading(env, node, FROM_EARLIEST, is_following=True) as reader:
                await next_value(reader)
                node.topic_id = b"\x09" * 16
                node.fetch_script.append(ErrorCode.UNKNOWN_TOPIC_ID)
                await reader.read()

    with pytest.raises(OffsetLost, match="deleted and made again"):
        on_loop(scenario)


@pytest.mark.virtual_time("it moves time by hand")
def test_cancelling_a_read_loses_nothing():
    async def scenario(env):
        async with pretend_node() as node, reading(env, node, FROM_EARLIEST, is_following=True) as reader:
            seen = []
            for number in range(10):
                waiting = asyncio.create_task(reader.read())
                await asyncio.sleep(0.001 * (number % 3))
                waiting.cancel()
                node.store(b"%d" % number)
                if (await asyncio.gather(waiting, return_exceptions=True))[0] == []:
                    raise AssertionError("a follower never ends")
                if not waiting.cancelled():
                    seen += [record.value for record in waiting.result()]
            while len(seen) < 10:
                async with virtual_timeout(5):
                    seen += [record.value for record in await reader.read()]
            return seen

    assert virtually(scenario) == [b"%d" % number for number in range(10)]


@pytest.mark.virtual_time("it moves time by hand")
def test_the_next_answer_is_on_its_way_while_records_are_used():
    async def scenario(env):
        async with pretend_node() as node:
            node.store(b"0")
            async with reading(env, node, FROM_EARLIEST, is_following=True) as reader:
                await reader.read()
                await until_async(lambda: len(node.peer.of(ApiKey.FETCH)) == 2)
                node.store(b"1")
                await asyncio.sleep(100)
                return len(node.peer.of(ApiKey.FETCH))

    assert virtually(scenario) == 2, "one ahead, and no more"


def test_leaving_at_the_end_closes_the_session(on_loop):
    async def scenario(env):
        async with pretend_node() as node:
            node.keeps_sessions = True
            node.store(b"0")
            async with reading(env, node, FROM_EARLIEST) as reader:
                await values_of(reader)
            return node.session_epochs

    assert on_loop(scenario) == [(0, 0), (5, -1)]


def test_what_is_not_there_is_told_before_anything_is_read(on_loop):
    async def scenario(env):
        async with pretend_node() as node, Client(env, [node.peer.address]) as client:
            with pytest.raises(UnknownTopic):
                await Reader(client, {TopicPartition("nothing", 0): FROM_EARLIEST}).start()
            with pytest.raises(PeerFailure, match="topic 'orders' has no partition 1: it has 1, counted from 0"):
                await Reader(client, {TopicPartition(TOPIC, 1): FROM_EARLIEST}).start()

    on_loop(scenario)
