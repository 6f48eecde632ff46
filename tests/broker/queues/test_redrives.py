"""Redrives that are cut short, and letters whose target may or may not have them: each is there once in the end, and nothing hangs."""

import asyncio

import pytest
from broker.queues.test_dead_letters import DEAD, QUEUE, buried, ended, failed, opened
from serving import Serving, patient_s
from waiting import until_async

from penstock.broker.queues import redriving
from penstock.broker.queues.asking import Place
from penstock.broker.queues.calls import Code, Draft, QueueRefusal, Redrive, Sent, State, TaskStatus
from penstock.broker.queues.facade import Queues
from penstock.errors import DiskFailed
from penstock.partition.partition import Partition

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("queues.message-moved-once")


async def dead(serving: Serving, *bodies: bytes) -> Queues:
    """So many dead letters lie there."""
    queues = await opened(serving)
    await queues.send(QUEUE, [Draft(body) for body in bodies])
    await failed(queues)
    await buried(queues, len(bodies))
    return queues


async def gone(queues: Queues) -> None:
    """None is on its way any more."""

    async def none_is_under_way() -> bool:
        return not (await queues.counts(DEAD)).burying

    await until_async(none_is_under_way)


async def test_a_redrive_whose_caller_leaves_while_it_is_written_down_runs(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was written down, and nobody ran it: no other one could begin until another node led the queue."""
    queues = await dead(serving, b"job")
    disk, note = serving.env.disk, redriving._note

    def held(name: str, text: bytes) -> object:
        if name.endswith(".run"):
            disk.flushes.hold()
        return note(name, text)

    with monkeypatch.context() as patched:
        patched.setattr(redriving, "_note", held)
        asking = asyncio.ensure_future(queues.redrive(DEAD, Redrive()))
        await disk.flushes.until_waited_for()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    disk.flushes.let_go()
    assert [each.body for each in await queues.take(QUEUE, 10, wait_s=patient_s(10.0))] == [b"job"]
    (task,) = await queues.tasks(DEAD)
    assert (await ended(queues, task)).status is TaskStatus.COMPLETED
    assert (await ended(queues, await queues.redrive(DEAD, Redrive()))).status is TaskStatus.COMPLETED


async def test_a_letter_that_a_failing_log_has_all_the_same_is_there_once(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its target said that it took no more. It was ready again then, and sent there under another name."""
    queues = await dead(serving, b"job")
    append, failures = Partition.append, list[str]()

    def fail_once(partition: Partition, *arguments: object, **options: object) -> object:
        appended = append(partition, *arguments, **options)  # type: ignore[arg-type]
        if partition.topic == QUEUE and not failures:
            failures.append(partition.topic)
            serving.node.appended(partition)
            raise DiskFailed("an error while writing, behind the last byte")
        return appended

    monkeypatch.setattr(Partition, "append", fail_once)
    assert (await ended(queues, await queues.redrive(DEAD, Redrive()))).status is TaskStatus.COMPLETED
    assert failures == [QUEUE]
    await gone(queues)
    assert [each.body for each in await queues.take(QUEUE, 10, wait_s=patient_s(5.0))] == [b"job"]
    assert await queues.take(QUEUE, 10, wait_s=0.2) == [] and (await queues.counts(DEAD)).ready == 0


async def test_a_letter_that_may_be_on_its_way_waits_for_a_queue_that_is_full(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has heard what became of the first try. The second is refused, which says nothing about the first."""
    queues = await dead(serving, b"job")
    await queues.send(QUEUE, [Draft(b"another")])
    await queues.configure(QUEUE, {"queue.ready.max": "1"})
    send_to, answers = Queues.send_to, list[object]()

    async def first_unheard(self: Queues, place: Place, drafts: list[Draft]) -> list[Sent | QueueRefusal]:
        answers.append(None)
        if len(answers) == 1:
            raise QueueRefusal(Code.NOT_AVAILABLE, "nobody knows")
        return await send_to(self, place, drafts)

    monkeypatch.setattr(Queues, "send_to", first_unheard)
    assert (await ended(queues, await queues.redrive(DEAD, Redrive()))).status is TaskStatus.COMPLETED
    await until_async(lambda: len(answers) >= 3)
    assert [each.state for each in await queues.peek(DEAD)] == [State.BURYING]
    await queues.configure(QUEUE, {"queue.ready.max": "2"})
    await gone(queues)
    assert sorted(each.body or b"" for each in await queues.peek(QUEUE)) == [b"another", b"job"]


async def test_a_letter_that_is_refused_at_once_is_ready_again(serving: Serving) -> None:
    queues = await dead(serving, b"job")
    await queues.send(QUEUE, [Draft(b"another")])
    await queues.configure(QUEUE, {"queue.ready.max": "1"})
    task = await ended(queues, await queues.redrive(DEAD, Redrive()))
    assert (task.status, task.moved) == (TaskStatus.FAILED, 0)
    assert [each.state for each in await queues.peek(DEAD)] == [State.READY]


async def test_more_letters_are_sent_back_than_moves_are_remembered(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundred thousand letters a redrive failed: the moves of all of them were remembered for minutes."""
    monkeypatch.setattr("penstock.broker.queues.sending.MOVES_MAX", 150)
    queues = await dead(serving, *(b"%d" % number for number in range(400)))
    task = await ended(queues, await queues.redrive(DEAD, Redrive()))
    assert (task.status, task.moved) == (TaskStatus.COMPLETED, 400)
    await gone(queues)
    assert (await queues.counts(QUEUE)).ready == 400


async def test_a_call_that_is_made_twice_tries_no_letter_that_is_being_tried(serving: Serving) -> None:
    """The first would hold a letter for its own, of which the second may have made a copy."""
    queues = await dead(serving, b"job")
    ledger, target = serving.node.ledgers.find(queues.describe(DEAD).topic_id, 0), queues.describe(QUEUE).topic_id
    assert ledger is not None
    serving.env.disk.flushes.hold()
    first = asyncio.ensure_future(queues.burying.send_off(ledger, [0], target))
    await serving.env.disk.flushes.until_waited_for()
    second = asyncio.ensure_future(queues.burying.send_off(ledger, [0], target))
    await asyncio.sleep(0)
    serving.env.disk.flushes.let_go()
    assert ((await first).moved, (await second).moved) == (1, 0)
    assert [each.body for each in await queues.take(QUEUE, 10, wait_s=patient_s(5.0))] == [b"job"]
