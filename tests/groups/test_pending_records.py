"""Records of pending offsets read back as they were written; each key stands alone."""

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise
from penstock.groups import records
from penstock.groups.image import GroupsImage
from penstock.groups.pending_records import PENDING_KIND, OffsetPending, PendingDropped

names = st.text(st.characters(codec="utf-8"), max_size=20)
topics = st.text("abc._-", max_size=20)
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
shorts = st.integers(-(2**15), 2**15 - 1)
ids = st.binary(min_size=16, max_size=16)
pending = st.builds(OffsetPending, names, longs, topics, ints, shorts, longs, longs, ints, names, longs, ids, st.integers(0, 2**62))
dropped = st.builds(PendingDropped, names, longs, topics, ints)
few = st.sampled_from(("a", "b")), st.sampled_from((1, 2)), st.sampled_from(("t", "u")), st.sampled_from((0, 1))
colliding = st.one_of(
    st.builds(OffsetPending, *few, shorts, longs, longs, ints, names, longs, ids, st.integers(0, 100)),
    st.builds(PendingDropped, *few),
    st.builds(records.OffsetCommitted, few[0], few[2], few[3], longs, ints, names, longs, longs, ids),
    st.builds(records.OffsetDeleted, few[0], few[2], few[3]),
)


@given(pending | dropped)
def test_a_record_reads_back_as_it_was_written(record: OffsetPending | PendingDropped) -> None:
    key, value = records.encode(record)
    assert records.decode(key, value) == record
    assert (value is None) == isinstance(record, PendingDropped)


@given(pending)
def test_the_tombstone_has_the_key_of_what_it_deletes(record: OffsetPending) -> None:
    gone = PendingDropped(record.group, record.producer_id, record.topic, record.partition)
    assert records.encode(gone)[0] == records.encode(record)[0]


def everything_of(image: GroupsImage) -> tuple[object, ...]:
    held = {producer_id: dict(image.pending.of_producer(producer_id)) for producer_id in (1, 2)}  # type: ignore[arg-type]
    return image.offsets, image.pending.groups, held, image.held_bytes, image.pending.held_bytes


@given(st.lists(colliding, max_size=40), st.randoms(use_true_random=False))
def test_the_last_record_of_each_key_in_any_order_is_the_whole_truth(written: list[records.Record], dice: random.Random) -> None:
    everything = GroupsImage()
    last: dict[bytes, bytes | None] = {}
    for record in written:
        everything.replay(record)
        key, value = records.encode(record)
        last[key] = value
    shuffled = list(last.items())
    dice.shuffle(shuffled)
    compacted = GroupsImage()
    for key, value in shuffled:
        compacted.replay_stored(key, value)
    assert everything_of(compacted) == everything_of(everything)


@given(st.lists(colliding, max_size=40))
def test_a_snapshot_replays_into_the_same_image(written: list[records.Record]) -> None:
    image, copy = GroupsImage(), GroupsImage()
    for record in written:
        image.replay(record)
    for piece in image.snapshot_pieces():
        for record in piece:
            copy.replay(records.decode(*records.encode(record)))
    assert everything_of(copy) == everything_of(image)
    assert copy.pending.next_order > max((each.order for each in image.pending.everything()), default=0)


KEY = records.encode(PendingDropped("g", 7, "t", 0))[0]  # type: ignore[arg-type]


def test_a_record_of_a_newer_penstock_is_refused() -> None:
    with pytest.raises(UnknownRecord, match="newer Penstock"):
        records.decode(KEY, struct.pack(">h", 2) + bytes(100))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (struct.pack(">h", PENDING_KIND), None),
        (struct.pack(">hqiI", PENDING_KIND, 7, 0, 2) + b"g", None),
        (KEY, b""),
        (KEY, struct.pack(">h", 1)),
        (KEY + b"\xff", None),
    ],
)
def test_bytes_that_are_no_record_stop_the_node(key: bytes, value: bytes | None) -> None:
    with pytest.raises(BrokenPromise, match="does not read back"):
        records.decode(key, value)
    with pytest.raises(BrokenPromise, match="does not read back"):
        GroupsImage().replay_stored(key, value)
