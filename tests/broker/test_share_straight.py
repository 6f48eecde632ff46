"""The usual share fetch is decided and answered without a task of its own: what it hears is what any other hears.

A session with an idle partition beside the other one takes the general way.
"""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from serving import Serving, patient_ms, patient_s
from share_members import ACCEPT, REJECT, RELEASE, ShareMember, acquired, configure, known, opened
from tiers import pick
from waiting import PATIENCE_MS, until_async

from penstock.broker.shares.acquiring import Lots, Taking
from penstock.errors import ErrorCode
from penstock.queues.replies import Delivery, Taken
from penstock.vocabulary import TopicId
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

GAP = 0


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=1, slow=3)))
async def test_both_ways_tell_the_same(serving: Serving, seed: int) -> None:
    rng = random.Random(seed)
    line, straight_id = await opened(serving, "straight", group_share_min_locks=1)
    general_id = await line.create("general", 2)
    await known(line, "straight", "general")
    await configure(line, "g", {"share.delivery.count.limit": "4", "share.partition.max.record.locks": "12"})
    pairs = []
    for name in ("one", "other"):
        one = ShareMember(await serving.line(), straight_id, name)
        pairs.append((one, ShareMember(await serving.line(), general_id, f"{name}, too", partitions=(0, 1))))
    held: dict[str, list[int]] = {"one": [], "other": []}
    for _ in range(60):
        values = [b"%d" % rng.randrange(1_000) for _ in range(rng.randrange(5))]
        if values:
            for topic in ("straight", "general"):
                await line.produce(topic, *values)
        pair, records_max = rng.choice(pairs), rng.randrange(1, 8)
        mine = held[pair[0].names["member_id"]]
        acks = {0: list(_said(rng, mine))} if pair[0].epoch and mine else None
        bytes_max = rng.choice((1, 100, 1 << 20))
        straight, general = [_told(await member.fetch(acks, records_max=records_max, max_bytes=bytes_max)) for member in pair]
        assert straight == general
        mine[:] = [*mine, *straight[1]] if straight[0] or rng.random() < 0.2 else list(straight[1])


def _said(rng: random.Random, held: list[int]) -> Iterator[tuple[int, int, list[int]]]:
    """Mostly that all of it is accepted; now and then something else, or of what is not held any more."""
    offsets = sorted(set(held))
    while offsets:
        end = 1
        while end < len(offsets) and offsets[end] == offsets[0] + end and rng.random() < 0.9:
            end += 1
        kind = rng.choices((ACCEPT, RELEASE, REJECT, GAP), (30, 2, 1, 1))[0]
        types = [ACCEPT] * end if rng.random() < 0.2 else [rng.choice((kind, ACCEPT)) for _ in range(end)] if rng.random() < 0.1 else [kind]
        yield offsets[0], offsets[end - 1], types
        del offsets[:end]


def _told(answer: Any) -> tuple[int, dict[int, tuple[bytes, int]]]:
    assert answer.error_code == 0
    rows = [row for topic in answer.responses for row in topic.partitions]
    assert [(row.partition_index, row.error_code) for row in rows] in ([], [(0, 0)])
    return (rows[0].acknowledge_error_code, acquired(rows[0])) if rows else (0, {})


async def test_both_are_flushed_at_once(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a", b"b", b"c")
    member = ShareMember(await serving.line(), topic_id)
    assert sorted(await member.take(records_max=2)) == [0, 1]
    rounds = serving.node.flusher.rounds_done
    assert sorted(await member.take({0: [(0, 1, [ACCEPT])]})) == [2]
    assert serving.node.flusher.rounds_done == rounds + 1


async def test_members_who_come_together_hear_each_of_their_own(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", *(b"%d" % each for each in range(40)))
    members = [ShareMember(await serving.line(), topic_id, f"m{each}") for each in range(4)]
    held = [sorted(await member.take(records_max=3)) for member in members]
    said = [[(offsets[0], offsets[-1], [ACCEPT])] for offsets in held]
    said[1] = [(held[2][0], held[2][0], [ACCEPT])]  # Another one's.
    for member, each in zip(members, said, strict=True):
        member.send({0: each}, records_max=3)
    rows = [(await member.receive()).responses[0].partitions[0] for member in members]
    assert [row.acknowledge_error_code for row in rows] == [0, ErrorCode.INVALID_RECORD_STATE, 0, 0]
    taken = [offset for row in rows for offset in acquired(row)]
    assert sorted(taken) == list(range(12, 24))
    again = await members[2].fetch({0: [(held[2][0], held[2][-1], [ACCEPT])]}, records_max=1)
    assert again.responses[0].partitions[0].acknowledge_error_code == ErrorCode.INVALID_RECORD_STATE, "it was done before"
    assert await members[1].outcomes((held[1][0], held[1][-1], [ACCEPT])) == ErrorCode.NONE, "it has kept what it held"


async def test_a_member_that_does_not_wait_for_its_answers_is_answered_in_order(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a", b"b", b"c", b"d")
    member = ShareMember(line, topic_id)
    await member.take(records_max=1)
    for offset in (0, 7):
        member.send({0: [(offset, offset, [ACCEPT])]}, records_max=1)
        member.epoch += 1
    first, second = [(await member.receive()).responses[0].partitions[0] for _ in range(2)]
    assert (first.acknowledge_error_code, acquired(first)) == (ErrorCode.NONE, {1: (b"b", 1)})
    assert (second.acknowledge_error_code, acquired(second)) == (ErrorCode.INVALID_RECORD_STATE, {2: (b"c", 1)})


async def test_what_was_taken_for_one_who_is_gone_goes_back(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    one, other = ShareMember(await serving.line(), topic_id), ShareMember(line, topic_id, "other")
    await one.take()
    await other.take()
    await line.produce("t", b"a", b"b")
    serving.env.disk.flushes.hold()
    one.send()
    await serving.env.disk.flushes.until_waited_for()
    one.line.close()
    await until_async(lambda: len(serving.node.shares.sessions) == 1)
    serving.env.disk.flushes.let_go()
    assert await other.take(wait_ms=patient_ms(8_000)) == {0: (b"a", 2), 1: (b"b", 2)}, "they may have been on their way"


async def test_records_that_are_not_at_hand_are_read_from_the_disk(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a")
    one, other = ShareMember(await serving.line(), topic_id), ShareMember(await serving.line(), topic_id, "other")
    assert await one.take(records_max=1) == {0: (b"a", 1)}
    await line.produce("t", b"b")
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    one.send({0: [(0, 0, [ACCEPT])]})
    await serving.env.disk.cold_reads.until_waited_for()
    assert await one.line.is_silent()
    serving.env.disk.cold_reads.let_go()
    assert acquired((await one.receive()).responses[0].partitions[0]) == {1: (b"b", 1)}
    serving.env.disk.is_cold = False
    await line.produce("t", b"c")
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    one.send({0: [(1, 1, [ACCEPT])]})
    await serving.env.disk.cold_reads.until_waited_for()
    one.line.close()
    await until_async(lambda: not len(serving.node.shares.sessions))
    serving.env.disk.cold_reads.let_go()
    assert await other.take(wait_ms=patient_ms(8_000)) == {2: (b"c", 2)}


async def test_acknowledgements_are_told_when_nothing_comes(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a")
    member = ShareMember(line, topic_id)
    await member.take()
    for code, offset in ((ErrorCode.NONE, 0), (ErrorCode.INVALID_RECORD_STATE, 1)):
        row = (await member.fetch({0: [(offset, offset, [ACCEPT])]}, wait_ms=20)).responses[0].partitions[0]
        assert (row.acknowledge_error_code, row.acquired_records) == (code, ())


async def test_what_was_read_ahead_is_given_to_others_and_let_go_when_nobody_wants_it(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    for value in (b"a", b"b", b"c", b"d"):
        await line.produce("t", value)
    one, other = ShareMember(await serving.line(), topic_id), ShareMember(await serving.line(), topic_id, "other")
    assert await one.take(records_max=1) == {0: (b"a", 1)}
    serving.env.disk.is_cold = True
    serving.env.disk.cold_reads.hold()
    assert await other.take(records_max=2) == {1: (b"b", 1), 2: (b"c", 1)}, "without a look at the disk"
    assert await other.take({0: [(1, 2, [RELEASE])]}, records_max=1) == {1: (b"b", 2)}, "though it lies further back"
    queue = serving.node.ledgers.find(TopicId(topic_id), 0)
    assert queue is not None
    assert serving.node.reply_room.bytes_taken > 0
    for _ in range(2):
        queue.stored.let_go_if_idle()
    assert serving.node.reply_room.bytes_taken == 0
    serving.env.disk.cold_reads.let_go()
    assert sorted(await one.take()) == [2, 3]


async def test_what_the_log_has_lost_is_not_given_from_memory(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    for value in (b"a", b"b", b"c"):
        await line.produce("t", value)
    member = ShareMember(line, topic_id)
    assert await member.take(records_max=1) == {0: (b"a", 1)}
    answer = await line.ask(
        ApiKey.DELETE_RECORDS, topics=[{"name": "t", "partitions": [{"partition_index": 0, "offset": 2}]}], timeout_ms=PATIENCE_MS
    )
    assert answer.topics[0].partitions[0].error_code == 0
    assert await member.take(wait_ms=patient_ms(1_000)) == {2: (b"c", 1)}


async def test_records_of_a_ledger_that_is_gone_are_given_to_nobody(serving: Serving) -> None:
    queues = (await serving.open()).queues
    await queues.create("left", {})
    queue = serving.node.ledgers.find(queues.describe("left").topic_id, 0)
    assert queue is not None
    serving.node.ledgers.partition_left(queue.data)
    taking = Taking([queue], "g", "member", count=1, bytes_max=1_000, wait_s=patient_s(1.0), taken=Taken((Delivery(0, 1, 1, 1 << 50, 0),)))
    lots = Lots()
    await taking.into(lots)
    assert lots == []
