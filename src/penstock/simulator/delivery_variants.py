"""Nodes that are broken on purpose where transactions and groups under the new protocol are concerned (see variants.py)."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.broker.handlers import offset_fetch
from penstock.errors import ErrorCode
from penstock.groups import pending
from penstock.groups.commands import CommitPending, EndPending, NewOffset
from penstock.groups.consumer import coordinating, leaving
from penstock.groups.consumer.group import ConsumerGroup
from penstock.groups.draft import Draft
from penstock.partition.aborted import AbortedIndex
from penstock.partition.partition import Partition
from penstock.partition.producers import ProducerStates
from penstock.partition.transactions import OpenTransactions
from penstock.simulator.defects import breaks
from penstock.transactions import adding, ending, initializing, lapsing
from penstock.transactions.commands import AddPartitions
from penstock.transactions.names import Name, name_of
from penstock.transactions.records import TransactionSaved
from penstock.transactions.replies import AddReply, EndReply
from penstock.vocabulary import ProducerId

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


# What readers of committed records are shown.


@breaks("transactions.all-or-nothing")
def serves_open_transactions() -> Patches:
    return [
        (Partition, "readable_end", lambda self, *, reads_committed: self.high_watermark),
        (Partition, "last_stable_offset", property(lambda self: self.high_watermark)),
    ]


@breaks("transactions.all-or-nothing")
def tells_of_no_aborts() -> Patches:
    return [(AbortedIndex, "between", lambda self, from_offset, end_offset: [])]


@breaks("transactions.all-or-nothing", "transactions.partition-state-matches-log")
def forgets_aborts_of_the_checkpoint() -> Patches:
    restore = AbortedIndex.restore

    def restore_nothing(self: AbortedIndex, snapshot: bytes, at: int) -> int:
        return restore(AbortedIndex(), snapshot, at)

    return [(AbortedIndex, "restore", restore_nothing)]


@breaks("transactions.all-or-nothing", "transactions.partition-state-matches-log")
def forgets_open_transactions_of_the_checkpoint() -> Patches:
    restore = OpenTransactions.restore

    def restore_nothing(self: OpenTransactions, snapshot: bytes, at: int) -> int:
        return restore(OpenTransactions(), snapshot, at)

    return [(OpenTransactions, "restore", restore_nothing)]


# What takes part in a transaction, and how it ends.


@breaks("transactions.all-or-nothing", "transactions.batches-verified")
def believes_every_batch() -> Patches:
    """Nobody is asked whether the transaction of a batch is open."""
    return [
        (Partition, "needs_verification", lambda self, header: False),
        (ProducerStates, "decide_transactional", lambda self, header, guard: ErrorCode.NONE),
    ]


@breaks("transactions.all-or-nothing", "transactions.batches-verified")
def verifies_by_the_name_alone() -> Patches:
    """Whether the transaction has begun, and knows of the partition, is not looked at."""

    def verify(saved: TransactionSaved, command: AddPartitions, draft: Any) -> None:
        draft.answer(command.token, AddReply(tuple((each, ErrorCode.NONE) for each in command.partitions), saved.number))

    return [(adding, "_verify", verify)]


@breaks("transactions.all-or-nothing", "transactions.markers-owed-until-written")
def leaves_out_markers() -> Patches:
    append_marker = Partition.append_marker

    def append_some(self: Partition, producer_id: int, epoch: int, **how: Any) -> Any:
        return None if producer_id % 2 and how["is_commit"] else append_marker(self, producer_id, epoch, **how)

    return [(Partition, "append_marker", append_some)]


@breaks("transactions.all-or-nothing", "transactions.one-outcome")
def commits_what_was_aborted_over_its_time_out() -> Patches:
    """An end that was refused is told as done."""
    end = ending._end

    def end_well(saved: TransactionSaved | None, command: Any, draft: Any) -> Any:
        reply = end(saved, command, draft)
        is_late = reply.error in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)
        return EndReply(ErrorCode.NONE, command.producer_id, command.producer_epoch) if is_late else reply

    return [(ending, "_end", end_well)]


@breaks("transactions.all-or-nothing", "transactions.timeout-aborts")
def never_times_out() -> Patches:
    return [(lapsing, "abort_overdue", lambda image, draft: None)]


@breaks("transactions.all-or-nothing", "transactions.fencing")
def fences_nobody() -> Patches:
    """Whoever comes gets the name of the one before."""

    def same_name(saved: TransactionSaved, fresh: ProducerId) -> Name:
        return name_of(saved)

    return [(initializing, "next_name", same_name)]


# Offsets in transactions.


@breaks("transactions.all-or-nothing", "groups.transactional-offsets-atomic")
def commits_offsets_before_the_transaction() -> Patches:
    record = pending._record

    def committed(new: NewOffset, command: CommitPending, number: int, draft: Draft) -> Any:
        held = record(new, command, number, draft)
        draft.records.append(pending._committed(held))
        return held

    return [(pending, "_record", committed)]


@breaks("transactions.all-or-nothing", "groups.transactional-offsets-atomic")
def drops_offsets_of_committed_transactions() -> Patches:
    end_pending = pending.end_pending

    def end_without_offsets(command: EndPending, draft: Draft) -> None:
        end_pending(replace(command, is_commit=False), draft)

    return [(pending, "end_pending", end_without_offsets)]


@breaks("transactions.all-or-nothing", "groups.stable-offsets-wait")
def tells_offsets_that_may_still_change() -> Patches:
    return [(offset_fetch, "_STABLE_FROM", 1 << 15)]


# Groups under the new protocol.


@breaks("groups.consumer-one-owner")
def gives_away_what_another_has_in_hand() -> Patches:
    return [(ConsumerGroup, "is_free_for", lambda self, member_id, topic_id, partition: True)]


@breaks("groups.committed-offset-changes", "groups.consumer-one-owner")
def lets_members_of_the_past_commit() -> Patches:
    return [(coordinating, "fault_of_epoch", lambda group, member_id, member_epoch: ErrorCode.NONE)]


@breaks("groups.silent-member-removed", "groups.consumer-all-assigned")
def keeps_members_for_ever() -> Patches:
    return [(leaving, "lapse", lambda group, draft: None)]


DELIVERY_VARIANTS: dict[str, Callable[[], Patches]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        serves_open_transactions,
        tells_of_no_aborts,
        forgets_aborts_of_the_checkpoint,
        forgets_open_transactions_of_the_checkpoint,
        believes_every_batch,
        verifies_by_the_name_alone,
        leaves_out_markers,
        commits_what_was_aborted_over_its_time_out,
        never_times_out,
        fences_nobody,
        commits_offsets_before_the_transaction,
        drops_offsets_of_committed_transactions,
        tells_offsets_that_may_still_change,
        gives_away_what_another_has_in_hand,
        lets_members_of_the_past_commit,
        keeps_members_for_ever,
    )
}
