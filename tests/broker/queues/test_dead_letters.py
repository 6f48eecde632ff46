"""Dead letters: moved once, with their history, whatever breaks in between; and sent back by whoever has mended what was wrong."""

import json

import pytest
from serving import Serving, patient_s
from waiting import until_async

from penstock.broker.queues.calls import (
    Code,
    Draft,
    Filter,
    Order,
    Outcome,
    QueueRefusal,
    Redrive,
    RedriveTask,
    Sent,
    State,
    TaskStatus,
    Verb,
)
from penstock.broker.queues.facade import Queues

ALL_LOOPS = True

QUEUE, DEAD = "jobs", "jobs-dead"
SETTINGS = {"queue.dead.letter": DEAD, "queue.deliveries.max": "2", "queue.backoff.min.ms": "0"}


async def opened(serving: Serving, *, has_dead_queue: bool = True) -> Queues:
    queues = (await serving.open()).queues
    if has_dead_queue:
        await queues.create(DEAD, {})
    await queues.create(QUEUE, SETTINGS)
    return queues


async def failed(queues: Queues, reason: str = "no such user") -> None:
    """Whatever is ready fails as often as it may."""
    while lent := await queues.take(QUEUE, 10, who="worker-1"):
        await queues.settle(QUEUE, [Order(each.handle, Verb.RELEASE, 0, reason, "worker-1") for each in lent])


async def buried(queues: Queues, count: int) -> None:
    """All of them are safe in the other queue, and gone here."""

    async def are_safe() -> bool:
        return not (await queues.counts(QUEUE)).burying and (await queues.counts(DEAD)).ready >= count

    await until_async(are_safe)


async def seen(queues: Queues, task: RedriveTask) -> RedriveTask:
    return next(each for each in await queues.tasks(DEAD) if each.handle == task.handle)


async def ended(queues: Queues, task: RedriveTask) -> RedriveTask:
    async def has_ended() -> bool:
        return (await seen(queues, task)).status not in (TaskStatus.RUNNING, TaskStatus.CANCELLING)

    await until_async(has_ended)
    return await seen(queues, task)


async def test_a_message_that_fails_too_often_goes_to_the_dead_letters_with_its_history(serving: Serving) -> None:
    queues = await opened(serving)
    (sent,) = await queues.send(QUEUE, [Draft(b"job", key=b"k", headers=(("trace", b"1"),), priority=7)])
    assert isinstance(sent, Sent)
    await failed(queues)
    await buried(queues, 1)
    (letter,) = await queues.peek(DEAD)
    told = dict(letter.headers)
    assert (letter.id, letter.body, letter.key) == (sent.id, b"job", b"k")
    assert (told["penstock.source"], told["penstock.reason"], told["trace"]) == (QUEUE.encode(), b"no such user", b"1")
    assert told["penstock.priority"] == b"7"
    history = json.loads(told["penstock.attempts"] or b"")
    assert (history["count"], [each["who"] for each in history["failures"]]) == (2, ["worker-1", "worker-1"])
    found = await queues.find(DEAD, sent.id)
    assert found is not None
    assert found.offset == letter.offset
    assert (await queues.counts(QUEUE)).finished == 1


async def test_a_rejected_message_goes_there_at_once(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.send(QUEUE, [Draft(b"job")])
    (lent,) = await queues.take(QUEUE, 1)
    await queues.settle(QUEUE, [Order(lent.handle, Verb.REJECT, reason="cannot parse")])
    await buried(queues, 1)
    assert [each.body for each in await queues.take(DEAD, 10)] == [b"job"]


async def test_letters_wait_for_a_queue_that_is_not_there(serving: Serving) -> None:
    queues = await opened(serving, has_dead_queue=False)
    await queues.send(QUEUE, [Draft(b"job")])
    await failed(queues)
    assert (await queues.counts(QUEUE)).burying == 1
    (waiting,) = await queues.peek(QUEUE)
    assert waiting.state is State.BURYING
    await queues.create(DEAD, {})
    await buried(queues, 1)


@pytest.mark.invariant("queues.dead-letter-once")
@pytest.mark.parametrize("cut_at", ["before the copy", "after the copy"])
async def test_a_crash_between_the_steps_neither_loses_nor_doubles_a_letter(serving: Serving, cut_at: str) -> None:
    queues = await opened(serving)
    await queues.send(QUEUE, [Draft(b"job")])
    if cut_at == "before the copy":
        await queues.configure(QUEUE, {"queue.dead.letter": "nowhere"})
        await failed(queues)
        await serving.crash()
        queues = (await serving.open()).queues
        await queues.configure(QUEUE, {"queue.dead.letter": DEAD})
    else:
        await _copied_and_cut(serving, queues)
        queues = (await serving.open()).queues
    await buried(queues, 1)
    assert [each.body for each in await queues.peek(DEAD)] == [b"job"]
    assert (await queues.counts(QUEUE)).finished == 1


async def _copied_and_cut(serving: Serving, queues: Queues) -> None:
    """The letter is in the other queue, and its source has not heard of it when the node dies."""
    ledger = serving.node.ledgers.find(queues.describe(QUEUE).topic_id, 0)
    dead = serving.node.partitions.find(DEAD, 0)
    assert ledger is not None
    assert dead is not None

    class Cut:
        """Stands before all others who hear that the copy is durable."""

        def advanced(self, partition: object, grown_bytes: int) -> None:
            ledger.coordinator.log_failed("the node dies here")

    dead.watchers[Cut()] = None
    await failed(queues)
    await until_async(lambda: dead.high_watermark == 1)
    await serving.crash()


async def test_letters_go_back_where_they_came_from(serving: Serving) -> None:
    queues = await opened(serving)
    sent = [each for each in await queues.send(QUEUE, [Draft(b"1"), Draft(b"2")]) if isinstance(each, Sent)]
    await failed(queues)
    await buried(queues, 2)
    task = await ended(queues, await queues.redrive(DEAD, Redrive()))
    assert (task.status, task.moved, task.by_target) == (TaskStatus.COMPLETED, 2, {QUEUE: 2})
    back = await queues.take(QUEUE, 10, wait_s=patient_s(5.0))
    assert [(each.id, each.body, each.attempt) for each in back] == [(sent[0].id, b"1", 1), (sent[1].id, b"2", 1)]
    assert (await queues.counts(DEAD)).ready == 0
    assert await queues.tasks(DEAD) == [task]


async def test_only_the_letters_that_fit_are_moved_and_a_dry_run_moves_none(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.create("elsewhere", {})
    for body, reason in ((b"1", "timeout of the database"), (b"2", "no such user"), (b"3", "timeout")):
        await queues.send(QUEUE, [Draft(body)])
        await failed(queues, reason)
    await buried(queues, 3)
    wish = Redrive(target="elsewhere", filter=Filter(reason="timeout", source=QUEUE))
    trial = await queues.redrive(DEAD, Redrive(target=wish.target, filter=wish.filter, is_dry_run=True))
    assert (trial.status, trial.to_move, trial.moved, trial.by_target) == (TaskStatus.COMPLETED, 2, 0, {"elsewhere": 2})
    assert (await queues.counts(DEAD)).ready == 3
    task = await queues.redrive(DEAD, wish)
    assert task.to_move <= 2, "one that does not fit is not counted"
    task = await ended(queues, task)
    assert (task.to_move, task.moved) == (2, 2)
    assert [each.body for each in await queues.take("elsewhere", 10)] == [b"1", b"3"]
    assert [each.body for each in await queues.peek(DEAD)] == [b"2"]


async def test_a_letter_without_a_source_needs_a_target(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.send(DEAD, [Draft(b"sent here by hand")])
    with pytest.raises(QueueRefusal, match="name a target") as refused:
        await queues.redrive(DEAD, Redrive(is_dry_run=True))
    assert refused.value.code is Code.INVALID, "asking again would not help"
    task = await ended(queues, await queues.redrive(DEAD, Redrive()))
    assert (task.status, task.moved) == (TaskStatus.FAILED, 0)
    assert "name a target" in task.failure
    assert (await ended(queues, await queues.redrive(DEAD, Redrive(target=QUEUE)))).moved == 1


async def test_only_so_many_are_moved_and_told_of(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.send(QUEUE, [Draft(b"%d" % at) for at in range(5)])
    await failed(queues)
    await buried(queues, 5)
    task = await queues.redrive(DEAD, Redrive(count_max=3))
    assert task.to_move == 3
    assert (await ended(queues, task)).moved == 3


async def test_a_letter_that_went_back_is_found_where_it_is_now(serving: Serving) -> None:
    queues = await opened(serving)
    (sent,) = await queues.send(QUEUE, [Draft(b"job")])
    assert isinstance(sent, Sent)
    await failed(queues)
    await buried(queues, 1)
    found = await queues.find(QUEUE, sent.id)
    assert found is not None and found.state is State.FINISHED
    await ended(queues, await queues.redrive(DEAD, Redrive()))
    found = await queues.find(QUEUE, sent.id)
    assert found is not None
    assert (found.id, found.state, found.body, found.offset > sent.offset) == (sent.id, State.READY, b"job", True)
    (lent,) = await queues.take(QUEUE, 1)
    await queues.settle(QUEUE, [Order(lent.handle, Verb.DONE)])
    found = await queues.find(QUEUE, sent.id)
    assert found is not None and (found.state, found.offset) == (State.FINISHED, sent.offset)


async def test_a_move_can_be_cancelled_and_two_at_once_are_refused(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.send(QUEUE, [Draft(b"%d" % at) for at in range(20)])
    await failed(queues)
    await buried(queues, 20)
    task = await queues.redrive(DEAD, Redrive(per_second_max=50))
    with pytest.raises(QueueRefusal) as refused:
        await queues.redrive(DEAD, Redrive())
    assert refused.value.code is Code.BUSY

    async def has_moved_some() -> bool:
        return (await seen(queues, task)).moved >= 2

    await until_async(has_moved_some)
    assert (await queues.cancel_task(task.handle)).handle == task.handle
    task = await ended(queues, task)
    assert task.status is TaskStatus.CANCELLED
    assert (await queues.counts(DEAD)).ready == 20 - task.moved
    with pytest.raises(QueueRefusal) as refused:
        await queues.cancel_task(task.handle)
    assert refused.value.code is Code.NO_SUCH_TASK


async def test_without_a_dead_letter_queue_a_message_that_failed_is_finished(serving: Serving) -> None:
    queues = await opened(serving)
    await queues.configure(QUEUE, {"queue.dead.letter": None})
    await queues.send(QUEUE, [Draft(b"job")])
    await failed(queues)
    assert (await queues.counts(QUEUE)).finished == 1


async def test_the_largest_message_can_be_buried(serving: Serving) -> None:
    queues = await opened(serving)
    bound = serving.node.partitions.config_of(serving.node.image.topics[QUEUE]).max_message_bytes
    await queues.send(QUEUE, [Draft(bytes(bound - 200))])
    await failed(queues, "x" * 200)
    await buried(queues, 1)


async def test_a_message_is_cancelled_by_its_id_wherever_it_lives_on(serving: Serving) -> None:
    queues = await opened(serving)
    sent = await queues.send(QUEUE, [Draft(b"1"), Draft(b"2"), Draft(b"3")])
    ids = [each.id for each in sent if isinstance(each, Sent)]
    await failed(queues)
    await buried(queues, 3)
    assert [each.outcome for each in await queues.cancel(DEAD, ids[:1])] == [Outcome.OK], "a dead letter has the id that it had"
    await ended(queues, await queues.redrive(DEAD, Redrive()))

    async def are_back() -> bool:
        return (await queues.counts(QUEUE)).ready >= 2

    await until_async(are_back)
    assert [each.outcome for each in await queues.cancel(QUEUE, ids)] == [Outcome.GONE, Outcome.OK, Outcome.OK]
    assert await queues.take(QUEUE, 10) == []
    assert [each.outcome for each in await queues.cancel(QUEUE, ids[1:])] == [Outcome.GONE, Outcome.GONE]
