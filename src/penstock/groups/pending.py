"""Offsets inside transactions: TxnOffsetCommit, and what the end of a transaction makes of them (KIP-98, KIP-447, KIP-890).

An offset stays pending until its transaction ends; then all that the producer has pending here, in whichever groups, is committed or
dropped. One that came later, in another transaction that is committed already or in a plain commit, holds, as at Kafka: what came before is
dropped when the later one is committed. So a partition whose offset no open transaction can change any more is stable at once, where Kafka
waits for the end of all of them.

Rules:
- The end of a transaction concerns what is pending under its number. That of an older one, late on its way, changes nothing. Where a newer
  one is open or ends, an older one is over by the word of the coordinator of transactions: what a lost log has left of it is dropped.
- Nothing is taken for a transaction after its end. A guard sees to that, and where none is needed, what the sessions know to be open.
- A piece is stored whole. Readers who want stable offsets see all of a transaction or are told to come again; others may see a transaction
  of more than `ENDED_AT_ONCE` offsets arrive in pieces.
- To end a transaction takes no more memory and is never refused.
Not here: whether the transaction is open, which its coordinator knows; whether the topic exists, which the handler knows.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from penstock.errors import ErrorCode
from penstock.groups.bounds import ENDED_AT_ONCE
from penstock.groups.commands import CommitPending, EndPending, NewOffset
from penstock.groups.draft import Draft, Sessions
from penstock.groups.group import Group
from penstock.groups.pending_image import PendingImage, Place
from penstock.groups.pending_records import NO_NUMBER, OffsetPending, PendingDropped
from penstock.groups.records import BY_RETENTION, OffsetCommitted
from penstock.groups.replies import CommitReply, PendingEnded
from penstock.groups.states import GroupState
from penstock.vocabulary import ProducerId


def commit_pending(group: Group | None, command: CommitPending, draft: Draft, *, fault: ErrorCode | None = None) -> None:
    """`fault` is given by a group of another kind that has judged the member itself."""
    if draft.is_going(command.group):
        fault = ErrorCode.COORDINATOR_NOT_AVAILABLE
    elif fault is None:
        fault = _fault_of_member(group, command)
    if fault is ErrorCode.NONE:
        fault = _fault_of_producer(command, draft)
    if fault is not ErrorCode.NONE:
        draft.answer(command.token, CommitReply(tuple((new.topic, new.partition, fault) for new in command.offsets)))
        return
    held = draft.image.pending.of_producer(command.producer_id)
    number = command.number if command.number != NO_NUMBER or not held else _any(held).number
    draft.sessions.open[command.producer_id] = number
    draft.records += dropped(each for each in held.values() if each.number != number)
    answers = []
    free_bytes: int | None = None  # Asked for once, by the first that needs more.
    for new in command.offsets:
        record = _record(new, command, number, draft)
        growth = draft.image.pending.growth(record)
        if growth > 0 and free_bytes is None:
            free_bytes = draft.free_bytes()
        fault = _fault_of_offset(record, growth, free_bytes or 0, draft)
        if fault is ErrorCode.NONE:
            free_bytes = None if free_bytes is None else free_bytes - growth
            draft.records.append(record)
        answers.append((new.topic, new.partition, fault))
    draft.answer(command.token, CommitReply(tuple(answers)))


def end_pending(command: EndPending, draft: Draft) -> None:
    _begin_end(command, draft.sessions)
    held = draft.image.pending.of_producer(command.producer_id)
    if not held:
        draft.answer(command.token, PendingEnded())
        return
    of_one = _any(held)
    if command.producer_epoch < of_one.producer_epoch:
        draft.answer(command.token, PendingEnded(ErrorCode.INVALID_PRODUCER_EPOCH))
        return
    if command.number != NO_NUMBER and command.number < of_one.number:
        draft.answer(command.token, PendingEnded())
        return
    piece = list(islice(held.values(), ENDED_AT_ONCE))
    is_commit = command.is_commit and command.number in (NO_NUMBER, of_one.number)
    for pending in piece:
        if is_commit:
            draft.records.append(_committed(pending))
            draft.records += dropped(_older(draft.image.pending, pending))
    draft.records += dropped(piece)  # Last: should only a part of this be stored, the same end has something to come back to.
    draft.answer(command.token, PendingEnded(offsets=len(piece), is_over=len(piece) == len(held)))


def dropped(pending: Iterable[OffsetPending]) -> Iterator[PendingDropped]:
    return (PendingDropped(each.group, each.producer_id, each.topic, each.partition) for each in pending)


def is_open(sessions: Sessions, image: PendingImage, producer_id: ProducerId, producer_epoch: int) -> bool:
    """Whether a transaction of this producer and epoch has offsets pending here and may add to them without anybody being asked.

    What is recorded doesn't tell whether its end has begun in another life, so somebody is asked once in each."""
    held = image.of_producer(producer_id)
    return bool(held) and _any(held).producer_epoch == producer_epoch and sessions.open.get(producer_id) == _any(held).number


def _begin_end(command: EndPending, sessions: Sessions) -> None:
    """From now on nothing is taken for this transaction, even if the decision can't be stored: it will be taken again."""
    sessions.guards.ended(command.producer_id, command.producer_epoch, command.number)
    number = sessions.open.get(command.producer_id)
    if number is not None and (command.number == NO_NUMBER or command.number >= number):
        del sessions.open[command.producer_id]


def _record(new: NewOffset, command: CommitPending, number: int, draft: Draft) -> OffsetPending:
    return OffsetPending(
        command.group, command.producer_id, new.topic, new.partition, command.producer_epoch, number,
        new.offset, new.leader_epoch, new.metadata or "", draft.wall_ms, new.topic_id, draft.image.pending.next_order,
    )  # fmt: skip


def _fault_of_offset(record: OffsetPending, growth: int, free_bytes: int, draft: Draft) -> ErrorCode:
    if len(record.metadata) > draft.settings.offset_metadata_max:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.COORDINATOR_NOT_AVAILABLE if growth > 0 and growth > free_bytes else ErrorCode.NONE


def _fault_of_member(group: Group | None, command: CommitPending) -> ErrorCode:
    """As Kafka: who says who it is must be right, and who doesn't, as below version 3, is believed. A rebalance is no reason to refuse."""
    if group is None:
        return ErrorCode.NONE if command.generation < 0 else ErrorCode.ILLEGAL_GENERATION
    if command.generation < 0 and (group.state is GroupState.EMPTY or (not command.member_id and command.instance_id is None)):
        return ErrorCode.NONE
    fault = group.fault_of(command.member_id, command.instance_id)
    if fault is ErrorCode.NONE and command.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    return fault


def _fault_of_producer(command: CommitPending, draft: Draft) -> ErrorCode:
    producer_id, epoch, number = command.producer_id, command.producer_epoch, command.number
    held = draft.image.pending.of_producer(producer_id)
    if held:
        of_one = _any(held)
        if epoch < of_one.producer_epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if number != NO_NUMBER and number < of_one.number:
            return ErrorCode.INVALID_TXN_STATE
    if command.guard is not None and number != NO_NUMBER:
        if not draft.sessions.guards.holds(producer_id, command.guard):
            return ErrorCode.NOT_COORDINATOR  # It was taken in another life of this coordinator, and whoever asks again gets a new one.
        return command.guard.fault_of(epoch, number)
    is_same = is_open(draft.sessions, draft.image.pending, producer_id, epoch) and number in (NO_NUMBER, _any(held).number)
    return ErrorCode.NONE if is_same else ErrorCode.INVALID_TXN_STATE


def _any(held: Mapping[Place, OffsetPending]) -> OffsetPending:
    """Of one transaction are all of them, so each tells its number and its epoch."""
    return next(iter(held.values()))


def _older(image: PendingImage, pending: OffsetPending) -> Iterator[OffsetPending]:
    others = image.at(pending.group, pending.topic, pending.partition).values()
    return (each for each in others if each.order < pending.order)


def _committed(pending: OffsetPending) -> OffsetCommitted:
    return OffsetCommitted(
        pending.group, pending.topic, pending.partition, pending.offset, pending.leader_epoch, pending.metadata,
        pending.committed_ms, BY_RETENTION, pending.topic_id,
    )  # fmt: skip
