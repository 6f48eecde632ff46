"""InitProducerId: a producer begins with a transactional id (KIP-98), or goes on after an error with the name that it has (KIP-360).

One that begins fences all before it. A transaction that is still open is aborted first, and one that is about to end must end first;
either way the producer hears CONCURRENT_TRANSACTIONS and comes again. One that goes on must have the right name. Kafka aborts an open
transaction for a producer with an old epoch too, before it refuses it; here that one is refused at once, and disturbs nobody.
Not here: producers without a transactional id; two-phase commits (KIP-939), which are refused.
"""

from dataclasses import replace

from penstock.errors import ErrorCode
from penstock.transactions.bounds import TRANSACTIONAL_ID_MAX
from penstock.transactions.commands import InitProducer
from penstock.transactions.draft import Draft
from penstock.transactions.ending import abort_and_fence
from penstock.transactions.names import EPOCH_MAX, NOBODY, Claim, Name, claim_of, name_of, next_name, renamed
from penstock.transactions.records import NO_EPOCH, NO_TIME_MS, TransactionSaved
from penstock.transactions.replies import InitReply
from penstock.transactions.sizes import id_bytes
from penstock.transactions.states import TransactionState
from penstock.vocabulary import NO_PRODUCER


def initialize(saved: TransactionSaved | None, command: InitProducer, draft: Draft, *, has_room: bool) -> None:
    """`has_room`: whether there may be another id."""
    fault = _fault_of_request(command, draft)
    if fault is ErrorCode.NONE:
        fault = _begin_id(command, draft, has_room=has_room) if saved is None else _begin(saved, command, draft)
    if fault is not ErrorCode.NONE:
        draft.answer(command.token, InitReply(fault))


def _fault_of_request(command: InitProducer, draft: Draft) -> ErrorCode:
    is_half_a_name = (command.producer_id == NO_PRODUCER) != (command.producer_epoch == NO_EPOCH)
    if is_half_a_name or not 0 < len(command.transactional_id) <= TRANSACTIONAL_ID_MAX:
        return ErrorCode.INVALID_REQUEST
    if command.keeps_prepared:
        return ErrorCode.UNSUPPORTED_VERSION
    if not 0 < command.timeout_ms <= draft.settings.timeout_max_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    return ErrorCode.NONE


def _begin_id(command: InitProducer, draft: Draft, *, has_room: bool) -> ErrorCode:
    """A name that the producer brings is of an id that was forgotten meanwhile: it gets another."""
    if not has_room or command.fresh_producer_id == NO_PRODUCER or id_bytes(command.transactional_id) > draft.free_bytes():
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    made = TransactionSaved(
        transactional_id=command.transactional_id, producer_id=command.fresh_producer_id, producer_epoch=0,
        timeout_ms=command.timeout_ms, state=TransactionState.EMPTY, updated_ms=draft.wall_ms, client_version=_version(command),
    )  # fmt: skip
    draft.save(None, made)
    draft.answer(command.token, InitReply(ErrorCode.NONE, made.producer_id, made.producer_epoch))
    return ErrorCode.NONE


def _begin(saved: TransactionSaved, command: InitProducer, draft: Draft) -> ErrorCode:
    told = Name(command.producer_id, command.producer_epoch)
    claim = None if told == NOBODY else claim_of(saved, told)
    if claim in (Claim.OLD, Claim.FOREIGN):
        return ErrorCode.PRODUCER_FENCED
    if saved.state.is_ending:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if saved.state is TransactionState.ONGOING:
        if claim is Claim.PREVIOUS:
            return ErrorCode.PRODUCER_FENCED  # It has heard its new name since: the open transaction is made with it.
        abort_and_fence(saved, draft)
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if claim is Claim.PREVIOUS and saved.producer_epoch < EPOCH_MAX:
        name, before = name_of(saved), told  # The answer got lost, or the transaction was aborted over its time-out (KIP-588).
    else:
        found = next_name(saved, command.fresh_producer_id)
        if found is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        name, before = found, told
    begun = replace(
        renamed(saved, name, before=before), timeout_ms=command.timeout_ms, state=TransactionState.EMPTY, started_ms=NO_TIME_MS,
        updated_ms=draft.wall_ms, client_version=_version(command),
    )  # fmt: skip
    draft.save(saved, begun)
    draft.answer(command.token, InitReply(ErrorCode.NONE, *name))
    return ErrorCode.NONE


def _version(command: InitProducer) -> int:
    return 2 if command.is_transaction_v2 else 1
