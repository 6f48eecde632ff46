"""A message's life on a node: sent, lent, settled; what holds across a restart; what waits, and for how long."""

import asyncio

import pytest
from serving import Serving, patient_s, records_in, rows_of
from waiting import until_async

from penstock.broker.queues.calls import QUEUE_GROUP, Code, Draft, Lent, Order, Outcome, QueueRefusal, Sent, State, Verb
from penstock.broker.queues.facade import Queues
from penstock.broker.trimming import trim
from penstock.queues.ids import message_id
from penstock.vocabulary import Offset
from penstock.wire.batches import Record, encode_batch, read_header

ALL_LOOPS = True

SECOND_MS = 1_000
QUEUE = "emails"


async def opened(serving: Serving, **settings: str) -> Queues:
    node = await serving.open()
    await node.queues.create(QUEUE, {name.replace("_", "."): value for name, value in settings.items()})
    return node.queues


async def sent(queues: Queues, *bodies: bytes, queue: str = QUEUE) -> list[str]:
    results = await queues.send(queue, [Draft(body) for body in bodies])
    assert all(isinstance(each, Sent) for each in results)
    return [each.id for each in results if isinstance(each, Sent)]


async def bodies(queues: Queues, count: int = 10, **options: object) -> list[bytes]:
    return [each.body for each in await queues.take(QUEUE, count, **options)]  # type: ignore[arg-type]


async def settled(queues: Queues, verb: Verb, *lent: Lent, delay_ms: int | None = None, reason: str = "") -> list[Outcome]:
    orders = [Order(each.handle, verb, delay_ms, reason, "worker-1") for each in lent]
    return [verdict.outcome for verdict in await queues.settle(QUEUE, orders)]


async def until_ready(queues: Queues, queue: str, count: int) -> None:
    async def are_ready() -> bool:
        return (await queues.counts(queue)).ready == count

    await until_async(are_ready)


async def until_waiting(serving: Serving, count: int, partition: int = 0) -> None:
    queue = serving.node.ledgers.find(serving.node.queues.describe(QUEUE).topic_id, partition)
    assert queue is not None
    await until_async(lambda: queue.waiting(QUEUE_GROUP) == count)


async def test_a_message_is_lent_once_and_gone_when_it_is_done(serving: Serving) -> None:
    queues = await opened(serving)
    (message_id,) = await sent(queues, b"hello")
    (lent,) = await queues.take(QUEUE, 10, lease_ms=60 * SECOND_MS, who="worker-1")
    assert (lent.id, lent.body, lent.attempt) == (message_id, b"hello", 1)
    assert await queues.take(QUEUE, 10) == []
    found = await queues.find(QUEUE, message_id)
    assert found is not None
    assert (found.state, found.who, found.body) == (State.LEASED, "worker-1", b"hello")
    assert await settled(queues, Verb.DONE, lent) == [Outcome.OK]
    found = await queues.find(QUEUE, message_id)
    assert found is not None
    assert found.state is State.FINISHED
    assert await settled(queues, Verb.DONE, lent) == [Outcome.GONE]
    counts = await queues.counts(QUEUE)
    assert (counts.ready, counts.leased, counts.finished) == (0, 0, 1)


async def test_any_producer_may_send_and_any_consumer_may_read(serving: Serving) -> None:
    queues = await opened(serving)
    line = await serving.line()
    await line.produce(QUEUE, b"from kafka")
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"from kafka"]
    await sent(queues, b"from the queue's door")
    row = rows_of(await line.fetch(QUEUE))[QUEUE, 0]
    assert [record.value for record in records_in(row.records)] == [b"from kafka", b"from the queue's door"]


async def test_leases_and_what_is_done_outlive_a_restart(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"one", b"two", b"three")
    first, second = await queues.take(QUEUE, 2, lease_ms=600 * SECOND_MS)
    await settled(queues, Verb.DONE, first)
    await serving.stop()
    queues = (await serving.open()).queues
    assert await bodies(queues, wait_s=patient_s(1.0)) == [b"three"]
    counts = await queues.counts(QUEUE)
    assert (counts.ready, counts.leased, counts.finished) == (0, 2, 1)
    assert await settled(queues, Verb.DONE, second) == [Outcome.OK]


@pytest.mark.invariant("queues.state-survives-failover")
async def test_a_crash_loses_nothing_that_was_promised(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"one", b"two")
    (lent,) = await queues.take(QUEUE, 1, lease_ms=600 * SECOND_MS)
    await serving.crash()
    queues = (await serving.open()).queues
    assert await bodies(queues, wait_s=patient_s(1.0)) == [b"two"]
    assert await settled(queues, Verb.EXTEND, lent, delay_ms=0) == [Outcome.OK]
    (again,) = await queues.take(QUEUE, 10, wait_s=patient_s(1.0))
    assert (again.body, again.attempt) == (b"one", 2)


async def test_what_a_sender_was_told_holds_when_settings_change_and_another_life_reads_it(serving: Serving) -> None:
    queues = await opened(serving, queue_dedup_window_ms="1", queue_dedup_scope="group", queue_fifo="true", queue_retention="keep")
    for group in ("g1", "g2", "g1"):
        (result,) = await queues.send(QUEUE, [Draft(group.encode(), dedup="same", group=group)])
        assert isinstance(result, Sent) and not result.is_duplicate
        serving.env.wall_ahead_ms += 2
    await queues.create("slow", {"queue.delay.ms": "1"})
    await sent(queues, b"x", queue="slow")
    await queues.configure(QUEUE, {"queue.dedup.window.ms": "600000", "queue.dedup.scope": "queue"})
    await queues.configure("slow", {"queue.delay.ms": "900000"})
    await serving.stop()
    queues = (await serving.open()).queues
    await until_ready(queues, QUEUE, 3)
    await until_ready(queues, "slow", 1)


async def test_a_released_message_waits_for_its_delay_and_comes_again(serving: Serving) -> None:
    queues = await opened(serving, queue_backoff_min_ms="0")
    await sent(queues, b"flaky")
    (lent,) = await queues.take(QUEUE, 1)
    assert await settled(queues, Verb.RELEASE, lent, delay_ms=50, reason="timeout") == [Outcome.OK]
    assert await queues.take(QUEUE, 1) == []
    (again,) = await queues.take(QUEUE, 1, wait_s=patient_s(5.0))
    assert again.attempt == 2
    (peeked,) = await queues.peek(QUEUE)
    assert [(attempt.who, attempt.reason) for attempt in peeked.history] == [("worker-1", "timeout")]


@pytest.mark.invariant("queues.lease-expires")
async def test_a_lapsed_lease_gives_the_message_to_another(serving: Serving) -> None:
    queues = await opened(serving, queue_backoff_min_ms="0")
    await sent(queues, b"dropped")
    await queues.take(QUEUE, 1, lease_ms=50, who="dies")
    (again,) = await queues.take(QUEUE, 1, wait_s=patient_s(5.0), who="lives")
    assert again.attempt == 2


@pytest.mark.invariant("queues.waiters-in-order")
async def test_whoever_waits_is_served_in_order(serving: Serving) -> None:
    queues = await opened(serving)
    waiting = [asyncio.ensure_future(bodies(queues, 1, wait_s=patient_s(20.0))) for _ in range(3)]
    await until_waiting(serving, 3)
    for body in (b"1", b"2", b"3"):
        await sent(queues, body)
    assert await asyncio.gather(*waiting) == [[b"1"], [b"2"], [b"3"]]


@pytest.mark.invariant("queues.no-lease-after-hangup")
async def test_a_taker_that_hangs_up_keeps_nothing(serving: Serving) -> None:
    queues = await opened(serving)
    waiting = asyncio.ensure_future(queues.take(QUEUE, 1, wait_s=patient_s(20.0)))
    await until_waiting(serving, 1)
    waiting.cancel()
    await sent(queues, b"for somebody else")
    serving.env.disk.flushes.hold()
    unlucky = asyncio.ensure_future(queues.take(QUEUE, 1))
    await serving.env.disk.flushes.until_waited_for()
    unlucky.cancel()
    serving.env.disk.flushes.let_go()
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"for somebody else"]


@pytest.mark.invariant("queues.lease-durable-first")
async def test_nothing_is_lent_before_its_lease_is_durable(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"one")
    serving.env.disk.flushes.hold()
    taking = asyncio.ensure_future(queues.take(QUEUE, 1))
    await serving.env.disk.flushes.until_waited_for()
    assert not taking.done()
    serving.env.disk.flushes.let_go()
    assert [each.body for each in await taking] == [b"one"]


async def test_a_lease_that_was_over_before_it_was_durable_is_not_handed_out(serving: Serving) -> None:
    queues = await opened(serving, queue_backoff_min_ms="0")
    await sent(queues, b"one")
    serving.env.disk.flushes.hold()
    taking = asyncio.ensure_future(queues.take(QUEUE, 1, lease_ms=1_000))
    await serving.env.disk.flushes.until_waited_for()
    serving.env.wall_ahead_ms += 2_000
    serving.env.disk.flushes.let_go()
    assert await taking == []
    (lent,) = await queues.take(QUEUE, 1, wait_s=patient_s(5.0), lease_ms=0)
    assert lent.attempt == 2


@pytest.mark.virtual_time("a lease of no time may be over before a real disk has it, and is not handed out then")
async def test_a_lease_that_is_over_is_over_for_the_very_next_taker(serving: Serving) -> None:
    queues = await opened(serving, queue_backoff_min_ms="0")
    await sent(queues, b"one")
    assert [(await queues.take(QUEUE, 1, lease_ms=0))[0].attempt for _ in range(20)] == list(range(1, 21))


async def test_a_delayed_message_is_not_early_and_survives_a_restart(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.send(QUEUE, [Draft(b"later", delay_ms=3_600 * SECOND_MS), Draft(b"soon", delay_ms=300)])
    assert (await queues.counts(QUEUE)).delayed == 2
    await serving.stop()
    queues = (await serving.open()).queues
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"soon"]
    (peeked,) = await queues.peek(QUEUE, states=[State.DELAYED])
    assert peeked.body == b"later"
    assert peeked.ready_at_ms > serving.env.wall_ms() + 3_000 * SECOND_MS
    assert [each.outcome for each in await queues.cancel(QUEUE, [peeked.id, "garbage"])] == [Outcome.OK, Outcome.UNKNOWN]
    assert [each.outcome for each in await queues.cancel(QUEUE, [peeked.id])] == [Outcome.GONE]


@pytest.mark.invariant("queues.priority-order")
async def test_urgent_messages_come_first(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.send(QUEUE, [Draft(b"low", priority=0), Draft(b"usual"), Draft(b"high", priority=9)])
    assert await bodies(queues) == [b"high", b"usual", b"low"]


@pytest.mark.invariant("queues.state-survives-failover")
async def test_two_sends_with_one_id_make_one_message_across_a_restart(serving: Serving) -> None:
    queues = await opened(serving)
    once = Draft(b"once", dedup="order-7")
    both = await asyncio.gather(queues.send(QUEUE, [once]), queues.send(QUEUE, [once, once]))
    results = [each for part in both for each in part if isinstance(each, Sent)]
    assert [each.is_duplicate for each in results] == [False, True, True]
    assert len({each.id for each in results}) == 1
    await serving.crash()
    queues = (await serving.open()).queues
    (again,) = await queues.send(QUEUE, [once])
    assert isinstance(again, Sent)
    assert (again.id, again.is_duplicate) == (results[0].id, True)
    assert await bodies(queues, wait_s=patient_s(1.0)) == [b"once"]


async def test_a_group_is_locked_while_one_of_it_is_in_flight(serving: Serving) -> None:
    queues = await opened(serving, queue_fifo="true")
    await queues.send(QUEUE, [Draft(b"a1", group="a"), Draft(b"b1", group="b"), Draft(b"a2", group="a")])
    (first,) = await queues.take(QUEUE, 1)
    assert first.body == b"a1"
    assert await bodies(queues) == [b"b1"]
    waiting = asyncio.ensure_future(bodies(queues, wait_s=patient_s(20.0)))
    await settled(queues, Verb.DONE, first)
    assert await waiting == [b"a2"]


async def test_a_paused_queue_lends_nothing_until_it_is_resumed(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.pause(QUEUE)
    await sent(queues, b"held")
    assert await queues.take(QUEUE, 1) == []
    assert (await queues.counts(QUEUE)).is_paused
    waiting = asyncio.ensure_future(bodies(queues, wait_s=patient_s(20.0)))
    await queues.resume(QUEUE)
    assert await waiting == [b"held"]


async def test_a_purge_finishes_all_that_was_sent_before(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"one", b"two")
    await queues.take(QUEUE, 1)
    await queues.purge(QUEUE)
    await sent(queues, b"three")
    assert await bodies(queues) == [b"three"]


async def test_a_queue_that_keeps_what_is_done_can_be_worked_off_again(serving: Serving) -> None:
    queues = await opened(serving, queue_retention="keep")
    await sent(queues, b"old")
    serving.env.wall_ahead_ms += 10 * SECOND_MS
    then = serving.env.wall_ms()
    await sent(queues, b"new", b"newer")
    await settled(queues, Verb.DONE, *await queues.take(QUEUE, 10))
    assert await queues.rewind(QUEUE, to_ms=then) == 2
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"new", b"newer"]


async def test_a_queue_can_be_rewound_to_a_message_of_one_partition(serving: Serving) -> None:
    queues = await opened(serving, queue_retention="keep")
    ids = await sent(queues, b"0", b"1", b"2")
    await settled(queues, Verb.DONE, *await queues.take(QUEUE, 10))
    assert await queues.rewind_to_id(QUEUE, ids[1]) == 2
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"1", b"2"]
    assert await queues.rewind_to(QUEUE, 0, 0) == 3
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"0"], "the others are with somebody"
    other = message_id(queues.describe(QUEUE).topic_id, 0, 7)
    for rewinding in (queues.rewind_to(QUEUE, 0, 4), queues.rewind_to(QUEUE, 1, 0), queues.rewind_to_id(QUEUE, other)):
        with pytest.raises(QueueRefusal) as refused:
            await rewinding
        assert refused.value.code is Code.INVALID


async def test_what_is_refused_is_said_and_nothing_is_half_done(serving: Serving) -> None:
    queues = await opened(serving, queue_ready_max="2")
    with pytest.raises(QueueRefusal) as refused:
        await queues.take("nothing", 1)
    assert refused.value.code is Code.NO_SUCH_QUEUE
    large, wrong = Draft(bytes(2_000_000)), Draft(b"x", priority=10)
    results = await queues.send(QUEUE, [large, wrong, Draft(b"fine")])
    assert [each.code if isinstance(each, QueueRefusal) else None for each in results] == [Code.TOO_LARGE, Code.INVALID, None]
    full = await queues.send(QUEUE, [Draft(b"2"), Draft(b"3"), Draft(b"4", key=b"k")])
    assert [each.code if isinstance(each, QueueRefusal) else None for each in full] == [None, Code.FULL, Code.FULL]
    (verdict,) = await queues.settle(QUEUE, [Order("garbage", Verb.DONE)])
    assert verdict.refusal is not None
    assert verdict.refusal.code is Code.INVALID_HANDLE
    with pytest.raises(QueueRefusal) as refused:
        await queues.create(QUEUE, {"queue.lease.ms": "1"})
    assert refused.value.code is Code.EXISTS_WITH_OTHER_SETTINGS
    assert await bodies(queues) == [b"fine", b"2"]


async def test_a_queue_over_several_partitions_is_one_queue(serving: Serving) -> None:
    node = await serving.open()
    queues = node.queues
    await queues.create(QUEUE, {}, partitions=3)
    await queues.send(QUEUE, [Draft(b"%d" % at, key=b"%d" % at) for at in range(20)])
    taken: list[bytes] = []
    while len(taken) < 20:
        taken += await bodies(queues, wait_s=patient_s(5.0))
    assert sorted(taken) == sorted(b"%d" % at for at in range(20))
    assert (await queues.counts(QUEUE)).leased == 20
    waiting = asyncio.ensure_future(bodies(queues, wait_s=patient_s(20.0)))
    await until_waiting(serving, 1, partition=2)
    await sent(queues, b"late")
    assert await waiting == [b"late"]


@pytest.mark.invariant("queues.aborted-never-delivered")
async def test_records_of_aborted_transactions_are_never_lent(serving: Serving) -> None:
    queues = await opened(serving)
    partition = serving.node.partitions.find(QUEUE, 0)
    assert partition is not None
    # Written as a transactional producer and its coordinator would.
    for producer, is_commit in ((7, False), (8, True)):
        batch = encode_batch(
            [Record(b"k", b"of %d" % producer, timestamp_ms=serving.env.wall_ms())],
            producer_id=producer, producer_epoch=0, base_sequence=0, is_transactional=True,
        )  # fmt: skip
        guard = partition.guard(read_header(batch), is_v2=False)
        partition.append(batch, serving.env.wall_ms(), guard)
        serving.node.appended(partition)
        assert await bodies(queues) == []
        partition.append_marker(producer, 0, is_commit=is_commit, coordinator_epoch=0, number=1, wall_ms=serving.env.wall_ms(), is_v2=False)
        serving.node.appended(partition)
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"of 8"]


async def test_settings_that_change_while_messages_wait_take_hold(serving: Serving) -> None:
    queues = await opened(serving, queue_paused="true", queue_inflight_max="1", queue_inflight_refuse="true")
    await sent(queues, b"1", b"2")
    assert await bodies(queues) == []
    await queues.configure(QUEUE, {"queue.paused": None})
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"1"]
    with pytest.raises(QueueRefusal) as refused:
        await queues.take(QUEUE, 1, wait_s=patient_s(20.0))
    assert refused.value.code is Code.IN_FLIGHT_LIMIT
    await queues.configure(QUEUE, {"queue.inflight.max": None})
    assert await bodies(queues) == [b"2"]


async def test_a_full_queue_may_keep_its_senders_waiting(serving: Serving) -> None:
    queues = await opened(serving, queue_ready_max="1", queue_when_full="wait")
    await sent(queues, b"1")
    sending = asyncio.ensure_future(sent(queues, b"2"))
    await settled(queues, Verb.DONE, *await queues.take(QUEUE, 1))
    await sending
    assert await bodies(queues) == [b"2"]


@pytest.mark.parametrize("when_full", ["refuse", "wait"])
async def test_senders_at_the_same_time_do_not_go_beyond_a_limit_together(
    serving: Serving, monkeypatch: pytest.MonkeyPatch, when_full: str
) -> None:  # fmt: skip
    monkeypatch.setattr("penstock.broker.queues.sending.ROOM_SECONDS", 0.2)
    queues = await opened(serving, queue_ready_max="10", queue_when_full=when_full)
    drafts = [[Draft(b"x", key=b"k" if number % 2 else None)] * 3 for number in range(8)]
    results = await asyncio.gather(*(queues.send(QUEUE, each) for each in drafts))
    assert sum(isinstance(each, Sent) for sent_at_once in results for each in sent_at_once) == 10
    assert (await queues.counts(QUEUE)).ready == 10
    await settled(queues, Verb.DONE, *await queues.take(QUEUE, 3))
    results = await asyncio.gather(*(queues.send(QUEUE, each) for each in drafts))
    assert sum(isinstance(each, Sent) for sent_at_once in results for each in sent_at_once) == 3
    assert (await queues.counts(QUEUE)).ready == 10


async def test_more_than_a_queue_may_hold_goes_in_as_there_is_room(serving: Serving) -> None:
    queues = await opened(serving, queue_ready_max="2", queue_when_full="wait")
    sending = asyncio.ensure_future(sent(queues, b"1", b"2", b"3", b"4", b"5"))
    seen: list[bytes] = []
    while len(seen) < 5:
        lent = await queues.take(QUEUE, 2, wait_s=patient_s(5.0))
        seen += [each.body for each in lent]
        await settled(queues, Verb.DONE, *lent)
    await sending
    assert seen == [b"1", b"2", b"3", b"4", b"5"]


async def test_the_same_body_is_one_message_where_the_queue_says_so(serving: Serving) -> None:
    queues = await opened(serving, queue_dedup_by_content="true")
    first, second = await sent(queues, b"same", b"same")
    assert first == second
    assert await bodies(queues) == [b"same"]


async def test_finished_messages_are_seen_for_as_long_as_the_log_has_them(serving: Serving) -> None:
    queues = await opened(serving, queue_retention="keep")
    await sent(queues, b"1", b"2", b"3", b"4", b"5")
    await settled(queues, Verb.DONE, *await queues.take(QUEUE, 4))
    finished = await queues.peek(QUEUE, states=[State.FINISHED], count=3)
    assert [(each.body, each.state) for each in finished] == [(b"1", "finished"), (b"2", "finished"), (b"3", "finished")]
    behind = await queues.peek(QUEUE, states=[State.FINISHED, State.READY], after=(0, finished[-1].offset))
    assert [(each.body, each.state) for each in behind] == [(b"4", "finished"), (b"5", "ready")]
    data = serving.node.ledgers.find(queues.describe(QUEUE).topic_id, 0)
    assert data is not None
    await trim(serving.node, data.data, Offset(2))
    assert [each.body for each in await queues.peek(QUEUE, states=[State.FINISHED])] == [b"3", b"4"]


async def test_the_dead_letters_of_a_queue_go_to_another_one(serving: Serving) -> None:
    queues = await opened(serving)
    with pytest.raises(QueueRefusal, match="itself") as refused:
        await queues.create("circle", {"queue.dead.letter": "circle"})
    assert refused.value.code is Code.INVALID
    with pytest.raises(QueueRefusal, match="name another queue"):
        await queues.configure(QUEUE, {"queue.dead.letter": QUEUE})


@pytest.mark.expects_failure
@pytest.mark.invariant("queues.lost-records-counted")
async def test_a_log_that_lost_what_its_ledger_knows_goes_on(serving: Serving) -> None:
    queues = await opened(serving)
    await sent(queues, b"1", b"2", b"3")
    await settled(queues, Verb.DONE, *await queues.take(QUEUE, 2))
    topic_id = queues.describe(QUEUE).topic_id
    await serving.stop()
    (serving.directory / "topics" / topic_id.hex() / "0").remove()
    node = await serving.open(accepted_losses=f"{QUEUE}-0")
    await until_async(lambda: (data := node.partitions.find(QUEUE, 0)) is not None and not data.is_damaged)
    queues = node.queues
    await sent(queues, b"new 1", b"new 2")
    assert await bodies(queues, wait_s=patient_s(5.0)) == [b"new 1", b"new 2"]
