"""A tree of files as two stories: what programs see, and what a power cut would leave.

Strict, as POSIX allows a file system to be: bytes are durable after an fsync of their file, names after an fsync of their
directory, nothing else ever. A failed fsync forgets what it should have written and the next one succeeds, as Linux does it.

At a power cut unsynced changes may also survive in part, because a kernel writes back when it likes:
- `drop`: none survives.
- `tear`: of each file and directory the first few changes survive, the last of them up to a sector.
- `scatter`: of each file any pages survive, in any order; the others are as before, or zeros when the file grew over them.

Not here: the kernel's protocol (fuse_wire.py), the mount (lazyfs.py).
"""

from dataclasses import dataclass, field
from enum import StrEnum
from random import Random

SECTOR_BYTES = 512
PAGE_BYTES = 4096
ROOT = 1


class Cut(StrEnum):
    DROP = "drop"
    TEAR = "tear"
    SCATTER = "scatter"


@dataclass(frozen=True, slots=True)
class Written:
    position: int
    bytes: bytes

    def apply(self, content: bytearray) -> None:
        if len(content) < self.position:
            content.extend(bytes(self.position - len(content)))
        content[self.position : self.position + len(self.bytes)] = self.bytes

    def head(self, rng: Random) -> "Written":
        """The part that reached the disk before the power went: whole sectors of the file, possibly none."""
        first, end = self.position // SECTOR_BYTES, -(-(self.position + len(self.bytes)) // SECTOR_BYTES)
        kept = rng.randint(first, end) * SECTOR_BYTES - self.position
        return Written(self.position, self.bytes[: max(kept, 0)])

    def pages(self) -> list["Written"]:
        pieces, at = [], 0
        while at < len(self.bytes):
            size = PAGE_BYTES - (self.position + at) % PAGE_BYTES
            pieces.append(Written(self.position + at, self.bytes[at : at + size]))
            at += size
        return pieces


@dataclass(frozen=True, slots=True)
class Resized:
    size: int

    def apply(self, content: bytearray) -> None:
        if self.size < len(content):
            del content[self.size :]
        else:
            content.extend(bytes(self.size - len(content)))


# A set of names that change together: a rename inside one directory is never seen half done.
Named = dict[str, int | None]


@dataclass(slots=True)
class File:
    number: int
    parent: int
    name: str
    content: bytearray = field(default_factory=bytearray)  # What programs see.
    durable: bytearray = field(default_factory=bytearray)  # What a power cut leaves.
    unsynced: list[Written | Resized] = field(default_factory=list)
    synced: int = 0  # How many changes came before those in `unsynced`.

    def change(self, change: Written | Resized) -> None:
        change.apply(self.content)
        self.unsynced.append(change)

    @property
    def changes(self) -> int:
        return self.synced + len(self.unsynced)

    def settle(self, changes: int) -> None:
        """An fsync that began after so many changes has ended well."""
        for change in self.unsynced[: max(changes - self.synced, 0)]:
            change.apply(self.durable)
        self.forget(changes)

    def forget(self, changes: int) -> None:
        """After a failed fsync the pages are clean, though they were never written."""
        count = max(changes - self.synced, 0)
        del self.unsynced[:count]
        self.synced += count

    def cut(self, how: Cut, rng: Random) -> None:
        survivors: list[Written | Resized] = []
        if how is Cut.TEAR and self.unsynced:
            survivors = self.unsynced[: rng.randint(0, len(self.unsynced))]
            if survivors and isinstance(survivors[-1], Written):
                survivors[-1] = survivors[-1].head(rng)
        elif how is Cut.SCATTER:
            survivors = [page for change in self.unsynced for page in _pages(change) if rng.random() < 0.5]
        for change in survivors:
            change.apply(self.durable)
        self.unsynced.clear()
        self.content = bytearray(self.durable)


def _pages(change: Written | Resized) -> list[Written | Resized]:
    return [*change.pages()] if isinstance(change, Written) else [change]


@dataclass(slots=True)
class Directory:
    number: int
    parent: int
    name: str
    content: dict[str, int] = field(default_factory=dict)
    durable: dict[str, int] = field(default_factory=dict)
    unsynced: list[Named] = field(default_factory=list)
    synced: int = 0

    def change(self, names: Named) -> None:
        _rename(self.content, names)
        self.unsynced.append(names)

    @property
    def changes(self) -> int:
        return self.synced + len(self.unsynced)

    def settle(self, changes: int) -> None:
        for names in self.unsynced[: max(changes - self.synced, 0)]:
            _rename(self.durable, names)
        self.forget(changes)

    def forget(self, changes: int) -> None:
        count = max(changes - self.synced, 0)
        del self.unsynced[:count]
        self.synced += count

    def cut(self, how: Cut, rng: Random) -> None:
        if how is not Cut.DROP:
            self.settle(rng.randint(self.synced, self.changes))
        self.unsynced.clear()
        self.content = dict(self.durable)


def _rename(entries: dict[str, int], names: Named) -> None:
    for name, number in names.items():
        if number is None:
            entries.pop(name, None)
        else:
            entries[name] = number


class Tree:
    def __init__(self) -> None:
        self.nodes: dict[int, File | Directory] = {ROOT: Directory(ROOT, ROOT, "")}
        self._next_number = ROOT + 1

    def file(self, number: int) -> File:
        node = self.nodes[number]
        if not isinstance(node, File):
            raise IsADirectoryError(node.name)
        return node

    def directory(self, number: int) -> Directory:
        node = self.nodes[number]
        if not isinstance(node, Directory):
            raise NotADirectoryError(node.name)
        return node

    def find(self, parent: int, name: str) -> File | Directory:
        number = self.directory(parent).content.get(name)
        if number is None:
            raise FileNotFoundError(name)
        return self.nodes[number]

    def make(self, parent: int, name: str, kind: type[File] | type[Directory]) -> File | Directory:
        directory = self.directory(parent)
        if name in directory.content:
            raise FileExistsError(name)
        node = kind(self._next_number, parent, name)
        self._next_number += 1
        self.nodes[node.number] = node
        directory.change({name: node.number})
        return node

    def remove(self, parent: int, name: str) -> None:
        node = self.find(parent, name)
        if isinstance(node, Directory) and node.content:
            raise OSError(39, "directory not empty")
        self.directory(parent).change({name: None})

    def rename(self, parent: int, name: str, new_parent: int, new_name: str) -> None:
        node = self.find(parent, name)
        if parent == new_parent:
            self.directory(parent).change({name: None, new_name: node.number})
        else:
            self.directory(new_parent).change({new_name: node.number})
            self.directory(parent).change({name: None})
        node.parent, node.name = new_parent, new_name

    def path(self, number: int) -> str:
        parts: list[str] = []
        while number != ROOT:
            node = self.nodes[number]
            parts.append(node.name)
            number = node.parent
        return "/".join(reversed(parts))

    def cut(self, how: Cut, seed: int) -> None:
        """The power goes. What has no durable name any more is gone with it."""
        rng = Random(seed)
        for node in self.nodes.values():
            node.cut(how, rng)
        reached: dict[int, File | Directory] = {}
        self._reach(ROOT, ROOT, "", reached)
        self.nodes = reached

    def _reach(self, number: int, parent: int, name: str, reached: dict[int, File | Directory]) -> None:
        node = self.nodes[number]
        node.parent, node.name = parent, name
        reached[number] = node
        if isinstance(node, Directory):
            for child_name, child in node.content.items():
                self._reach(child, number, child_name, reached)
