"""A disk in memory that keeps only what was flushed, and fails when it is told to or when its seed says so.

It is `penstock.env.Disk` for the simulator, and for tests on any event loop: without a virtual clock every wait is one turn of the loop.

Rules:
- `power_cut()` ends the running process: pending changes meet the fates of platter.py, every open file and lock is void. `kill()` ends
  it too, but what was written stays, as the page cache does after kill -9. The same object is then the disk of the next process.
- A file that was opened before such an end raises `PowerCut` when it is used, and so does a flush that was under way.
- `crash_at(n)` raises `PowerCut` in place of the n-th change from now on; the disk then stays dark until `power_cut()`, so that no
  `finally` of the dying code can touch it.
- Only changes are counted as operations (a flush counts twice, where it begins and where it ends): a cut at a read leaves the same disk.

Not here: what survives (platter.py), how often it lies (disk_faults.py).
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, MutableSequence, Sequence
from random import Random
from typing import Any

from penstock.env import File, SyncFailures
from penstock.errors import DiskFailed, DiskFull, ReadFailed
from penstock.simulator.disk_faults import HONEST, DiskFaults
from penstock.simulator.platter import LOSSES, Folder, Inode, Loss, Platter
from penstock.vocabulary import Buffer

IO_ERROR = "input/output error"
NO_ROOM = "no space left"
UNLIMITED_BYTES = 1 << 50


class PowerCut(BaseException):
    """The process that called is no more. Not an Exception: code that survives everything must not survive this."""


class SimFile:
    __slots__ = ("incarnation", "inode", "is_open", "path")

    def __init__(self, path: str, inode: Inode, incarnation: int) -> None:
        self.path = path
        self.inode = inode
        self.incarnation = incarnation
        self.is_open = True


async def _one_turn(seconds: float) -> None:
    await asyncio.sleep(0)


async def _ended_by(cut: PowerCut) -> SyncFailures:
    """Whoever waits for a flush hears of its process's end there, as it does from one that has begun."""
    raise cut


class SimDisk:
    def __init__(
        self,
        seed: int | str = 0,
        faults: DiskFaults = HONEST,
        *,
        capacity_bytes: int = UNLIMITED_BYTES,
        sleep: Callable[[float], Awaitable[None]] = _one_turn,
        tell: Callable[[str, str, int], None] = lambda operation, path, size: None,
        went_dark: Callable[[], None] = lambda: None,
    ) -> None:
        self.faults = faults
        self.capacity_bytes = capacity_bytes
        self.incarnation = 0
        self.operations = 0  # Changes so far, over all incarnations.
        self.fired: Counter[str] = Counter()  # Faults by kind.
        self._rng = Random(f"disk/{seed}")
        self._platter = Platter()
        self._locks: dict[str, bool] = {}  # True: held by another process, which no end of ours frees.
        self._crash_at: int | None = None
        self.is_dark = False  # `crash_at` has struck, `power_cut` has not come yet.
        self._sleep = sleep
        self._tell = tell
        self._went_dark = went_dark
        self._wished_failures: Counter[str] = Counter()  # Of "write" and "read".
        self._flush_failures: list[Callable[[str], bool]] = []  # Which paths each of them is for.
        self._read_failures: list[Callable[[str], bool]] = []
        self._unlink_failures: list[Callable[[str], bool]] = []
        self._bad_places: list[tuple[Inode, int]] = []  # Every read of one of them fails.
        self._order = Random(f"disk/{seed}/order")  # In which the names of a directory go.

    # The door: penstock.env.Disk.

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._check_power()
        node = self._platter.find(path)
        if isinstance(node, Folder):
            raise DiskFailed(f"{path}: is a directory")
        if node is None:
            if not create:
                raise FileNotFoundError(path)
            node = self._create(path)
        node.opens += 1
        return SimFile(path, node, self.incarnation)

    def close(self, file: File) -> None:
        held = self._held(file)
        held.is_open = False
        held.inode.opens -= 1
        self._platter.release(held.inode)

    def append(self, file: File, chunks: Sequence[Buffer]) -> None:
        inode = self._held(file).inode
        content = b"".join(chunks)
        self._count("append", file.path, len(content))
        room = self.free_bytes()
        if len(content) > room:
            self._write_some(inode, content, room)
            self.fired["disk full"] += 1
            raise DiskFull(f"{file.path}: {NO_ROOM} for {len(content)} bytes")
        if self._fails("write", self.faults.write_failure):
            self._write_some(inode, content, len(content))
            raise DiskFailed(f"{file.path}: {IO_ERROR} while writing")
        self._platter.write(inode, content)

    def rewrite(self, file: File, position: int, content: Buffer) -> None:
        inode = self._held(file).inode
        if position + len(content) > len(inode.current):
            raise ValueError(f"{file.path}: only bytes that are there are written over")
        self._count("rewrite", file.path, len(content))
        if self._fails("write", self.faults.write_failure):
            raise DiskFailed(f"{file.path}: {IO_ERROR} while writing")
        self._platter.rewrite(inode, position, bytes(content))

    def read_at(self, file: File, position: int, size: int) -> bytes:
        inode = self._held(file).inode
        if self._fails("read", self.faults.read_failure) or self._is_wished(self._read_failures, file.path):
            raise ReadFailed(f"{file.path}: {IO_ERROR} while reading")
        if any(inode is bad and position <= at < position + size for bad, at in self._bad_places):
            self.fired["bad sector"] += 1
            raise ReadFailed(f"{file.path}: {IO_ERROR} while reading at {position}")
        return bytes(memoryview(inode.current)[position : position + size])

    def read_now(self, file: File, position: int, size: int) -> bytes | None:
        if self.faults.cold_read and self._rng.random() < self.faults.cold_read:
            self._held(file)
            self.fired["cold read"] += 1
            return None
        return self.read_at(file, position, size)

    async def read_later(self, file: File, position: int, size: int) -> bytes:
        self._held(file)
        await self._sleep(self._rng.uniform(self.faults.read_seconds_min, self.faults.read_seconds_max))
        return self.read_at(file, position, size)

    def size(self, file: File) -> int:
        return self._held(file).inode.size

    def truncate(self, file: File, size: int) -> None:
        inode = self._held(file).inode
        if not 0 <= size <= len(inode.current):
            raise ValueError(f"{file.path}: cannot cut {len(inode.current)} bytes at {size}")
        self._count("truncate", file.path, size)
        self._platter.cut(inode, size)

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> Coroutine[Any, Any, SyncFailures]:
        try:
            inodes = [(file.path, self._of_this_process(file).inode) for file in files]
            folders = [(path, self._platter.find(path)) for path in directories]
            self._count("sync", "", len(inodes) + len(folders))
        except PowerCut as cut:
            return _ended_by(cut)
        return self._end_sync([*inodes, *folders], len(inodes), self._platter.next_change)

    def sync_then(self, files: Sequence[File], directories: Sequence[str], ended: Callable[[SyncFailures | BaseException], None]) -> None:
        def told(flushing: asyncio.Future[SyncFailures]) -> None:
            try:
                answer: SyncFailures | BaseException = flushing.result()
            except BaseException as failure:
                answer = failure
            ended(answer)

        asyncio.ensure_future(self.sync(files, directories)).add_done_callback(told)

    async def _end_sync(self, nodes: Sequence[tuple[str, Inode | Folder | None]], files: int, until: int) -> SyncFailures:
        """Of the nodes, so many from the first are files."""
        incarnation = self.incarnation
        await self._sleep(self._sync_seconds())
        if self.incarnation != incarnation:
            raise PowerCut("the flush outlived its process")
        self._count("synced", "", len(nodes))
        chances = (self.faults.flush_failure, self.faults.name_flush_failure)
        failed = [path for at, (path, node) in enumerate(nodes) if not self._flush(path, node, until, chances[at >= files])]
        return [(path, IO_ERROR) for path in failed]

    def mkdir(self, path: str) -> None:
        self._check_power()
        made: list[str] = []
        for part in path.split("/"):
            made.append(part)
            here = "/".join(made)
            if self._platter.find(here) is None:
                self._count("mkdir", here, 0)
                self._need_room(here, "a new directory")
                self._link(here, Folder())

    def list(self, path: str) -> list[str]:
        self._check_power()
        node = self._platter.find(path)
        return sorted(node.current) if isinstance(node, Folder) else []

    def exists(self, path: str) -> bool:
        self._check_power()
        return self._platter.find(path) is not None

    def rename(self, source: str, target: str) -> None:
        self._count("rename", source, 0)
        node, old, new = self._platter.find(source), self._platter.holder(source), self._platter.holder(target)
        if node is None or old is None or new is None:
            raise DiskFailed(f"{source} -> {target}: no such file or directory")
        replaced = new[0].current.get(new[1])
        if replaced is node:
            return
        if isinstance(replaced, Folder) and replaced.current:
            raise DiskFailed(f"{source} -> {target}: directory not empty")
        self._platter.rename((*old, None), (*new, node))
        self._forget(replaced)

    def unlink(self, path: str) -> None:
        """A directory goes name by name, in an order of the seed's, as it would on a real disk: a power cut may find it half gone."""
        self._check_power()
        node, holder = self._platter.find(path), self._platter.holder(path)
        if node is None or holder is None:
            return
        if isinstance(node, Folder):
            names = sorted(node.current)
            self._order.shuffle(names)
            for name in names:
                self.unlink(f"{path}/{name}")
        self._count("unlink", path, 0)
        if self._is_wished(self._unlink_failures, path):
            self.fired["unlink failure"] += 1
            raise DiskFailed(f"{path}: {IO_ERROR} while unlinking")
        self._platter.rename((*holder, None))
        self._forget(node)

    async def allocate(self, path: str, size: int) -> None:
        self.unlink(path)
        if size > self.free_bytes():
            self.fired["disk full"] += 1
            raise DiskFull(f"{path}: {NO_ROOM} for {size} bytes")
        self._count("allocate", path, size)
        self._link(path, Inode(size))
        self._platter.used_bytes += size

    def lock(self, path: str) -> bool:
        self._check_power()
        return not self._locks.setdefault(path, False)

    def free_bytes(self) -> int:
        return max(0, self.capacity_bytes - self._platter.used_bytes)

    def total_bytes(self) -> int:
        return self.capacity_bytes

    # Faults at an exact moment.

    def power_cut(self, loss: Loss | None = None) -> None:
        """Ends the process and takes what was not flushed. `loss` names one fate for all; otherwise the seed draws one for each."""
        fixed = loss or self.faults.loss
        self._platter.lose_power(self._rng, lambda: fixed or self._rng.choice(LOSSES))
        self.fired["power cut"] += 1
        self._end_process()

    def kill(self) -> None:
        """Ends the process; what it wrote stays written, though not flushed."""
        if not self.faults.failed_pages_stay:
            for _, inode in self._platter.files():
                inode.drop_failed_pages()
        self._platter.close_all()
        self._end_process()

    def crash_at(self, operation: int) -> None:
        """Raises `PowerCut` in place of the n-th change from now; 1 is the next one."""
        self._crash_at = self.operations + operation

    def fail_next_write(self, times: int = 1) -> None:
        self._wished_failures["write"] += times

    def fail_next_read(self, times: int = 1) -> None:
        self._wished_failures["read"] += times

    def fail_next_read_where(self, concerns: Callable[[str], bool]) -> None:
        """The next read of a file that the claim holds for."""
        self._read_failures.append(concerns)

    def fail_next_unlink_where(self, concerns: Callable[[str], bool]) -> None:
        """The next removal of a file or directory that the claim holds for. What went before it from the same directory is gone."""
        self._unlink_failures.append(concerns)

    def fail_next_flush(self, path: str | None = None) -> None:
        """The next flush of this file or directory (of anything, if not named) fails; the one after it will claim success."""
        self.fail_next_flush_where(lambda flushed: path in (None, flushed))

    def fail_next_flush_where(self, concerns: Callable[[str], bool]) -> None:
        """The next flush of a file or directory that the claim holds for."""
        self._flush_failures.append(concerns)

    def pacify(self) -> None:
        """Takes back every wish for a failure, and every chance of one; there is room again."""
        self.faults = HONEST
        self.capacity_bytes = UNLIMITED_BYTES
        self._wished_failures.clear()
        self._flush_failures.clear()
        self._read_failures.clear()
        self._unlink_failures.clear()
        if not self.is_dark:
            self._crash_at = None

    def lock_elsewhere(self, path: str) -> None:
        """Another process takes the lock and keeps it."""
        self._locks[path] = True

    # Faults of bytes at rest: they change what is flushed and what is read, silently.

    def files(self) -> Sequence[str]:
        return [path for path, _ in self._platter.files()]

    def snapshot(self, path: str) -> bytes:
        return bytes(self._inode(path).current)

    def flushed(self, path: str) -> bytes:
        """What of the file no power cut can take."""
        return bytes(self._inode(path).flushed)

    def durable(self, path: str) -> bytes:
        """What a power cut leaves under this name if it takes all that it may."""
        holder = self._platter.holder(path)
        node = None if holder is None else holder[0].flushed.get(holder[1])
        return bytes(node.flushed) if isinstance(node, Inode) else b""

    def restore(self, path: str, content: bytes) -> None:
        """Puts old (or foreign, or no) bytes where the file's own were: a stale, swapped or shortened file."""
        inode = self._inode(path)
        self._platter.used_bytes += len(content) - len(inode.current)
        inode.current, inode.flushed, inode.changes = bytearray(content), bytearray(content), []
        self.fired["bytes replaced"] += 1

    def wipe(self) -> None:
        """An empty disk in the place of the old one; only while no process runs."""
        self._platter = Platter()
        self.fired["disk wiped"] += 1

    def lose(self, path: str) -> None:
        """The file is gone, durably, and nobody was told."""
        holder = self._platter.holder(path)
        node = self._platter.find(path)
        if holder is None or node is None:
            raise FileNotFoundError(path)
        self._platter.rename((*holder, None))
        holder[0].flush(self._platter.next_change)
        self._forget(node)
        self.fired["file lost"] += 1

    def rot(self, path: str, position: int | None = None, *, bits: int = 1) -> Sequence[int]:
        """Flips bits of flushed bytes, at `position` or where the seed says; returns the positions."""
        inode = self._inode(path)
        if not inode.flushed:
            return []
        positions = [self._rng.randrange(len(inode.flushed)) if position is None else position for _ in range(bits)]
        for at in positions:
            flipped = 1 << self._rng.randrange(8)
            inode.flushed[at] ^= flipped
            if at < len(inode.current):
                inode.current[at] ^= flipped
        self.fired["bit rot"] += len(positions)
        return positions

    def put_right(self, path: str, position: int, byte: int) -> None:
        """Puts one byte back that has rotted."""
        inode = self._inode(path)
        inode.flushed[position] = byte
        if position < len(inode.current):
            inode.current[position] = byte

    def spoil(self, path: str, position: int) -> None:
        """No read can reach over this position any more, as over a bad sector; another file under this name can be read."""
        self._bad_places.append((self._inode(path), position))

    def _create(self, path: str) -> Inode:
        self._count("create", path, 0)
        self._need_room(path, "a new file")
        inode = Inode()
        self._link(path, inode)
        return inode

    def _need_room(self, path: str, what: str) -> None:
        if self.free_bytes() == 0:
            self.fired["disk full"] += 1
            raise DiskFull(f"{path}: {NO_ROOM} for {what}")

    def _link(self, path: str, node: Inode | Folder) -> None:
        holder = self._platter.holder(path)
        if holder is None:
            raise DiskFailed(f"{path}: no such directory")
        self._platter.rename((*holder, node))

    def _forget(self, node: Inode | Folder | None) -> None:
        if isinstance(node, Inode):
            node.is_linked = False
            self._platter.release(node)

    def _write_some(self, inode: Inode, content: bytes, room: int) -> None:
        """A write that fails has written as much as chance (and room) had it."""
        self._platter.write(inode, content[: self._rng.choice((0, room, self._rng.randint(0, room)))])

    def _flush(self, path: str, node: Inode | Folder | None, until: int, probability: float) -> bool:
        if node is None:
            return False
        if not self._is_wished(self._flush_failures, path) and (not probability or self._rng.random() >= probability):
            node.flush(until)
            return True
        self.fired["flush failure"] += 1
        node.doom(until)
        return False

    def _sync_seconds(self) -> float:
        faults = self.faults
        if faults.slow_sync and self._rng.random() < faults.slow_sync:
            self.fired["slow flush"] += 1
            return faults.slow_sync_seconds
        return self._rng.uniform(faults.sync_seconds_min, faults.sync_seconds_max)

    def _fails(self, kind: str, probability: float) -> bool:
        if self._wished_failures[kind]:
            self._wished_failures[kind] -= 1
        elif not probability or self._rng.random() >= probability:
            return False
        self.fired[f"{kind} failure"] += 1
        return True

    def _is_wished(self, failures: MutableSequence[Callable[[str], bool]], path: str) -> bool:
        for concerns in failures:
            if concerns(path):
                failures.remove(concerns)
                return True
        return False

    def _count(self, operation: str, path: str, size: int) -> None:
        self._check_power()
        self.operations += 1
        if self.operations == self._crash_at:
            self.is_dark = True
            self._went_dark()
            raise PowerCut(f"at {operation} {path}")
        self._tell(operation, path, size)

    def _check_power(self) -> None:
        if self.is_dark:
            raise PowerCut("the disk has no power")

    def _held(self, file: File) -> SimFile:
        held = self._of_this_process(file)
        if not held.is_open:
            raise ValueError(f"{file.path} was closed")
        return held

    def _of_this_process(self, file: File) -> SimFile:
        self._check_power()
        assert isinstance(file, SimFile), "a file of another disk"
        if file.incarnation != self.incarnation:
            raise PowerCut(f"{file.path} was opened by a process that has ended")
        return file

    def _inode(self, path: str) -> Inode:
        node = self._platter.find(path)
        if not isinstance(node, Inode):
            raise FileNotFoundError(path)
        return node

    def _end_process(self) -> None:
        self.incarnation += 1
        self._locks = {path: True for path, is_foreign in self._locks.items() if is_foreign}
        self._crash_at = None
        self.is_dark = False
