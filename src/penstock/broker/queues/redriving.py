"""Dead letters sent back to where they came from, or to a queue of somebody's choice: by filter, at a bounded rate, watched and stopped.

The node that was asked runs it. It looks at the dead letters page by page, without taking them. Each one that fits is sent to its target
with a dedup id that names where it lay, and then finished here; so a run that breaks off can be begun again, and sends nothing twice within
the target's dedup window. One that somebody holds in the meantime is theirs too: that counts as moved, and is delivered at both places.
Runs are remembered by this node alone, and only while it lives: the running ones and a few of the last.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.broker.queues.asking import Place
from penstock.broker.queues.burying import MOVED
from penstock.broker.queues.calls import (
    Code,
    Draft,
    Filter,
    Peeked,
    QueueRefusal,
    Redrive,
    RedriveTask,
    State,
    TaskStatus,
)
from penstock.queues import headers

if TYPE_CHECKING:
    from penstock.broker.node import Node
    from penstock.broker.queues.facade import Queues

log = logging.getLogger("penstock")

PAGE = 100
TASKS_KEPT_MAX = 100
_ENDED = (TaskStatus.COMPLETED, TaskStatus.CANCELLED, TaskStatus.FAILED)
_OPTIONS = frozenset({headers.PRIORITY, headers.DELIVER_AT, headers.EXPIRES_AT, headers.GROUP, headers.DEDUP})


class Redriving:
    def __init__(self, queues: "Queues", node: "Node") -> None:
        self._queues = queues
        self._node = node
        self._tasks: dict[str, RedriveTask] = {}  # By handle, in the order in which they began.

    async def begin(self, queue: str, wish: Redrive) -> RedriveTask:
        if any(task.queue == queue and task.status not in _ENDED for task in self._tasks.values()):
            raise QueueRefusal(Code.BUSY, f"the dead letters of {queue!r} are being moved already: wait for that, or cancel it")
        if wish.target:
            self._queues.describe(wish.target)
        handle = self._node.env.rng.randbytes(16).hex()
        task = RedriveTask(handle, queue, wish, self._node.env.wall_ms())
        if wish.is_dry_run:
            await self._move_all(task)
            task.status = TaskStatus.COMPLETED
            return task
        if wish.filter == Filter():
            ready = (await self._queues.counts(queue)).ready
            task.to_move = min(ready, wish.count_max or ready)
        self._remember(task)
        self._node.spawn(self._run(task))
        return task

    def of(self, queue: str) -> list[RedriveTask]:
        return [task for task in reversed(self._tasks.values()) if task.queue == queue]

    def cancel(self, handle: str) -> RedriveTask:
        task = self._tasks.get(handle)
        if task is None or task.status is not TaskStatus.RUNNING:
            raise QueueRefusal(Code.NO_SUCH_TASK, "no such move runs on this node")
        task.status = TaskStatus.CANCELLING
        return task

    def _remember(self, task: RedriveTask) -> None:
        ended = [handle for handle, each in self._tasks.items() if each.status in _ENDED]
        for handle in ended[: max(0, len(self._tasks) + 1 - TASKS_KEPT_MAX)]:
            del self._tasks[handle]
        self._tasks[task.handle] = task

    # Running

    async def _run(self, task: RedriveTask) -> None:
        try:
            await self._move_all(task)
            task.status = TaskStatus.CANCELLED if task.status is TaskStatus.CANCELLING else TaskStatus.COMPLETED
        except QueueRefusal as refusal:
            task.status, task.failure = TaskStatus.FAILED, refusal.words
        except Exception:
            task.status, task.failure = TaskStatus.FAILED, "the move failed; the node's log says why"
            log.exception("moving the dead letters of %s failed", task.queue)

    async def _move_all(self, task: RedriveTask) -> None:
        """Those that were there when it began: what is sent back and fails again is not moved a second time."""
        seen, after, wish = 0, None, task.wish
        while task.status is TaskStatus.RUNNING:
            page = await self._queues.peek(task.queue, states=(State.READY,), count=PAGE, after=after)
            old = [each for each in page if each.sent_ms <= task.started_ms]
            chosen = [each for each in old if fits(each, wish.filter)]
            if wish.count_max:
                chosen = chosen[: wish.count_max - seen]
            seen += len(chosen)
            task.to_move = max(task.to_move, seen)
            at_once = min(PAGE, max(1, wish.per_second_max // 10)) if wish.per_second_max else PAGE
            for first in range(0, len(chosen), at_once):
                if task.status is not TaskStatus.RUNNING:
                    return
                await self._move(task, chosen[first : first + at_once])
            if not page or (wish.count_max and seen >= wish.count_max):
                task.to_move = max(task.moved, seen if wish.is_dry_run else task.moved)
                return
            after = (page[-1].partition, page[-1].offset)

    async def _move(self, task: RedriveTask, letters: Sequence[Peeked]) -> None:
        by_target: dict[str, list[Peeked]] = {}
        for letter in letters:
            target = task.wish.target or source_of(letter)
            if not target:
                raise QueueRefusal(Code.INVALID, f"the message {letter.id} does not say which queue it comes from: name a target")
            by_target.setdefault(target, []).append(letter)
        for target, chosen in by_target.items():
            if not task.wish.is_dry_run:
                await self._move_to(task, target, chosen)
            task.by_target[target] = task.by_target.get(target, 0) + len(chosen)
        if task.wish.per_second_max and not task.wish.is_dry_run:
            await asyncio.sleep(len(letters) / task.wish.per_second_max)

    async def _move_to(self, task: RedriveTask, target: str, letters: Sequence[Peeked]) -> None:
        topic_id = self._queues.describe(task.queue).topic_id
        results = await self._queues.send(
            target, [_sent_back(each, f"{topic_id.hex()}.{each.partition}.{each.offset}") for each in letters]
        )
        by_partition: dict[int, list[int]] = {}
        for letter, result in zip(letters, results, strict=True):
            if not isinstance(result, QueueRefusal):
                by_partition.setdefault(letter.partition, []).append(letter.offset)
        for partition, offsets in by_partition.items():
            await self._queues.cancel_at(Place(topic_id, partition), offsets)
            task.moved += len(offsets)
        task.to_move = max(task.to_move, task.moved)
        for result in results:
            if isinstance(result, QueueRefusal):
                raise result


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


def _told(found: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    return {name: content.decode(errors="replace") for name, content in found if content is not None}


def _sent_back(letter: Peeked, dedup: str) -> Draft:
    own = headers.parse([each for each in letter.headers if each[0] in _OPTIONS], 0)
    kept = tuple(each for each in letter.headers if each[0] not in MOVED and each[0] not in _OPTIONS)
    return Draft(letter.body or b"", letter.key, kept, priority=own.priority, group=own.group.decode(), dedup=dedup, kept_id=letter.id)
