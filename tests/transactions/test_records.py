"""Records read back as they were written, and each key stands alone."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transactions.scene import A, Scene, place

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise
from penstock.transactions import records
from penstock.transactions.image import TransactionsImage
from penstock.transactions.records import TransactionForgotten, TransactionPartition, TransactionSaved
from penstock.transactions.sizes import held_bytes
from penstock.transactions.states import TransactionState

ids = st.text(st.characters(codec="utf-8"), max_size=3)
longs = st.integers(-(2**63), 2**63 - 1)
shorts = st.integers(-(2**15), 2**15 - 1)
partitions = st.builds(
    TransactionPartition, st.text("abé", min_size=1, max_size=3), st.binary(min_size=16, max_size=16), st.integers(0, 2**31 - 1)
)
saved = st.builds(
    TransactionSaved,
    transactional_id=ids, producer_id=longs, producer_epoch=shorts, last_producer_id=longs, last_producer_epoch=shorts,
    next_producer_id=longs, timeout_ms=st.integers(-(2**31), 2**31 - 1),
    state=st.sampled_from([state for state in TransactionState if state.is_recorded]),
    partitions=st.lists(partitions, max_size=5).map(tuple), number=longs, started_ms=longs, updated_ms=longs,
    client_version=st.sampled_from([1, 2]),
)  # fmt: skip
anything = saved | st.builds(TransactionForgotten, ids)


@given(anything)
def test_a_record_reads_back_as_it_was_written(record: records.Record) -> None:
    key, value = records.encode(record)
    assert records.decode(key, value) == record
    assert (value is None) == isinstance(record, TransactionForgotten)


@pytest.mark.invariant("transactions.last-record-is-state")
@given(st.lists(anything, max_size=20), st.randoms(use_true_random=False))
def test_the_last_record_of_each_key_in_any_order_is_the_whole_truth(written: list[records.Record], dice: random.Random) -> None:
    everything, last = TransactionsImage(), dict[bytes, bytes | None]()
    for record in written:
        everything.replay(record)
        key, value = records.encode(record)
        last[key] = value
    compacted = TransactionsImage()
    for key, value in dice.sample(list(last.items()), len(last)):
        compacted.replay(records.decode(key, value))
    assert (compacted.saved, compacted.ending, compacted.held_bytes) == (everything.saved, everything.ending, everything.held_bytes)


@given(st.lists(anything, max_size=20))
def test_an_image_counts_what_it_holds_and_knows_whose_end_is_settled(written: list[records.Record]) -> None:
    image = TransactionsImage()
    for record in written:
        image.replay(record)
    assert image.held_bytes == sum(map(held_bytes, image.saved.values()))
    assert image.ending.keys() == {id for id, each in image.saved.items() if each.state.is_ending}


@given(st.lists(anything, max_size=20), st.lists(anything, max_size=20))
def test_a_snapshot_and_what_came_since_replay_into_the_same_image(before: list[records.Record], since: list[records.Record]) -> None:
    image, copy = TransactionsImage(), TransactionsImage()
    for record in before:
        image.replay(record)
    pieces = image.snapshot_pieces()
    first = list(next(pieces, []))
    for record in since:
        image.replay(record)
    for record in (*first, *(record for piece in pieces for record in piece), *since):
        copy.replay(record)
    assert copy.saved == image.saved


def test_a_snapshot_comes_in_pieces_between_which_anything_may_happen() -> None:
    scene = Scene()
    for number in range(1_200):
        scene.begin(id=f"t{number}")
    pieces = scene.coordinator.snapshot_pieces()
    taken = [*next(pieces)]
    assert len(taken) < 1_200
    scene.begin(id="t1199")
    scene.coordinator.replay(TransactionForgotten("t1198"))
    taken += (record for piece in pieces for record in piece)
    assert len({record.transactional_id for record in taken}) == len(taken) == 1_199


@given(saved, st.data())
def test_a_value_that_was_cut_or_stretched_is_noticed(record: TransactionSaved, data: st.DataObject) -> None:
    key, value = records.encode(record)
    assert value is not None
    for wrong in (value[: data.draw(st.integers(0, len(value) - 1))], value + b"x"):
        with pytest.raises(BrokenPromise):
            records.decode(key, wrong)


def test_what_a_newer_version_wrote_is_refused_clearly() -> None:
    key, value = records.encode(_example())
    assert value is not None
    with pytest.raises(UnknownRecord, match="newer"):
        records.decode(struct.pack(">h", 2) + key[2:], value)
    with pytest.raises(UnknownRecord, match="newer"):
        records.decode(key, struct.pack(">h", 2) + value[2:])


@pytest.mark.parametrize("state", [TransactionState.DEAD, TransactionState.PREPARE_EPOCH_FENCE])
def test_states_that_pass_at_once_are_neither_written_nor_read(state: TransactionState) -> None:
    key, value = records.encode(_example())
    assert value is not None
    at = struct.calcsize(">hqhqhqi")
    assert value[at] == TransactionState.ONGOING
    for number in (state, 8, 200):
        with pytest.raises(BrokenPromise):
            records.decode(key, value[:at] + bytes([number]) + value[at + 1 :])
    with pytest.raises(BrokenPromise):
        records.encode(_example(state))


def test_the_name_of_a_topic_is_written_once_for_all_its_partitions() -> None:
    few = records.encode(_example(partitions=(A,)))[1]
    many = records.encode(_example(partitions=tuple(place("a", number) for number in range(1_000))))[1]
    assert few is not None
    assert many is not None
    assert len(many) == len(few) + 4 * 999


def _example(state: TransactionState = TransactionState.ONGOING, partitions: tuple[TransactionPartition, ...] = (A,)) -> TransactionSaved:
    scene = Scene()
    return TransactionSaved(
        transactional_id="t", producer_id=scene.fresh(), producer_epoch=1, timeout_ms=1, state=state, partitions=partitions,
        updated_ms=1, client_version=1,
    )  # fmt: skip
