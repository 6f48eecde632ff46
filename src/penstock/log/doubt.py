"""A note for the next process: a flush failed here, and the kernel's next success is not to be believed.

After a failed flush the kernel may keep bytes in memory, call them clean and never write them again. A process that starts on the
same running machine reads them, finds them right, flushes without an error, and still has nothing on the disk. The note tells it to write
those bytes anew under new names. It need not be flushed itself: with the machine's memory gone, what is read is what the disk has.
"""

from contextlib import suppress
from struct import Struct, error

from penstock.env import Disk
from penstock.errors import DiskFailed
from penstock.log.config import LogIdentity
from penstock.log.segment import Segment
from penstock.log.small_files import TEMPORARY, read_whole, seal, unseal, write_fresh
from penstock.log.walking import CHUNK_BYTES

DOUBT = "doubt"
VERSION = 1

_KIND = b"pnstk-do"
_BODY = Struct("<16siq")  # topic id, partition, flushed end


def leave_note(disk: Disk, directory: str, identity: LogIdentity, flushed_end: int) -> bool:
    """Everything below `flushed_end` is on the disk. False: the disk takes no note. The log is offline all the same; but the process should
    not end before there is one.

    A disk that is full, or fails, may still take a name: an empty note doubts everything.
    """
    path = f"{directory}/{DOUBT}"
    if disk.exists(path):
        return True  # The earlier note doubts more.
    with suppress(DiskFailed, FileNotFoundError):
        disk.close(write_fresh(disk, path, seal(_KIND, VERSION, _BODY.pack(identity.topic_id, identity.partition, flushed_end))))
        return True
    with suppress(DiskFailed, FileNotFoundError):
        disk.close(disk.open(path, create=True))
        return True
    return False


def read_note(disk: Disk, directory: str, identity: LogIdentity) -> int:
    """The offset from which on bytes are doubtful. A note that cannot be read doubts everything."""
    path = f"{directory}/{DOUBT}"
    try:
        topic_id, partition, flushed_end = _BODY.unpack(unseal(read_whole(disk, path) or b"", _KIND, VERSION, path) or b"")
    except error:
        return 0
    return int(flushed_end) if (topic_id, partition) == (identity.topic_id, identity.partition) else 0


async def name_anew(disk: Disk, directory: str, name: str) -> None:
    """Gives a small file its name once more, and flushes that: a rename that an earlier flush has lost is not made good by a later one."""
    content = read_whole(disk, f"{directory}/{name}")
    if content is None:
        return
    copy = write_fresh(disk, f"{directory}/{name}{TEMPORARY}", content)
    try:
        failures = await disk.sync([copy])
    finally:
        disk.close(copy)
    if not failures:
        disk.rename(f"{directory}/{name}{TEMPORARY}", f"{directory}/{name}")
        failures = await disk.sync((), [directory])
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


async def write_anew(disk: Disk, segment: Segment) -> None:
    """Replaces the segment's file by a copy that is on the disk, except for its name, which the caller flushes."""
    source = disk.open(segment.path)
    copy = write_fresh(disk, segment.path + TEMPORARY, b"")
    try:
        for position in range(0, segment.size, CHUNK_BYTES):
            disk.append(copy, (await disk.read_later(source, position, min(CHUNK_BYTES, segment.size - position)),))
        failures = await disk.sync([copy])
    finally:
        disk.close(source)
        disk.close(copy)
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")
    disk.rename(segment.path + TEMPORARY, segment.path)
