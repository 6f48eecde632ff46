"""The one door between the broker and the world.

Everything in `broker/` and below reaches clock, chance, threads and disk only through an `Env`; the event loop itself is the
network's door. `server/` holds the real one, `simulator/` the one that is driven by a seed. Nothing here does anything.

Rules for both worlds:
- Paths are strings with "/" between parts, relative to the data directory.
- What was appended is not durable until a `sync` that began after it has ended without naming that file.
- A name (a new file, a rename, an unlink) is not durable until its directory has been synced.
- A failed call raises `DiskFailed` (`DiskFull` when there was no room) and never OSError.
"""

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Protocol, TypeVar

from penstock.vocabulary import Buffer, Instant

T = TypeVar("T")

SyncFailures = list[tuple[str, str]]  # (path, what the disk said)


class File(Protocol):
    """An open file. Only the disk that opened it knows what is inside."""

    @property
    def path(self) -> str: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and appending. A missing file is made with `create`, and raises `FileNotFoundError` without."""

    def close(self, file: File) -> None: ...

    def append(self, file: File, chunks: Sequence[Buffer]) -> None:
        """Writes all chunks at the end, in order, or raises; after a raise the file's tail is unknown. The bytes may be reused at once."""

    def rewrite(self, file: File, position: int, content: Buffer) -> None:
        """Writes over bytes that the file has, with as many. Until it is flushed each sector is as before or as written now."""

    def read_at(self, file: File, position: int, size: int) -> bytes:
        """Reads up to `size` bytes, fewer only at the end of the file. May wait for the disk: for starting up, not for the loop.
        Raises ReadFailed where bytes that are there cannot be read, as do the other two."""

    def read_now(self, file: File, position: int, size: int) -> bytes | None:
        """Like `read_at`, but None where the answer would have to wait for the disk."""

    async def read_later(self, file: File, position: int, size: int) -> bytes:
        """Like `read_at`, off the loop: a cold read stalls nobody else."""

    def size(self, file: File) -> int: ...

    def truncate(self, file: File, size: int) -> None: ...

    def sync(self, files: Sequence[File], directories: Sequence[str] = ()) -> Awaitable[SyncFailures]:
        """Begins to make durable what was appended (and truncated) to the files, and named in the directories, before this call.

        The answer, when that has ended: what could not be made durable; empty means all of it is. Never raises for a failed flush.
        """

    def sync_then(self, files: Sequence[File], directories: Sequence[str], ended: Callable[[SyncFailures | BaseException], None]) -> None:
        """As `sync`, of something, for whoever does that all the time: calls `ended` with the answer, never before this returns.
        If anything was appended meanwhile, that is when all that is ready by now has run. An exception in its place: the world ends."""

    def mkdir(self, path: str) -> None:
        """Makes the directory and its missing parents; no error if it is there."""

    def list(self, path: str) -> list[str]:
        """Names in a directory, sorted; empty for a directory that is not there."""

    def exists(self, path: str) -> bool: ...

    def rename(self, source: str, target: str) -> None:
        """Replaces `target` if it is there. Works on directories too."""

    def unlink(self, path: str) -> None:
        """Removes a file, or a directory with all that is in it; no error if it is not there. A file that is still open stays readable."""

    async def allocate(self, path: str, size: int) -> None:
        """Makes a file of `size` bytes of no particular content that takes as much room, in place of one that is there.

        It is not flushed. Where it raises, no such file is left.
        """

    def lock(self, path: str) -> bool:
        """Takes the path for this process until it ends; False if another process has it."""

    def free_bytes(self) -> int: ...

    def total_bytes(self) -> int:
        """How large the disk is, used or not."""


class Env(Protocol):
    @property
    def rng(self) -> Random:
        """Chance, not for secrets."""

    def nonce(self, size: int) -> bytes:
        """Bytes that nobody can foretell, for proving a secret; never the secret itself."""

    @property
    def disk(self) -> Disk: ...

    def now(self) -> Instant:
        """Monotonic seconds: the loop's own clock."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, which may jump: for timestamps that people and clients see, never for time-outs."""

    async def offload(self, function: Callable[..., T], *arguments: object) -> T:
        """Runs a pure function over bytes away from the loop."""
