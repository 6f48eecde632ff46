"""Dead letters sent back to where they came from, or to a queue of somebody's choice: by filter, at a bounded rate, watched and stopped.

Whichever node leads the first partition of the letters' queue runs it; how far it is, and what is wished, lies in the ledger of that
partition. So any node tells of it and stops it, and when the runner dies, the next leader goes on. The runner looks at the letters page by
page, without taking them. Those that fit are sent off (burying.py): the ledger of their partition has them ready no more, and carries each
of them to its target once, however often the runner changes meanwhile. One that somebody holds stays theirs.
A run waits for partitions that cannot be reached, and ends when a target refuses a letter; what was moved by then stays moved.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from penstock.broker.askers import Asker
from penstock.broker.queues.asking import Place, Question
from penstock.broker.queues.burying import SentOff
from penstock.broker.queues.calls import (
    Code,
    Filter,
    Peeked,
    QueueRefusal,
    QueueView,
    Redrive,
    RedriveTask,
    State,
    TaskStatus,
)
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.redrive_notes import (
    ENDED,
    ids_note,
    names_of,
    notes_of,
    pack_task,
    pack_wish,
    progress_of,
    tasks_in,
    unpack_task,
    unpack_wish,
    with_ids,
)
from penstock.broker.queues.refusals import NotHere, caught_up
from penstock.cluster.image import Topic
from penstock.links.queue_calls import QueueAnswer, QueueCall
from penstock.queues import headers
from penstock.queues.commands import Command, Note
from penstock.vocabulary import TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node
    from penstock.broker.queues.facade import Queues

log = logging.getLogger("penstock")

T = TypeVar("T")

PAGE = 100
TASKS_KEPT_MAX = 10  # Of one queue, as many as SQS shows.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.1, 10.0
_TOPIC_DIGITS = 32


class Redriving:
    def __init__(self, queues: "Queues", node: "Node") -> None:
        self._queues = queues
        self._node = node
        self._running: dict[QueuePartition, RedriveTask] = {}  # By the first partitions that this node leads.

    # What any node is asked

    async def begin(self, topic: Topic, wish: Redrive) -> RedriveTask:
        if wish.target:
            self._queues.describe(wish.target)
        if wish.is_dry_run:
            return await self._counted(topic, wish)
        fields, blobs = pack_wish(wish)
        question = Question("redrive", fields, lambda answer: unpack_task(answer.fields["task"]), blobs, is_repeatable=False)
        return await self._queues.asking.ask(_first(topic), lambda here: self.begin_here(here, wish), question)

    async def of(self, topic: Topic) -> list[RedriveTask]:
        question = Question("redrives", {}, lambda answer: [unpack_task(each) for each in answer.fields["tasks"]])
        return await self._queues.asking.ask(_first(topic), self.tasks_here, question)

    async def cancel(self, handle: str) -> RedriveTask:
        try:
            topic = self._node.image.topics_by_id.get(TopicId(bytes.fromhex(handle[:_TOPIC_DIGITS])))
        except ValueError:
            topic = None
        if topic is None:
            raise _no_such_task()
        question = Question("redrive_over", {"handle": handle}, lambda answer: unpack_task(answer.fields["task"]), is_repeatable=False)
        return await self._queues.asking.ask(_first(topic), lambda here: self.cancel_here(here, handle), question)

    # What the leader of the first partition does

    async def begin_here(self, queue: QueuePartition, wish: Redrive) -> RedriveTask:
        name = queue.data.topic
        if queue in self._running or any(task.status not in ENDED for task in tasks_in(queue.state.notes)):
            raise QueueRefusal(Code.BUSY, f"the dead letters of {name!r} are being moved already: wait for that, or cancel it")
        handle = queue.data.topic_id.hex() + self._node.env.rng.randbytes(8).hex()
        task = self._running[queue] = RedriveTask(handle, name, wish, self._node.env.wall_ms())
        begun: asyncio.Future[RedriveTask] = asyncio.get_running_loop().create_future()
        self._node.spawn(self._begin(queue, task, begun))
        return await begun

    async def tasks_here(self, queue: QueuePartition) -> list[RedriveTask]:
        """The latest first."""
        stored: list[RedriveTask] = await queue.read(lambda state: tasks_in(state.notes))
        running = self._running.get(queue)
        return [running if running is not None and task.handle == running.handle else task for task in reversed(stored)]

    async def cancel_here(self, queue: QueuePartition, handle: str) -> RedriveTask:
        task = self._running.get(queue)
        if task is None or task.handle != handle or task.status is not TaskStatus.RUNNING:
            raise _no_such_task()
        task.status = TaskStatus.CANCELLING
        await queue.ask(_note(*progress_of(task)))
        return task

    def look_soon(self, queue: QueuePartition) -> None:
        """This node leads the partition, and its ledger is loaded: what another one has begun goes on here."""
        state = queue.coordinator.state
        if state is None:
            return  # Its log has failed since.
        notes = state.notes
        begun = [task for task in tasks_in(notes) if task.status not in ENDED] if notes and queue not in self._running else []
        if begun:
            task = self._running[queue] = with_ids(begun[-1], notes)
            self._node.spawn(self._run(queue, task))

    # Running

    async def _begin(self, queue: QueuePartition, task: RedriveTask, begun: asyncio.Future[RedriveTask]) -> None:
        """Goes on when whoever wished it has left: a run that is written down and that nobody runs would keep all others from beginning."""
        try:
            await self._write_down(queue, task)
        except Exception as failure:
            if not begun.done():
                begun.set_exception(failure)
            if isinstance(failure, NotHere) or not await self._is_written_down(queue, task):
                del self._running[queue]
                return
        else:
            if not begun.done():
                begun.set_result(task)
        finally:
            begun.cancel()  # The node stops; otherwise it has heard.
        await self._run(queue, task)

    async def _write_down(self, queue: QueuePartition, task: RedriveTask) -> None:
        wish = task.wish
        if wish.filter == Filter():
            ready = (await self._queues.counts(task.queue)).ready
            task.to_move = min(ready, wish.count_max or ready)
        stored = tasks_in(queue.state.notes)
        for old in stored[: max(0, len(stored) + 1 - TASKS_KEPT_MAX)]:
            for note in names_of(old.handle):
                await queue.ask(_note(note, b""))
        for note, text in notes_of(task):
            await queue.ask(_note(note, text))

    async def _is_written_down(self, queue: QueuePartition, task: RedriveTask) -> bool:
        """Asked where writing failed: the record may have come into the log all the same."""
        try:
            stored = await _insist(lambda: queue.read(lambda state: tasks_in(state.notes)))
        except NotHere:
            return False  # The next leader knows.
        return any(each.handle == task.handle for each in stored)

    async def _run(self, queue: QueuePartition, task: RedriveTask) -> None:
        try:
            try:
                status, failure = await self._moved_all(queue, task)
            finally:
                del self._running[queue]  # Nobody can cancel it any more. It has ended for others once that is durable.
            await self._save_end(queue, replace(task, status=status, failure=failure))
        except NotHere:
            return  # The next leader goes on.

    async def _save_end(self, queue: QueuePartition, task: RedriveTask) -> None:
        for name, text in (progress_of(task), (ids_note(task.handle), b"")):
            await _insist(partial(queue.ask, _note(name, text)))

    async def _moved_all(self, queue: QueuePartition, task: RedriveTask) -> tuple[TaskStatus, str]:
        """How it ended."""
        pause_s = PAUSE_SECONDS_MIN
        while True:
            moved = task.moved
            try:
                await self._move_all(queue, task)
                return (TaskStatus.CANCELLED if task.status is TaskStatus.CANCELLING else TaskStatus.COMPLETED), ""
            except QueueRefusal as refusal:
                if refusal.code is not Code.NOT_AVAILABLE:
                    return TaskStatus.FAILED, refusal.words
            except NotHere:
                raise
            except Exception:
                log.exception("moving the dead letters of %s failed", task.queue)
                return TaskStatus.FAILED, "the move failed; the node's log says why"
            pause_s = PAUSE_SECONDS_MIN if task.moved > moved else min(2 * pause_s, PAUSE_SECONDS_MAX)
            await asyncio.sleep(pause_s)

    async def _move_all(self, queue: QueuePartition, task: RedriveTask) -> None:
        """Those that were there when it began: what is sent back and fails again is not moved a second time."""
        after, wish = None, task.wish
        at_once = min(PAGE, max(1, wish.per_second_max // 10)) if wish.per_second_max else PAGE
        while task.status is TaskStatus.RUNNING:
            page = await self._queues.peek(task.queue, states=(State.READY,), count=PAGE, after=after)
            chosen = [each for each in page if each.sent_ms <= task.started_ms and fits(each, wish.filter)]
            if wish.count_max:
                chosen = chosen[: wish.count_max - task.moved]
            task.to_move = max(task.to_move, task.moved + len(chosen))
            for first in range(0, len(chosen), at_once):
                if task.status is not TaskStatus.RUNNING:
                    return
                await self._move(queue, task, chosen[first : first + at_once])
            if not page or (wish.count_max and task.moved >= wish.count_max):
                task.to_move = task.moved
                return
            after = (page[-1].partition, page[-1].offset)

    async def _move(self, queue: QueuePartition, task: RedriveTask, letters: Sequence[Peeked]) -> None:
        queue.state  # noqa: B018 - who leads no more runs nothing
        refusal, moved = None, task.moved
        for (target, partition), offsets in _by_target(task.wish, letters).items():
            topic_id = (await self._target(target)).topic_id
            sent_off = await self._send_off(Place(queue.data.topic_id, partition), topic_id, offsets)
            task.moved += sent_off.moved
            task.by_target[target] = task.by_target.get(target, 0) + sent_off.moved
            refusal = refusal or sent_off.refusal
        task.to_move = max(task.to_move, task.moved)
        if task.moved > moved:
            await queue.ask(_note(*progress_of(task)))
        if refusal is not None:
            raise refusal
        if task.wish.per_second_max:
            await asyncio.sleep(len(letters) / task.wish.per_second_max)

    async def _target(self, name: str) -> QueueView:
        """The queue. Whoever ordered the run may have known of it before this node."""
        try:
            return self._queues.describe(name)
        except QueueRefusal:
            await caught_up(self._node)
            return self._queues.describe(name)

    async def _send_off(self, place: Place, target: TopicId, offsets: list[int]) -> SentOff:
        question = Question("send_off", {"offsets": offsets, "target": target.hex()}, _read_sent_off)
        return await self._queues.asking.ask(place, lambda here: self._queues.burying.send_off(here, offsets, target), question)

    async def _counted(self, topic: Topic, wish: Redrive) -> RedriveTask:
        """A dry run: what would be moved."""
        task, after = RedriveTask("", topic.name, wish, self._node.env.wall_ms(), status=TaskStatus.COMPLETED), None
        while page := await self._queues.peek(topic.name, states=(State.READY,), count=PAGE, after=after):
            chosen = [each for each in page if each.sent_ms <= task.started_ms and fits(each, wish.filter)]
            if wish.count_max:
                chosen = chosen[: wish.count_max - task.to_move]
            for (target, _), offsets in _by_target(wish, chosen).items():
                task.by_target[target] = task.by_target.get(target, 0) + len(offsets)
            task.to_move += len(chosen)
            after = (page[-1].partition, page[-1].offset)
        return task


def fits(letter: Peeked, wanted: Filter) -> bool:
    told = _told(letter.headers)
    failed_ms = int(told[headers.FAILED_AT]) if told.get(headers.FAILED_AT, "").isdigit() else 0
    return (
        (not wanted.ids or letter.id in wanted.ids)
        and (not wanted.reason or wanted.reason in told.get(headers.REASON, ""))
        and (not wanted.source or wanted.source == told.get(headers.SOURCE, ""))
        and (not wanted.failed_after_ms or failed_ms >= wanted.failed_after_ms)
        and (not wanted.failed_before_ms or failed_ms < wanted.failed_before_ms)
    )


def source_of(letter: Peeked) -> str:
    return _told(letter.headers).get(headers.SOURCE, "")


def _by_target(wish: Redrive, letters: Sequence[Peeked]) -> dict[tuple[str, int], list[int]]:
    """Offsets, by where they go and the partition where they lie."""
    found: dict[tuple[str, int], list[int]] = {}
    for letter in letters:
        target = wish.target or source_of(letter)
        if not target:
            raise QueueRefusal(Code.INVALID, f"the message {letter.id} does not say which queue it comes from: name a target")
        found.setdefault((target, letter.partition), []).append(letter.offset)
    return found


def _told(found: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {name: content.decode(errors="replace") for name, content in found if content is not None}


def _first(topic: Topic) -> Place:
    return Place(topic.topic_id, 0)


def _note(name: str, text: bytes) -> Callable[[Asker], Command]:
    return lambda asker: Note(asker, name, text)


async def _insist(ask: Callable[[], Awaitable[T]]) -> T:
    """The answer, as soon as the ledger has one."""
    pause_s = PAUSE_SECONDS_MIN
    while True:
        try:
            return await ask()
        except QueueRefusal:
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)


def _no_such_task() -> QueueRefusal:
    return QueueRefusal(Code.NO_SUCH_TASK, "no such move runs")


def _read_sent_off(answer: QueueAnswer) -> SentOff:
    code, words = answer.fields["refusal"]
    return SentOff(int(answer.fields["count"]), QueueRefusal(Code(code), str(words)) if code else None)


# What other nodes ask


async def _redrive(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    task = await queue.node.queues.redriving.begin_here(queue, unpack_wish(call.fields, list(call.blobs)))
    return QueueAnswer("", fields={"task": pack_task(task)})


async def _redrives(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    return QueueAnswer("", fields={"tasks": [pack_task(task) for task in await queue.node.queues.redriving.tasks_here(queue)]})


async def _redrive_over(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    return QueueAnswer("", fields={"task": pack_task(await queue.node.queues.redriving.cancel_here(queue, str(call.fields["handle"])))})


async def _send_off(queue: QueuePartition, call: QueueCall) -> QueueAnswer:
    offsets, target = [int(each) for each in call.fields["offsets"]], TopicId(bytes.fromhex(call.fields["target"]))
    sent_off = await queue.node.queues.burying.send_off(queue, offsets, target)
    refusal = sent_off.refusal
    return QueueAnswer("", fields={"count": sent_off.moved, "refusal": ["", ""] if refusal is None else [str(refusal.code), refusal.words]})


REDRIVE_OPERATIONS = {"redrive": _redrive, "redrives": _redrives, "redrive_over": _redrive_over, "send_off": _send_off}
