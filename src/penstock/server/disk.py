"""The real disk: one data directory, one process.

A file's descriptor is given back only when no flush and no read in another thread uses it: a descriptor number that was reused in
the middle of a flush would vouch for the wrong file. Sizes are remembered, because this process is the only writer (see `lock`).
Write-back of large appends starts early, so that topics which never ask for a flush do not pile up pages until the kernel stalls
every writer.

Not here: how a flush is carried out (flushing.py), what is stored in the files (log/).
"""

import asyncio
import errno
import fcntl
import os
import shutil
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from penstock.env import File, SyncFailures
from penstock.errors import DiskFailed, DiskFull, OutOfHandles, ReadFailed, require
from penstock.server import kernel
from penstock.server.flushing import Flusher
from penstock.server.vigil import Vigil
from penstock.vocabulary import Buffer

WRITE_BACK_BYTES = 4 << 20  # Large enough to be one efficient write, small against the kernel's dirty limits.
WRITE_BACKS_MAX = 64  # Waiting for the device; each holds a descriptor.
READ_THREADS = 4  # Cold reads at a time. More would queue in the device anyway.
_CHUNKS_MAX = 1024  # IOV_MAX on Linux and macOS.
_SCRATCH_BYTES = 32 << 10  # Up to here a second copy costs less than the detour around it.
_RECENT_BYTES = 16 << 20  # Where the system cannot tell what is in memory: what we wrote this lately is taken to be.
_ZEROS_BYTES = 1 << 20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NO_HANDLES = (errno.EMFILE, errno.ENFILE)


class RealFile:
    """An open file. Made by `RealDisk.open` only."""

    __slots__ = ("_users", "fd", "is_closing", "path", "size", "size_at_open", "written_back")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd
        self.size = os.fstat(fd).st_size
        self.size_at_open = self.size
        self.written_back = self.size  # Write-back was asked for below this position.
        self.is_closing = False
        self._users = 0  # Calls in other threads that hold the descriptor.

    def hold(self) -> None:
        assert self.fd >= 0, "a file that is closed"
        self._users += 1

    def release(self) -> None:
        self._users -= 1
        if self.is_closing and self._users == 0:
            self._give_back()

    def close(self) -> None:
        if self.is_closing:
            return
        self.is_closing = True
        if self._users == 0:
            self._give_back()

    def _give_back(self) -> None:
        os.close(self.fd)
        self.fd = -1


class RealDisk:
    """`env.Disk` over one directory, which is made if it is not there. For the loop's thread; `read_at` and `unlink` may be offloaded."""

    def __init__(self, root: str, vigil: Vigil | None = None) -> None:
        """Without a vigil the loop sleeps while it waits for flushes."""
        self._root = os.path.abspath(root)
        _make_durably(self._root)
        self._vigil = vigil or Vigil(0)
        self._flusher = Flusher(self._root, self._vigil)
        self._readers = ThreadPoolExecutor(READ_THREADS, "read")
        self._write_back = ThreadPoolExecutor(1, "write-back")
        self._write_back_slots = threading.Semaphore(WRITE_BACKS_MAX)
        self._scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self._can_refuse_to_wait = kernel.CAN_READ_WITHOUT_WAITING
        self._lock_fds: dict[str, int] = {}
        self._has_news = False  # Something was appended since a flush was last asked for.

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            return RealFile(path, os.open(self._at(path), flags, 0o644))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _disk_failure(path, error) from error

    def close(self, file: File) -> None:
        with _translated(file.path):
            _real(file).close()

    def append(self, file: File, chunks: Sequence[Buffer]) -> None:
        real = _real(file)
        self._has_news = True
        try:
            real.size += _write(real.fd, chunks)
        except OSError as error:
            real.size = os.fstat(real.fd).st_size  # Some of it may have been written.
            raise _disk_failure(real.path, error) from error
        if real.size - real.written_back >= WRITE_BACK_BYTES:
            self._begin_write_back(real)

    def rewrite(self, file: File, position: int, content: Buffer) -> None:
        real, left = _real(file), memoryview(content)
        require(position + len(left) <= real.size, "only bytes that are there are written over")
        self._has_news = True
        with _translated(real.path):
            fd = os.open(self._at(real.path), os.O_WRONLY | os.O_CLOEXEC)  # To the file's own descriptor everything is appended.
            try:
                while left:
                    written = os.pwrite(fd, left, position)
                    left, position = left[written:], position + written
            finally:
                os.close(fd)

    def read_at(self, file: File, position: int, size: int) -> bytes:
        real = _real(file)
        with _translated(real.path, ReadFailed):
            answer = os.pread(real.fd, size, position)
            while len(answer) < size and (more := os.pread(real.fd, size - len(answer), position + len(answer))):
                answer += more
            return answer

    def read_now(self, file: File, position: int, size: int) -> bytes | None:
        real = _real(file)
        wanted = max(0, min(size, real.size - position))
        if not self._can_refuse_to_wait:
            return self.read_at(real, position, wanted) if _is_recent(real, position) else None
        try:
            if wanted > _SCRATCH_BYTES:
                return kernel.read_without_waiting(real.fd, position, wanted)
            got = os.preadv(real.fd, [self._scratch[:wanted]], position, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise _disk_failure(real.path, error, ReadFailed) from error
            self._can_refuse_to_wait = False  # FUSE among others.
            return self.read_now(real, position, size)
        return bytes(self._scratch[:wanted]) if got == wanted else None  # The rest is not in memory.

    async def read_later(self, file: File, position: int, size: int) -> bytes:
        real = _real(file)
        reading = asyncio.get_running_loop().run_in_executor(self._readers, self.read_at, real, position, size)
        real.hold()
        self._vigil.threads += 1

        def ended(_: object) -> None:  # Also when nobody waits for the answer any more.
            self._vigil.threads -= 1
            real.release()

        reading.add_done_callback(ended)
        return await asyncio.shield(reading)

    def size(self, file: File) -> int:
        return _real(file).size

    def truncate(self, file: File, size: int) -> None:
        real = _real(file)
        with _translated(real.path):
            os.ftruncate(real.fd, size)
        real.size = size
        real.size_at_open = min(real.size_at_open, size)
        real.written_back = min(real.written_back, size)

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> Awaitable[SyncFailures]:
        answer: asyncio.Future[SyncFailures] = asyncio.get_running_loop().create_future()

        def ended(failures: SyncFailures) -> None:
            if not answer.done():  # A caller may have given up waiting.
                answer.set_result(failures)

        self._flush(files, directories, ended)
        return answer

    def sync_then(self, files: Sequence[File], directories: Sequence[str], ended: Callable[[SyncFailures], None]) -> None:
        def ended_now(failures: SyncFailures) -> None:
            if self._has_news:  # Those who are read from in this turn of the loop shall be covered, too, by the round that comes next.
                asyncio.get_running_loop().call_soon(ended, failures)
            else:
                ended(failures)

        self._has_news = False
        self._flush(files, directories, ended_now)

    def _flush(self, files: Sequence[File], directories: Sequence[str], ended: Callable[[SyncFailures], None]) -> None:
        if not files and not directories:
            ended([])
            return
        held = [_real(file) for file in files]
        for file in held:
            file.written_back = file.size  # The flush writes it all; write-back starts counting from here.
        self._flusher.flush(held, directories, ended)

    def mkdir(self, path: str) -> None:
        with _translated(path):
            os.makedirs(self._at(path), exist_ok=True)

    def list(self, path: str) -> list[str]:
        with _translated(path):
            try:
                return sorted(os.listdir(self._at(path)))
            except FileNotFoundError:
                return []

    def exists(self, path: str) -> bool:
        return os.path.lexists(self._at(path))

    def rename(self, source: str, target: str) -> None:
        with _translated(source):
            os.replace(self._at(source), self._at(target))

    def unlink(self, path: str) -> None:
        full_path = self._at(path)
        with _translated(path):
            try:
                if os.path.isdir(full_path) and not os.path.islink(full_path):
                    shutil.rmtree(full_path)
                else:
                    os.unlink(full_path)
            except FileNotFoundError:
                return

    async def allocate(self, path: str, size: int) -> None:
        """In a thread: a file system that cannot set room aside has to write it."""
        allocating = asyncio.get_running_loop().run_in_executor(self._write_back, self._allocate, path, size)
        self._vigil.threads += 1

        def ended(_: object) -> None:
            self._vigil.threads -= 1

        allocating.add_done_callback(ended)
        await asyncio.shield(allocating)

    def _allocate(self, path: str, size: int) -> None:
        with _translated(path):
            fd = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                _take_room(fd, size)
            except OSError:
                os.unlink(self._at(path))
                raise
            finally:
                os.close(fd)

    def lock(self, path: str) -> bool:
        """The kernel lets go when the process ends, however it ends: a lock file that was left behind is harmless."""
        if path in self._lock_fds:
            return True
        with _translated(path):
            fd = os.open(self._at(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return False
        self._lock_fds[path] = fd
        return True

    def free_bytes(self) -> int:
        with _translated(""):
            answer = os.statvfs(self._root)
        return answer.f_bavail * answer.f_frsize

    def total_bytes(self) -> int:
        with _translated(""):
            answer = os.statvfs(self._root)
        return answer.f_blocks * answer.f_frsize

    def shut(self) -> None:
        """Ends the threads and lets go of the locks. Waits for what they are doing; may be called twice."""
        for threads in (self._readers, self._write_back):
            threads.shutdown()
        self._flusher.close()
        for fd in self._lock_fds.values():
            os.close(fd)
        self._lock_fds.clear()

    def _at(self, path: str) -> str:
        return f"{self._root}/{path}"

    def _begin_write_back(self, file: RealFile) -> None:
        """In a thread, because the call waits when the device's queue is full; when too many wait, a later append asks again."""
        if not self._write_back_slots.acquire(blocking=False):
            return
        position, file.written_back = file.written_back, file.size
        fd = os.dup(file.fd)  # So that the file may be closed meanwhile.
        self._write_back.submit(self._run_write_back, fd, position, file.size - position)

    def _run_write_back(self, fd: int, position: int, size: int) -> None:
        try:
            kernel.start_write_back(fd, position, size)
        finally:
            os.close(fd)
            self._write_back_slots.release()


def _make_durably(root: str) -> None:
    """Makes the data directory and its missing parents, and their names durable: without them a power cut takes all that is inside.

    The last name is flushed also when it was there: the process that made it may have died before it came to that.
    """
    made = [root]
    while not os.path.isdir(os.path.dirname(made[-1])):
        made.append(os.path.dirname(made[-1]))
    os.makedirs(root, exist_ok=True)
    for path in reversed(made):
        with suppress(PermissionError):  # A parent that may not be read is one in which somebody else made the directory.
            parent = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
            try:
                kernel.flush_directory(parent)
            finally:
                os.close(parent)


def _real(file: File) -> RealFile:
    assert isinstance(file, RealFile), "a file of another disk"
    return file


def _write(fd: int, chunks: Sequence[Buffer]) -> int:
    """Writes everything, however many calls it takes. One chunk, the usual case, is one call."""
    total = sum(map(len, chunks))
    written = os.write(fd, chunks[0]) if len(chunks) == 1 else os.writev(fd, chunks[:_CHUNKS_MAX])
    if written == total:
        return total
    rest = memoryview(b"".join(chunks))  # Rare: more chunks than one call takes, a signal, or a disk about to be full.
    while written < total:
        written += os.write(fd, rest[written:])
    return total


def _take_room(fd: int, size: int) -> None:
    """Sets room aside for an empty file."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(fd, 0, size)
        return
    zeros = bytes(min(size, _ZEROS_BYTES))  # macOS.
    while size:
        size -= os.write(fd, zeros[:size])


def _is_recent(file: RealFile, position: int) -> bool:
    return position >= file.size_at_open and position >= file.size - _RECENT_BYTES


def _disk_failure(path: str, error: OSError, otherwise: type[DiskFailed] = DiskFailed) -> DiskFailed:
    kind = OutOfHandles if error.errno in _NO_HANDLES else DiskFull if error.errno in _FULL else otherwise
    return kind(f"{path or 'data directory'}: {error.strerror}")


@contextmanager
def _translated(path: str, otherwise: type[DiskFailed] = DiskFailed) -> Iterator[None]:
    """OSError stays behind this door."""
    try:
        yield
    except OSError as error:
        raise _disk_failure(path, error, otherwise) from error
