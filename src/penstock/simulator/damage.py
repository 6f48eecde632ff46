"""Damage that is done to a node's files at rest, so that a checker knows afterwards what it may excuse.

Caches (indexes, checkpoints) may be harmed in any way: nothing that was promised may suffer. Batches are harmed only where a whole flushed
batch follows in the same file, and each only once: a changed *last* batch cannot be told from a torn write by anybody, nor can one whose
length and content have both changed, where what follows might be part of it. Nor is a changed offset known where compaction has left gaps:
no checksum covers it, and any that ascends is as good as another. What was changed is marked in the diary as damaged: the
node may refuse it, and must never serve it.
"""

from penstock.simulator.disk import SimDisk
from penstock.simulator.faults import Fault, Field, Strike
from penstock.simulator.workloads.notebook import Notebook
from penstock.wire.batches import HEADER_BYTES, crc_is_right, read_header

FLUSH_FAILURE = "flush failure"
READ_FAILURE = "read failure in recovery"
CACHES = "harmed cache"
ROT = "rotten batch"
ROT_ELSEWHERE = "rotten file of the node's own"

_EVEN = 0.5
_OFFSET_BYTES = 8
_CACHE_NAMES = ("checkpoint", "checkpoint.previous", "coordinator.snapshot")


def strikes(notebook: Notebook) -> dict[str, Strike]:
    return {
        CACHES: harm_a_cache,
        FLUSH_FAILURE: fail_a_flush,
        READ_FAILURE: fail_a_read_of_recovery,
        ROT: lambda field, fault: rot_a_batch(field, notebook),
        ROT_ELSEWHERE: lambda field, fault: rot_a_file_of_the_nodes_own(field, notebook),
    }


def fail_a_flush(field: Field, fault: Fault) -> None:
    """Of any file, or of a folder that belongs to one log. The folders above are shared. Where a failed flush of those is followed by one
    that succeeds and still lacks a name, all that is below hangs in the air: that is a file system without a journal, and not promised."""
    disk = field.world.hosts[field.node()].disk
    disk.fail_next_flush_where(lambda path: path not in ("", "topics") and not (path.startswith("topics/") and path.count("/") == 1))


def fail_a_read_of_recovery(field: Field, fault: Fault) -> None:
    """Of a log's own files: what every node reads first, its identity, would only keep it from starting."""
    node = field.node()
    field.world.kill(node)
    field.world.hosts[node].disk.fail_next_read_where(lambda path: path.startswith("topics/"))


def harm_a_cache(field: Field, fault: Fault) -> None:
    """Half of the time under a node that starts anew, since a running one has it in memory."""
    node = field.node()
    disk = field.world.hosts[node].disk
    for _ in range(field.rng.choice((1, 1, 4))):
        _harm_one_cache(field, fault, disk)
    if field.rng.random() < _EVEN:
        field.world.kill(node)


def _harm_one_cache(field: Field, fault: Fault, disk: SimDisk) -> None:
    caches = [path for path in disk.files() if path.endswith(".index") or path.rsplit("/", 1)[-1] in _CACHE_NAMES]
    if not caches:
        return
    path, rng = field.rng.choice(caches), field.rng
    content = disk.snapshot(path)
    match rng.choice(("lose", "cut", "rot", "stale", "swap", "swap")):
        case "lose":
            disk.lose(path)
        case "cut":
            disk.restore(path, content[: rng.randint(0, len(content))])
        case "rot":
            disk.rot(path)
        case "stale":
            field.world.at(fault.seconds, lambda: disk.restore(path, content) if path in disk.files() else None)
        case _:
            kind = path.rsplit(".", 1)[-1] if path.endswith(".index") else path.rsplit("/", 1)[-1]
            other = rng.choice([one for one in caches if one.endswith(kind)])
            theirs = disk.snapshot(other)
            disk.restore(path, theirs)
            disk.restore(other, content)


def rot_a_batch(field: Field, notebook: Notebook) -> None:
    disk = field.world.hosts[field.node()].disk
    logs = [path for path in disk.files() if path.endswith(".log") and notebook.life_at(path) is not None]
    field.rng.shuffle(logs)
    for path in logs:
        spans = _flushed_batches(disk, path)
        found = notebook.life_at(path)
        whole = [(start, end) for start, end in spans[:-1] if crc_is_right(disk.flushed(path), start, end - start)]
        if whole and found is not None:
            start, end = field.rng.choice(whole)
            position = field.rng.randrange(start + (_OFFSET_BYTES if found[0].plan.is_compacted else 0), end)
            disk.rot(path, position)
            notebook.diary.damaged.setdefault(found[1], f"{path}, byte {position}")
            return


def rot_a_file_of_the_nodes_own(field: Field, notebook: Notebook) -> None:
    """Of the metadata log or the identity: a node that cannot read those may refuse to start, and must say why."""
    disk = field.world.hosts[field.node()].disk
    own = [path for path in disk.files() if (path.startswith("metadata/") and path.endswith(".log")) or path == "node/identity"]
    if not own:
        return
    path = field.rng.choice(own)
    spans = _flushed_batches(disk, path)[:-1] if path.endswith(".log") else [(0, len(disk.flushed(path)))]
    if spans and spans[0][1]:
        disk.rot(path, field.rng.randrange(*field.rng.choice(spans)))
        notebook.may_refuse_to_start = path


def _flushed_batches(disk: SimDisk, path: str) -> list[tuple[int, int]]:
    content, at, spans = disk.flushed(path), 0, []
    while at + HEADER_BYTES <= len(content):
        header = read_header(content, at)
        if header.magic != 2 or header.size < HEADER_BYTES or at + header.size > len(content):
            break
        spans.append((at, at + header.size))
        at += header.size
    return spans
