"""A log on a disk of the test's choice, with an owner who remembers what it was told.

The owner's state is the list of base offsets it has seen, so that a test can tell whether `restore` and `replay` gave it everything once.
"""

import asyncio
import pickle
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple, TypeVar

from penstock.env import Disk
from penstock.log.config import LogConfig, LogIdentity
from penstock.log.log import Log
from penstock.log.open_files import OpenFiles
from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import Folder, Inode, Platter
from penstock.vocabulary import Instant, TopicId
from penstock.wire.batches import BatchHeader, Record, decode_records, encode_batch, read_header

T = TypeVar("T")

DIRECTORY = "topics/ab/0"
IDENTITY = LogIdentity(TopicId(b"0123456789abcdef"), 0)
FIRST_MS = 1_700_000_000_000
SMALL = LogConfig(segment_bytes=2_000, index_interval_bytes=300)
ALL = 1 << 60


def run(test: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(test)


class Moment(NamedTuple):
    """What `crash_at` would leave of a life at one operation, which is not carried out."""

    operation: str  # And its path; "" is the end of the life.
    held: bytes

    def revive(self, seed: int) -> "tuple[RecordingDisk, Any]":
        """A disk in this state, with chances of its own, and what its owner remembered."""
        platter, memory = pickle.loads(self.held)
        return RecordingDisk(seed, platter), memory


class Outcomes:
    """What cuts left on the disk, and what was promised by then. Each is looked at once: most cuts leave what another one left.

    After a kill the disk is told apart by what it has yet to flush as well, because the next power cut decides about that.
    """

    def __init__(self) -> None:
        self._seen: set[object] = set()

    @property
    def states(self) -> int:
        """How many states were looked at, each of which differs from all others."""
        return len(self._seen)

    def is_new(self, disk: "RecordingDisk", *promised: object) -> bool:
        before = len(self._seen)
        self._seen.add((disk.contents(), promised))
        return len(self._seen) > before


def _names_of(folder: Folder) -> object:
    pending = [change for change in folder.changes if not change.is_settled]
    names = tuple((tuple((name, node is None) for _, name, node in change.edits), change.is_doomed) for change in pending)
    return tuple(sorted(folder.flushed)), names


def _pending_of(file: Inode) -> object:
    return tuple((change.position, change.content, change.is_doomed) for change in file.changes)


class RecordingDisk(SimDisk):
    """A disk that can be had again as it was at every operation of a life, so that a life is not lived once for each of them."""

    def __init__(self, seed: int = 0, held: Platter | None = None) -> None:
        super().__init__(seed, tell=lambda operation, path, _: self._keep(f"{operation} {path}"))
        self._platter = held or self._platter
        self._memory: Callable[[], object] | None = None
        self._moments: list[Moment] = []

    def contents(self) -> object:
        """All that is on this disk: what a process sees, and what a power cut would leave."""
        folders = [(path, self._platter.find(path)) for path in ("topics", "topics/ab", DIRECTORY)]
        return (
            tuple((path, _names_of(folder)) for path, folder in folders if isinstance(folder, Folder)),
            tuple((path, bytes(file.current), bytes(file.flushed), _pending_of(file)) for path, file in self._platter.files()),
        )

    async def record(self, life: Coroutine[Any, Any, None], memory: Callable[[], object]) -> list[Moment]:
        """Every operation of the life and its end; `memory` is what its owner remembers then."""
        self._memory, self._moments = memory, []
        await life
        self._keep("")
        self._memory = None
        return self._moments

    def _keep(self, operation: str) -> None:
        if self._memory is not None:
            self._moments.append(Moment(operation, pickle.dumps((self._platter, self._memory()))))


class StillEnv:
    """Time stands still unless the test moves it."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.rng = Random(1)
        self.wall = FIRST_MS

    def now(self) -> Instant:
        return Instant(0.0)

    def wall_ms(self) -> int:
        return self.wall

    async def offload(self, function: Callable[..., T], *arguments: object) -> T:
        return function(*arguments)


def batch_at(offset: int, *, records: int = 1, value: bytes = b"v" * 100, epoch: int = 0, timestamps: tuple[int, ...] = ()) -> bytearray:
    times = timestamps or tuple(FIRST_MS + offset + delta for delta in range(records))
    return encode_batch(
        [Record(key=b"k", value=value, timestamp_ms=timestamp) for timestamp in times], base_offset=offset, leader_epoch=epoch
    )


class Bench:
    """One log and its owner. `open` begins a new life of both."""

    def __init__(self, disk: Disk, config: LogConfig = SMALL, *, directory: str = DIRECTORY, identity: LogIdentity = IDENTITY) -> None:
        self.env = StillEnv(disk)
        self.disk = disk
        self.config = config
        self.directory = directory
        self.identity = identity
        self.seen: list[int] = []
        self.restored: list[bytes] = []
        self.damaged: list[int] = []  # Offsets at which reads have found damage.
        self.log: Log

    async def open(
        self, *, is_clean: bool = False, epoch_max: int = 2**31 - 1, files_max: int = 100, known_end: int = 0, accepts_loss: bool = False
    ) -> Log:
        self.seen, self.restored, self.damaged = [], [], []
        self.files = OpenFiles(self.disk, files_max)
        self.log = await Log.open(
            self.env, self.directory, self.identity, self.config, self.files,
            is_clean=is_clean, restore=self._restore, replay=self._replay, epoch_max=epoch_max,
            known_end=known_end, accepts_loss=accepts_loss, on_damage=self.damaged.append,
        )  # fmt: skip
        return self.log

    def append(self, count: int = 1, **kwargs: Any) -> None:
        for _ in range(count):
            batch = batch_at(self.log.end_offset, **kwargs)
            self.log.append(batch, read_header(batch))
            self.seen.append(read_header(batch).base_offset)

    async def checkpoint(self) -> None:
        captured = self.log.begin_checkpoint(self.state())
        await self.log.flush()
        await self.log.write_checkpoint(captured)

    async def close(self) -> None:
        await self.log.close(self.state())

    async def retain(self, wall_ms: int, end_offset_max: int = ALL) -> bool:
        """One round of retention, as the node does it; whether anything was found to go."""
        plan = self.log.expired(wall_ms, min(end_offset_max, self.log.end_offset))
        if plan is not None:
            await self.checkpoint()
            await self.log.delete_segments(plan)
        return plan is not None

    def state(self) -> bytes:
        return b"".join(base.to_bytes(8, "big") for base in self.seen)

    async def read_all(self, start: int | None = None, *, bytes_max: int = 700) -> bytes:
        """Everything from the start to the end, by reads that now and then must wait."""
        log, offset, found = self.log, self.log.start_offset if start is None else start, []
        while offset < log.end_offset:
            batches = log.read(offset, bytes_max=bytes_max, end_offset=log.end_offset)
            if batches is None:
                batches = await log.read_later(offset, bytes_max=bytes_max, end_offset=log.end_offset)
            assert batches, f"nothing to read at {offset}, though the log ends at {log.end_offset}"
            found.append(bytes(batches))
            offset = headers_in(batches)[-1].end_offset
        return b"".join(found)

    def path(self, base_offset: int, suffix: str = ".log") -> str:
        return f"{self.directory}/{base_offset:020}{suffix}"

    def _restore(self, extra: bytes) -> None:
        self.restored.append(extra)
        self.seen = [int.from_bytes(extra[at : at + 8], "big") for at in range(0, len(extra), 8)]

    def _replay(self, header: BatchHeader) -> None:
        self.seen.append(header.base_offset)


def headers_in(batches: Any) -> list[BatchHeader]:
    headers, at = [], 0
    while at < len(batches):
        headers.append(read_header(batches, at))
        at += headers[-1].size
    return headers


def bases_in(batches: Any) -> list[int]:
    return [header.base_offset for header in headers_in(batches)]


def records_in(batches: Any) -> list[Record]:
    found, at = [], 0
    for header in headers_in(batches):
        found += decode_records(bytes(batches[at : at + header.size]), bytes_max=1 << 20)
        at += header.size
    return found
