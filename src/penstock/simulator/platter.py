"""What a simulated disk holds: files and folders, each as programs see it now and as it would be found after a power cut.

Rules:
- Every change (a write, a truncation, a name) is pending until a flush that began after it has ended. Reads see it at once.
- A flush applies pending changes in order. Changes of a flush that failed are doomed: reads still see them, no later flush saves them.
- At a power cut each file and each folder chooses its own fate for what is pending (see `Loss`). A sector that is lost keeps what it
  held at the last flush and is zeros past that. A truncation that is lost takes every later change of its file with it, as a journal would.
- A name's change is atomic, also a rename between two folders, and is kept or lost as a whole.

Not here: when to fail, how long anything takes, who has what open (disk.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from random import Random

SECTOR_BYTES = 512  # What a drive writes as a whole; anything larger can tear.
_EVEN = 0.5


class Loss(Enum):
    """What becomes of the pending changes of one file or folder when the power goes."""

    ALL = "all lost"
    SUFFIX = "a prefix kept"
    TORN = "a prefix kept, the next write torn at a sector"
    SECTORS = "any sectors kept, the others lost"
    NONE = "all kept"


LOSSES = tuple(Loss)


@dataclass(slots=True)
class Change:
    number: int  # Numbered across the whole disk, in order.
    position: int
    content: bytes | None  # None: the file was cut at `position`.
    is_doomed: bool = False

    def apply_to(self, held: bytearray) -> None:
        if self.content is None:
            del held[self.position :]
            return
        if len(held) < self.position:  # What came between never reached the disk: a hole, which reads as zeros.
            held.extend(bytes(self.position - len(held)))
        held[self.position : self.position + len(self.content)] = self.content


class Inode:
    """The bytes of one file, whatever it is called."""

    __slots__ = ("allocated_bytes", "changes", "current", "flushed", "is_linked", "opens")

    def __init__(self, allocated_bytes: int = 0) -> None:
        self.allocated_bytes = allocated_bytes  # Room that it takes without any content. Such a file is not written.
        self.current = bytearray()  # What a read returns.
        self.flushed = bytearray()  # What a power cut cannot take.
        self.changes: list[Change] = []  # Pending, in order.
        self.opens = 0
        self.is_linked = True

    @property
    def size(self) -> int:
        return self.allocated_bytes + len(self.current)

    def write(self, number: int, content: bytes) -> None:
        self.changes.append(Change(number, len(self.current), content))
        self.current += content

    def rewrite(self, number: int, position: int, content: bytes) -> None:
        self.changes.append(Change(number, position, content))
        self.current[position : position + len(content)] = content

    def cut(self, number: int, size: int) -> None:
        self.changes.append(Change(number, size, None))
        del self.current[size:]

    def flush(self, until: int) -> None:
        """Makes durable every change numbered below `until`, except what an earlier flush has lost."""
        kept: list[Change] = []
        for change in self.changes:
            if change.number >= until:
                kept.append(change)
            elif not change.is_doomed:
                change.apply_to(self.flushed)
        self.changes = kept

    def doom(self, until: int) -> None:
        for change in self.changes:
            if change.number < until:
                change.is_doomed = True

    def drop_failed_pages(self) -> None:
        """From now on reads see what a flush could still save, and nothing that a failed one has lost."""
        self.changes = [change for change in self.changes if not change.is_doomed]
        self.current = bytearray(self.flushed)
        for change in self.changes:
            change.apply_to(self.current)

    def lose_power(self, rng: Random, loss: Loss) -> None:
        pending = [change for change in self.changes if not change.is_doomed]
        if pending and loss is not Loss.ALL:
            _KEEP[loss](self.flushed, pending, rng)
        self.changes = []
        self.current = bytearray(self.flushed)


def _keep_prefix(held: bytearray, pending: list[Change], rng: Random) -> None:
    for change in pending[: rng.randrange(len(pending) + 1)]:
        change.apply_to(held)


def _keep_torn(held: bytearray, pending: list[Change], rng: Random) -> None:
    whole = rng.randrange(len(pending))
    for change in pending[:whole]:
        change.apply_to(held)
    torn = pending[whole]
    if torn.content is None:
        return
    first, last = torn.position // SECTOR_BYTES, (torn.position + len(torn.content)) // SECTOR_BYTES
    end = rng.randint(first, last) * SECTOR_BYTES
    if end > torn.position:
        Change(torn.number, torn.position, torn.content[: end - torn.position]).apply_to(held)


def _keep_sectors(held: bytearray, pending: list[Change], rng: Random) -> None:
    """Each sector survives by itself; the file ends at its last kept sector, or at its full size with zeros where nothing was kept."""
    wanted = pending[: rng.randrange(len(pending)) + 1]
    final = bytearray(held)
    touched: set[int] = set()
    for change in wanted:
        change.apply_to(final)
        if change.content is None:
            del held[change.position :]
            touched = {sector for sector in touched if sector * SECTOR_BYTES < change.position}
        elif change.content:
            touched.update(range(change.position // SECTOR_BYTES, -(-(change.position + len(change.content)) // SECTOR_BYTES)))
    chance = rng.choice((0.1, 0.5, 0.9))
    for sector in sorted(touched):
        if rng.random() < chance:
            at = sector * SECTOR_BYTES
            Change(0, at, bytes(final[at : at + SECTOR_BYTES])).apply_to(held)
    if rng.random() < _EVEN and len(held) < len(final):
        held.extend(bytes(len(final) - len(held)))


def _keep_all(held: bytearray, pending: list[Change], rng: Random) -> None:
    for change in pending:
        change.apply_to(held)


_KEEP: dict[Loss, Callable[[bytearray, list[Change], Random], None]] = {
    Loss.SUFFIX: _keep_prefix,
    Loss.TORN: _keep_torn,
    Loss.SECTORS: _keep_sectors,
    Loss.NONE: _keep_all,
}


@dataclass(slots=True)
class NameChange:
    number: int
    edits: "tuple[tuple[Folder, str, Node | None], ...]"  # None: the name is gone.
    is_settled: bool = False  # Applied or lost; never looked at again.
    is_doomed: bool = False

    def apply(self) -> None:
        for folder, name, node in self.edits:
            if node is None:
                folder.flushed.pop(name, None)
            else:
                folder.flushed[name] = node


@dataclass(slots=True, eq=False)
class Folder:
    current: "dict[str, Node]" = field(default_factory=dict)
    flushed: "dict[str, Node]" = field(default_factory=dict)
    changes: list[NameChange] = field(default_factory=list)

    def flush(self, until: int) -> None:
        """Makes durable every name changed before `until`; a rename between folders takes the other's earlier changes along."""
        due = [change for change in self.changes if change.number < until]
        self.changes = [change for change in self.changes if change.number >= until]
        for change in due:
            if change.is_settled or change.is_doomed:
                continue
            for other, _, _ in change.edits:
                if other is not self:
                    other.flush(change.number)
            change.is_settled = True
            change.apply()

    def doom(self, until: int) -> None:
        for change in self.changes:
            if change.number < until:
                change.is_doomed = True

    def surviving(self, rng: Random, loss: Loss) -> list[NameChange]:
        """Chooses which pending names a power cut leaves. A change that two folders share is chosen by the first asked."""
        pending = [change for change in self.changes if not (change.is_settled or change.is_doomed)]
        for change in pending:
            change.is_settled = True
        self.changes = []
        match loss:
            case Loss.ALL:
                return []
            case Loss.NONE:
                return pending
            case Loss.SECTORS:
                return [change for change in pending if rng.random() < _EVEN]
            case Loss.SUFFIX | Loss.TORN:
                return pending[: rng.randrange(len(pending) + 1)]


Node = Inode | Folder


class Platter:
    """The tree of one disk. Changes are made here so that every one of them gets its number."""

    def __init__(self) -> None:
        self.root = Folder()
        self.used_bytes = 0
        self.next_change = 0

    def find(self, path: str) -> Node | None:
        node: Node | None = self.root
        for part in _parts(path):
            if not isinstance(node, Folder):
                return None
            node = node.current.get(part)
        return node

    def holder(self, path: str) -> tuple[Folder, str] | None:
        """The folder that holds the path's last name, if it is there."""
        *folders, name = _parts(path)
        folder = self.find("/".join(folders))
        return (folder, name) if isinstance(folder, Folder) else None

    def rename(self, *edits: tuple[Folder, str, Node | None]) -> None:
        """Changes names, all of them or none: a link, an unlink, or the two sides of a rename."""
        change = NameChange(self._number(), edits)
        for folder, name, node in edits:
            if node is None:
                folder.current.pop(name, None)
            else:
                folder.current[name] = node
            if not folder.changes or folder.changes[-1] is not change:
                folder.changes.append(change)

    def write(self, inode: Inode, content: bytes) -> None:
        inode.write(self._number(), content)
        self.used_bytes += len(content)

    def rewrite(self, inode: Inode, position: int, content: bytes) -> None:
        inode.rewrite(self._number(), position, content)

    def cut(self, inode: Inode, size: int) -> None:
        self.used_bytes -= len(inode.current) - size
        inode.cut(self._number(), size)

    def release(self, inode: Inode) -> None:
        """Gives back the room of a file that has neither a name nor a reader."""
        if not inode.is_linked and inode.opens == 0:
            self.used_bytes -= inode.size

    def lose_power(self, rng: Random, choose: Callable[[], Loss]) -> None:
        folders = [node for _, node in self._walk(also_lost_names=True) if isinstance(node, Folder)]
        kept = [change for folder in folders if folder.changes for change in folder.surviving(rng, choose())]
        for change in sorted(kept, key=lambda change: change.number):
            change.apply()
        for folder in folders:
            folder.changes = []
            folder.current = dict(folder.flushed)
        for _, inode in self.files():
            inode.lose_power(rng, choose() if inode.changes else Loss.ALL)
        self.close_all()

    def close_all(self) -> None:
        """Closes every file, as the end of a process does, and counts the room anew."""
        self.used_bytes = 0
        for _, inode in self.files():
            inode.opens = 0
            inode.is_linked = True
            self.used_bytes += inode.size

    def files(self) -> list[tuple[str, Inode]]:
        """Every file with its path, in an order that only names decide."""
        return [(path, node) for path, node in self._walk() if isinstance(node, Inode)]

    def _walk(self, *, also_lost_names: bool = False) -> list[tuple[str, Node]]:
        """Every node that programs see and, if asked, those that a power cut could bring back; each once."""
        found: list[tuple[str, Node]] = [("", self.root)]
        seen: set[int] = {id(self.root)}  # Only asked, never iterated: addresses decide nothing.
        for path, node in found:  # Grows while it is walked.
            if not isinstance(node, Folder):
                continue
            named = sorted(node.current.items(), key=_name)
            if also_lost_names:
                named += sorted(node.flushed.items(), key=_name)
                named += [(name, inner) for change in node.changes for _, name, inner in change.edits if inner is not None]
            for name, inner in named:
                if id(inner) not in seen:
                    seen.add(id(inner))
                    found.append((f"{path}/{name}" if path else name, inner))
        return found

    def _number(self) -> int:
        self.next_change += 1
        return self.next_change - 1


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _name(item: tuple[str, Node]) -> str:
    return item[0]
