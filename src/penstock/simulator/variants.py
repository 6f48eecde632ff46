"""Nodes that are broken on purpose: each neglects one thing that a careful node does, and each must be caught by the seeds.

A variant is a handful of attributes of the product's classes, replaced while one world runs and put back afterwards. It is how the
simulator proves itself: a checker that never found anything proves nothing. Nothing here is used outside of the simulator.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.broker import coordinator_loading
from penstock.broker.assignments import Assignments
from penstock.broker.connection import Connection
from penstock.broker.coordinator import Coordinator
from penstock.broker.node import Node
from penstock.broker.partitions import Partitions
from penstock.broker.patience import Patience
from penstock.broker.quorum_store import METADATA_DIRECTORY
from penstock.cluster.records import ProducerBlockTaken
from penstock.env import Disk, File, SyncFailures
from penstock.errors import DiskFull, ErrorCode
from penstock.groups import committing, syncing
from penstock.groups.commands import SyncGroup
from penstock.groups.draft import Draft
from penstock.groups.group import Group
from penstock.groups.replies import SyncReply
from penstock.groups.states import GroupState
from penstock.log import compacted_log, index_files, reading, recovery, sifting, tail_scan
from penstock.log.checkpoint import Checkpoint
from penstock.log.config import LogIdentity
from penstock.log.flushing import FlushTicket, Unflushed
from penstock.log.index import SparseIndex
from penstock.log.key_map import KeyMap
from penstock.log.log import Log
from penstock.log.segment import Segment
from penstock.log.small_files import TEMPORARY, read_whole
from penstock.log.swapping import Swaps
from penstock.log.tail import Verdict
from penstock.log.tail_scan import TailScan
from penstock.partition.leader import Leader
from penstock.partition.partition import Appended, Partition
from penstock.partition.producers import Duplicate, ProducerStates
from penstock.simulator.defects import breaks
from penstock.simulator.delivery_variants import DELIVERY_VARIANTS
from penstock.simulator.disk import SimDisk
from penstock.simulator.knobs import replaced
from penstock.simulator.queue_variants import QUEUE_VARIANTS
from penstock.simulator.share_variants import SHARE_VARIANTS
from penstock.vocabulary import NodeId, ProducerId
from penstock.wire.records import scan_batches
from penstock.wire.sieve import SLOT_BYTES, sift_batches

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


@contextmanager
def applied(variant: str) -> Iterator[None]:
    """The product is this variant of itself, until the block ends."""
    with replaced((VARIANTS | QUEUE_VARIANTS | SHARE_VARIANTS)[variant]()):
        yield


# Promises made too early.


@breaks("log.ack-after-flush")
def acknowledges_before_the_flush() -> Patches:
    return [(Leader, "park", lambda self, end_offset, token, *, needs_all: False)]


@breaks("log.reads-below-watermark")
def moves_the_watermark_before_the_flush() -> Patches:
    appended = Node.appended

    def appended_and_visible(self: Node, partition: Partition) -> None:
        appended(self, partition)
        self.carry_out(partition, partition.reached(partition.log.end_offset, self.env.now()))

    return [(Node, "appended", appended_and_visible)]


@breaks("log.reads-below-watermark")
def serves_past_the_watermark() -> Patches:
    def read(self: Partition, offset: int, bytes_max: int) -> Any:
        return self.log.read(offset, bytes_max=bytes_max, end_offset=self.log.end_offset)

    async def read_later(self: Partition, offset: int, bytes_max: int) -> Any:
        return await self.log.read_later(offset, bytes_max=bytes_max, end_offset=self.log.end_offset)

    return [
        (Partition, "read", read),
        (Partition, "read_later", read_later),
        (Partition, "high_watermark", property(lambda self: self.log.end_offset)),
    ]


@breaks("consensus.answer-after-flush")
def answers_before_metadata_is_flushed() -> Patches:
    flush, under_way = Log.flush, []

    async def flush_some_time(self: Log) -> None:
        if self.directory != METADATA_DIRECTORY:
            await flush(self)
        elif self.begin_flush() is not None:
            under_way.append(asyncio.get_running_loop().create_task(flush(self)))

    write_checkpoint = Log.write_checkpoint

    async def flush_and_write_checkpoint(self: Log, checkpoint: Checkpoint) -> None:
        await flush(self)  # Otherwise the log's own guard would stop the node.
        await write_checkpoint(self, checkpoint)

    return [(Log, "flush", flush_some_time), (Log, "write_checkpoint", flush_and_write_checkpoint)]


# Flushes that are not made, or are believed too readily.


@breaks("log.names-durable-first")
def leaves_names_unflushed() -> Patches:
    return [(Unflushed, "add_names", lambda self, directories: None)]


@breaks("log.failed-flush-never-trusted")
def believes_the_flush_after_a_failed_one() -> Patches:
    end_flush = Log.end_flush

    def end_and_forgive(self: Log, ticket: FlushTicket, failures: SyncFailures) -> None:
        if ticket.failure_among(failures) is None:
            end_flush(self, ticket, failures)

    return [(Log, "end_flush", end_and_forgive)]


@breaks("log.failed-flush-never-trusted")
def flushes_what_it_finds_without_writing_it_again() -> Patches:
    """After a failed flush the kernel may take bytes for clean that are not on the disk."""

    async def leave(disk: Disk, file: File, position: int, size: int) -> None:
        """It is read, and right."""

    return [(tail_scan, "rewrite", leave)]


@breaks("log.recovered-tail-flushed")
def takes_the_page_cache_for_the_disk() -> Patches:
    """After a kill the recovered tail may be in the kernel's memory only."""
    return [(TailScan, "is_changed", property(lambda self: False, lambda self, is_changed: None))]


# What was written is not what is read.


@breaks("log.caches-are-optional")
def trusts_a_stale_index() -> Patches:
    async def load_anything(disk: Disk, segment: Segment, identity: LogIdentity) -> SparseIndex | None:
        content = read_whole(disk, segment.index_path)
        try:
            return None if content is None else SparseIndex.decode(content, _INDEX_AT)[0]
        except ValueError:
            return None

    return [(index_files, "load", load_anything)]


_INDEX_AT = 20 + 36  # After the seal and the owner, which it does not look at.


@breaks("log.checksum-verified")
def serves_unchecked_bytes() -> Patches:
    def scan_without_looking(*arguments: Any, **options: Any) -> Any:
        return scan_batches(*arguments, **{**options, "verify": False})

    return [(reading, "scan_batches", scan_without_looking)]


@breaks("log.damage-never-cut")
def cuts_off_rotten_batches() -> Patches:
    async def always_torn(*arguments: Any) -> Verdict:
        return Verdict.TORN

    return [(recovery, "judge", always_torn)]


@breaks("log.disk-full-undoes-append")
def leaves_half_a_batch_on_a_full_disk() -> Patches:
    take_back = Log._take_back

    def take_back_nothing(self: Log, segment: Any, held: Any, failure: Any) -> None:
        if not isinstance(failure, DiskFull):
            take_back(self, segment, held, failure)

    return [(Log, "_take_back", take_back_nothing)]


@breaks("log.unknown-end-not-reported")
def claims_to_know_every_end() -> Patches:
    """A log that could not be read to its end is served as if it ended there."""
    return [(Partition, "end_is_known", property(lambda self: True, lambda self, is_known: None))]


# Producers.


@breaks("log.producer-state-survives")
def forgets_producers_at_a_restart() -> Patches:
    open_one = Partitions.open

    async def open_without_producers(self: Partitions, *arguments: Any, **options: Any) -> Partition:
        partition = await open_one(self, *arguments, **options)
        partition.producers = ProducerStates(partition.producers.producers_max)
        return partition

    return [(Partitions, "open", open_without_producers)]


@breaks("log.producer-state-survives")
def forgets_producers_of_the_checkpoint() -> Patches:
    return [(ProducerStates, "restore", lambda self, snapshot: None)]


@breaks("log.producer-sequence")
def answers_duplicates_with_the_end_of_the_log() -> Patches:
    append = Partition.append

    def append_or_guess(self: Partition, *arguments: Any) -> Appended:
        appended = append(self, *arguments)
        return appended._replace(base_offset=self.log.end_offset) if appended.is_duplicate else appended

    return [(Partition, "append", append_or_guess)]


@breaks("log.producer-sequence")
def appends_duplicates() -> Patches:
    return _deciding(lambda verdict: ErrorCode.NONE if isinstance(verdict, Duplicate) else verdict)


@breaks("log.producer-sequence")
def takes_batches_after_a_gap() -> Patches:
    return _deciding(lambda verdict: ErrorCode.NONE if verdict is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER else verdict)


def _deciding(change: Callable[[Any], Any]) -> Patches:
    decide = ProducerStates.decide
    return [(ProducerStates, "decide", lambda self, header, *, is_first_ever: change(decide(self, header, is_first_ever=is_first_ever)))]


@breaks("node.producer-ids-unique")
def gives_producer_ids_twice() -> Patches:
    async def first_block(self: Node) -> ProducerBlockTaken:
        return ProducerBlockTaken(NodeId(self.settings.node_id), ProducerId(0), 1_000)

    return [(Node, "_take_producer_block", first_block)]


# Compaction.


@breaks("log.compaction-swap-atomic")
def compacts_without_flushing_the_copy() -> Patches:
    sync = SimDisk.sync

    async def leave_copies_alone(self: SimDisk, files: Any, directories: Any = ()) -> SyncFailures:
        return await sync(self, [file for file in files if not (file.path.endswith(TEMPORARY) and "-" in file.path)], directories)

    return [(SimDisk, "sync", leave_copies_alone)]


@breaks("log.compaction-swap-atomic")
def removes_old_segments_before_the_swap_is_durable() -> Patches:
    async def rename_only(disk: Disk, directory: str, compacted: Segment) -> None:
        disk.rename(compacted.path + TEMPORARY, compacted.path)

    swapped = Swaps.swapped

    def swapped_and_gone(self: Swaps, *arguments: Any) -> None:
        swapped(self, *arguments)
        self.remove()

    return [(compacted_log, "put_in_place", rename_only), (Swaps, "swapped", swapped_and_gone)]


@breaks("log.compaction-keeps-last")
def takes_tombstones_before_their_time() -> Patches:
    def as_if_it_were_late(*arguments: Any, **options: Any) -> Any:
        return sift_batches(*arguments, **{**options, "wall_ms": options["horizon_ms"]})

    return [(sifting, "sift_batches", as_if_it_were_late)]


@breaks("log.compaction-keeps-last")
def keeps_the_first_record_of_a_key() -> Patches:
    """A key that the map has already is not entered again."""
    note = KeyMap.note

    def note_new_keys_only(self: KeyMap, batches: Any, start: int, end: int) -> Any:
        known = bytes(self.table)
        noted = note(self, batches, start, end)
        if len(known) == len(self.table):
            for at in range(0, len(known), SLOT_BYTES):
                if any(known[at : at + SLOT_BYTES]):
                    self.table[at : at + SLOT_BYTES] = known[at : at + SLOT_BYTES]
        return noted

    return [(KeyMap, "note", note_new_keys_only)]


# The rest.


@breaks("node.replies-in-order")
def replies_when_ready() -> Patches:
    def send_whatever_is_ready(self: Connection) -> None:
        ready = [reply for reply in self._replies if reply.pieces is not None]
        if ready and not self._is_paused and not self.is_closed:
            for reply in ready:
                self._replies.remove(reply)
            pieces = [piece for reply in ready for piece in reply.pieces or ()]
            is_streamed = len(self._outbox) > 0 or any(reply.is_streamed for reply in ready)
            self._write(pieces, sum(reply.counted for reply in ready), is_streamed=is_streamed)
            self.go_on()

    return [(Connection, "send_ready", send_whatever_is_ready)]


@breaks("log.deletion-durable-first")
def leaves_deleted_topics_on_the_disk() -> Patches:
    async def bury_nothing(self: Assignments, topic_id: Any) -> None:
        return

    return [(Assignments, "_bury", bury_nothing)]


# Groups that are not kept together.


@breaks("groups.answer-after-flush", "groups.killed-members-lose-nothing")
def answers_groups_before_the_flush() -> Patches:
    return [(Coordinator, "_answer_when_durable", lambda self, replies, _: self.tell(replies))]


@breaks("groups.committed-offset-changes", "groups.killed-members-lose-nothing")
def lets_anybody_commit() -> Patches:
    return [(committing, "_fault_of_commit", lambda group, command: ErrorCode.NONE)]


@breaks("groups.snapshot-is-cache", "groups.killed-members-lose-nothing")
def forgets_what_came_after_the_snapshot() -> Patches:
    read_stretch = coordinator_loading._read_stretch

    async def read_nothing_more(log: Log, offset: int, loaded: coordinator_loading.Loaded, patience: Patience) -> Any:
        if loaded.snapshot_bytes:
            return {}, log.end_offset
        return await read_stretch(log, offset, loaded, patience)

    return [(coordinator_loading, "_read_stretch", read_nothing_more)]


@breaks("groups.classic-generation", "groups.killed-members-lose-nothing")
def hands_out_old_assignments() -> Patches:
    sync = syncing.sync

    def sync_at_once(group: Group | None, command: SyncGroup, draft: Draft) -> None:
        member = None if group is None else group.members.get(command.member_id)
        if group is None or member is None or group.state is not GroupState.COMPLETING or command.member_id == group.leader:
            sync(group, command, draft)
        else:
            draft.answer(command.token, SyncReply(assignment=member.assignment))

    return [(syncing, "sync", sync_at_once)]


VARIANTS: dict[str, Callable[[], Patches]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        acknowledges_before_the_flush,
        moves_the_watermark_before_the_flush,
        serves_past_the_watermark,
        answers_before_metadata_is_flushed,
        leaves_names_unflushed,
        believes_the_flush_after_a_failed_one,
        flushes_what_it_finds_without_writing_it_again,
        takes_the_page_cache_for_the_disk,
        trusts_a_stale_index,
        serves_unchecked_bytes,
        cuts_off_rotten_batches,
        leaves_half_a_batch_on_a_full_disk,
        claims_to_know_every_end,
        forgets_producers_at_a_restart,
        forgets_producers_of_the_checkpoint,
        answers_duplicates_with_the_end_of_the_log,
        appends_duplicates,
        takes_batches_after_a_gap,
        gives_producer_ids_twice,
        compacts_without_flushing_the_copy,
        removes_old_segments_before_the_swap_is_durable,
        takes_tombstones_before_their_time,
        keeps_the_first_record_of_a_key,
        answers_groups_before_the_flush,
        lets_anybody_commit,
        forgets_what_came_after_the_snapshot,
        hands_out_old_assignments,
        replies_when_ready,
        leaves_deleted_topics_on_the_disk,
    )
} | DELIVERY_VARIANTS
