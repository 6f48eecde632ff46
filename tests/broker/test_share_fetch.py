"""Share fetches at a node: records lent and settled, sessions, waiting, what is refused, and what outlives a restart."""

import asyncio
from typing import Any

import pytest
from serving import Line, Serving, batch, patient_ms
from share_members import ACCEPT, REJECT, RELEASE, RENEW, ShareMember, acquired, configure, known, opened
from waiting import until_async

from penstock.broker.queues.calls import QUEUE_GROUP, Draft, Order, Outcome, Sent, Verb
from penstock.broker.shares import ledger_calls
from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("share.one-holder")

QUICK_LOCKS: dict[str, Any] = {"group_share_record_lock_ms": 300, "group_share_min_record_lock_ms": 1}


async def test_records_are_lent_once_with_their_delivery_count_and_done_when_accepted(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a", b"b", b"c")
    one, other = ShareMember(line, topic_id), ShareMember(await serving.line(), topic_id, "other")
    assert await one.take() == {0: (b"a", 1), 1: (b"b", 1), 2: (b"c", 1)}
    assert await other.take() == {}
    assert await one.take({0: [(0, 1, [ACCEPT]), (2, 2, [RELEASE])]}) == {2: (b"c", 2)}
    assert await one.outcomes((2, 2, [ACCEPT])) == ErrorCode.NONE
    assert await other.take() == {}


async def test_two_members_share_a_partition_and_no_record_is_given_twice(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", *(b"%d" % each for each in range(40)))
    members = [ShareMember(await serving.line(), topic_id, f"m{each}") for each in range(2)]
    seen: list[int] = []
    for _ in range(4):
        for member in members:
            found = await member.take(records_max=5)
            assert len(found) == 5, "never more than were asked for, though they lie in one batch"
            seen += found
    assert sorted(seen) == list(range(40))


async def test_a_type_for_each_record_settles_each_by_its_own(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"accepted", b"released", b"rejected", b"kept")
    member = ShareMember(line, topic_id)
    await member.take()
    assert await member.take({0: [(0, 2, [ACCEPT, RELEASE, REJECT])]}) == {1: (b"released", 2)}
    assert await member.outcomes((0, 0, [ACCEPT])) == ErrorCode.NONE, "what is before everything else that is not done is passed over"
    assert await member.outcomes((2, 2, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert await member.outcomes((3, 3, [ACCEPT])) == ErrorCode.NONE


async def test_acknowledgements_of_a_partition_are_taken_as_a_whole_or_not_at_all(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a", b"b", b"c")
    member = ShareMember(line, topic_id)
    assert sorted(await member.take(records_max=2)) == [0, 1]
    assert await member.outcomes((0, 0, [ACCEPT]), (1, 1, [RELEASE]), (2, 2, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert sorted(await member.take()) == [2], "the first two are held as before"
    assert await member.outcomes((0, 1, [ACCEPT, REJECT]), (2, 2, [ACCEPT])) == ErrorCode.NONE


async def test_who_does_not_hold_a_record_has_nothing_to_say_of_it(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a")
    one, other = ShareMember(line, topic_id), ShareMember(await serving.line(), topic_id, "other")
    await one.take()
    await other.take()
    assert await other.outcomes((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert await other.outcomes((7, 9, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert await one.outcomes((0, 0, [ACCEPT])) == ErrorCode.NONE


@pytest.mark.virtual_time("a lock is renewed before it lapses")
async def test_a_lock_that_lapses_returns_the_record_and_one_that_is_renewed_does_not(serving: Serving) -> None:
    line, topic_id = await opened(serving, **QUICK_LOCKS)
    await line.produce("t", b"lapses")
    one, other = ShareMember(line, topic_id), ShareMember(await serving.line(), topic_id, "other")
    answer = await one.fetch()
    assert answer.acquisition_lock_timeout.total_seconds() == 0.3
    for _ in range(4):
        assert await other.take(wait_ms=150) == {}
        assert await one.outcomes((0, 0, [RENEW]), is_renew_ack=True) == ErrorCode.NONE
    assert await other.take(wait_ms=patient_ms(5_000)) == {0: (b"lapses", 2)}
    assert await one.outcomes((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


async def test_a_record_is_delivered_so_often_and_no_more(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await configure(line, "g", {"share.delivery.count.limit": "2"})
    await line.produce("t", b"poison", b"good")
    member = ShareMember(line, topic_id)
    assert await member.take() == {0: (b"poison", 1), 1: (b"good", 1)}
    assert await member.take({0: [(0, 0, [RELEASE]), (1, 1, [ACCEPT])]}) == {0: (b"poison", 2)}
    assert await member.take({0: [(0, 0, [RELEASE])]}) == {}


async def test_a_fetch_waits_for_records_and_is_answered_at_once_when_they_come(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    member = ShareMember(await serving.line(), topic_id)
    assert await member.take() == {}
    member.send(wait_ms=patient_ms(8_000))
    assert await member.line.is_silent()
    await line.produce("t", b"come")
    assert acquired((await member.receive()).responses[0].partitions[0]) == {0: (b"come", 1)}
    member.send(wait_ms=100)
    assert (await member.receive()).responses == ()


@pytest.mark.parametrize("closes", [True, False])
async def test_what_a_member_holds_goes_back_when_its_session_ends(serving: Serving, closes: bool) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a", b"b")
    one, other = ShareMember(await serving.line(), topic_id), ShareMember(line, topic_id, "other")
    await one.take()
    other.send(wait_ms=patient_ms(8_000))
    if closes:
        answer = await one.acknowledge({0: [(0, 0, [ACCEPT])]}, share_session_epoch=-1)
        assert answer.error_code == ErrorCode.NONE
    else:
        one.line.close()
    found = acquired((await other.receive()).responses[0].partitions[0])
    assert sorted(found) == ([1] if closes else [0, 1])
    assert {count for _, count in found.values()} == {2}, "a member may have died of what it had"
    assert len(serving.node.shares.sessions) == 1


async def test_a_partition_that_is_forgotten_gives_nothing_more_and_what_was_taken_goes_back_at_the_end(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a")
    one, other = ShareMember(await serving.line(), topic_id), ShareMember(line, topic_id, "other")
    await one.take()
    assert await one.take(forgotten_topics_data=[{"topic_id": topic_id, "partitions": [0]}]) == {}
    await line.produce("t", b"b")
    assert await one.take() == {}
    assert await other.take() == {1: (b"b", 1)}
    other.send(wait_ms=patient_ms(8_000))
    one.line.close()
    assert acquired((await other.receive()).responses[0].partitions[0]) == {0: (b"a", 2)}


async def test_share_sessions_are_held_to_their_epochs(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a")
    member = ShareMember(line, topic_id)
    member.epoch = 1
    assert (await member.fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = -1
    assert (await member.acknowledge({})).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.epoch = 0
    assert (await member.fetch({0: [(0, 0, [ACCEPT])]})).error_code == ErrorCode.INVALID_REQUEST, "as Kafka has it"
    assert (await member.acknowledge({0: [(0, 0, [ACCEPT])]})).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH, "and here, too"
    assert len(await member.take()) == 1
    member.epoch = 7
    assert (await member.fetch()).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    member.epoch = 1
    assert await member.take({0: [(0, 0, [RELEASE])]}) == {0: (b"a", 2)}
    member.epoch = 0
    assert await member.take() == {}
    assert await member.outcomes((0, 0, [ACCEPT])) == ErrorCode.NONE, "a session that begins anew leaves the member what it holds"
    assert (await member.fetch(member_id="")).error_code == ErrorCode.INVALID_REQUEST


async def test_there_are_so_many_sessions_and_no_more(serving: Serving) -> None:
    line, topic_id = await opened(serving, group_share_sessions=1)
    one, other = ShareMember(line, topic_id), ShareMember(await serving.line(), topic_id, "other")
    assert (await one.fetch()).error_code == ErrorCode.NONE
    assert (await other.fetch()).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
    one.line.close()
    await until_async(lambda: not len(serving.node.shares.sessions))
    assert (await other.fetch()).error_code == ErrorCode.NONE


def _named(topic_id: bytes, partitions: range) -> dict[str, Any]:
    rows = [{"partition_index": each, "acknowledgement_batches": []} for each in partitions]
    return {"topics": [{"topic_id": topic_id, "partitions": rows}]}


async def test_a_session_that_asks_for_too_much_stays_as_it_was(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a")
    member = ShareMember(line, topic_id)
    assert sorted(await member.take()) == [0]
    for _ in range(2):
        answer = await member.fetch(**_named(topic_id, range(1, 10_001)))
        assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert await member.take({0: [(0, 0, [RELEASE])]}) == {0: (b"a", 2)}, "the epoch stays, and there are no other partitions"
    answer = await member.fetch(share_session_epoch=-1, **_named(topic_id, range(1, 10_001)))
    assert (answer.error_code, len(serving.node.shares.sessions)) == (ErrorCode.NONE, 0)


async def test_partitions_that_come_and_go_without_being_held_never_fill_a_session(serving: Serving) -> None:
    line, topic_id = await opened(serving, partitions=2)
    await line.produce("t", b"a", partition=1)
    one, other = ShareMember(await serving.line(), topic_id, partitions=(1,)), ShareMember(line, topic_id, "other", partitions=(1,))
    assert await one.take() == {0: (b"a", 1)}
    await one.fetch(forgotten_topics_data=[{"topic_id": topic_id, "partitions": [1]}])
    for first in range(2, 20_002, 5_000):
        named = range(first, first + 5_000)
        forgotten = [{"topic_id": topic_id, "partitions": list(named)}]
        for said in (_named(topic_id, named), {"forgotten_topics_data": forgotten}):
            assert (await one.fetch(**said)).error_code == ErrorCode.NONE
    one.line.close()
    assert await other.take(wait_ms=patient_ms(8_000)) == {0: (b"a", 2)}, "what is held where it fetches no more goes back all the same"


async def test_acknowledgements_that_make_no_sense_are_refused(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a", b"b")
    member = ShareMember(line, topic_id)
    await member.take()
    wrong: list[list[tuple[int, int, list[int]]]] = [
        [(1, 0, [ACCEPT])], [(0, 1, [])], [(0, 1, [1, 1, 1])], [(0, 0, [5])], [(0, 0, [-1])], [(0, 0, [RENEW])],
        [(1, 1, [ACCEPT]), (0, 0, [ACCEPT])], [(0, 1, [ACCEPT]), (1, 1, [ACCEPT])], [(0, 99_999, [ACCEPT])],
    ]  # fmt: skip
    for said in wrong:
        assert await member.outcomes(*said) == ErrorCode.INVALID_REQUEST, said
    assert await member.outcomes((0, 1, [ACCEPT])) == ErrorCode.NONE, "nothing of them was done"


async def test_partitions_that_are_not_there_are_told_one_by_one(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a")
    member = ShareMember(line, topic_id, partitions=(0, 5))
    rows = {row.partition_index: row for row in (await member.fetch()).responses[0].partitions}
    assert rows[5].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert acquired(rows[0]) == {0: (b"a", 1)}
    stranger = ShareMember(await serving.line(), bytes(15) + b"x")
    assert (await stranger.fetch()).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


async def test_so_many_records_of_a_partition_are_lent_at_once(serving: Serving) -> None:
    line, topic_id = await opened(serving, group_share_min_locks=1)
    await configure(line, "g", {"share.partition.max.record.locks": "3"})
    await line.produce("t", *(b"%d" % each for each in range(5)))
    member = ShareMember(line, topic_id)
    assert sorted(await member.take()) == [0, 1, 2]
    assert await member.take() == {}
    assert sorted(await member.take({0: [(1, 1, [ACCEPT])]})) == [3]


async def test_a_group_begins_where_it_is_told_to(serving: Serving) -> None:
    line, topic_id = await opened(serving, reset="latest")
    now_ms = serving.env.wall_ms()
    await line.produce_batch("t", batch(b"old", timestamp_ms=now_ms - 7_200_000))
    await line.produce_batch("t", batch(b"new", timestamp_ms=now_ms))
    for group, reset in (("first", "earliest"), ("hour", "by_duration:PT1H"), ("last", "latest")):
        await configure(line, group, {"share.auto.offset.reset": reset})
        await known(line, "t", group=group)
    members = {group: ShareMember(line, topic_id, group=group) for group in ("first", "hour", "last")}
    assert {group: sorted(await member.take()) for group, member in members.items()} == {"first": [0, 1], "hour": [1], "last": []}
    await line.produce("t", b"newest")
    assert sorted(await members["last"].take()) == [2]


async def test_batches_leave_as_they_are_stored_and_those_between_are_left_out(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    stored = [batch(b"%d" % each, b"beside") for each in range(6)]
    for each in stored:
        await line.produce_batch("t", each)
    member = ShareMember(line, topic_id)
    await member.take()
    said = [(0, 2, [ACCEPT]), (3, 3, [RELEASE]), (4, 7, [ACCEPT]), (8, 8, [RELEASE]), (9, 11, [ACCEPT])]
    answer = await member.fetch({0: said})
    row = answer.responses[0].partitions[0]
    assert [(each.first_offset, each.last_offset, each.delivery_count) for each in row.acquired_records] == [(3, 3, 2), (8, 8, 2)]
    assert [bytes(row.records)[at * len(stored[0]) :][61 : len(stored[0])] for at in range(2)] == [stored[1][61:], stored[4][61:]]
    assert len(row.records) == 2 * len(stored[0])


async def test_what_does_not_fit_into_a_reply_is_not_lent(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    for _ in range(4):
        await line.produce("t", bytes(10_000))
    one, other = ShareMember(line, topic_id), ShareMember(await serving.line(), topic_id, "other")
    assert sorted(await one.take(max_bytes=25_000)) == [0, 1]
    assert sorted(await other.take(max_bytes=1)) == [2], "one batch is sent however large it is"
    rest = await other.take()
    assert {offset: count for offset, (_, count) in rest.items()} == {3: 1}, "what was not sent was not delivered"


async def test_locks_and_counts_outlive_a_restart(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"held", b"released", b"done")
    member = ShareMember(line, topic_id)
    await member.take()
    await member.outcomes((2, 2, [ACCEPT]))
    await serving.stop()
    await serving.open(offsets_topic_num_partitions=4)
    line = await serving.line()
    again, other = ShareMember(line, topic_id), ShareMember(await serving.line(), topic_id, "other")
    assert await other.take() == {}, "what is lent is lent still"
    again.epoch = 1
    assert (await again.fetch()).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    again.epoch = 0
    assert await again.take() == {}
    assert await again.take({0: [(0, 0, [ACCEPT]), (1, 1, [RELEASE])]}) == {1: (b"released", 2)}


async def test_records_of_aborted_transactions_are_never_lent(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    answer = await line.ask(ApiKey.FIND_COORDINATOR, key_type=1, coordinator_keys=["tx"])
    assert answer.coordinators[0].error_code == 0
    producer = await line.ask(ApiKey.INIT_PRODUCER_ID, transactional_id="tx", transaction_timeout_ms=60_000)
    names = {"transactional_id": "tx", "producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    member = ShareMember(await serving.line(), topic_id)
    for sequence, (value, committed) in enumerate(((b"never", False), (b"kept", True))):
        assert await _added_to_transaction(line, producer) == ErrorCode.NONE
        fields = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": sequence}
        row = await line.produce_batch("t", batch(value, is_transactional=True, **fields), version=11, transactional_id="tx")
        assert row.error_code == 0
        assert await member.take() == {}
        ended = await line.ask(ApiKey.END_TXN, 4, committed=committed, **names)
        assert ended.error_code == 0
    assert await member.take(wait_ms=patient_ms(5_000)) == {2: (b"kept", 1)}


async def _added_to_transaction(line: Line, producer: Any) -> int:
    while True:
        added = await line.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN, 3,
            v3_and_below_transactional_id="tx", v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.producer_epoch, v3_and_below_topics=[{"name": "t", "partitions": [0]}],
        )  # fmt: skip
        code = int(added.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)
        if code != ErrorCode.CONCURRENT_TRANSACTIONS:  # The one before it is ending.
            return code


async def test_many_members_wait_and_each_record_wakes_one(serving: Serving) -> None:
    line, topic_id = await opened(serving, partitions=2)
    members = [ShareMember(await serving.line(), topic_id, f"m{each}", partitions=(0, 1)) for each in range(4)]
    for member in members:
        await member.take()
        member.send(wait_ms=patient_ms(8_000), records_max=1)
    for each in range(4):
        await line.produce("t", b"%d" % each, partition=each % 2)
    answers = await asyncio.gather(*(member.receive() for member in members))
    rows = [(row.partition_index, offset) for answer in answers for row in answer.responses[0].partitions for offset in acquired(row)]
    assert sorted(rows) == [(0, 0), (0, 1), (1, 0), (1, 1)]


async def test_the_queues_own_group_works_beside_the_queues_other_doors(serving: Serving) -> None:
    line, _ = await opened(serving)
    queues = serving.node.queues
    await queues.create("q", {})
    topic_id = bytes(queues.describe("q").topic_id)
    sent = await queues.send("q", [Draft(b"by share"), Draft(b"by queue")])
    assert all(isinstance(each, Sent) for each in sent)
    member = ShareMember(line, topic_id, group=QUEUE_GROUP)
    assert await member.take(records_max=1) == {0: (b"by share", 1)}
    (lent,) = await queues.take("q", 10)
    assert (lent.body, lent.attempt) == (b"by queue", 1)
    assert await member.outcomes((0, 0, [ACCEPT])) == ErrorCode.NONE
    assert await member.outcomes((1, 1, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    (verdict,) = await queues.settle("q", [Order(lent.handle, Verb.RELEASE, delay_ms=0)])
    assert verdict.outcome is Outcome.OK
    assert await member.take(wait_ms=patient_ms(5_000)) == {1: (b"by queue", 2)}
    queue = serving.node.ledgers.find(queues.describe("q").topic_id, 0)
    assert queue is not None
    await ledger_calls.forget(queue, QUEUE_GROUP)
    counts = await queues.counts("q")
    assert (counts.leased, counts.finished) == (1, 1), "what is in the queue stays when the group is deleted"


async def test_records_leave_when_their_leases_are_durable_and_not_before(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await line.produce("t", b"a")
    member = ShareMember(await serving.line(), topic_id)
    await member.take(max_records=0)
    serving.env.disk.flushes.hold()
    member.send()
    await serving.env.disk.flushes.until_waited_for()
    assert await member.line.is_silent()
    serving.env.disk.flushes.let_go()
    assert acquired((await member.receive()).responses[0].partitions[0]) == {0: (b"a", 1)}
