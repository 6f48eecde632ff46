"""The one task that writes a replica's disk, in the order in which its core wished it.

Entries that came while a flush was under way share the next one. Of votes that follow each other only the last is written.
A failed write or flush ends the task, and with it the node: nobody knows what the disk has.

A full disk is no failure. What was proposed cannot be taken back, and to end the process would free no room; so the write is tried again
until there is. Meanwhile nothing of it is confirmed: a follower without room doesn't answer, a candidate doesn't win, and a leader is told
(`on_no_room`), so that it can hand its office to a voter that has room. New decisions are refused before they are proposed.
A snapshot of one's own that finds no room is given up: the log says the same.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import NamedTuple, TypeVar, assert_never

from penstock.broker.backlog import Backlog
from penstock.broker.quorum_files import Snapshot
from penstock.broker.quorum_store import Store
from penstock.consensus.effects import PersistEntries, PersistVote
from penstock.consensus.nouns import Entry
from penstock.errors import DiskFull
from penstock.vocabulary import Offset

T = TypeVar("T")

RETRY_SECONDS_MIN, RETRY_SECONDS_MAX = 0.05, 1.0


class Install(NamedTuple):
    """A leader's snapshot, whole."""

    sequence: int
    snapshot: Snapshot


class Keep(NamedTuple):
    """A snapshot of one's own."""

    snapshot: Snapshot


Job = PersistVote | PersistEntries | Install | Keep


class Persister:
    def __init__(
        self, store: Store, *,
        on_persisted: Callable[[int], None], on_installed: Callable[[Snapshot], None], on_kept: Callable[[Offset | None], None],
        on_no_room: Callable[[DiskFull], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._on_persisted = on_persisted
        self._on_installed = on_installed
        self._on_kept = on_kept
        self._on_no_room = on_no_room
        self.backlog: Backlog[Job] = Backlog()
        self.is_patient = True  # False: a full disk is a failure.
        self.is_out_of_room = False

    async def run(self) -> None:
        await self.backlog.work(self._do)

    async def _do(self, job: Job) -> None:
        match job:
            case PersistVote():
                self._on_persisted(await self._write_vote(job))
            case PersistEntries():
                self._on_persisted(await self._write_entries(job))
            case Install():
                await self._when_there_is_room(self._store.install, job.snapshot)
                self._on_installed(job.snapshot)
                self._on_persisted(job.sequence)
            case Keep():
                await self._keep(job.snapshot)
            case _:
                assert_never(job)

    async def _write_vote(self, job: PersistVote) -> int:
        waiting = self.backlog.items
        while waiting and isinstance(later := waiting[0], PersistVote):
            waiting.popleft()
            job = later
        await self._when_there_is_room(self._store.write_vote, job)
        return job.sequence

    async def _write_entries(self, job: PersistEntries) -> int:
        """As many jobs as there are, and one flush."""
        waiting = self.backlog.items
        while True:
            await self._store.cut(job.first)
            for entry in job.entries:
                await self._when_there_is_room(self._append, entry)
            if not waiting or not isinstance(following := waiting[0], PersistEntries):
                break
            waiting.popleft()
            job = following
        await self._store.flush()
        return job.sequence

    async def _append(self, entry: Entry) -> None:
        self._store.append(entry)

    async def _keep(self, snapshot: Snapshot) -> None:
        with suppress(DiskFull):
            await self._store.keep(snapshot)
        is_kept = self._store.snapshot == snapshot.head
        self._on_kept(snapshot.head.end if is_kept else None)

    async def _when_there_is_room(self, write: Callable[[T], Awaitable[None]], what: T) -> None:
        seconds = RETRY_SECONDS_MIN
        while True:
            try:
                await write(what)
                self.is_out_of_room = False
                return
            except DiskFull as full:
                if not self.is_patient:
                    raise
                self.is_out_of_room = True
                self._on_no_room(full)
            await asyncio.sleep(seconds)
            seconds = min(2 * seconds, RETRY_SECONDS_MAX)
