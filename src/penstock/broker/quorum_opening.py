"""What a data directory says about its replica, before anything of it runs; and directories from before there were votes.

An older Penstock was one node that decided alone. Its log holds the records of its decisions, all in term 1; its snapshot lies in the log's
checkpoint; there is no vote. All of it is committed. It goes on as the only voter, whatever voters it is told to begin with:
others, which have nothing of that log, must not be able to outvote it.
A log of our own without a vote is another matter: the vote was lost, and nobody knows what was promised.

What an unclean end left is written anew before it is believed, and that takes room. A node of a cluster waits for it and says so: others go
on meanwhile, and without room it could not take part anyway. A node alone ends with that reason, as it does after a clean stop.
"""

import asyncio
from collections.abc import Callable
from struct import Struct
from typing import NamedTuple

from penstock.broker import quorum_snapshots
from penstock.broker.identity import Identity
from penstock.broker.quorum_entries import unpack_records
from penstock.broker.quorum_files import VOTE, Snapshot
from penstock.broker.quorum_store import METADATA_DIRECTORY, Store
from penstock.cluster import records
from penstock.cluster.image import ClusterImage
from penstock.consensus.effects import PersistVote
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.nouns import DirectoryId, Replica
from penstock.consensus.options import Options
from penstock.consensus.voters import Voters
from penstock.env import Env
from penstock.errors import DiskFailed, DiskFull, OutOfHandles
from penstock.log.open_files import OpenFiles
from penstock.settings import NodeSettings
from penstock.vocabulary import NodeId, Offset

ELECTION_SPREAD = 1.75  # The longest election time-out is this much longer than the shortest.

ROOM_SECONDS = 1.0  # Between two looks for room.

_OLD_SNAPSHOT = Struct(">q")  # the offset that it stands for; then records, each with its length


def replica_of(identity: Identity) -> Replica:
    return Replica(NodeId(identity.node_id), DirectoryId(bytes.fromhex(identity.directory_id)))


def options_from(settings: NodeSettings) -> Options:
    seconds = settings.election_timeout_ms / 1000
    return Options(
        election_seconds_min=seconds, election_seconds_max=seconds * ELECTION_SPREAD, heartbeat_seconds=settings.quorum_heartbeat_ms / 1000
    )


class Opened(NamedTuple):
    store: Store
    image: ClusterImage  # As the snapshot has it.
    end: Offset  # Of the snapshot.
    vote: PersistVote | None
    first_voters: Voters


async def open_replica(
    env: Env, files: OpenFiles, me: Replica, *, is_clean: bool, known_end: Offset, accepts_loss: bool, first_voters: Voters,
    waits_for_room: bool, report: Callable[[str], None], make_room: Callable[[], bool],
) -> Opened:  # fmt: skip
    while True:
        try:
            store = await Store.open(env, files, me, is_clean=is_clean, known_end=known_end, accepts_loss=accepts_loss)
            break
        except DiskFull as full:
            if not isinstance(full, OutOfHandles) and make_room():
                continue
            if not waits_for_room:
                raise
            report(f"this node cannot start before there is room on the disk, and waits for it: {full}")
        await asyncio.sleep(ROOM_SECONDS)
    if store.old_snapshot:
        await _adopt_old_snapshot(env, store, me)
    if store.snapshot is None:
        image, end = ClusterImage(), Offset(0)
    else:
        image, end = await quorum_snapshots.decode(env, store.snapshot_content), store.snapshot.end
    vote = store.vote
    if vote is None and (store.end or store.snapshot is not None):
        if not store.is_all_old:
            raise DiskFailed(f"{METADATA_DIRECTORY}/{VOTE} is missing: this node no longer knows what it has promised")
        vote = PersistVote(0, store.term_before(store.end), None)
    return Opened(store, image, end, vote, Voters((me,)) if store.begins_old else first_voters)


async def _adopt_old_snapshot(env: Env, store: Store, me: Replica) -> None:
    (end,) = _OLD_SNAPSHOT.unpack_from(store.old_snapshot)
    image = ClusterImage()
    for one in unpack_records(store.old_snapshot, _OLD_SNAPSHOT.size):
        image.replay(records.decode(one))
    content = await quorum_snapshots.encode(env, image.snapshot())
    head = SnapshotHead(Offset(end), store.term_before(Offset(end)), Voters((me,)), len(content))
    await store.keep(Snapshot(head, content))
