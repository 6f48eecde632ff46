"""Transactions of a partition: who may write in one, and what ends it."""

import pytest
from log.bench import run
from partition.held import Held, copy, led, transactional

from penstock.errors import ErrorCode, Refusal
from penstock.simulator.disk import SimDisk
from penstock.wire.batches import read_header

pytestmark = pytest.mark.invariant("transactions.partition-state-matches-log")


def code_of(refused: pytest.ExceptionInfo[Refusal]) -> ErrorCode:
    assert refused.value.reason
    return refused.value.code


# Guards


@pytest.mark.invariant("transactions.batches-verified")
def test_the_first_batch_of_a_transaction_needs_a_guard_and_the_next_ones_do_not() -> None:
    async def story() -> None:
        held = await led()
        first, second = transactional(7, 0), transactional(7, 1)
        assert held.partition.needs_verification(read_header(first))
        with pytest.raises(Refusal) as refused:
            held.partition.append(first, 0)
        assert code_of(refused) is ErrorCode.INVALID_TXN_STATE
        assert held.partition.log.end_offset == 0
        guard = held.partition.guard(read_header(first), is_v2=False)
        held.partition.append(first, 0, guard)
        assert not held.partition.needs_verification(read_header(second))
        assert held.partition.append(second, 0).base_offset == 1

    run(story())


@pytest.mark.invariant("transactions.no-append-after-marker")
def test_a_marker_voids_the_guard_of_a_batch_that_waits_for_its_coordinator() -> None:
    async def story() -> None:
        held = await led()
        batch = transactional(7, 0)
        guard = held.partition.guard(read_header(batch), is_v2=False)
        held.end(7, is_commit=False)
        assert not guard.is_valid
        with pytest.raises(Refusal) as refused:
            held.partition.append(batch, 0, guard)
        assert code_of(refused) is ErrorCode.INVALID_TXN_STATE
        await held.flush()
        assert held.partition.last_stable_offset == held.partition.high_watermark == 1, "nothing is left open"

    run(story())


def test_a_change_of_leader_voids_every_guard() -> None:
    async def story() -> None:
        held = await led()
        guards = [held.partition.guard(read_header(transactional(producer)), is_v2=False) for producer in (1, 2)]
        held.lead()
        assert not any(guard.is_valid for guard in guards)
        guard = held.partition.guard(read_header(transactional(1)), is_v2=False)
        held.partition.follow(9)
        assert not guard.is_valid
        with pytest.raises(Refusal) as refused:
            held.partition.guard(read_header(transactional(1)), is_v2=False)
        assert code_of(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(story())


def test_batches_that_wait_together_share_a_guard_and_none_overtakes_the_first() -> None:
    async def story() -> None:
        held = await led()
        held.put(1, 0, is_transactional=False)  # The partition is not new: an unknown producer could begin anywhere.
        first, second = transactional(7, 0), transactional(7, 1)
        guard = held.partition.guard(read_header(first), is_v2=False)
        assert held.partition.guard(read_header(second), is_v2=False) is guard
        with pytest.raises(Refusal) as refused:  # The first one's question came to nothing.
            held.partition.append(second, 0, guard)
        assert code_of(refused) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        held.partition.append(first, 0, guard)
        held.partition.append(second, 0, guard)

    run(story())


def test_a_later_epoch_that_waits_makes_the_guard_forget_the_sequences_of_the_earlier_one() -> None:
    async def story() -> None:
        held = await led()
        held.partition.guard(read_header(transactional(7, 5, epoch=0)), is_v2=False)
        later = transactional(7, 8, epoch=1)
        guard = held.partition.guard(read_header(later), is_v2=False)
        assert (guard.epoch, guard.lowest_sequence) == (1, 8)

    run(story())


def test_guards_are_bounded_and_the_oldest_gives_way() -> None:
    async def story() -> None:
        held = await led(producers_max=2)
        one, two, three = (held.partition.guard(read_header(transactional(producer)), is_v2=False) for producer in (1, 2, 3))
        assert [guard.is_valid for guard in (one, two, three)] == [False, True, True]

    run(story())


def test_a_guard_of_one_producer_does_not_let_another_in() -> None:
    async def story() -> None:
        held = await led()
        guard = held.partition.guard(read_header(transactional(1)), is_v2=False)
        with pytest.raises(Refusal) as refused:
            held.partition.append(transactional(2), 0, guard)
        assert code_of(refused) is ErrorCode.INVALID_TXN_STATE

    run(story())


# Who may write


def test_a_batch_without_transaction_is_refused_while_its_producer_has_one_open() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0)
        with pytest.raises(Refusal) as refused:
            held.put(7, 1, is_transactional=False)
        assert code_of(refused) is ErrorCode.INVALID_TXN_STATE
        held.put(8, 0, is_transactional=False)
        held.end(7)
        held.put(7, 1, is_transactional=False)

    run(story())


def test_a_batch_that_came_before_is_answered_with_its_offset_whatever_became_of_its_transaction() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0)
        held.put(7, 1)
        held.end(7)
        again = transactional(7, 1)
        assert not held.partition.needs_verification(read_header(again))
        appended = held.partition.append(again, 0)
        assert (appended.is_duplicate, appended.base_offset) == (True, 1)

    run(story())


def test_by_the_first_version_sequences_go_on_from_one_transaction_to_the_next() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0)
        held.end(7)
        with pytest.raises(Refusal) as refused:
            held.put(7, 2)
        assert code_of(refused) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        held.put(7, 1)

    run(story())


def test_by_the_second_version_each_transaction_begins_at_sequence_0_in_the_epoch_of_the_marker() -> None:
    async def story() -> None:
        held = await led()
        held.put(1, 0, is_transactional=False)
        with pytest.raises(Refusal) as refused:
            held.put(7, 3, is_v2=True)
        assert code_of(refused) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "by the first version it might be one that was forgotten here"
        held.put(7, 0, is_v2=True)
        held.end(7, epoch=1, is_v2=True)
        for sequence, epoch, code in ((1, 0, ErrorCode.INVALID_PRODUCER_EPOCH), (1, 1, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)):
            with pytest.raises(Refusal) as refused:
                held.put(7, sequence, epoch=epoch, is_v2=True)
            assert code_of(refused) is code
        held.put(7, 0, epoch=1, is_v2=True)

    run(story())


def test_a_marker_fences_older_epochs_even_where_its_transaction_wrote_nothing() -> None:
    async def story() -> None:
        held = await led()
        assert held.end(7, epoch=4, is_commit=False) is not None
        for sequence in (0, 1):
            with pytest.raises(Refusal) as refused:
                held.put(7, sequence, epoch=3)
            assert code_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
        held.put(7, 0, epoch=4)

    run(story())


# Markers


def test_a_marker_of_an_older_epoch_or_of_an_older_coordinator_is_refused() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0, epoch=2)
        with pytest.raises(Refusal) as refused:
            held.end(7, epoch=1)
        assert code_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
        held.end(7, epoch=2, coordinator_epoch=5)
        held.put(7, 1, epoch=2)
        with pytest.raises(Refusal) as refused:
            held.end(7, epoch=2, coordinator_epoch=4)
        assert code_of(refused) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        assert held.partition.producers.described(7).open_since == 2

    run(story())


def test_by_the_second_version_a_marker_with_the_epoch_of_the_open_transaction_is_one_that_was_delayed() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0, is_v2=True)
        held.end(7, epoch=1, is_v2=True)
        assert held.end(7, epoch=1, is_v2=True) is not None, "it came again, and nothing is open"
        held.put(7, 0, epoch=1, is_v2=True)
        with pytest.raises(Refusal) as refused:
            held.end(7, epoch=1, is_v2=True)
        assert code_of(refused) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert held.partition.producers.described(7).open_since == 3

    run(story())


def test_a_marker_that_comes_again_is_told_where_it_stands_and_writes_nothing() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0, number=3)
        first = held.end(7, number=3)
        again = held.end(7, number=3)
        assert first is not None and again is not None
        assert (again.is_duplicate, again.base_offset, again.end_offset) == (True, first.base_offset, first.end_offset)
        assert held.partition.log.end_offset == first.end_offset

    run(story())


@pytest.mark.invariant("transactions.no-append-after-marker")
@pytest.mark.parametrize("knows_number", [True, False])
def test_a_delayed_marker_does_not_end_the_next_transaction_of_the_same_epoch(knows_number: bool) -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0, number=3)
        held.end(7, number=3)
        held.put(7, 1, number=4 if knows_number else -1)
        again = held.end(7, number=3)
        assert again is not None and again.is_duplicate
        assert held.end(7, number=2) is None
        assert held.partition.producers.described(7).open_since == 2
        assert held.end(7, number=4) is not None
        assert held.partition.producers.described(7).open_since == -1

    run(story())


def test_a_delayed_marker_does_not_void_the_guard_of_the_next_transaction() -> None:
    async def story() -> None:
        held = await led()
        held.put(7, 0, number=3)
        held.end(7, number=3)
        batch = transactional(7, 1)
        guard = held.partition.guard(read_header(batch), is_v2=False)
        held.end(7, number=3)
        held.end(7, number=2)
        held.partition.append(batch, 0, guard)

    run(story())


@pytest.mark.invariant("transactions.no-append-after-marker")
def test_another_leader_knows_which_transactions_have_ended_but_not_the_number_of_the_open_one() -> None:
    async def story() -> None:
        held, replica = await led(), Held(SimDisk(2))
        held.put(7, 0, number=3)
        held.end(7, number=3)
        held.put(7, 1, number=4)
        await copy(held, replica)
        replica.lead()
        again = replica.end(7, number=3)
        assert again is not None and again.is_duplicate, "it stands in the log that it ended"
        assert replica.partition.producers.described(7).open_since == 2
        ended = replica.end(7, number=9)
        assert ended is not None and not ended.is_duplicate

    run(story())
