"""Records read back as they were written; each key stands alone."""

import random
import struct

import pytest
from groups.scene import Scene, settled
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise
from penstock.groups import records
from penstock.groups.bounds import GroupSettings
from penstock.groups.commands import Leaving, NewOffset
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.image import GroupsImage
from penstock.settings import NodeSettings
from penstock.vocabulary import TopicId

names = st.text(st.characters(codec="utf-8"), max_size=20)
topics = st.text("abc._-", min_size=1, max_size=20)
longs = st.integers(-(2**63), 2**63 - 1)
ints = st.integers(-(2**31), 2**31 - 1)
ids = st.binary(min_size=16, max_size=16)
members = st.builds(
    records.MemberSaved,
    member_id=names, instance_id=st.none() | names, client_id=names, client_host=names, session_timeout_ms=ints, rebalance_timeout_ms=ints,
    protocols=st.lists(st.tuples(names, st.binary(max_size=30)), max_size=3).map(tuple), assignment=st.binary(max_size=30),
)  # fmt: skip
anything = st.one_of(
    st.builds(records.OffsetCommitted, names, topics, st.integers(0, 2**31 - 1), longs, ints, names, longs, longs, ids),
    st.builds(records.OffsetDeleted, names, topics, st.integers(0, 2**31 - 1)),
    st.builds(records.GroupDeleted, names),
    st.builds(
        records.GroupSaved,
        group=names, generation=ints, protocol_type=st.none() | names, protocol=st.none() | names, leader=st.none() | names,
        since_ms=longs, members=st.lists(members, max_size=3).map(tuple),
    ),
)  # fmt: skip


@given(anything)
def test_a_record_reads_back_as_it_was_written(record: records.Record) -> None:
    key, value = records.encode(record)
    assert records.decode(key, value) == record
    assert (value is None) == isinstance(record, records.OffsetDeleted | records.GroupDeleted)


def test_an_offset_that_was_stored_without_its_topics_id_is_of_any_topic_of_that_name() -> None:
    key, _ = records.encode(records.OffsetDeleted("g", "t", 3))
    value = struct.pack(">hqiqq", 1, 42, 5, 1_000, -1) + "ünïcode".encode()
    assert records.decode(key, value) == records.OffsetCommitted("g", "t", 3, 42, 5, "ünïcode", 1_000, -1, records.NO_TOPIC_ID)
    image = GroupsImage()
    image.replay_stored(key, value)
    assert list(image.committed_for("t", TopicId(b"whichever it was"))) == [("g", 3)]


@pytest.mark.invariant("groups.last-record-is-state")
@given(st.lists(anything, max_size=30), st.randoms(use_true_random=False))
def test_the_last_record_of_each_key_in_any_order_is_the_whole_truth(written: list[records.Record], dice: random.Random) -> None:
    """This is what lets compaction drop the others."""
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
    assert (compacted.saved, compacted.offsets) == (everything.saved, everything.offsets)


@given(st.lists(anything, max_size=30))
def test_a_snapshot_replays_into_the_same_image(written: list[records.Record]) -> None:
    image = GroupsImage()
    for record in written:
        image.replay(record)
    copy = GroupsImage()
    for piece in image.snapshot_pieces():
        for record in piece:
            copy.replay(records.decode(*records.encode(record)))
    assert (copy.saved, copy.offsets) == (image.saved, image.offsets)


@pytest.mark.invariant("groups.last-record-is-state")
def test_pieces_of_a_snapshot_and_what_was_replayed_since_the_first_give_the_same_image() -> None:
    dice = random.Random(1)
    image = GroupsImage()
    for group in range(40):
        for topic in range(5):
            for partition in range(20):
                image.replay(records.OffsetCommitted(f"g{group}", f"t{topic}", partition, 1, 0, "", 0))
    copy = GroupsImage()
    since: list[records.Record] = []
    for piece in image.snapshot_pieces():
        for record in piece:
            copy.replay(record)
        for _ in range(200):
            key = (f"g{dice.randrange(50)}", f"t{dice.randrange(6)}", dice.randrange(25))
            change = records.OffsetDeleted(*key) if dice.random() < 0.5 else records.OffsetCommitted(*key, dice.randrange(100), 0, "", 0)
            image.replay(change)
            since.append(change)
    for change in since:
        copy.replay(change)
    assert copy.offsets == image.offsets
    assert len(since) >= 800


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (struct.pack(">h", 99), b""),
        (records.encode(records.GroupDeleted("g"))[0], struct.pack(">h", 2)),
        (records.encode(records.OffsetDeleted("g", "t", 0))[0], struct.pack(">hqiqq", 3, 0, 0, 0, 0)),
    ],
)
def test_a_record_of_a_newer_penstock_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(UnknownRecord, match="newer Penstock"):
        records.decode(key, value)
    with pytest.raises(UnknownRecord, match="newer Penstock"):
        GroupsImage().replay_stored(key, value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", b""),
        (b"\x00\x01\x00\x00\x00\x09g", b""),
        (b"\x00\x01\x00\x00\x00\x01g", b"\0\1"),
        (b"\x00\x02\x00\x00\x00\x01gt\0\0\0\0", b"\0\1"),
    ],
)
def test_bytes_that_are_no_record_stop_the_node(key: bytes, value: bytes) -> None:
    with pytest.raises(BrokenPromise, match="does not read back"):
        records.decode(key, value)
    with pytest.raises(BrokenPromise, match="does not read back"):
        GroupsImage().replay_stored(key, value)


def test_a_snapshot_of_a_coordinator_is_what_its_log_says() -> None:
    scene = Scene()
    names = settled(scene, 3, protocols=(("range", b"r"), ("sticky", b"s")))
    scene.commit(NewOffset("t", 0, 5), member_id=names[0], generation=scene.generation)
    scene.commit(NewOffset("t", 0, 5), group="other")
    scene.leave(Leaving(names[1]))
    copy = GroupCoordinator(GroupSettings.of(NodeSettings()))
    for record in scene.coordinator.snapshot():
        copy.replay(record)
    copy.begin(scene.now)
    scene.restart()
    assert copy.describe("g") == scene.coordinator.describe("g")
    assert copy.groups() == scene.coordinator.groups()
    assert copy.offsets("g", None) == scene.coordinator.offsets("g", None)


def test_a_loaded_group_judges_newcomers_by_all_that_its_members_offered() -> None:
    """Kafka keeps only the chosen protocol and refuses this one after a restart."""
    scene = Scene()
    settled(scene, 2, protocols=(("range", b"r"), ("sticky", b"s")))
    scene.restart()
    member, token = scene.come(protocols=(("sticky", b"s"),))
    assert member
    assert scene.is_parked(token)
