"""Small files that are either whole or not believed: sealed with their kind, a format version and a checksum, and replaced in one step.

The seal's own layout never changes, so that any version of Penstock can tell a newer file from a damaged one.
"""

from collections.abc import Sequence
from struct import Struct
from zlib import crc32

from penstock.env import Disk, File
from penstock.errors import DiskFailed
from penstock.log.faults import NewerFormat
from penstock.vocabulary import Buffer

TEMPORARY = ".tmp"

_SEAL = Struct("<8sHHII")  # kind, format version, zero, bytes of body, checksum of everything before it and of the body
_CHECKSUM_BYTES = 4


def seal(kind: bytes, version: int, body: bytes) -> bytes:
    unsigned = _SEAL.pack(kind, version, 0, len(body), 0)[:-_CHECKSUM_BYTES]
    return unsigned + crc32(body, crc32(unsigned)).to_bytes(_CHECKSUM_BYTES, "little") + body


def unseal(content: bytes, kind: bytes, version: int, path: str) -> memoryview | None:
    """The body; None when it is short, damaged or of another kind. A newer version than `version` raises `NewerFormat`."""
    if len(content) < _SEAL.size:
        return None
    found_kind, found_version, _, size, checksum = _SEAL.unpack_from(content)
    body = memoryview(content)[_SEAL.size :]
    if found_kind != kind or size != len(body) or crc32(body, crc32(content[: _SEAL.size - _CHECKSUM_BYTES])) != checksum:
        return None
    if found_version > version:
        raise NewerFormat(f"{path} has format {found_version}, this Penstock knows {version}: it was written by a newer one")
    return body


def version_of(content: bytes) -> int:
    """The format version of a file that was unsealed."""
    return int(_SEAL.unpack_from(content)[1])


def read_whole(disk: Disk, path: str) -> bytes | None:
    """The content of a small file; None when it is not there. Waits for the disk: for starting up."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    try:
        return disk.read_at(file, 0, disk.size(file))
    finally:
        disk.close(file)


async def replace_file(disk: Disk, directory: str, name: str, content: Buffer, *, previous: str, also: Sequence[File] = ()) -> None:
    """Puts new content under the name, and what was there under `previous`. After a crash at any moment one of the two is whole.

    `also` are files that may as well be flushed in the same round.
    """
    path = f"{directory}/{name}"
    file = write_fresh(disk, path + TEMPORARY, content)
    try:
        failures = await disk.sync([file, *also])
    finally:
        disk.close(file)
    if not failures:
        if disk.exists(path):
            disk.rename(path, f"{directory}/{previous}")
        disk.rename(path + TEMPORARY, path)
        failures = await disk.sync((), [directory])
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


async def overwrite_file(disk: Disk, directory: str, name: str, content: Buffer) -> None:
    """Replaces the file in one step, and durably. Unlike `replace_file` it keeps no older copy, for files of which only the newest may be
    believed."""
    path = f"{directory}/{name}"
    file = write_fresh(disk, path + TEMPORARY, content)
    try:
        failures = await disk.sync([file])
    finally:
        disk.close(file)
    if not failures:
        disk.rename(path + TEMPORARY, path)
        failures = await disk.sync((), [directory])
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


def write_fresh(disk: Disk, path: str, content: Buffer) -> File:
    """A file with this content and nothing else, open and not flushed. If it cannot be written, the name is free again."""
    file = disk.open(path, create=True)
    try:
        if disk.size(file):
            disk.truncate(file, 0)  # A crash left it behind.
        disk.append(file, (content,))
    except DiskFailed:
        disk.close(file)
        disk.unlink(path)
        raise
    return file


def unlink_all(disk: Disk, paths: list[str]) -> None:
    """To be offloaded: to give back the room of a large file takes a file system tens of milliseconds."""
    for path in paths:
        disk.unlink(path)
