"""Sequences of idempotent producers: what may come next, what was here before, and what is remembered across a restart."""

import pytest

from penstock.errors import ErrorCode
from penstock.partition.producers import SEQUENCE_MODULUS, WINDOW, Duplicate, ProducersRoom, ProducerStates
from penstock.wire.batches import BatchHeader, Record, encode_batch, read_header

pytestmark = pytest.mark.invariant("log.producer-state-survives", "log.producer-sequence")

NOW = 1_700_000_000_000


def batch(sequence: int, count: int = 1, *, producer_id: int = 7, epoch: int = 0, base_offset: int = 0) -> BatchHeader:
    records = [Record(value=b"x", timestamp_ms=NOW)] * count
    return read_header(
        encode_batch(records, base_offset=base_offset, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
    )


def states(*batches: BatchHeader, producers_max: int = 100) -> ProducerStates:
    made = ProducerStates(producers_max)
    for one in batches:
        made.replay(one, NOW)
    return made


def test_the_next_sequence_is_taken_and_a_gap_refused() -> None:
    known = states(batch(0, 3))
    assert known.decide(batch(3), is_first_ever=False) is ErrorCode.NONE
    assert known.decide(batch(4), is_first_ever=False) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_known_again_with_its_offset() -> None:
    known = states(*(batch(n, base_offset=100 + n) for n in range(7)))
    for n in range(7 - WINDOW, 7):
        assert known.decide(batch(n), is_first_ever=False) == Duplicate(100 + n, NOW)
    assert known.decide(batch(1), is_first_ever=False) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_begins_like_a_known_one_but_is_longer_is_no_duplicate() -> None:
    assert states(batch(0, 2)).decide(batch(0, 3), is_first_ever=False) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap_to_zero_after_the_largest() -> None:
    known = states(batch(SEQUENCE_MODULUS - 2, 2))
    assert known.decide(batch(0), is_first_ever=False) is ErrorCode.NONE
    known = states(batch(SEQUENCE_MODULUS - 2, 3))
    assert known.decide(batch(1), is_first_ever=False) is ErrorCode.NONE


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero() -> None:
    known = states(batch(0, epoch=3))
    assert known.decide(batch(1, epoch=2), is_first_ever=False) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert known.decide(batch(1, epoch=4), is_first_ever=False) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert known.decide(batch(0, epoch=4), is_first_ever=False) is ErrorCode.NONE


def test_a_new_epoch_forgets_the_batches_of_the_old_one() -> None:
    known = states(batch(0, epoch=0), batch(0, epoch=1, base_offset=9))
    assert known.decide(batch(0, epoch=1), is_first_ever=False) == Duplicate(9, NOW)
    assert known.decide(batch(1, epoch=1), is_first_ever=False) is ErrorCode.NONE


def test_an_unknown_producer_may_begin_anywhere_except_in_a_partition_that_never_held_a_record() -> None:
    assert states().decide(batch(5), is_first_ever=False) is ErrorCode.NONE
    assert states().decide(batch(5), is_first_ever=True) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states().decide(batch(0), is_first_ever=True) is ErrorCode.NONE


def test_a_snapshot_restores_every_window() -> None:
    known = states(*(batch(n, producer_id=p, base_offset=10 * p + n) for p in range(3) for n in range(p + 4)))
    restored = ProducerStates(100)
    restored.restore(known.snapshot())
    assert restored.snapshot() == known.snapshot()
    assert restored.decide(batch(5, producer_id=2), is_first_ever=False) == Duplicate(25, NOW)


def test_an_empty_snapshot_means_nobody() -> None:
    known = states(batch(0))
    known.restore(b"")
    assert len(known) == 0


@pytest.mark.parametrize("producers_max", [1, 3])
def test_past_the_bound_the_longest_silent_producer_is_forgotten(producers_max: int) -> None:
    known = states(*(batch(0, producer_id=p) for p in range(5)), producers_max=producers_max)
    assert list(known.producer_ids()) == list(range(5 - producers_max, 5))


def test_silence_is_counted_from_the_last_batch_by_the_nodes_clock() -> None:
    known = ProducerStates(100)
    known.replay(batch(0, producer_id=1), NOW)
    known.replay(batch(0, producer_id=2), NOW + 1)
    known.replay(batch(1, producer_id=1), NOW + 2)
    assert known.forget_silent_since(NOW + 2) == 1
    assert list(known.producer_ids()) == [1]


def test_partitions_share_the_room_and_each_makes_its_own_for_a_newcomer() -> None:
    room = ProducersRoom(6)
    one, other = ProducerStates(4, room), ProducerStates(4, room)
    for producer_id in range(10):
        one.replay(batch(0, producer_id=producer_id), NOW)
    assert list(one.producer_ids()) == [6, 7, 8, 9], "its own bound comes first"
    for producer_id in range(10):
        other.replay(batch(0, producer_id=producer_id), NOW)
        other.replay(batch(1, producer_id=producer_id), NOW)
        other.replay(batch(0, producer_id=producer_id, epoch=1), NOW)
    assert list(other.producer_ids()) == [8, 9]
    assert room.taken == 6
    late = ProducerStates(4, room)
    late.replay(batch(0), NOW)
    assert len(late) == 1, "nobody goes without"
    one.forget_all()
    assert room.taken == 3
    assert other.forget_silent_since(NOW + 1) == 2
    restored = ProducerStates(4, room)
    restored.restore(late.snapshot())
    assert room.taken == 2
