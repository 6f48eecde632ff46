"""Coordinators that are broken on purpose: each neglects one thing, and the books must notice every one of them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.errors import ErrorCode
from penstock.simulator.defects import breaks
from penstock.transactions import adding, ending, initializing, lapsing, names
from penstock.transactions.commands import MarkersWritten
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.draft import Draft
from penstock.transactions.image import TransactionsImage
from penstock.transactions.names import EPOCH_MAX, Claim, Name
from penstock.transactions.records import Record, TransactionSaved
from penstock.transactions.states import TransactionState
from penstock.vocabulary import ProducerId

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


def _claims(wrong: Callable[[TransactionSaved, Name], Claim]) -> Patches:
    return [(room, "claim_of", wrong) for room in (adding, ending, initializing)]


@breaks("transactions.fencing")
def takes_older_epochs_for_the_current_one() -> Patches:
    right = names.claim_of

    def wrong(saved: TransactionSaved, name: Name) -> Claim:
        claim = right(saved, name)
        return Claim.CURRENT if claim is Claim.OLD and name.producer_epoch < saved.producer_epoch else claim

    return _claims(wrong)


@breaks("transactions.retry-same-answer")
def does_not_know_who_asks_again() -> Patches:
    right = names.claim_of

    def wrong(saved: TransactionSaved, name: Name) -> Claim:
        claim = right(saved, name)
        return Claim.OLD if claim is Claim.PREVIOUS else claim

    return _claims(wrong)


@breaks("transactions.retry-same-answer", "transactions.fencing")
def lets_the_one_before_ask_again_after_another_has_begun() -> Patches:
    right = names.renamed

    def wrong(saved: TransactionSaved, name: Name, *, before: Name) -> TransactionSaved:
        return right(saved, name, before=names.name_of(saved) if before == names.NOBODY else before)

    return [(initializing, "renamed", wrong)]


@breaks("transactions.fencing")
def gives_the_last_epoch_away() -> Patches:
    return [(room, "EPOCH_MAX", EPOCH_MAX + 1) for room in (names, ending, initializing)]


@breaks("transactions.fencing")
def aborts_over_the_producers_head_without_fencing_it() -> Patches:
    def wrong(saved: TransactionSaved, draft: Draft) -> None:
        draft.save(saved, replace(saved, state=TransactionState.PREPARE_ABORT, updated_ms=draft.wall_ms))

    return [(room, "abort_and_fence", wrong) for room in (initializing, lapsing)]


@breaks("transactions.one-at-a-time")
def lets_a_producer_begin_beside_an_open_transaction() -> Patches:
    def wrong(saved: TransactionSaved, draft: Draft) -> None:
        return None

    return [(initializing, "abort_and_fence", wrong)]


@breaks("transactions.markers-owed-until-written")
def ends_a_transaction_with_the_first_marker() -> Patches:
    def wrong(saved: TransactionSaved | None, command: MarkersWritten, draft: Draft) -> None:
        right(saved, replace(command, partitions=saved.partitions if saved is not None else ()), draft)

    right = ending.markers_written
    return [(ending, "markers_written", wrong)]


@breaks("transactions.markers-owed-until-written")
def takes_a_late_report_for_one_of_the_next_transaction() -> Patches:
    def wrong(saved: TransactionSaved | None, command: MarkersWritten, draft: Draft) -> None:
        right(saved, replace(command, number=saved.number if saved is not None else 0), draft)

    right = ending.markers_written
    return [(ending, "markers_written", wrong)]


@breaks("transactions.markers-owed-until-written")
def notes_the_last_marker_before_the_end_is_recorded() -> Patches:
    right = ending.markers_written

    def wrong(saved: TransactionSaved | None, command: MarkersWritten, draft: Draft) -> None:
        right(saved, command, draft)
        if draft.records and saved is not None:
            draft.sessions.unwritten[saved.transactional_id] = {}

    return [(ending, "markers_written", wrong)]


@breaks("transactions.markers-owed-until-written")
def forgets_after_a_restart_what_is_owed() -> Patches:
    right = TransactionCoordinator.begin

    def wrong(self: TransactionCoordinator, now: Any) -> None:
        right(self, now)
        self._image.ending.clear()

    return [(TransactionCoordinator, "begin", wrong)]


@breaks("transactions.timeout-aborts")
def forgets_after_a_restart_which_transactions_are_open() -> Patches:
    right = TransactionCoordinator.begin

    def wrong(self: TransactionCoordinator, now: Any) -> None:
        right(self, now)
        for transactional_id in self._image.saved:
            self._sessions.alarms.forget(transactional_id)

    return [(TransactionCoordinator, "begin", wrong)]


@breaks("transactions.timeout-aborts")
def keeps_the_deadline_of_the_transaction_before() -> Patches:
    right = TransactionCoordinator._follow

    def wrong(self: TransactionCoordinator, transactional_id: str, began: Any) -> None:
        deadline = self._sessions.deadlines.get(transactional_id)
        right(self, transactional_id, began)
        if deadline is not None:
            self._sessions.deadlines[transactional_id] = deadline
            self._sessions.alarms.set_by(transactional_id, deadline)

    def add(saved: Any, command: Any, draft: Draft) -> None:
        deadline = draft.sessions.deadlines.get(command.transactional_id)
        right_add(saved, command, draft)
        if deadline is not None:
            draft.sessions.deadlines[command.transactional_id] = deadline

    right_add = adding.add
    return [(TransactionCoordinator, "_follow", wrong), (adding, "add", add)]


@breaks("transactions.idle-ids-expire")
def forgets_ids_with_an_open_transaction() -> Patches:
    def wrong(self: lapsing.Sweep, saved: TransactionSaved, wall_ms: int) -> bool:
        return saved.updated_ms <= wall_ms - self._expiration_ms

    return [(lapsing.Sweep, "_is_too_old", wrong)]


@breaks("transactions.number-grows")
def counts_transactions_only_while_it_runs() -> Patches:
    right = TransactionsImage.replay

    def wrong(self: TransactionsImage, record: Record) -> None:
        is_first = isinstance(record, TransactionSaved) and record.transactional_id not in self.saved
        right(self, replace(record, number=0) if is_first and isinstance(record, TransactionSaved) else record)

    return [(TransactionsImage, "replay", wrong)]


@breaks("transactions.one-outcome", "transactions.retry-same-answer")
def commits_what_was_asked_to_be_aborted_meanwhile() -> Patches:
    """One who asks again is told what it wants to hear."""
    return [(ending, "_verdict", lambda state, command: ErrorCode.NONE)]


@breaks("transactions.fencing")
def loses_the_new_id_of_a_producer_whose_epochs_are_used_up() -> Patches:
    right = ending._completed

    def wrong(saved: TransactionSaved, draft: Draft) -> TransactionSaved:
        return right(replace(saved, next_producer_id=ProducerId(-1)), draft)

    return [(ending, "_completed", wrong)]


@breaks("transactions.one-at-a-time")
def opens_a_transaction_while_the_one_before_ends() -> Patches:
    right = adding._fault_of

    def wrong(saved: TransactionSaved | None, command: Any) -> ErrorCode:
        fault = right(saved, command)
        return ErrorCode.NONE if fault is ErrorCode.CONCURRENT_TRANSACTIONS else fault

    return [(adding, "_fault_of", wrong)]


@breaks("transactions.batches-verified")
def verifies_whatever_it_is_asked() -> Patches:
    right = adding._verify

    def wrong(saved: TransactionSaved, command: Any, draft: Draft) -> None:
        right(replace(saved, partitions=command.partitions), command, draft)

    return [(adding, "_verify", wrong)]


@breaks("transactions.timeout-aborts")
def lets_overdue_transactions_be() -> Patches:
    return [(lapsing, "abort_and_fence", lambda saved, draft: None)]


VARIANTS: dict[str, Callable[[], Patches]] = {
    variant.__name__: variant
    for variant in (
        takes_older_epochs_for_the_current_one, does_not_know_who_asks_again, lets_the_one_before_ask_again_after_another_has_begun,
        gives_the_last_epoch_away, aborts_over_the_producers_head_without_fencing_it, lets_a_producer_begin_beside_an_open_transaction,
        ends_a_transaction_with_the_first_marker, takes_a_late_report_for_one_of_the_next_transaction,
        notes_the_last_marker_before_the_end_is_recorded, forgets_after_a_restart_what_is_owed,
        forgets_after_a_restart_which_transactions_are_open, keeps_the_deadline_of_the_transaction_before,
        forgets_ids_with_an_open_transaction, counts_transactions_only_while_it_runs, commits_what_was_asked_to_be_aborted_meanwhile,
        loses_the_new_id_of_a_producer_whose_epochs_are_used_up, opens_a_transaction_while_the_one_before_ends,
        verifies_whatever_it_is_asked, lets_overdue_transactions_be,
    )
}  # fmt: skip
