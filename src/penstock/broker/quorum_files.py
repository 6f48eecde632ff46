"""The two small files beside the metadata log: the vote, and the newest snapshot with the one before it.

The vote is replaced in one step and has no older copy: an older vote in place of a newer one is a vote that was forgotten, and a
replica that forgot one may vote twice. A vote that cannot be read is refused.
Of a damaged snapshot the one before takes the place. The log is kept from there on.
After an end that was not clean both are written anew before they are believed: what is read may be in the kernel's memory alone.
"""

from contextlib import ExitStack
from struct import Struct, error
from typing import NamedTuple

from penstock.consensus.effects import PersistVote
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.nouns import DirectoryId, Replica, Term
from penstock.consensus.voters import Voters
from penstock.env import Disk, File
from penstock.errors import DiskFailed, DiskFull
from penstock.log.small_files import TEMPORARY, overwrite_file, read_whole, replace_file, seal, unseal, write_fresh
from penstock.vocabulary import NodeId, Offset

VOTE = "vote"
SNAPSHOT = "snapshot"
PREVIOUS_SNAPSHOT = "snapshot.previous"
VOTE_VERSION = 1
SNAPSHOT_VERSION = 1

_VOTE_KIND = b"pnstk-vo"
_SNAPSHOT_KIND = b"pnstk-ms"
_VOTE = Struct(">i16siBi16s")  # whose it is (node, directory), term, whether there is a vote, for whom (node, directory)
_SNAPSHOT = Struct(">qiI")  # end, term of the entry before it, bytes of the voters that follow
_NOBODY = Replica(NodeId(-1), DirectoryId(bytes(16)))


class Snapshot(NamedTuple):
    head: SnapshotHead
    content: bytes


async def write_vote(disk: Disk, directory: str, me: Replica, vote: PersistVote) -> None:
    body = _VOTE.pack(*me, vote.term, vote.voted_for is not None, *(vote.voted_for or _NOBODY))
    await overwrite_file(disk, directory, VOTE, seal(_VOTE_KIND, VOTE_VERSION, body))


def read_vote(disk: Disk, directory: str, me: Replica) -> PersistVote | None:
    """None: nobody ever voted here."""
    path = f"{directory}/{VOTE}"
    content = read_whole(disk, path)
    if content is None:
        return None
    body = unseal(content, _VOTE_KIND, VOTE_VERSION, path)
    if body is None or len(body) != _VOTE.size:
        raise DiskFailed(f"{path} is damaged: this node no longer knows what it has promised")
    node, own_directory, term, has_voted, for_node, for_directory = _VOTE.unpack(body)
    if (node, own_directory) != me:
        raise DiskFailed(f"{path} belongs to node {node} with another data directory")
    voted_for = Replica(NodeId(for_node), DirectoryId(for_directory)) if has_voted else None
    return PersistVote(0, Term(term), voted_for)


async def write_snapshot(disk: Disk, directory: str, snapshot: Snapshot) -> None:
    head = snapshot.head
    voters = head.voters.encode()
    body = _SNAPSHOT.pack(head.end, head.term, len(voters)) + voters + snapshot.content
    await replace_file(disk, directory, SNAPSHOT, seal(_SNAPSHOT_KIND, SNAPSHOT_VERSION, body), previous=PREVIOUS_SNAPSHOT)


def read_snapshots(disk: Disk, directory: str) -> list[Snapshot]:
    """Those that can be believed, the newest first."""
    found = [_read_snapshot(disk, f"{directory}/{name}") for name in (SNAPSHOT, PREVIOUS_SNAPSHOT)]
    return [snapshot for snapshot in found if snapshot is not None]


async def write_anew(disk: Disk, directory: str) -> None:
    """Gives each of the files its content and its name once more, and flushes that: a flush that failed is not made good by a later one.

    `DiskFull`: everything is as it was.
    """
    paths = [f"{directory}/{name}" for name in (PREVIOUS_SNAPSHOT, SNAPSHOT, VOTE) if disk.exists(f"{directory}/{name}")]
    if not paths:
        return
    with ExitStack() as opened:
        files: list[File] = []
        try:
            for path in paths:
                files.append(write_fresh(disk, path + TEMPORARY, read_whole(disk, path) or b""))
                opened.callback(disk.close, files[-1])
        except DiskFull:
            for path in paths[: len(files)]:
                disk.unlink(path + TEMPORARY)  # Others may need the room.
            raise
        failures = await disk.sync(files)
    if not failures:
        for path in paths:
            disk.rename(path + TEMPORARY, path)
        failures = await disk.sync((), [directory])
    if failures:
        raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")


def _read_snapshot(disk: Disk, path: str) -> Snapshot | None:
    content = read_whole(disk, path)
    body = None if content is None else unseal(content, _SNAPSHOT_KIND, SNAPSHOT_VERSION, path)
    if body is None:
        return None
    try:
        end, term, voters_bytes = _SNAPSHOT.unpack_from(body)
    except error:
        return None
    at = _SNAPSHOT.size + voters_bytes
    kept = bytes(body[at:])
    voters = Voters.decode(bytes(body[_SNAPSHOT.size : at]))
    return Snapshot(SnapshotHead(Offset(end), Term(term), voters, len(kept)), kept)
