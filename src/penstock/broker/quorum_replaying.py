"""Replays what is committed into the image, one entry after another, in a task of its own: consensus never waits for it.

`on_replayed` is told of each record after the image has it, and may take its time; what was decided is answered after that. A leader's
snapshot replaces everything in the image at once, and is told as a whole (`on_installed`). Nothing committed is refused: what cannot be
replayed ends the node.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import fields
from typing import NamedTuple, assert_never

from penstock.broker import quorum_snapshots
from penstock.broker.backlog import Backlog
from penstock.broker.quorum_entries import decode_decision
from penstock.broker.quorum_files import Snapshot
from penstock.cluster import records
from penstock.cluster.image import ClusterImage
from penstock.consensus.nouns import Entry, Kind, Term
from penstock.env import Env
from penstock.vocabulary import Offset

ENTRIES_AT_ONCE = 50  # In one turn of the loop.


class Committed(NamedTuple):
    entries: Sequence[Entry]


class Installed(NamedTuple):
    snapshot: Snapshot


class Elected(NamedTuple):
    """Everything before this is what any leader before committed."""

    term: Term


Item = Committed | Installed | Elected


class Replayer:
    def __init__(
        self, env: Env, image: ClusterImage, end: Offset, on_replayed: Callable[[records.Record], Awaitable[None]], *,
        on_elected: Callable[[Term], None], on_installed: Callable[[ClusterImage], Awaitable[None]],
        on_unsaved: Callable[[], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._env = env
        self._on_replayed = on_replayed
        self._on_elected = on_elected
        self._on_installed = on_installed
        self._on_unsaved = on_unsaved
        self.backlog: Backlog[Item] = Backlog()
        self._waiting: list[tuple[Offset, asyncio.Future[None]]] = []
        self._failure: Exception | None = None
        self.image = image
        self.end = end  # Everything below is in the image, and was told.
        self.unsaved_bytes = 0  # Of entries that no snapshot has.
        self.installs_under_way = 0  # Snapshots of a leader's that are on their way to the image.

    async def until(self, end: Offset) -> None:
        """Everything below `end` is replayed."""
        if self._failure is not None:
            raise self._failure
        if self.end < end:
            done = asyncio.get_running_loop().create_future()
            self._waiting.append((end, done))
            await done

    def fail(self, failure: Exception) -> None:
        """Whoever waits, or comes later, waits in vain."""
        self._failure = failure
        self.backlog.give_up()
        for _, done in self._waiting:
            if not done.done():
                done.set_exception(failure)
        self._waiting.clear()

    async def run(self) -> None:
        await self.backlog.work(self._take)

    async def _take(self, item: Item) -> None:
        match item:
            case Committed():
                for count, entry in enumerate(item.entries, 1):
                    await self._replay(entry)
                    if count % ENTRIES_AT_ONCE == 0:
                        await asyncio.sleep(0)
            case Installed():
                await self._install(item.snapshot)
            case Elected():
                self._on_elected(item.term)
            case _:
                assert_never(item)

    async def _replay(self, entry: Entry) -> None:
        if entry.kind is Kind.PAYLOAD:
            for record in decode_decision(entry.payload):
                self.image.replay(record)
                await self._on_replayed(record)
        self._reached(Offset(self.end + 1))
        self.unsaved_bytes += len(entry.payload)
        if self.unsaved_bytes >= quorum_snapshots.SNAPSHOT_EVERY_BYTES:
            await self._on_unsaved()

    async def _install(self, snapshot: Snapshot) -> None:
        """The image stays the same object, so that whoever has it sees what holds now."""
        fresh = await quorum_snapshots.decode(self._env, snapshot.content)
        for field in fields(fresh):
            setattr(self.image, field.name, getattr(fresh, field.name))
        await self._on_installed(self.image)
        self.unsaved_bytes = 0
        self.installs_under_way -= 1
        self._reached(snapshot.head.end)

    def _reached(self, end: Offset) -> None:
        self.end = end
        if self._waiting:
            for wanted, done in self._waiting:
                if wanted <= end and not done.done():
                    done.set_result(None)
            self._waiting = [(wanted, done) for wanted, done in self._waiting if wanted > end and not done.done()]
