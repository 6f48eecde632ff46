"""AddPartitionsToTxn and AddOffsetsToTxn: partitions become part of the transaction; the first one begins it.

In version 1 of transactions the client adds them, and the leader of each partition asks whether that was done (`is_verify_only`) before it
takes the first records. In version 2 the leader adds the partition itself (KIP-890). So no partition has records of a transaction that
doesn't know of it, and none waits for ever for a marker.
A transaction has a number, which the answer tells and the markers carry.
"""

from dataclasses import replace

from penstock.errors import ErrorCode
from penstock.transactions.bounds import PARTITIONS_MAX
from penstock.transactions.commands import AddPartitions
from penstock.transactions.draft import Draft
from penstock.transactions.names import Claim, Name, claim_of, refusal_of
from penstock.transactions.records import TransactionPartition, TransactionSaved
from penstock.transactions.replies import NO_NUMBER, AddReply
from penstock.transactions.sizes import PARTITION_BYTES
from penstock.transactions.states import TransactionState


def add(saved: TransactionSaved | None, command: AddPartitions, draft: Draft) -> None:
    fault = _fault_of(saved, command)
    if saved is None or fault is not ErrorCode.NONE:
        draft.answer(command.token, _all_with(fault, command))
    elif command.is_verify_only:
        _verify(saved, command, draft)
    else:
        _add(saved, command, draft)


def _fault_of(saved: TransactionSaved | None, command: AddPartitions) -> ErrorCode:
    if not command.transactional_id:
        return ErrorCode.INVALID_REQUEST
    if saved is None:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    told = Name(command.producer_id, command.producer_epoch)
    match claim_of(saved, told):
        case Claim.CURRENT:
            return ErrorCode.CONCURRENT_TRANSACTIONS if saved.state.is_ending else ErrorCode.NONE
        case Claim.UPCOMING:
            return ErrorCode.CONCURRENT_TRANSACTIONS
        case _:
            return refusal_of(saved, told)


def _verify(saved: TransactionSaved, command: AddPartitions, draft: Draft) -> None:
    held = set(saved.partitions)
    answers = tuple((each, ErrorCode.NONE if each in held else ErrorCode.TRANSACTION_ABORTABLE) for each in command.partitions)
    draft.answer(command.token, AddReply(answers, saved.number))


def _add(saved: TransactionSaved, command: AddPartitions, draft: Draft) -> None:
    is_begun = saved.state is TransactionState.ONGOING
    held = set(saved.partitions)
    new = [each for each in dict.fromkeys(command.partitions) if each not in held]
    if not new:
        draft.answer(command.token, _all_with(ErrorCode.NONE, command, saved.number if is_begun else NO_NUMBER))
        return
    fault = _fault_of_growth(saved, new, draft)
    if fault is not ErrorCode.NONE:
        draft.answer(command.token, _all_with(fault, command))
        return
    grown = replace(
        saved, state=TransactionState.ONGOING, partitions=saved.partitions + tuple(new), number=saved.number + (not is_begun),
        started_ms=saved.started_ms if is_begun else draft.wall_ms, updated_ms=draft.wall_ms,
        client_version=2 if command.is_transaction_v2 else 1,
    )  # fmt: skip
    draft.save(saved, grown)
    if not is_begun:
        deadline = draft.sessions.deadlines[saved.transactional_id] = draft.after(saved.timeout_ms)
        draft.sessions.alarms.set_by(saved.transactional_id, deadline)
    draft.answer(command.token, _all_with(ErrorCode.NONE, command, grown.number))


def _fault_of_growth(saved: TransactionSaved, new: list[TransactionPartition], draft: Draft) -> ErrorCode:
    if len(saved.partitions) + len(new) > PARTITIONS_MAX:
        return ErrorCode.POLICY_VIOLATION
    if PARTITION_BYTES * len(new) > draft.free_bytes():
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE


def _all_with(code: ErrorCode, command: AddPartitions, number: int = NO_NUMBER) -> AddReply:
    return AddReply(tuple((each, code) for each in command.partitions), number)
