"""Ledgers that are broken on purpose: each neglects one thing, and the books must notice every one of them."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from penstock.queues import checkpoint, draft, lapsing, learning, ledger, many, picking, settling
from penstock.queues.bits import Bits, DoneSet
from penstock.queues.common_delay import CommonDelay
from penstock.queues.dedup import DedupWindow
from penstock.queues.ledger import Ledger
from penstock.queues.message_groups import NONE_HELD
from penstock.queues.messages import Messages
from penstock.queues.policy import Policy
from penstock.queues.ready import Ready
from penstock.queues.records import Changed, Leased
from penstock.queues.rows import Row, packed, read
from penstock.queues.schedule import Schedule
from penstock.queues.state import LedgerState
from penstock.queues.timetable import Timetable
from penstock.simulator.defects import breaks
from penstock.simulator.knobs import replaced

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


@breaks("queues.one-holder")
def gives_a_lease_twice() -> Patches:
    return [(Ready, "is_fresh", lambda self, offset: offset not in self._done)]


@breaks("queues.one-holder")
def gives_a_plain_lease_twice() -> Patches:
    """Where messages are found straight."""
    return [(Ready, "first_fresh", lambda self, lane, count: [each for each in lane.fresh() if each not in self._done][:count])]


@breaks("queues.fifo-order")
def does_not_lock_groups() -> Patches:
    return [(Ready, "first_held", lambda self, group: NONE_HELD)]


@breaks("queues.fifo-order")
def locks_the_whole_group() -> Patches:
    return [(Ready, "first_held", lambda self, group: 0 if group.in_flight or group.waiting else NONE_HELD)]


@breaks("queues.fifo-order")
def unlocks_a_group_with_the_first_one_that_is_done() -> Patches:
    right = Ready.gone

    def wrong(self: Ready, offset: int, **told: Any) -> None:
        right(self, offset, **told)
        group = self.group_of(offset)
        if group is not None and told["was_leased"]:
            group.held.clear()
            self._list(group)

    return [(Ready, "gone", wrong)]


@breaks("queues.fifo-order", "queues.load-equals-ledger")
def forgets_locks_at_a_load() -> Patches:
    right = Ledger.index

    def wrong(self: Ledger, policy: Policy, wall_ms: int) -> None:
        right(self, policy, wall_ms)
        assert self.ready is not None
        for group in self.ready.groups.values():
            group.held.clear()
            self.ready._list(group)

    return [(Ledger, "index", wrong)]


@breaks("queues.no-early-delivery")
def delivers_early() -> Patches:
    right = learning.come
    return [(learning, "come", lambda state, wall_ms, count_max: right(state, wall_ms + 1_000, count_max))]


@breaks("queues.no-early-delivery")
def tries_again_early() -> Patches:
    right = Ready.come
    return [(Ready, "come", lambda self, wall_ms, count_max: right(self, wall_ms + 1_000, count_max))]


@breaks("queues.deliveries-counted")
def does_not_count_deliveries_after_a_failure() -> Patches:
    def lease_as_first(rows: dict[int, bytes], record: Leased) -> int:
        before = many.lease_rows(rows, record)
        for offset in record.offsets:
            rows[offset] = packed(read(rows[offset])._replace(attempts=1))
        return before

    return [(ledger, "many", SimpleNamespace(lease_rows=lease_as_first, drop_rows=many.drop_rows))]


def _forgets_at_a_restore(part: checkpoint.Kind) -> Patches:
    return [(checkpoint, "_READERS", {**checkpoint._READERS, part: lambda reader, content: None})]


@breaks("queues.dedup-window", "queues.load-equals-ledger")
def forgets_dedup_ids_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.DEDUP)


@breaks("queues.load-equals-ledger")
def forgets_leases_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.ROWS)


@breaks("queues.load-equals-ledger")
def forgets_what_is_done_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.DONE)


@breaks("queues.load-equals-ledger")
def forgets_failures_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.FAILURES)


@breaks("queues.load-equals-ledger")
def forgets_delays_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.FAR_DELAYS)


@breaks("queues.load-equals-ledger")
def forgets_who_waits_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.WAITING)


@breaks("queues.load-equals-ledger")
def forgets_near_delays_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.NEAR_DELAYS)


@breaks("queues.load-equals-ledger")
def forgets_common_delays_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.COMMON_DELAYS)


@breaks("queues.load-equals-ledger")
def forgets_who_waits_in_order_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.IN_ORDER)


@breaks("queues.changed-delay")
def lets_those_who_wait_keep_their_delay() -> Patches:
    return [(CommonDelay, "first", lambda self, end: end)]


@breaks("queues.changed-delay")
def lets_a_delay_hold_for_all_that_is_learned_anew() -> Patches:
    right = CommonDelay.tell
    return [(CommonDelay, "tell", lambda self, start, span_ms: right(self, 0, span_ms))]


@breaks("queues.no-message-lost")
def forgets_a_bucket() -> Patches:
    """What is opened goes nowhere."""
    return [(Timetable, "_scatter", lambda self, pairs, options, cut: len(pairs) // 2)]


@breaks("queues.options-kept")
def forgets_options_in_a_bucket() -> Patches:
    right = Timetable._scatter
    return [(Timetable, "_scatter", lambda self, pairs, options, cut: right(self, pairs, {}, cut))]


@breaks("queues.load-equals-ledger")
def forgets_options_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.OPTIONS)


@breaks("queues.dead-letter-owed", "queues.load-equals-ledger")
def forgets_dead_letters_at_a_restore() -> Patches:
    return _forgets_at_a_restore(checkpoint.Kind.BURYING)


@breaks("queues.only-holder-settles")
def takes_a_lapsed_lease_for_a_good_one() -> Patches:
    right = settling._row

    def wrong(given: draft.Draft, offset: int) -> Any:
        row = right(given, offset)
        return row._replace(when=max(row.when, given.wall_ms + 1)) if isinstance(row, Row) else row

    return [(settling, "_row", wrong)]


@breaks("queues.only-holder-settles")
def takes_any_lease_for_the_last_one() -> Patches:
    return [(settling, "_holds", lambda item, row: True)]


@breaks("queues.undo-only-undelivered")
def undoes_what_somebody_has() -> Patches:
    return [(settling, "HEARD", 0)]


@breaks("queues.deliveries-counted")
def counts_what_was_given_back_untouched() -> Patches:
    right = draft.Draft.undo

    def wrong(self: draft.Draft, offset: int, row: Any) -> Any:
        found = right(self, offset, row)
        self._returned[:] = [each._replace(is_undone=False) for each in self._returned]
        return found

    return [(draft.Draft, "undo", wrong)]


@breaks("queues.undo-only-undelivered")
def takes_up_again_what_was_given_back() -> Patches:
    return [(settling, "LET_GO", 0)]


@breaks("queues.lease-expires")
def never_lapses() -> Patches:
    return [(lapsing, "lapse_leases", lambda ready, given: None)]


@breaks("queues.dead-letter-after-limit")
def buries_one_delivery_late() -> Patches:
    right = draft.Draft.give_back

    def wrong(self: draft.Draft, offset: int, row: Any, **told: Any) -> Any:
        return right(self, offset, row._replace(attempts=row.attempts - 1), **told)

    return [(draft.Draft, "give_back", wrong)]


@breaks("queues.priority-order")
def ignores_priorities() -> Patches:
    right = Messages.options
    return [(Messages, "options", lambda self, offset: right(self, offset)._replace(priority=4))]


@breaks("queues.priority-order", "queues.options-kept")
def loses_priorities_on_retry() -> Patches:
    right = Ledger.replay_changed

    def wrong(self: Ledger, record: Changed) -> None:
        for each in record.returned:
            self._messages.kept.pop(each.offset, None)
        right(self, record)

    return [(Ledger, "replay_changed", wrong)]


@breaks("queues.expired-not-delivered")
def gives_what_has_expired() -> Patches:
    right = Ready.is_in_line

    def wrong(self: Ready, entry: int) -> bool:
        with replaced([(self._messages, "expired", Bits())]):
            return right(self, entry)

    return [(picking._Picker, "_is_expired", lambda self, offset: False), (Ready, "is_in_line", wrong)]


@breaks("queues.expired-not-delivered", "queues.no-message-lost")
def forgets_a_group_whose_first_one_has_expired() -> Patches:
    return [(Ready, "expired", lambda self, offset: None)]


@breaks("queues.expired-not-delivered")
def never_finishes_what_has_expired() -> Patches:
    return [(lapsing, "expire", lambda messages, drafts: messages.overdue.discard_range(0, 1 << 20))]


@breaks("queues.lease-expires")
def counts_a_lost_lapse_as_recorded() -> Patches:
    return [(lapsing, "AGAIN_MS", 1 << 40)]


@breaks("queues.deliveries-counted")
def forgets_the_attempts_of_who_comes_back() -> Patches:
    right = Ledger.replay_leased

    def wrong(self: Ledger, record: Leased) -> None:
        for offset in record.offsets:
            self.rows.pop(offset, None)
        right(self, record)

    return [(Ledger, "replay_leased", wrong)]


@breaks("queues.expired-not-delivered")
def keeps_what_is_too_old() -> Patches:
    return [(lapsing, "sweep", lambda given: None)]


@breaks("queues.expired-not-delivered")
def gives_back_what_is_too_old() -> Patches:
    """Messages' own times are heeded."""
    return [(draft.Draft, "is_expired", lambda self, offset: 0 < self.messages.options(offset).expires_at <= self.wall_ms)]


@breaks("queues.no-message-lost")
def finishes_neighbours() -> Patches:
    right = DoneSet.add_range
    return [(DoneSet, "add_range", lambda self, start, end: right(self, start, end + 1))]


@breaks("queues.dedup-window")
def does_not_know_an_id_before_it_is_learned() -> Patches:
    return [(LedgerState, "expect", lambda self, key, offset, wall_ms: None)]


@breaks("queues.dedup-window")
def lets_ids_count_too_long() -> Patches:
    right = DedupWindow.find
    return [
        (DedupWindow, "find", lambda self, key, wall_ms: right(self, key, wall_ms - 10_000_000)),
        (DedupWindow, "prune", lambda self, wall_ms, window_ms: None),
    ]


@breaks("queues.no-early-delivery")
def rounds_times_down() -> Patches:
    right = Schedule.add
    return [(Schedule, "add", lambda self, when_ms, offset: right(self, when_ms // 1_000 * 1_000, offset))]


@breaks("queues.dedup-window")
def keeps_options_of_what_is_unlearned() -> Patches:
    return [(Messages, "exempt_from_dedup", lambda self, start, end: None)]


VARIANTS: dict[str, Callable[[], Patches]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        gives_a_lease_twice, gives_a_plain_lease_twice,
        does_not_lock_groups, locks_the_whole_group, unlocks_a_group_with_the_first_one_that_is_done,
        forgets_locks_at_a_load, delivers_early, tries_again_early, does_not_count_deliveries_after_a_failure,
        forgets_dedup_ids_at_a_restore, forgets_leases_at_a_restore,
        forgets_what_is_done_at_a_restore, forgets_failures_at_a_restore, forgets_delays_at_a_restore, forgets_options_at_a_restore,
        forgets_dead_letters_at_a_restore, takes_a_lapsed_lease_for_a_good_one, takes_any_lease_for_the_last_one, never_lapses,
        buries_one_delivery_late, ignores_priorities, loses_priorities_on_retry, gives_what_has_expired,
        forgets_a_group_whose_first_one_has_expired, never_finishes_what_has_expired, counts_a_lost_lapse_as_recorded,
        forgets_the_attempts_of_who_comes_back, finishes_neighbours, does_not_know_an_id_before_it_is_learned, lets_ids_count_too_long,
        forgets_who_waits_at_a_restore, forgets_near_delays_at_a_restore, forgets_a_bucket, forgets_options_in_a_bucket,
        rounds_times_down, undoes_what_somebody_has, counts_what_was_given_back_untouched,
        takes_up_again_what_was_given_back, keeps_options_of_what_is_unlearned,
        keeps_what_is_too_old, gives_back_what_is_too_old,
        forgets_common_delays_at_a_restore, forgets_who_waits_in_order_at_a_restore,
        lets_those_who_wait_keep_their_delay, lets_a_delay_hold_for_all_that_is_learned_anew,
    )
}  # fmt: skip
