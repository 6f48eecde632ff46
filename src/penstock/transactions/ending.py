"""EndTxn, the abort of a transaction over its producer's head, and what markers that are written lead to.

How a transaction ends is settled when it is recorded, and the producer hears it then; only after that do partitions get their markers, and
when all have them the id is free for the next transaction. An answer may get lost, so a producer may ask for the same end again. In version
1 of transactions it comes with the same name; in version 2 every end gives it the next epoch (KIP-890), so one that asks again comes with
the name before, and one with the current name means the next transaction, in which it has sent nothing yet: that can only be aborted.

| version 2      | abort, asked again | abort, current | commit, asked again | commit, current |
|----------------|--------------------|----------------|---------------------|-----------------|
| Empty          | fenced             | next epoch     | fenced              | INVALID_TXN_STATE |
| CompleteAbort  | as it is           | next epoch     | INVALID_TXN_STATE   | INVALID_TXN_STATE |
| CompleteCommit | INVALID_TXN_STATE  | next epoch     | as it is            | INVALID_TXN_STATE |
"""

from dataclasses import replace

from penstock.errors import ErrorCode
from penstock.transactions.commands import EndTransaction, MarkersWritten
from penstock.transactions.draft import Draft
from penstock.transactions.names import EPOCH_MAX, Claim, Name, claim_of, is_used_up, name_of, next_name, refusal_of, renamed
from penstock.transactions.records import TransactionSaved
from penstock.transactions.replies import EndReply
from penstock.transactions.states import TransactionState
from penstock.vocabulary import NO_PRODUCER


def end(saved: TransactionSaved | None, command: EndTransaction, draft: Draft) -> None:
    draft.answer(command.token, _end(saved, command, draft))


def _end(saved: TransactionSaved | None, command: EndTransaction, draft: Draft) -> EndReply:
    if not command.transactional_id:
        return EndReply(ErrorCode.INVALID_REQUEST)
    if saved is None:
        return EndReply(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    told = Name(command.producer_id, command.producer_epoch)
    claim = claim_of(saved, told)
    if claim is Claim.PREVIOUS and not _may_ask_again(saved, command):
        claim = Claim.OLD
    if claim in (Claim.OLD, Claim.FOREIGN) or (claim is Claim.UPCOMING and not command.is_transaction_v2):
        return EndReply(refusal_of(saved, told))
    if saved.state is TransactionState.ONGOING:
        return _settle(saved, command, draft)
    if not command.is_transaction_v2:
        return EndReply(_verdict(saved.state, command))
    if claim is Claim.PREVIOUS:
        return _once_more(saved, command, draft)
    if saved.state.is_ending:
        return EndReply(ErrorCode.CONCURRENT_TRANSACTIONS)
    return EndReply(ErrorCode.INVALID_TXN_STATE) if command.is_commit else _abort_nothing(saved, command, draft)


def _may_ask_again(saved: TransactionSaved, command: EndTransaction) -> bool:
    """Whether the name before is that of a producer whose transaction has ended since, and of nobody who merely began anew."""
    is_over = saved.state not in (TransactionState.EMPTY, TransactionState.ONGOING)
    return is_over and command.is_transaction_v2 and saved.client_version == 2


def _verdict(state: TransactionState, command: EndTransaction) -> ErrorCode:
    """For one who wants an end that is settled already."""
    if state is (TransactionState.COMPLETE_COMMIT if command.is_commit else TransactionState.COMPLETE_ABORT):
        return ErrorCode.NONE
    if state is (TransactionState.PREPARE_COMMIT if command.is_commit else TransactionState.PREPARE_ABORT):
        return ErrorCode.CONCURRENT_TRANSACTIONS
    return ErrorCode.INVALID_TXN_STATE


def _once_more(saved: TransactionSaved, command: EndTransaction, draft: Draft) -> EndReply:
    code = _verdict(saved.state, command)
    if code is not ErrorCode.NONE:
        return EndReply(code)
    if saved.producer_epoch < EPOCH_MAX:
        return EndReply(ErrorCode.NONE, *name_of(saved))
    if command.fresh_producer_id == NO_PRODUCER:
        return EndReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    name = Name(command.fresh_producer_id, 0)  # The abort over its head has taken the last epoch, which nobody may have.
    draft.save(saved, replace(renamed(saved, name, before=Name(command.producer_id, command.producer_epoch)), updated_ms=draft.wall_ms))
    return EndReply(ErrorCode.NONE, *name)


def _settle(saved: TransactionSaved, command: EndTransaction, draft: Draft) -> EndReply:
    state = TransactionState.PREPARE_COMMIT if command.is_commit else TransactionState.PREPARE_ABORT
    if not command.is_transaction_v2:
        draft.save(saved, replace(saved, state=state, updated_ms=draft.wall_ms, client_version=1))
        return EndReply(ErrorCode.NONE)
    name = next_name(saved, command.fresh_producer_id)
    if name is None:
        return EndReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    settled = replace(_bumped(saved, draft), state=state, next_producer_id=name.producer_id if is_used_up(saved) else NO_PRODUCER)
    draft.save(saved, settled)
    return EndReply(ErrorCode.NONE, *name)


def _abort_nothing(saved: TransactionSaved, command: EndTransaction, draft: Draft) -> EndReply:
    """No partition has to be told, so nothing has to be prepared."""
    name = next_name(saved, command.fresh_producer_id)
    if name is None:
        return EndReply(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    aborted = replace(
        renamed(saved, name, before=name_of(saved)), state=TransactionState.COMPLETE_ABORT,
        started_ms=draft.wall_ms, updated_ms=draft.wall_ms, client_version=2,
    )  # fmt: skip
    draft.save(saved, aborted)
    return EndReply(ErrorCode.NONE, *name)


def abort_and_fence(saved: TransactionSaved, draft: Draft) -> None:
    """Aborts an open transaction without its producer. That one is fenced, but may go on once it has asked for its new name."""
    draft.save(saved, replace(_bumped(saved, draft), state=TransactionState.PREPARE_ABORT))


def _bumped(saved: TransactionSaved, draft: Draft) -> TransactionSaved:
    """For markers: with an epoch above that of all records of the transaction, the kept-back one where there is no other."""
    name = Name(saved.producer_id, saved.producer_epoch + 1)
    return replace(renamed(saved, name, before=name_of(saved)), updated_ms=draft.wall_ms, client_version=2)


def markers_written(saved: TransactionSaved | None, command: MarkersWritten, draft: Draft) -> None:
    if saved is None or not saved.state.is_ending:
        return
    if (command.producer_id, command.producer_epoch, command.number) != (saved.producer_id, saved.producer_epoch, saved.number):
        return
    unwritten = draft.sessions.unwritten.get(saved.transactional_id)
    if unwritten is None:
        unwritten = dict.fromkeys(saved.partitions)
    done = [each for each in dict.fromkeys(command.partitions) if each in unwritten]
    if len(done) == len(unwritten):
        draft.save(saved, _completed(saved, draft))  # Those of `done` stay owed until this is recorded.
    elif done:
        for each in done:
            del unwritten[each]
        draft.sessions.unwritten[saved.transactional_id] = unwritten


def _completed(saved: TransactionSaved, draft: Draft) -> TransactionSaved:
    is_commit = saved.state is TransactionState.PREPARE_COMMIT
    ended = replace(
        saved, state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
        partitions=(), updated_ms=draft.wall_ms,
    )  # fmt: skip
    if saved.next_producer_id == NO_PRODUCER:
        return ended
    return renamed(ended, Name(saved.next_producer_id, 0), before=Name(saved.last_producer_id, saved.last_producer_epoch))
