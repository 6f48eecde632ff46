"""Writes once more what an unclean end has left, because it may not be on the disk although it can be read.

After a flush that failed the kernel may keep bytes in memory, call them clean and never write them. A process that starts on the same
running machine reads them, finds them right, flushes without an error, and still has nothing on the disk. The process before it may have
been killed before it could tell of the failure. So what is not known to be flushed is written over itself, and new files get their names
once more; the next flush then makes both durable. The bytes are the same, so a crash in the middle changes nothing.
"""

from penstock.env import Disk, File

RENAMING = ".renaming"  # On the way from a name to the same name. After a crash the next start goes on.
CHUNK_BYTES = 1 << 20


async def rewrite(disk: Disk, file: File, position: int, size: int) -> None:
    """Writes the bytes of the file from the position on over themselves, and lets it end at `size` once more."""
    while position < size:
        content = await disk.read_later(file, position, min(CHUNK_BYTES, size - position))
        disk.rewrite(file, position, content)
        position += len(content)
    disk.truncate(file, size)


def refresh_name(disk: Disk, path: str) -> None:
    disk.rename(path, path + RENAMING)
    disk.rename(path + RENAMING, path)


def finish_renaming(disk: Disk, directory: str, names: list[str]) -> list[str]:
    """Gives files their names back that a crash has caught in `refresh_name`; returns the names in the directory."""
    caught = [name for name in names if name.endswith(RENAMING)]
    for name in caught:
        disk.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(RENAMING)}")
    return disk.list(directory) if caught else names
