"""Callers who come in the same turn of the loop share a decision, and each of them gets what it would have got alone."""

import asyncio
from itertools import pairwise

import pytest
from broker.queues.test_queue_life import QUEUE, opened, sent
from serving import Serving, patient_s

from penstock.broker.memory import HeldReply
from penstock.broker.queues import plain_sending
from penstock.broker.queues.bodies import Bodies
from penstock.broker.queues.calls import QUEUE_GROUP, Code, Draft, Lent, Order, Outcome, QueueRefusal, Sent, Verb
from penstock.broker.queues.facade import Queues
from penstock.broker.queues.finishers import Finishers
from penstock.broker.queues.leading import QueuePartition
from penstock.errors import ErrorCode
from penstock.queues.commands import COUNT_MAX
from penstock.queues.ids import OFFSET_MAX, receipt_handle
from penstock.settings import MIB
from penstock.simulator.knobs import replaced
from penstock.wire.batches import BatchHeader, read_header

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("queues.batched-callers-isolated")


def partition_of(serving: Serving) -> QueuePartition:
    found = serving.node.ledgers.find(serving.node.queues.describe(QUEUE).topic_id, 0)
    assert found is not None
    return found


def batches_of(serving: Serving) -> list[BatchHeader]:
    log, found, position = partition_of(serving).data.log, list[BatchHeader](), 0
    content = bytes(log.read(0, bytes_max=1 << 20, end_offset=log.end_offset) or b"")
    while position < len(content):
        found.append(read_header(memoryview(content), position))
        position += found[-1].size
    return found


def bodies(lent: list[Lent]) -> list[bytes]:
    return [each.body for each in lent]


async def taken_together(queues: Queues, *counts: int, **wishes: str) -> list[list[Lent]]:
    return await asyncio.gather(*(queues.take(QUEUE, count, lease_ms=60_000, **wishes) for count in counts))


async def test_senders_share_one_batch_and_get_their_ids_in_the_order_in_which_they_came(serving: Serving) -> None:
    queues = await opened(serving)
    parts = await asyncio.gather(*(queues.send(QUEUE, [Draft(body)] * count) for count, body in ((2, b"a"), (1, b"b"), (3, b"c"))))
    offsets = [[each.offset for each in part if isinstance(each, Sent)] for part in parts]
    assert offsets == [[0, 1], [2], [3, 4, 5]]
    assert [header.record_count for header in batches_of(serving)] == [6]
    assert bodies(await queues.take(QUEUE, 9)) == [b"a", b"a", b"b", b"c", b"c", b"c"]


async def test_senders_whose_messages_do_not_fit_into_one_batch_have_several(serving: Serving) -> None:
    queues = await opened(serving, max_message_bytes="2000")
    parts = await asyncio.gather(*(queues.send(QUEUE, [Draft(b"%d" % number * 900)]) for number in range(5)))
    assert [each.offset for part in parts for each in part if isinstance(each, Sent)] == [0, 1, 2, 3, 4]
    assert [header.record_count for header in batches_of(serving)] == [2, 2, 1]
    (refused,) = (await asyncio.gather(queues.send(QUEUE, [Draft(b"x" * 3_000)]), queues.send(QUEUE, [Draft(b"y")])))[0]
    assert isinstance(refused, QueueRefusal)
    assert refused.code is Code.TOO_LARGE


async def test_the_limit_of_a_queue_refuses_only_those_for_whom_there_is_no_room(serving: Serving) -> None:
    queues = await opened(serving, queue_ready_max="4")
    parts = await asyncio.gather(*(queues.send(QUEUE, [Draft(b"x")] * 2) for _ in range(3)))
    assert [[isinstance(each, Sent) for each in part] for part in parts] == [[True, True], [True, True], [False, False]]


async def test_senders_with_options_and_without_each_go_their_way(serving: Serving) -> None:
    queues = await opened(serving)
    drafts = [Draft(b"plain"), Draft(b"urgent", priority=9), Draft(b"plain")]
    await asyncio.gather(*(queues.send(QUEUE, [draft]) for draft in drafts))
    assert bodies(await queues.take(QUEUE, 9)) == [b"urgent", b"plain", b"plain"]


async def test_takers_share_one_record_and_get_their_parts_in_the_order_in_which_they_came(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, *(b"%d" % number for number in range(9)))
    before = partition_of(serving).companion.log.end_offset
    parts = await taken_together(queues, 2, 3, 1, 2)
    assert [bodies(part) for part in parts] == [[b"0", b"1"], [b"2", b"3", b"4"], [b"5"], [b"6", b"7"]]
    assert partition_of(serving).companion.log.end_offset == before + 1, "one record for all of them"
    leases = [each.handle for part in parts for each in part]
    assert len(set(leases)) == 8


async def test_who_finds_nothing_left_gets_nothing_or_waits_for_the_next(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"0", b"1", b"2")
    waiting = asyncio.ensure_future(
        asyncio.gather(queues.take(QUEUE, 2), queues.take(QUEUE, 2), queues.take(QUEUE, 2, wait_s=patient_s(20.0)))
    )
    asked_once = asyncio.ensure_future(queues.take(QUEUE, 2))
    assert await asked_once == []
    await sent(queues, b"3")
    assert [bodies(part) for part in await waiting] == [[b"0", b"1"], [b"2"], [b"3"]]


async def test_the_limit_of_what_is_lent_holds_for_all_of_them_together(serving: Serving) -> None:
    queues = await opened(serving, queue_inflight_max="3", queue_inflight_refuse="true")
    await sent(queues, *(b"%d" % number for number in range(6)))
    parts = await asyncio.gather(*(queues.take(QUEUE, 2) for _ in range(3)), return_exceptions=True)
    first, second, third = parts
    assert isinstance(first, list)
    assert isinstance(second, list)
    assert bodies(first) + bodies(second) == [b"0", b"1", b"2"]
    assert isinstance(third, QueueRefusal)
    assert third.code is Code.IN_FLIGHT_LIMIT


async def test_takers_with_other_wishes_get_their_own_leases(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, *(b"%d" % number for number in range(4)))
    ways = [(60_000, "anna"), (60_000, "bert"), (120_000, "bert"), (None, "bert")]
    parts = await asyncio.gather(*(queues.take(QUEUE, 1, lease_ms=lease_ms, who=who) for lease_ms, who in ways))
    assert [bodies(part) for part in parts] == [[b"0"], [b"1"], [b"2"], [b"3"]]
    peeked = await queues.peek(QUEUE, count=4)
    assert [each.who for each in peeked] == ["anna", "bert", "bert", "bert"]
    assert parts[2][0].deadline_ms - parts[1][0].deadline_ms == pytest.approx(60_000, abs=50)


async def test_one_who_hangs_up_before_its_part_is_durable_gives_it_back_and_the_others_keep_theirs(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"0", b"1", b"2")
    serving.env.disk.flushes.hold()
    takers = [asyncio.ensure_future(queues.take(QUEUE, 1)) for _ in range(3)]
    await serving.env.disk.flushes.until_waited_for()
    takers[1].cancel()
    serving.env.disk.flushes.let_go()
    assert [bodies(await takers[at]) for at in (0, 2)] == [[b"0"], [b"2"]]
    (back,) = await queues.take(QUEUE, 1, wait_s=patient_s(5.0))
    assert (back.body, back.attempt) == (b"1", 1)


async def test_one_who_hangs_up_before_the_decision_takes_nothing(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"0", b"1")
    gone, stays = (asyncio.ensure_future(queues.take(QUEUE, 1)) for _ in range(2))
    await asyncio.sleep(0)  # Both have asked.
    gone.cancel()
    assert bodies(await stays) == [b"0"]


async def test_takers_of_a_fifo_queue_never_share_a_group(serving: Serving) -> None:
    queues = await opened(serving, queue_fifo="true")
    drafts = [Draft(b"%d" % number, group="abc"[number % 3], dedup=f"{number}") for number in range(12)]
    await queues.send(QUEUE, drafts)
    groups = [{int(each.body) % 3 for each in part} for part in await taken_together(queues, 3, 3, 3, 3)]
    assert all(one.isdisjoint(other) for one, other in pairwise(groups)), groups
    assert set.union(*groups) == {0, 1, 2}


async def test_what_goes_wrong_in_a_round_is_told_to_its_callers_and_stops_nobody_else(serving: Serving) -> None:
    """Reading for all of them fails: each reads for itself. Appending fails: each sender hears of it, and takers are served."""

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("something that nobody thought of")

    queues = await opened(serving)
    await sent(queues, b"0", b"1", b"2")
    with replaced([(Bodies, "at_hand", fails)]):
        assert [bodies(part) for part in await taken_together(queues, 1, 1)] == [[b"0"], [b"1"]]
    with replaced([(plain_sending, "append", fails)]):
        callers = [queues.send(QUEUE, [Draft(b"3")]), queues.send(QUEUE, [Draft(b"4")]), queues.take(QUEUE, 1)]
        first, second, lent = await asyncio.gather(*callers, return_exceptions=True)
    assert [type(each) for each in (first, second)] == [RuntimeError, RuntimeError]
    assert bodies(lent) == [b"2"]
    assert bodies(await queues.take(QUEUE, 1)) == []


async def test_large_messages_are_seen_to_one_by_one(serving: Serving) -> None:
    """What does not fit into one look is read by each of them as ever."""
    queues = await opened(serving, max_message_bytes="4000000")
    content = [b"%d" % number * 900_000 for number in range(9)]
    for each in content:
        await sent(queues, each)
    parts = await taken_together(queues, 3, 3, 3)
    got = sorted(body for part in parts for body in bodies(part))
    while len(got) < len(content):  # What was too much for one answer went back.
        got = sorted(got + bodies(await queues.take(QUEUE, 9, lease_ms=60_000, wait_s=patient_s(5.0))))
    assert got == content


async def test_those_who_finish_share_one_record_and_hear_of_their_own(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, *(b"%d" % number for number in range(6)))
    lent = await queues.take(QUEUE, 6, lease_ms=60_000)
    before = partition_of(serving).companion.log.end_offset
    done = [[Order(each.handle, Verb.DONE) for each in part] for part in (lent[:2], lent[2:5], lent[1:2], lent[5:])]
    verdicts = await asyncio.gather(*(queues.settle(QUEUE, orders) for orders in done))
    ok, gone = Outcome.OK, Outcome.GONE
    assert [[each.outcome for each in some] for some in verdicts] == [[ok, ok], [ok, ok, ok], [gone], [ok]]
    assert partition_of(serving).companion.log.end_offset == before + 1
    assert (await queues.counts(QUEUE)).leased == 0


@pytest.mark.parametrize("offset", [-10_000_000, -1, OFFSET_MAX, -(2**63)])
async def test_one_who_forges_a_handle_harms_nobody_who_finishes_in_the_same_round(serving: Serving, offset: int) -> None:
    queues = await opened(serving)
    await sent(queues, b"0", b"1")
    first, second = await queues.take(QUEUE, 2, lease_ms=60_000)
    forged = receipt_handle(queues.describe(QUEUE).topic_id, 0, offset, 1, QUEUE_GROUP)
    handles = first.handle, forged, second.handle
    verdicts = await asyncio.gather(*(queues.settle(QUEUE, [Order(handle, Verb.DONE)]) for handle in handles))
    assert [verdict.outcome for (verdict,) in verdicts] == [Outcome.OK, Outcome.UNKNOWN, Outcome.OK]


async def test_what_is_wrong_with_one_settlement_is_told_to_its_caller_alone(serving: Serving) -> None:
    """Whatever it is: those who came with it are settled by themselves."""
    queues = await opened(serving)
    await sent(queues, b"0", b"1")
    lent = await queues.take(QUEUE, 2, lease_ms=60_000)
    rounds = partition_of(serving).rounds
    none_of_them = rounds.finish(QUEUE_GROUP, [])
    heard = [rounds.finish(QUEUE_GROUP, [(each.offset, lease)]) for lease, each in enumerate(lent, 1)]
    too_many = Finishers(QUEUE_GROUP, rounds._submit)
    odd = [too_many.add([(0, 1)] * (COUNT_MAX + 1)), too_many.add([(0, 99)])]
    rounds._submit(too_many)
    with pytest.raises(QueueRefusal):
        await odd[0]
    assert [each.code.name for each in await odd[1]] in (["LOST"], ["GONE"])
    assert await none_of_them == ()
    assert [each.code.name for one in heard for each in await one] == ["OK", "OK"]


async def test_takers_of_several_rounds_that_one_flush_tells_share_the_room_for_replies(serving: Serving) -> None:
    node = await serving.open(memory_bytes_max=160 * MIB)
    queues = node.queues
    await queues.create(QUEUE, {"max.message.bytes": "3000000"})
    for number in range(200):
        await queues.send(QUEUE, [Draft(bytes([number]) * 250_000)])
    held = [HeldReply(node.reply_room) for _ in range(20)]
    parts = await asyncio.gather(
        *(queues.take(QUEUE, 10, lease_ms=60_000, who=f"worker-{number}", held=each) for number, each in enumerate(held))
    )  # fmt: skip
    given = sum(len(each.body) for part in parts for each in part)
    assert given <= node.reply_room.bytes_taken < node.reply_room.bytes_max * 1.2
    for each in held:
        each.let_go()
    assert node.reply_room.bytes_taken <= MIB  # What was read ahead.


async def test_more_than_one_decision_takes_are_several(serving: Serving) -> None:
    queues = await opened(serving)
    for _ in range(3):
        await queues.send(QUEUE, [Draft(b"x")] * 800)
    parts = await taken_together(queues, 800, 800, 800)
    assert [len(part) for part in parts] == [800, 800, 800]
    verdicts = await asyncio.gather(*(queues.settle(QUEUE, [Order(each.handle, Verb.DONE) for each in part]) for part in parts))
    assert all(each.outcome is Outcome.OK for some in verdicts for each in some)


async def test_a_ledger_that_fails_meanwhile_is_told_to_everybody(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"0", b"1", b"2")
    (lent,) = await queues.take(QUEUE, 1, lease_ms=60_000)
    serving.env.disk.flushes.hold()
    callers = [asyncio.ensure_future(queues.take(QUEUE, 1)) for _ in range(2)]
    callers += [asyncio.ensure_future(queues.settle(QUEUE, [Order(lent.handle, Verb.DONE)])) for _ in range(2)]
    await serving.env.disk.flushes.until_waited_for()
    partition_of(serving).coordinator.log_failed("the disk is broken")
    assert partition_of(serving).coordinator.unavailable is ErrorCode.NOT_COORDINATOR
    for taker in callers[:2]:
        with pytest.raises(QueueRefusal, match="the disk is broken"):
            await taker
    for finisher in callers[2:]:
        (verdict,) = await finisher
        assert verdict.refusal is not None
        assert "the disk is broken" in str(verdict.refusal)
    serving.env.disk.flushes.let_go()
