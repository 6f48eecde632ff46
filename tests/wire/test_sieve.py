"""The sieve of compaction: the compiled loop and its twin leave the same, and what they leave is what should be left."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.wire import _sieve_py
from penstock.wire.batches import Record, crc_is_right, decode_records, encode_batch, read_header
from penstock.wire.compression import Codec
from penstock.wire.repacking import packed, unpacked
from penstock.wire.sieve import SLOT_BYTES, Stop

SEED = bytes(range(16))
NOW, LATER = 1_000, 5_000
HIGHEST = 2**63 - 1


@pytest.fixture(scope="module")
def compiled():
    return pytest.importorskip("penstock.wire._sieve", reason="needs cc: the compiled loop was not built")


@pytest.fixture(scope="module", params=["compiled", "python"])
def loop(request):
    return _sieve_py if request.param == "python" else request.getfixturevalue("compiled")


def batch_of(*records: Record, base: int = 0, **options: Any) -> bytes:
    return bytes(encode_batch(records, base_offset=base, **options))


def record(key: bytes | None, value: bytes | None, timestamp_ms: int = 100) -> Record:
    return Record(key, value, (("h", b"x"),), timestamp_ms)


def sift(loop, log: bytes, *, map_end: int = HIGHEST, now: int = NOW, kept_ends: tuple[int, ...] = (), slots: int = 64, marks: int = 1):
    table = bytearray(slots * SLOT_BYTES)
    noted = loop.note_keys(log, 0, len(log), table, seed=SEED, room=slots // 2)
    assert noted.stop == Stop.END
    ends = b"".join(end.to_bytes(8, "big") for end in sorted(kept_ends))
    return loop.sift_batches(
        log, 0, len(log), table, seed=SEED, map_end=map_end, wall_ms=now, horizon_ms=LATER, kept_ends=ends, mark_bytes=marks
    )


def batches_in(content: bytes) -> list[bytes]:
    batches, at = [], 0
    while at < len(content):
        size = read_header(content, at).size
        batches.append(content[at : at + size])
        assert crc_is_right(batches[-1], 0, size)
        at += size
    return batches


def records_in(content: bytes) -> list[Record]:
    return [found for batch in batches_in(content) for found in decode_records(batch, bytes_max=1 << 20)]


def test_transactional_batches_are_taken_only_by_who_is_told_to(loop):
    producer = {"producer_id": 3, "producer_epoch": 1, "base_sequence": 0, "is_transactional": True}
    log = batch_of(record(b"a", b"1"), record(b"b", b"1"), **producer) + batch_of(record(b"a", b"2"), base=2)
    marker = batch_of(record(b"a", b"3"), base=3, is_control=True, is_transactional=True)
    table = bytearray(64 * SLOT_BYTES)
    rules = {"map_end": HIGHEST, "wall_ms": NOW, "horizon_ms": LATER, "kept_ends": b"", "mark_bytes": 1}
    assert loop.note_keys(log, 0, len(log), table, seed=SEED, room=9)[::2] == (0, Stop.SPECIAL)
    assert loop.sift_batches(log, 0, len(log), table, seed=SEED, **rules)[::5] == (0, Stop.SPECIAL)
    both = log + marker
    noted = loop.note_keys(both, 0, len(both), table, seed=SEED, room=9, takes_transactional=True)
    assert noted == (len(log), 2, Stop.SPECIAL), "a marker is never one of them"
    sifted = loop.sift_batches(both, 0, len(both), table, seed=SEED, takes_transactional=True, **rules)
    assert (sifted.position, sifted.records_removed, sifted.stop) == (len(log), 1, Stop.SPECIAL)
    assert [(found.offset, found.value) for found in records_in(sifted.content)] == [(1, b"1"), (2, b"2")]
    assert [read_header(batch).is_transactional for batch in batches_in(sifted.content)] == [True, False]


def test_the_hash_is_the_one_its_authors_publish(compiled):
    assert compiled.siphash(b"", SEED).hex() == "a3817f04ba25a8e66df67214c7550293"
    assert compiled.siphash(b"\0", SEED).hex() == "da87c1d86b99af44347659119b22fc45"


def test_only_the_last_record_of_a_key_is_left(loop):
    log = batch_of(record(b"a", b"1"), record(b"b", b"1")) + batch_of(record(b"a", b"2"), base=2)
    sifted = sift(loop, log)
    assert [(found.offset, found.key, found.value) for found in records_in(sifted.content)] == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert (sifted.records_removed, sifted.batches_changed, sifted.stop) == (1, 1, Stop.END)


def test_what_stays_is_byte_for_byte_what_it_was_and_so_is_the_rest_of_the_header(loop):
    producer = {"producer_id": 3, "producer_epoch": 1, "base_sequence": 9}
    log = batch_of(record(b"a", b"1", 7), record(b"b", b"1", 900), record(b"a", b"2", 8), base=40, **producer)
    before, after = read_header(log), read_header(sift(loop, log).content)
    kept = after._replace(batch_length=before.batch_length, crc=before.crc, record_count=before.record_count)
    assert kept == before
    assert (after.record_count, after.last_offset, after.base_sequence) == (2, 42, 9)
    unchanged = batch_of(record(b"a", b"1"), record(b"b", b"1"))
    assert sift(loop, unchanged).content == unchanged


def test_the_highest_timestamp_is_that_of_a_record_that_is_there(loop):
    log = batch_of(record(b"a", b"1", 900), record(b"b", b"1", 7), record(b"a", b"2", 8))
    assert read_header(sift(loop, log).content).max_timestamp == 8


def test_a_record_at_or_past_the_end_of_the_map_stays(loop):
    log = batch_of(record(b"a", b"1")) + batch_of(record(b"a", b"2"), base=1) + batch_of(record(None, b"3"), base=2)
    assert [found.offset for found in records_in(sift(loop, log, map_end=0).content)] == [0, 1, 2]
    assert [found.offset for found in records_in(sift(loop, log, map_end=2).content)] == [1, 2]
    assert [found.offset for found in records_in(sift(loop, log).content)] == [1], "one without a key goes"


def test_an_empty_key_is_a_key(loop):
    log = batch_of(record(b"", b"1")) + batch_of(record(b"", b"2"), base=1)
    assert [found.offset for found in records_in(sift(loop, log).content)] == [1]


def test_a_tombstone_gets_a_horizon_and_goes_once_that_is_reached(loop):
    log = batch_of(record(b"a", b"1", 50)) + batch_of(record(b"a", None, 60), record(b"b", b"1", -1), base=1)
    once = sift(loop, log).content
    (header,) = [read_header(batch) for batch in batches_in(once)]
    assert header.delete_horizon_ms == LATER
    assert [(found.offset, found.value, found.timestamp_ms, found.headers) for found in records_in(once)] == [
        (1, None, 60, (("h", b"x"),)),
        (2, b"1", -1, (("h", b"x"),)),
    ]
    assert (header.max_timestamp, header.record_count, header.last_offset) == (60, 2, 2)
    assert sift(loop, once, now=LATER - 1).content == once, "the horizon is set once"
    assert [found.offset for found in records_in(sift(loop, once, now=LATER).content)] == [2]
    assert read_header(sift(loop, once, now=LATER).content).delete_horizon_ms == LATER


def test_a_tombstone_past_the_end_of_the_map_gets_no_horizon_yet(loop):
    log = batch_of(record(b"a", None))
    assert sift(loop, log, map_end=0).content == log


def test_a_timestamp_that_cannot_be_told_from_the_horizon_keeps_its_batch_as_it_is(loop):
    log = batch_of(record(b"a", None, -(2**63)))
    assert sift(loop, log).content == log


def test_a_batch_without_records_goes_unless_it_must_stay(loop):
    log = batch_of(record(b"a", b"1"), record(b"a", b"2"), producer_id=7, producer_epoch=2, base_sequence=4)
    log += batch_of(record(b"a", b"3"), base=2)
    assert [read_header(batch).base_offset for batch in batches_in(sift(loop, log).content)] == [2]
    kept = sift(loop, log, kept_ends=(0, 1, 9))
    empty, _ = map(read_header, batches_in(kept.content))
    assert (empty.record_count, empty.size, empty.base_offset, empty.last_offset) == (0, 61, 0, 1)
    assert (empty.producer_id, empty.producer_epoch, empty.base_sequence, empty.max_timestamp) == (7, 2, 4, 100)
    assert empty.newest_timestamp == -1
    again = sift(loop, kept.content, kept_ends=(1,))
    assert (again.content, again.batches_changed) == (kept.content, 0)
    assert len(batches_in(sift(loop, kept.content).content)) == 1


def test_with_append_time_the_batch_keeps_its_time(loop):
    from penstock.wire.batches import stamp_append_time

    log = encode_batch([record(b"a", b"1", 5), record(b"a", None, 6)])
    stamp_append_time(log, 777)
    left = sift(loop, bytes(log)).content
    assert [(found.offset, found.timestamp_ms) for found in records_in(left)] == [(1, 777)]


def test_batches_that_need_another_look_stop_the_loop(loop):
    plain, zipped = batch_of(record(b"a", b"1")), batch_of(record(b"a", b"2"), base=1, codec=Codec.LZ4)
    table = bytearray(8 * SLOT_BYTES)
    for special in (zipped, batch_of(record(b"a", b"2"), is_transactional=True), batch_of(record(b"a", b"2"), is_control=True)):
        log = plain + special
        assert loop.note_keys(log, 0, len(log), table, seed=SEED, room=6)[::2] == (len(plain), Stop.SPECIAL)
        sifted = sift_all(loop, log, table)
        assert (sifted.position, sifted.stop) == (len(plain), Stop.SPECIAL)


def sift_all(loop, log, table):
    return loop.sift_batches(
        log, 0, len(log), table, seed=SEED, map_end=HIGHEST, wall_ms=NOW, horizon_ms=LATER, kept_ends=b"", mark_bytes=1
    )


def test_a_batch_is_entered_whole_or_not_at_all(loop):
    first, second = batch_of(record(b"a", b"1"), record(b"b", b"1")), batch_of(record(b"c", b"1"), record(b"d", b"1"), base=2)
    table = bytearray(8 * SLOT_BYTES)
    noted = loop.note_keys(first + second, 0, len(first + second), table, seed=SEED, room=3)
    assert noted == (len(first), 2, Stop.FULL)
    larger = loop.grow_table(table)
    assert len(larger) == 2 * len(table)
    assert sift_all(loop, first, larger).content == first
    again = loop.note_keys(first, 0, len(first), larger, seed=SEED, room=3)
    assert again.added == 0, "the keys are known"


def test_records_that_do_not_parse_are_told(loop):
    log = bytearray(batch_of(record(b"a", b"1")))
    log[-1] = 0x7F
    log[61] = 0x7E
    table = bytearray(8 * SLOT_BYTES)
    assert loop.note_keys(log, 0, len(log), table, seed=SEED, room=6).stop == Stop.MALFORMED
    assert sift_all(loop, log, table).stop == Stop.MALFORMED


def test_marks_tell_where_stretches_begin_and_how_new_they_are(loop):
    batches = [batch_of(record(b"%d" % number, b"v", 100 + number), base=number) for number in range(5)]
    size = len(batches[0])
    sifted = sift(loop, b"".join(batches), marks=2 * size)
    assert sifted.marks == [(0, 0, 101), (2, 2 * size, 103), (4, 4 * size, 104)]


def test_a_table_must_have_a_power_of_two_slots(loop):
    for slots in (0, 3):
        with pytest.raises(ValueError, match="power of two"):
            loop.note_keys(b"", 0, 0, bytearray(slots * SLOT_BYTES), seed=SEED, room=1)
    with pytest.raises(ValueError, match="range"):
        loop.note_keys(b"", 0, 1, bytearray(SLOT_BYTES), seed=SEED, room=1)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
def test_a_batch_can_be_unpacked_and_packed_again(codec):
    batch = batch_of(record(b"a", b"1" * 100), record(b"b", None), base=5, codec=codec, producer_id=4, producer_epoch=0, base_sequence=2)
    plain = unpacked(batch, bytes_max=1 << 20)
    assert read_header(plain).codec == 0
    assert crc_is_right(plain, 0, len(plain))
    again = packed(plain, read_header(batch))
    assert decode_records(again, bytes_max=1 << 20) == decode_records(batch, bytes_max=1 << 20)
    assert read_header(again)._replace(batch_length=0, crc=0) == read_header(batch)._replace(batch_length=0, crc=0)


keys = st.none() | st.sampled_from([b"", b"a", b"b", b"cc"])
some_records = st.lists(
    st.builds(
        Record,
        key=keys,
        value=st.none() | st.binary(max_size=20),
        headers=st.lists(st.tuples(st.text(max_size=2), st.none() | st.binary(max_size=2)), max_size=1).map(tuple),
        timestamp_ms=st.integers(-1, 3_000) | st.sampled_from([-(2**61), 2**61]),
    ),
    min_size=1,
    max_size=5,
)
logs = st.lists(st.tuples(some_records, st.booleans(), st.integers(0, 3)), max_size=6)
mutations = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=2)


@pytest.mark.repeats
@settings(max_examples=pick(test=100, slow=400))
@given(
    chosen=logs,
    changes=mutations,
    map_end=st.integers(0, 25),
    now=st.sampled_from([NOW, LATER]),
    ends=st.sets(st.integers(0, 25), max_size=6),
    marks=st.integers(1, 300),
)
def test_both_loops_leave_the_same(compiled, *, chosen, changes, map_end, now, ends, marks):
    log, base = bytearray(), 0
    for records, has_producer, gap in chosen:
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": base} if has_producer else {}
        log += encode_batch(records, base_offset=base, **producer)
        base += len(records) + gap
    for _ in range(2):
        outcomes = []
        for loop in (compiled, _sieve_py):
            table = bytearray(16 * SLOT_BYTES)
            noted = loop.note_keys(log, 0, len(log), table, seed=SEED, room=12)
            packed_ends = b"".join(end.to_bytes(8, "big") for end in sorted(ends))
            sifted = loop.sift_batches(
                log, 0, len(log), table, seed=SEED, map_end=map_end, wall_ms=now, horizon_ms=LATER, kept_ends=packed_ends, mark_bytes=marks
            )
            outcomes.append((noted, sifted))
        assert outcomes[0] == outcomes[1]
        log = bytearray(outcomes[0][1].content)  # Once more over what is left, changed at some bytes.
        for where, byte in changes:
            if log:
                log[where % len(log)] = byte


@pytest.mark.repeats
@settings(max_examples=pick(test=60, slow=200))
@given(chosen=logs)
def test_what_is_left_is_the_last_record_of_each_key(compiled, *, chosen):
    log, base, last = b"", 0, {}
    for records, _, gap in chosen:
        log += encode_batch(records, base_offset=base)
        for delta, one in enumerate(records):
            if one.key is not None:
                last[one.key] = (base + delta, one.value, one.timestamp_ms)
        base += len(records) + gap
    left = records_in(sift(compiled, log).content)
    assert {one.key: (one.offset, one.value, one.timestamp_ms) for one in left} == last
    assert len(left) == len(last)
