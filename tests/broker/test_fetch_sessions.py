"""Fetch sessions (KIP-227): a consumer names its partitions once, and hears only of what has changed."""

import asyncio
from collections import Counter
from typing import Any

import pytest
from consuming import Consumer
from serving import Line, Serving, batch, fetch_body, produce_body, records_in, rows_of, started, virtually
from waiting import PATIENCE_MS, until_async

from penstock.broker.collector import Collector
from penstock.broker.fetch_sessions import FetchSession
from penstock.errors import ErrorCode
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("node.recreated-topic-is-new")


async def test_a_full_fetch_answers_all_partitions_and_an_incremental_one_only_those_that_changed(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", 3)
    consumer = Consumer(line)
    rows = await consumer.fetch({"a": {0: 0, 1: 0, 2: 0}})
    assert list(rows) == [("a", 0), ("a", 1), ("a", 2)]
    assert consumer.session_id > 0
    assert await consumer.fetch() == {}
    await line.produce("a", b"x", partition=1)
    rows = await consumer.fetch()
    assert list(rows) == [("a", 1)]
    assert [record.value for record in records_in(rows["a", 1].records)] == [b"x"]
    rows = await consumer.fetch()
    assert list(rows) == [("a", 1)], "sent again until the client says that it has read it"
    assert await consumer.fetch({"a": {1: 1}}) == {}


async def test_a_partition_at_its_end_is_told_of_when_its_watermark_moves(serving: Serving) -> None:
    """A reader ahead of the flush learns how far it may read, without a record."""
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    serving.env.disk.flushes.hold()
    other.send(ApiKey.PRODUCE, **produce_body({"a": {0: batch(b"0")}}))
    await serving.env.disk.flushes.until_waited_for()
    consumer = Consumer(line)
    assert (await consumer.fetch({"a": {0: 1}}))["a", 0].high_watermark == 0
    serving.env.disk.flushes.let_go()
    await other.receive()
    rows = await consumer.fetch()
    assert (rows["a", 0].high_watermark, rows["a", 0].records) == (1, b"")


async def test_partitions_join_move_and_are_forgotten(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", 3)
    await line.create("b")
    for topic, partition in (("a", 0), ("a", 1), ("b", 0)):
        await line.produce(topic, b"0", partition=partition)
        await line.produce(topic, b"1", partition=partition)
    consumer = Consumer(line)
    await consumer.fetch({"a": {0: 0}})
    rows = await consumer.fetch({"a": {0: 1}, "b": {0: 2}})
    assert list(rows) == [("a", 0), ("b", 0)]
    assert [record.value for record in records_in(rows["a", 0].records)] == [b"1"]
    assert await consumer.fetch({}, forgotten={"a": [0], "c": [9]}) == {}
    await line.produce("a", b"2")
    assert await consumer.fetch() == {}, "it is not in the session any more"
    assert list(await consumer.fetch({"a": {0: 0}})) == [("a", 0)], "and may come back"


async def test_the_rules_of_epochs(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    consumer = Consumer(line)
    await consumer.fetch({"a": {0: 0}})
    await consumer.fetch()
    right = consumer.epoch
    for wrong in (right + 1, right - 1, 77):
        consumer.epoch = wrong
        assert await consumer.refusal() == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    consumer.epoch = right
    assert await consumer.fetch() == {}, "a wrong epoch costs the session nothing"
    session_id, consumer.session_id = consumer.session_id, 12345
    assert await consumer.refusal() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    consumer.session_id, consumer.epoch = session_id, -1
    consumer.ask({"a": {0: 0}})
    answer = await line.receive()
    assert (answer.error_code, answer.session_id, list(rows_of(answer))) == (0, 0, [("a", 0)]), "closed, and answered without one"
    assert len(node.fetch_sessions) == 0
    consumer.epoch = right + 1
    assert await consumer.refusal() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_full_fetch_that_names_a_session_takes_its_place(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a", 2)
    consumer = Consumer(line)
    await consumer.fetch({"a": {0: 0, 1: 0}})
    first = consumer.session_id
    consumer.epoch = 0
    await consumer.fetch({"a": {1: 0}})
    assert consumer.session_id != first
    assert len(node.fetch_sessions) == 1
    await line.produce("a", b"x", partition=0)
    assert await consumer.fetch() == {}


async def test_the_epoch_starts_over_at_one_after_the_highest(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    consumer = Consumer(line)
    await consumer.fetch({"a": {0: 0}})
    (session,) = node.fetch_sessions._sessions.values()
    session.epoch = consumer.epoch = (1 << 31) - 1
    await consumer.fetch()
    consumer.epoch = 1
    await consumer.fetch()


async def test_a_session_uses_topic_ids_throughout_or_not_at_all(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    topic_id = await line.create("a")
    by_id, by_name = Consumer(line, version=18), Consumer(line, version=12)
    await by_id.fetch({topic_id: {0: 0}})
    await by_name.fetch({"a": {0: 0}})
    by_id.version, by_name.version = 12, 13
    assert await by_id.refusal() == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert await by_name.refusal() == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    by_id.version, by_name.version = 13, 7
    assert await by_id.fetch() == {}
    assert await by_name.fetch() == {}


async def test_a_session_waits_and_is_woken(serving: Serving) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 2)
    consumer = Consumer(line, max_wait_ms=PATIENCE_MS)
    consumer.ask({"a": {0: 0, 1: 0}})
    assert await line.is_silent()
    await other.produce("a", b"x", partition=1)
    assert list(await consumer.hear()) == [("a", 0), ("a", 1)]
    consumer.ask({"a": {1: 1}})
    assert await line.is_silent()
    await other.produce("a", b"y", partition=0)
    assert list(await consumer.hear()) == [("a", 0)]


@pytest.mark.parametrize("min_bytes", [1, 1_000])
async def test_what_comes_during_a_cold_read_is_not_missed(serving: Serving, min_bytes: int) -> None:
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 2)
    consumer = Consumer(line, max_wait_ms=PATIENCE_MS, min_bytes=min_bytes)
    await consumer.fetch({"a": {0: 0, 1: 0}}, max_wait_ms=0)
    await other.produce("a", bytes(100), partition=0)
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    consumer.ask()
    await serving.env.disk.cold_reads.until_waited_for()
    await other.produce("a", bytes(5_000), partition=1)
    serving.env.disk.is_cold = False
    serving.env.disk.cold_reads.let_go()
    rows = await consumer.hear()
    if min_bytes == 1:
        rows |= await consumer.fetch()
    assert sum(len(row.records) for row in rows.values()) > 5_000


async def test_a_session_has_one_fetch_under_way_at_a_time(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", 2)
    consumer = Consumer(line, max_wait_ms=PATIENCE_MS)
    await consumer.fetch({"a": {0: 0, 1: 0}}, max_wait_ms=0)
    consumer.ask()
    await until_async(lambda: node.metrics.requests["FETCH"] == 2)
    other.send(ApiKey.FETCH, **fetch_body({}, session=(consumer.session_id, consumer.epoch + 1)))
    assert (await other.receive()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    await other.produce("a", bytes(100))
    await consumer.hear()
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    consumer.ask()
    await serving.env.disk.cold_reads.until_waited_for()
    other.send(ApiKey.FETCH, **fetch_body({}, session=(consumer.session_id, consumer.epoch + 1), forgotten={"a": [0]}))
    assert (await other.receive()).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    serving.env.disk.cold_reads.let_go()
    assert list(await consumer.hear()) == [("a", 0)]


async def test_a_session_outlives_the_connection_that_opened_it(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a")
    consumer = Consumer(line, max_wait_ms=PATIENCE_MS)
    await consumer.fetch({"a": {0: 0}}, max_wait_ms=0)
    consumer.ask()
    await until_async(lambda: any(session.under_way is not None for session in node.fetch_sessions._sessions.values()))
    line.close()
    await until_async(lambda: not node.connections)
    consumer.line = other = await serving.line()
    consumer.epoch += 1
    await other.produce("a", b"x")
    assert list(await consumer.fetch()) == [("a", 0)]


# Topics that come and go


async def test_a_topic_that_is_deleted_is_told_and_one_made_again_by_name_is_found(serving: Serving) -> None:
    node = await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a")
    await line.produce("a", b"old")
    consumer = Consumer(line, max_wait_ms=PATIENCE_MS)
    await consumer.fetch({"a": {0: 0}})
    await consumer.fetch({"a": {0: 1}}, max_wait_ms=0)
    old = node.partitions.find("a", 0)
    assert old is not None
    consumer.ask()
    assert await line.is_silent()
    await other.delete("a")
    assert (await consumer.hear())["a", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await consumer.fetch())["a", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert not old.watchers, "nobody keeps the old one"
    await other.create("a")
    assert (await consumer.fetch())["a", 0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    await other.produce("a", b"new")
    rows = await consumer.fetch({"a": {0: 0}})
    assert [record.value for record in records_in(rows["a", 0].records)] == [b"new"]


async def test_an_id_outlives_no_deletion(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    old_id = await line.create("a")
    consumer = Consumer(line, version=18)
    await consumer.fetch({old_id: {0: 0}})
    await line.delete("a")
    new_id = await line.create("a")
    assert new_id != old_id
    assert (await consumer.fetch())[old_id, 0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    rows = await consumer.fetch({new_id: {0: 0}}, forgotten={old_id: [0]})
    assert {place: row.error_code for place, row in rows.items()} == {(new_id, 0): 0}


async def test_an_unknown_topic_is_an_error_until_it_is_there(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    consumer = Consumer(line, max_wait_ms=PATIENCE_MS)
    assert (await consumer.fetch({"a": {0: 0}}))["a", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await consumer.fetch())["a", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    await line.create("a")
    assert (await consumer.fetch(max_wait_ms=0))["a", 0].error_code == 0
    await line.produce("a", b"x")
    assert list(await consumer.fetch()) == [("a", 0)]


# Slots


async def test_without_a_free_slot_a_consumer_goes_without_a_session(serving: Serving) -> None:
    node = await serving.open(fetch_sessions_max=2)
    line = await serving.line()
    await line.create("a")
    consumers = [Consumer(line) for _ in range(3)]
    for consumer in consumers:
        assert list(await consumer.fetch({"a": {0: 0}})) == [("a", 0)]
    assert [consumer.session_id > 0 for consumer in consumers] == [True, True, False]
    assert len(node.fetch_sessions) == 2
    consumers[0].epoch = -1
    await consumers[0].fetch()
    consumers[2].epoch = 0
    await consumers[2].fetch({"a": {0: 0}})
    assert consumers[2].session_id > 0, "a slot was given back"


async def test_no_slots_at_all_is_a_choice(serving: Serving) -> None:
    await serving.open(fetch_sessions_max=0)
    line = await serving.line()
    await line.create("a")
    consumer = Consumer(line)
    assert list(await consumer.fetch({"a": {0: 0}})) == [("a", 0)]
    assert consumer.session_id == 0


def test_a_session_that_was_not_used_for_long_gives_up_its_slot() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, fetch_sessions_max=3)
        line = await Line.open(address)
        await line.create("a")
        silent, refused, waiting = Consumer(line), Consumer(line), Consumer(await Line.open(address), max_wait_ms=1_000_000)
        await silent.fetch({"a": {0: 0}})
        await refused.fetch({"a": {0: 0}})
        waiting.ask({"a": {0: 0}})
        for _ in range(10):
            await asyncio.sleep(11)
            refused.epoch = 99
            assert await refused.refusal() == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        late = Consumer(line)
        await late.fetch({"a": {0: 0}})
        assert late.session_id == 0, "everybody used theirs within two minutes"
        await asyncio.sleep(20)
        slots = []
        for _ in range(3):
            another = Consumer(line)
            await another.fetch({"a": {0: 0}})
            slots.append(another.session_id > 0)
        assert slots == [True, True, False], "the silent one's and the refused one's, not that of the one who waits"
        silent.epoch = 1
        assert await silent.refusal() == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        partition = node.partitions.find("a", 0)
        assert partition is not None and len(partition.watchers) == 3
        await line.produce("a", b"x")
        assert list(await waiting.hear()) == [("a", 0)]

    virtually(scenario)


async def test_sessions_hold_no_more_partitions_than_the_node_can_afford(serving: Serving) -> None:
    node = await serving.open()
    node.fetch_sessions._interests_max = 100
    line = await serving.line()
    await line.create("a")
    small, large = Consumer(line), Consumer(line)
    await small.fetch({"a": {index: 0 for index in range(60)}})
    rows = await large.fetch({"a": {index: 0 for index in range(60)}})
    assert len(rows) == 60 and large.session_id == 0, "served, but without a session"
    await small.fetch({"a": {index: 0 for index in range(60, 100)}})
    assert await small.refusal({"a": {100: 0}}) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(node.fetch_sessions) == 0
    large.epoch = 0
    await large.fetch({"a": {index: 0 for index in range(60)}})
    assert large.session_id > 0, "there is room again"
    await large.fetch({}, forgotten={"a": list(range(50))})
    another = Consumer(line)
    await another.fetch({"a": {index: 0 for index in range(90)}})
    assert another.session_id > 0


# What it costs


async def test_an_append_wakes_only_the_sessions_that_hold_that_partition(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    node = await serving.open()
    woken: Counter[int] = Counter()
    advanced = FetchSession.advanced

    def count(session: FetchSession, *arguments: Any) -> None:
        woken[session.session_id] += 1
        advanced(session, *arguments)

    monkeypatch.setattr(FetchSession, "advanced", count)
    other = await serving.line()
    await other.create("a", 20)
    consumers = []
    for partition in range(20):
        consumer = Consumer(await serving.line(), max_wait_ms=PATIENCE_MS)
        consumer.ask({"a": {partition: 0}})
        consumers.append(consumer)
    both = Consumer(await serving.line(), max_wait_ms=PATIENCE_MS)
    both.ask({"a": {3: 0, 7: 0}})
    await until_async(lambda: sum(len(partition.watchers) for partition in node.partitions) == 22)
    for _ in range(5):
        await other.produce("a", b"x", partition=7)
    await consumers[7].hear()
    await both.hear()
    assert set(woken) == {consumers[7].session_id, both.session_id}


@pytest.mark.parametrize("min_bytes", [1, 200])
async def test_a_fetch_looks_only_at_partitions_that_have_something_to_say(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, min_bytes: int
) -> None:
    node = await serving.open()
    looked: Counter[int] = Counter()
    look = Collector.look

    def count(collector: Collector, interest: Any) -> bool:
        looked[interest.index] += 1
        return look(collector, interest)

    monkeypatch.setattr(Collector, "look", count)
    line, other = await serving.line(), await serving.line()
    await line.create("a", 200)
    consumer = Consumer(line, max_wait_ms=PATIENCE_MS, min_bytes=min_bytes)
    await consumer.fetch({"a": {partition: 0 for partition in range(200)}}, max_wait_ms=0)
    looked.clear()
    for number in range(10):
        consumer.ask({"a": {5: number}})
        await until_async(lambda number=number: node.metrics.requests["FETCH"] == number + 2)  # type: ignore[misc]
        await other.produce("a", bytes(200), partition=5)
        assert list(await consumer.hear()) == [("a", 5)]
    assert set(looked) == {5}
    assert looked[5] <= 20, "once when asked, once when woken"


async def test_when_bytes_run_out_every_partition_has_its_turn(serving: Serving) -> None:
    """The first partition grows as fast as it is read; the others are read all the same."""
    await serving.open()
    line = await serving.line()
    await line.create("a", 3)
    for partition in range(3):
        for _ in range(5):
            await line.produce("a", bytes(1_000), partition=partition)
    consumer = Consumer(line, max_bytes=1_500)
    served: Counter[int] = Counter()
    offsets = dict.fromkeys(range(3), 0)
    rows = await consumer.fetch({"a": offsets})
    for _ in range(12):
        moved = {}
        for (_, partition), row in rows.items():
            if records := records_in(row.records):
                served[partition] += 1
                moved[partition] = offsets[partition] = records[-1].offset + 1
        await line.produce("a", bytes(1_000), partition=0)
        rows = await consumer.fetch({"a": moved})
    assert served == {0: 4, 1: 4, 2: 4}
