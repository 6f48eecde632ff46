"""What earlier lives of a log left behind: names that a crash kept from being removed, or from becoming final."""

from penstock.env import Disk
from penstock.log.segment import BATCHES, DELETED, DROPPED, INDEX, Segment, base_offset_of
from penstock.log.small_files import TEMPORARY


def sweep(disk: Disk, directory: str, names: list[str]) -> list[int]:
    """Removes it, and returns the base offsets of the segments that stay, in order."""
    for name in names:
        if name.endswith((TEMPORARY, DROPPED)):
            disk.unlink(f"{directory}/{name}")
    bases = [base for name in names if (base := base_offset_of(name)) is not None]
    deleted = [base for name in names if (base := base_offset_of(name, BATCHES + DELETED)) is not None]
    if deleted:
        # Retention takes from the front: what stands before a segment that it took was meant to go too.
        sweep_below(disk, directory, max(deleted) + 1, bases)
    for base in deleted:
        disk.unlink(_path(directory, base) + DELETED)
    return bases


def sweep_below(disk: Disk, directory: str, offset: int, bases: list[int]) -> None:
    """Removes the segments that begin below the offset, also from `bases`."""
    while bases and bases[0] < offset:
        path = _path(directory, bases.pop(0))
        disk.unlink(path.removesuffix(BATCHES) + INDEX)
        disk.unlink(path)


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


def _path(directory: str, base_offset: int) -> str:
    return Segment(directory, base_offset, 0, None).path
