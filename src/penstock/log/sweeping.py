"""What earlier lives of a log left behind: names that a crash kept from being removed, or from becoming final.

Segments that a compacted one has replaced go only when the name of that one is surely on the disk: it may be in the memory of the
kernel alone, if a process was killed in the middle of the swap or a flush had failed (rewriting.py).
"""

from penstock.env import Disk
from penstock.errors import DiskFailed
from penstock.log.rewriting import refresh_name
from penstock.log.segment import BATCHES, DELETED, DROPPED, INDEX, Segment, SegmentName, segment_name, standing
from penstock.log.small_files import TEMPORARY

NOTE = "doubt"  # Of an older Penstock: a flush had failed. By now every start after an unclean end reckons with that.


async def sweep(disk: Disk, directory: str, names: list[str], *, is_clean: bool) -> list[SegmentName]:
    """Removes it, and returns the segments that stay, in order of their offsets."""
    for file_name in names:
        if file_name.endswith((TEMPORARY, DROPPED)) or file_name == NOTE:
            disk.unlink(f"{directory}/{file_name}")
    stay, replaced = standing(name for file_name in names if (name := segment_name(file_name)) is not None)
    if replaced:
        successors = [name for name in stay if any(map(name.replaces, replaced))]
        await _make_sure(disk, directory, successors, is_clean=is_clean)
        for name in replaced:
            _remove(disk, directory, name)
    deleted = [name for file_name in names if (name := segment_name(file_name, BATCHES + DELETED)) is not None]
    if deleted:
        # Retention takes from the front: what stands before a segment that it took was meant to go too.
        sweep_below(disk, directory, max(max(name.base_offset + 1, name.end_offset) for name in deleted), stay)
    for name in deleted:
        disk.unlink(_path(directory, name) + DELETED)
    needed = dict.fromkeys(stay)
    for file_name in names:  # A reader that compaction has overtaken may have saved the index of a segment that was gone by then.
        if (name_of_index := segment_name(file_name, INDEX)) is not None and name_of_index not in needed:
            disk.unlink(f"{directory}/{file_name}")
    return stay


def sweep_below(disk: Disk, directory: str, offset: int, names: list[SegmentName]) -> None:
    """Removes the segments that begin below the offset, also from `names`."""
    while names and names[0].base_offset < offset:
        _remove(disk, directory, names.pop(0))


def last_generation(names: list[str]) -> int:
    """The highest that any file in the directory has, whatever has become of it."""
    found = (segment_name(file_name.partition(BATCHES)[0] + BATCHES) for file_name in names)
    return max((name.generation for name in found if name is not None), default=0)


def size_on_disk(disk: Disk, path: str) -> int:
    """Nothing is kept open; a file that is not there has no bytes."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return 0
    try:
        return disk.size(file)
    finally:
        disk.close(file)


async def _make_sure(disk: Disk, directory: str, compacted: list[SegmentName], *, is_clean: bool) -> None:
    """Has the names of these segments on the disk, or raises and has removed nothing. They were flushed before they got them."""
    if not is_clean:
        for name in compacted:
            refresh_name(disk, _path(directory, name))
    if failures := await disk.sync((), [directory]):
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


def _remove(disk: Disk, directory: str, name: SegmentName) -> None:
    path = _path(directory, name)
    disk.unlink(path.removesuffix(BATCHES) + INDEX)
    disk.unlink(path)


def _path(directory: str, name: SegmentName) -> str:
    return Segment(directory, name, 0, None).path
