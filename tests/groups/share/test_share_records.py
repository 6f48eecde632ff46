"""Records of share groups read back as they were written, in Kafka's forms; each key stands alone."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise
from penstock.groups import records
from penstock.groups.consumer.partitions import gathered
from penstock.groups.image import GroupsImage
from penstock.groups.share.records import (
    LedgersOf,
    ShareAssignment,
    ShareCurrent,
    ShareGone,
    ShareGroupSaved,
    ShareKind,
    ShareLedgers,
    ShareMemberSaved,
    ShareTarget,
)

names = st.text(st.characters(codec="utf-8"), max_size=8)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
ids = st.binary(min_size=16, max_size=16)
numbers = st.lists(st.integers(0, 9), unique=True, max_size=4).map(sorted).map(tuple)
partitions = st.lists(st.tuples(ids, st.lists(st.integers(0, 9), max_size=4)), max_size=3).map(gathered)
members = (ShareKind.MEMBER, ShareKind.TARGET, ShareKind.CURRENT)
anything = st.one_of(
    st.builds(ShareGroupSaved, names, ints, longs),
    st.builds(ShareAssignment, names, ints, longs),
    st.builds(
        ShareMemberSaved,
        group=names, member_id=names, rack_id=st.none() | names, client_id=names, client_host=names,
        topics=st.lists(names, max_size=3).map(tuple),
    ),
    st.builds(ShareTarget, names, names, partitions),
    st.builds(ShareCurrent, group=names, member_id=names, epoch=ints, previous_epoch=ints, assigned=partitions),
    st.builds(ShareLedgers, names, st.dictionaries(ids, st.builds(LedgersOf, names, numbers), max_size=3)),
    st.builds(ShareGone, st.sampled_from(members), names, names),
    st.builds(ShareGone, st.sampled_from([kind for kind in ShareKind if kind not in members]), names),
)  # fmt: skip


@settings(deadline=None)
@given(anything)
def test_a_record_reads_back_as_it_was_written(record: records.Record) -> None:
    assert records.decode(*records.encode(record)) == record


def test_the_bytes_are_kafkas() -> None:
    """As Kafka's generated classes write them: key type 10, classic strings; value version 0, compact strings, no tagged fields."""
    member = ShareMemberSaved(group="g", member_id="m", rack_id=None, client_id="c", client_host="/h", topics=("t",))
    assert records.encode(member) == (b"\0\x0a\0\x01g\0\x01m", b"\0\0\0\x02c\x03/h\x02\x02t\0")
    current = ShareCurrent(group="g", member_id="m", epoch=2, previous_epoch=1, assigned={bytes(15) + b"\x07": (0, 1)})
    key, value = records.encode(current)
    assert key == b"\0\x0e\0\x01g\0\x01m"
    assert value == b"\0\0" + b"\0\0\0\x02\0\0\0\x01\0" + b"\x02" + bytes(15) + b"\x07" + b"\x03\0\0\0\0\0\0\0\x01\0" + b"\0"
    assert records.encode(ShareAssignment("g", 3, 5)) == (b"\0\x0c\0\x01g", b"\0\0\0\0\0\x03\x01\0\x08" + bytes(7) + b"\x05")


@settings(deadline=None)
@given(st.lists(anything, max_size=20), st.integers())
def test_any_order_of_the_last_records_gives_the_same_state(written: list[records.Record], seed: int) -> None:
    last = dict(records.encode(record) for record in written)
    rows = list(last.items())
    random.Random(seed).shuffle(rows)
    in_order, shuffled = GroupsImage(), GroupsImage()
    for record in written:
        in_order.replay(record)
    for key, value in rows:
        shuffled.replay_stored(key, value)
    assert _everything(in_order) == _everything(shuffled)
    assert in_order.shares.held_bytes == shuffled.shares.held_bytes
    assert (in_order.shares.held_bytes == 0) == (not in_order.shares.groups)


def test_a_form_of_a_newer_node_is_refused_and_damage_is_told_from_it() -> None:
    key, value = records.encode(ShareGroupSaved("g", 1, 2))
    assert value is not None
    with pytest.raises(UnknownRecord):
        records.decode(key, b"\0\x01" + value[2:])
    with pytest.raises(BrokenPromise):
        records.decode(key, value[:5])


def _everything(image: GroupsImage) -> dict[bytes, bytes | None]:
    return dict(records.encode(record) for piece in image.snapshot_pieces() for record in piece)
