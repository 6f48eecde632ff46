"""Group commit: one flush round at a time, over every log that wants one.

A round covers what was appended before it began. Appends that come meanwhile wait for the next round. That begins at once, before those
whom the last one served are answered, so that the disk never waits for us: no timer, no batching delay, and the busier the node the more
each round carries. Logs that promise less (`flush` interval or os) ask for a round by a deadline instead. A round that fails takes the
logs it covered offline; a later success of the disk is not believed.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

from penstock.env import Env, File, SyncFailures
from penstock.errors import BrokenPromise
from penstock.partition.partition import Flush, Partition
from penstock.vocabulary import Instant

log = logging.getLogger("penstock")

SOON_SECONDS = 0.05  # What is due this soon is flushed with what is due now, so that many deadlines make few rounds.


Covered = list[tuple[Partition, Flush]]
Waiting = list[asyncio.Future[None]]


class Flusher:
    def __init__(self, env: Env, on_settled: Callable[[Partition], None], on_broken_promise: Callable[[BaseException], None]) -> None:
        self._env = env
        self._on_settled = on_settled  # Called for each partition of a round once its log knows how the round ended.
        self._on_broken_promise = on_broken_promise
        self._wanted: dict[Partition, None] = {}
        self._by_deadline: dict[Partition, Instant] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_busy = False  # A round is under way, or about to begin.
        self._waiting: Waiting = []  # For the end of the next round.
        self.rounds_done = 0
        self.seconds_flushing = 0.0

    def request(self, partition: Partition) -> None:
        """The partition's log has bytes that somebody waits for."""
        self._wanted[partition] = None
        if not self._is_busy:
            self._is_busy = True
            # In the next turn of the loop: whoever else was read from in this one shall be covered, too.
            asyncio.get_running_loop().call_soon(self._begin_round)

    def request_by(self, partition: Partition, deadline: Instant) -> None:
        """The partition's log has bytes that must be flushed by then; an earlier deadline stands."""
        if partition in self._by_deadline:
            return
        self._by_deadline[partition] = deadline
        if self._timer is None or deadline < self._timer.when():
            self._set_timer(deadline)

    async def flush(self, partitions: list[Partition]) -> None:
        """Waits until what these logs have now is flushed, or has failed to be."""
        for partition in partitions:
            self.request(partition)
        if self._is_busy:
            await self._next_round()

    async def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        while self._is_busy:
            await self._next_round()

    def _next_round(self) -> asyncio.Future[None]:
        """Done when the round that begins next has ended, or none is wanted any more."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        return done

    def _begin_round(self) -> None:
        """Over all who want one by now. Those of them who need none are answered at once."""
        while self._wanted:
            wanted, self._wanted = self._wanted, {}
            waiting, self._waiting = self._waiting, []
            covered: Covered = []
            for partition in wanted:
                if self._by_deadline:
                    self._by_deadline.pop(partition, None)
                try:
                    if (flush := partition.begin_flush()) is not None:
                        covered.append((partition, flush))
                except Exception:  # One partition that cannot be flushed must not keep the others from it.
                    log.exception("the flush of %s-%d could not begin", partition.topic, partition.index)
            if covered:
                self._flush(covered, waiting)
                return
            self._answer([], waiting)
        self._is_busy = False
        if self._waiting:
            waiting, self._waiting = self._waiting, []
            self._answer([], waiting)

    def _flush(self, covered: Covered, waiting: Waiting) -> None:
        files: Sequence[File]
        directories: Sequence[str]
        if len(covered) == 1:
            files, directories = covered[0][1].ticket[:2]
        else:
            files = [file for _, flush in covered for file in flush.ticket.files]
            directories = list(dict.fromkeys(directory for _, flush in covered for directory in flush.ticket.directories))
        self._env.disk.sync_then(files, directories, partial(self._round_ended, covered, waiting, self._env.now()))

    def _round_ended(self, covered: Covered, waiting: Waiting, began: Instant, failures: SyncFailures | BaseException) -> None:
        self.rounds_done += 1
        self.seconds_flushing += self._env.now() - began
        try:
            if isinstance(failures, BaseException):
                raise failures
            for partition, flush in covered:
                partition.end_flush(flush, failures)
        except asyncio.CancelledError:
            pass  # The loop ends, and nothing is vouched for.
        except BaseException as failure:
            self._erred(failure)
        self._begin_round()  # First: the disk works while we answer.
        self._answer(covered, waiting)

    def _erred(self, failure: BaseException) -> None:
        """The disk tells of failed flushes in another way: this is a defect, or a simulated process that ends."""
        log.error("a flush round failed", exc_info=failure)
        if not isinstance(failure, Exception):
            self._on_broken_promise(failure)

    def _answer(self, covered: Covered, waiting: Waiting) -> None:
        try:
            for partition, _ in covered:
                try:
                    self._on_settled(partition)
                except Exception:  # Who waits for one partition must not keep those of another from hearing.
                    log.exception("answering for %s-%d failed", partition.topic, partition.index)
        except BrokenPromise as broken:
            self._on_broken_promise(broken)
        for done in waiting:
            if not done.done():
                done.set_result(None)

    def _set_timer(self, deadline: Instant) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(deadline, self._deadline_came)

    def _deadline_came(self) -> None:
        self._timer = None
        soon = self._env.now() + SOON_SECONDS
        for partition in [partition for partition, deadline in self._by_deadline.items() if deadline <= soon]:
            del self._by_deadline[partition]
            self.request(partition)
        if self._by_deadline:
            self._set_timer(min(self._by_deadline.values()))
