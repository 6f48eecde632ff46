"""Records of the new protocol read back as they were written; each key stands alone."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise
from penstock.groups import records
from penstock.groups.consumer.partitions import common, each, gathered, is_within, joined, overlap, without
from penstock.groups.consumer.records import (
    ClassicOffer,
    ConsumerGroupGone,
    ConsumerGroupSaved,
    ConsumerMemberGone,
    ConsumerMemberSaved,
    CurrentAssigned,
    CurrentGone,
    MemberState,
    TargetAssigned,
    TargetGone,
)
from penstock.groups.image import GroupsImage

names = st.text(st.characters(codec="utf-8"), max_size=8)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
partitions = st.lists(st.tuples(ids, st.lists(st.integers(0, 9), max_size=4)), max_size=3).map(gathered)
classic = st.builds(ClassicOffer, ints, st.lists(st.tuples(names, st.binary(max_size=9)), max_size=2).map(tuple))
GONE = ConsumerGroupGone | ConsumerMemberGone | TargetGone | CurrentGone
anything = st.one_of(
    st.builds(ConsumerGroupSaved, group=names, epoch=ints, assignment_epoch=ints, topics_hash=longs, since_ms=longs),
    st.builds(ConsumerGroupGone, names),
    st.builds(
        ConsumerMemberSaved,
        group=names, member_id=names, instance_id=st.none() | names, rack_id=st.none() | names, client_id=names, client_host=names,
        rebalance_timeout_ms=ints, topics=st.lists(names, max_size=3).map(tuple), regex=names, assignor=st.none() | names,
        classic=st.none() | classic,
    ),
    st.builds(ConsumerMemberGone, names, names),
    st.builds(TargetAssigned, names, names, partitions),
    st.builds(TargetGone, names, names),
    st.builds(
        CurrentAssigned,
        group=names, member_id=names, epoch=ints, previous_epoch=ints, state=st.sampled_from(MemberState), assigned=partitions,
        revoking=partitions,
    ),
    st.builds(CurrentGone, names, names),
)  # fmt: skip


@given(anything)
def test_a_record_reads_back_as_it_was_written(record: records.Record) -> None:
    key, value = records.encode(record)
    assert records.decode(key, value) == record
    assert (value is None) == isinstance(record, GONE)


@given(anything)
def test_a_form_that_is_not_known_is_refused_and_so_is_half_a_record(record: records.Record) -> None:
    key, value = records.encode(record)
    if value is None:
        return
    with pytest.raises(UnknownRecord, match="newer Penstock"):
        records.decode(key, b"\x00\x02" + value[2:])
    with pytest.raises(BrokenPromise):
        records.decode(key, value[:-1])


@given(st.lists(anything, max_size=30), st.randoms(use_true_random=False))
def test_the_last_record_of_each_key_in_any_order_is_the_whole_truth(written: list[records.Record], dice: random.Random) -> None:
    one, other, third = GroupsImage(), GroupsImage(), GroupsImage()
    last: dict[bytes, bytes | None] = {}
    for record in written:
        key, value = records.encode(record)
        one.replay(record)
        last[key] = value
    shuffled = list(last.items())
    dice.shuffle(shuffled)
    for key, value in shuffled:
        other.replay_stored(key, value)
    for piece in one.snapshot_pieces():
        for record in piece:
            third.replay(record)
    assert _told(one) == _told(other) == _told(third)


@given(partitions, partitions)
def test_sets_of_partitions_are_reckoned_as_sets(one: dict[bytes, tuple[int, ...]], other: dict[bytes, tuple[int, ...]]) -> None:
    left, right = set(each(one)), set(each(other))
    assert set(each(common(one, other))) == left & right
    assert set(each(without(one, other))) == left - right
    assert set(each(joined(one, other))) == left | right
    assert is_within(one, other) == (left <= right)
    assert overlap(one, other) == bool(left & right)
    assert all(numbers == tuple(sorted(numbers)) and numbers for numbers in joined(one, other).values())


def _told(image: GroupsImage) -> tuple[list[tuple[bytes, bytes | None]], int]:
    return sorted(records.encode(record) for piece in image.snapshot_pieces() for record in piece), image.consumers.held_bytes
