"""Coordinators that are careless with transactions, each in one way: the walk must notice every one of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from penstock.errors import ErrorCode
from penstock.groups import committing, pending
from penstock.groups.commands import EndPending
from penstock.groups.draft import Draft, Sessions
from penstock.groups.guards import Guard, Guards
from penstock.groups.image import GroupsImage
from penstock.groups.pending_image import PendingImage, Place
from penstock.groups.pending_records import PENDING_KIND, OffsetPending, PendingDropped
from penstock.groups.records import OffsetCommitted
from penstock.groups.views import OffsetView
from penstock.simulator.defects import breaks
from penstock.vocabulary import ProducerId

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


@breaks("groups.transactional-offsets-atomic")
def ends_whichever_transaction_is_open() -> Patches:
    right = pending.end_pending

    def wrong(command: EndPending, draft: Draft) -> None:
        held = draft.image.pending.of_producer(command.producer_id)
        number = next((each.number for each in held.values()), command.number)
        right(replace(command, number=number), draft)

    return [(pending, "end_pending", wrong)]


@breaks("groups.transactional-offsets-atomic")
def takes_offsets_on_an_old_answer() -> Patches:
    return [(Guard, "fault_of", lambda self, epoch, number: ErrorCode.NONE)]


@breaks("groups.transactional-offsets-atomic")
def takes_guards_of_another_life() -> Patches:
    return [(Guards, "holds", lambda self, producer_id, guard: True)]


@breaks("groups.transactional-offsets-atomic")
def voids_a_guard_with_any_end() -> Patches:
    def fault_of(self: Guard, epoch: int, number: int) -> ErrorCode:
        return ErrorCode.INVALID_TXN_STATE if self._ended_epoch >= 0 else ErrorCode.NONE

    return [(Guard, "fault_of", fault_of)]


@breaks("groups.transactional-offsets-atomic")
def takes_more_of_whatever_is_pending() -> Patches:
    def is_open(sessions: Sessions, image: PendingImage, producer_id: ProducerId, producer_epoch: int) -> bool:
        held = image.of_producer(producer_id)
        return bool(held) and next(iter(held.values())).producer_epoch == producer_epoch

    return [(pending, "is_open", is_open)]


@breaks("groups.transactional-offsets-atomic")
def commits_what_was_aborted() -> Patches:
    right = pending.end_pending
    return [(pending, "end_pending", lambda command, draft: right(replace(command, is_commit=True), draft))]


@breaks("groups.transactional-offsets-atomic")
def commits_a_part_of_it() -> Patches:
    right = pending._committed

    def wrong(each: OffsetPending) -> OffsetCommitted:
        return right(each._replace(partition=each.partition if each.offset % 10 else 0))

    return [(pending, "_committed", wrong)]


@breaks("groups.transactional-offsets-atomic")
def ends_one_group_of_several() -> Patches:
    right = PendingImage.of_producer

    def wrong(self: PendingImage, producer_id: ProducerId) -> Mapping[Place, OffsetPending]:
        held = right(self, producer_id)
        first = next((place.group for place in held), "")
        return {place: each for place, each in held.items() if place.group == first}

    return [(PendingImage, "of_producer", wrong)]


@breaks("groups.transactional-offsets-atomic")
def lets_an_earlier_offset_hold_against_a_plain_commit() -> Patches:
    return [(committing, "dropped", _drops_nothing_for(committing.dropped))]


def _drops_nothing_for(right: Callable[[Iterable[OffsetPending]], Iterator[PendingDropped]]) -> Callable[[Any], Iterator[PendingDropped]]:
    """Of a place; a whole group or topic comes as an iterator."""

    def wrong(some: Any) -> Iterator[PendingDropped]:
        return right(some) if isinstance(some, Iterator) else iter(())

    return wrong


@breaks("groups.transactional-offsets-atomic")
def lets_an_earlier_transaction_hold_against_a_later_one() -> Patches:
    return [(pending, "_older", lambda image, each: iter(()))]


@breaks("groups.transactional-offsets-atomic")
def takes_from_later_transactions_too() -> Patches:
    def all_others(image: PendingImage, each: OffsetPending) -> Iterator[OffsetPending]:
        others = image.at(each.group, each.topic, each.partition).values()
        return (other for other in others if other.producer_id != each.producer_id)

    return [(pending, "_older", all_others)]


@breaks("groups.transactional-offsets-atomic")
def counts_the_order_anew_after_a_restart() -> Patches:
    right = GroupsImage.replay_stored

    def wrong(self: GroupsImage, key: bytes, value: bytes | None) -> None:
        right(self, key, value)
        self.pending.next_order = 1

    return [(GroupsImage, "replay_stored", wrong)]


@breaks("groups.transactional-offsets-atomic")
def leaves_what_is_pending_when_a_group_or_topic_goes() -> Patches:
    return [(PendingImage, "of_group", lambda self, group: iter(())), (PendingImage, "for_topic", lambda self, topic, ids: iter(()))]


@breaks("groups.transactional-offsets-atomic")
def forgets_what_is_pending_in_a_restart() -> Patches:
    right = GroupsImage.replay_stored

    def wrong(self: GroupsImage, key: bytes, value: bytes | None) -> None:
        if int.from_bytes(key[:2], "big") != PENDING_KIND:
            right(self, key, value)

    return [(GroupsImage, "replay_stored", wrong)]


@breaks("groups.transactional-offsets-atomic")
def leaves_what_is_pending_out_of_a_snapshot() -> Patches:
    return [(PendingImage, "snapshot_pieces", lambda self: iter(()))]


@breaks("groups.stable-offsets-wait")
def calls_everything_stable() -> Patches:
    right = OffsetView.of
    return [(OffsetView, "of", lambda topic, number, committed, held: right(topic, number, committed))]


@breaks("groups.pending-memory-counted")
def does_not_count_what_goes() -> Patches:
    right = PendingImage._remove

    def wrong(self: PendingImage, group: str, producer_id: ProducerId, topic: str, partition: int) -> None:
        held_bytes = self.held_bytes
        right(self, group, producer_id, topic, partition)
        self.held_bytes = held_bytes

    return [(PendingImage, "_remove", wrong)]


VARIANTS: dict[str, Callable[[], Patches]] = {
    variant.__name__: variant
    for variant in (
        ends_whichever_transaction_is_open, takes_offsets_on_an_old_answer, takes_guards_of_another_life, voids_a_guard_with_any_end,
        takes_more_of_whatever_is_pending, commits_what_was_aborted, commits_a_part_of_it, ends_one_group_of_several,
        lets_an_earlier_offset_hold_against_a_plain_commit, lets_an_earlier_transaction_hold_against_a_later_one,
        takes_from_later_transactions_too, counts_the_order_anew_after_a_restart, leaves_what_is_pending_when_a_group_or_topic_goes,
        forgets_what_is_pending_in_a_restart, leaves_what_is_pending_out_of_a_snapshot, calls_everything_stable, does_not_count_what_goes,
    )
}  # fmt: skip
