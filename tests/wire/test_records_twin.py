"""The compiled loop says of any bytes, good, changed or noise, exactly what its Python twin says."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.errors import MalformedInput
from penstock.wire import _records_py
from penstock.wire.batches import HEADER_BYTES, Record, encode_batch
from penstock.wire.verdicts import ScanFault

LOWEST, HIGHEST = -(2**63), 2**63 - 1


@pytest.fixture(scope="module")
def compiled():
    return pytest.importorskip("penstock.wire._records", reason="needs cc: the compiled loop was not built")


timestamps = st.integers(LOWEST, HIGHEST) | st.integers(-2, 2000)
records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=2).map(tuple),
    timestamp_ms=st.integers(0, 1000),
)
mutations = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=3)
rules = st.fixed_dictionaries(
    {"base_timestamp": timestamps, "timestamp_min": timestamps, "timestamp_max": timestamps, "keys_required": st.booleans()}
)


def mutate(buffer, changes):
    mutated = bytearray(buffer)
    for where, byte in changes:
        if mutated:
            mutated[where % len(mutated)] = byte
    return mutated


@pytest.mark.repeats
@settings(max_examples=pick(test=150, slow=500))
@given(chosen=st.lists(records, min_size=1, max_size=4), changes=mutations, extra=st.integers(-1, 1), cut=st.integers(0, 3), rules=rules)
def test_both_loops_judge_changed_records_alike(compiled, *, chosen, changes, extra, cut, rules):
    payload = mutate(encode_batch(chosen)[HEADER_BYTES:], changes)
    payload = payload[: len(payload) - cut]
    count = len(chosen) + extra
    assert compiled.check_records(payload, count, **rules) == _records_py.check_records(payload, count, **rules)


@pytest.mark.repeats
@settings(max_examples=pick(test=150, slow=500))
@given(
    payload=st.binary(max_size=60) | st.lists(st.sampled_from(b"\0\1\2\x0c\x0e\x80\xff"), max_size=40).map(bytes),
    count=st.integers(-1, 5),
    rules=rules,
)
def test_both_loops_judge_noise_alike(compiled, payload, count, rules):
    assert compiled.check_records(payload, count, **rules) == _records_py.check_records(payload, count, **rules)


batch_lists = st.lists(st.tuples(st.integers(-3, 100), st.lists(records, min_size=1, max_size=3)), max_size=4)
header_changes = st.lists(st.tuples(st.integers(0, 60), st.sampled_from([0, 1, 2, 61, 127, 128, 255])), max_size=2)


@pytest.mark.repeats
@settings(max_examples=pick(test=150, slow=500))
@given(
    batches=batch_lists,
    changes=mutations,
    in_header=header_changes,
    cut=st.integers(0, 100),
    bounds=st.tuples(st.integers(-5, 120), st.integers(0, 500)),
)
def test_both_loops_scan_and_seek_alike(compiled, *, batches, changes, in_header, cut, bounds):
    buffer = bytearray()
    base = 0
    for gap, chosen in batches:
        base = max(0, base + gap)
        buffer += encode_batch(chosen, base_offset=base)
        base += len(chosen)
    buffer = mutate(mutate(buffer, changes), in_header)
    buffer = buffer[: max(0, len(buffer) - cut)]
    end_offset_max, bytes_max = bounds
    for verify in (True, False):
        for offset_max in (end_offset_max, HIGHEST):
            for more in ({}, {"is_dense": True}, {"leader_epoch": -1}, {"is_dense": True, "leader_epoch": 5}):
                same = {"first_offset": 0, "end_offset_max": offset_max, "bytes_max": bytes_max * 4, "verify": verify, **more}
                assert compiled.scan_batches(buffer, **same) == _records_py.scan_batches(buffer, **same)
    for offset in (-1, 0, end_offset_max, 2**40):
        assert compiled.seek_batch(buffer, offset) == _records_py.seek_batch(buffer, offset)


@pytest.mark.repeats
@settings(max_examples=pick(test=150, slow=500))
@given(
    chosen=st.lists(records, min_size=1, max_size=4),
    changes=mutations,
    put_right=st.booleans(),
    producer=st.tuples(st.integers(-1, 1), st.integers(-1, 1), st.integers(-1, 1)),
    cut=st.integers(0, 2),
    rules=rules,
)
def test_both_loops_agree_on_what_a_plain_batch_is(compiled, *, chosen, changes, put_right, producer, cut, rules):
    batch = encode_batch(chosen, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2])
    batch = mutate(batch, changes)
    if put_right:
        batch[17:21] = _records_py.crc32c(batch, 21, len(batch)).to_bytes(4, "big")
    batch = batch[: len(batch) - cut]
    asked = (batch, rules["timestamp_min"], rules["timestamp_max"], rules["keys_required"])
    assert compiled.is_plain_batch(*asked) is _records_py.is_plain_batch(*asked)


@given(chosen=st.lists(records, min_size=1, max_size=4))
def test_both_loops_find_an_untouched_batch_plain(compiled, chosen):
    batch = encode_batch(chosen)
    assert compiled.is_plain_batch(batch, 0, 1000, False)
    assert _records_py.is_plain_batch(batch, 0, 1000, False)


def test_a_dense_scan_stops_at_a_gap_and_a_scan_of_one_epoch_at_the_next(compiled):
    one = [Record(value=b"x", timestamp_ms=1)]
    first, second, later = (encode_batch(one, base_offset=base, leader_epoch=epoch) for base, epoch in ((0, 3), (1, 3), (5, 4)))
    buffer = first + second + later
    for loop in (compiled, _records_py):
        bounds = {"first_offset": 0, "end_offset_max": HIGHEST, "bytes_max": HIGHEST}
        assert loop.scan_batches(buffer, **bounds).batches == 3
        assert loop.scan_batches(buffer, **bounds, is_dense=True) == (len(first + second), 2, 2, ScanFault.OFFSET)
        assert loop.scan_batches(buffer, **bounds, leader_epoch=3) == (len(first + second), 2, 2, ScanFault.EPOCH)
        assert loop.scan_batches(buffer, **bounds, leader_epoch=4) == (0, 0, 0, ScanFault.EPOCH)


long_texts = st.integers(0, 20_000).map(lambda size: b"x" * size)
rows = st.tuples(
    st.none() | st.binary(max_size=4),
    st.none() | st.binary(max_size=200) | long_texts,
    st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3) | long_texts), max_size=2).map(tuple),
)


@pytest.mark.repeats
@settings(max_examples=pick(test=60, slow=300))
@given(chosen=st.lists(rows, min_size=1, max_size=100), timestamp_ms=timestamps)
def test_both_build_the_batch_that_the_general_way_builds(compiled, chosen, timestamp_ms):
    batch = compiled.build_batch(chosen, timestamp_ms)
    assert batch == _records_py.build_batch(chosen, timestamp_ms)
    assert batch == encode_batch([Record(*row, timestamp_ms=timestamp_ms) for row in chosen])


@pytest.mark.parametrize("row", [("key", None, ()), (None, bytearray(b"value"), ()), (None, None, (("name", "text"),))])
def test_a_row_that_is_not_of_bytes_builds_nothing(compiled, row):
    with pytest.raises(TypeError):
        compiled.build_batch([row], 0)


def test_a_batch_of_nothing_is_not_built(compiled):
    for twin in (compiled, _records_py):
        with pytest.raises(ValueError, match="at least one"):
            twin.build_batch([], 0)


keyed = st.builds(
    Record,
    key=st.binary(max_size=4) | long_texts,
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none()), max_size=1).map(tuple),
    timestamp_ms=st.integers(0, 1000),
)
keyed_batches = st.lists(
    st.tuples(st.integers(0, 20), st.lists(keyed, min_size=1, max_size=3), st.sampled_from([0, 0, 0, 4]), st.booleans()), max_size=4
)


def pairs_of(loop, batches, at, offset_min):
    pairs, latest = [], {}
    outcomes = []
    for take, into in ((loop.take_pairs, pairs), (loop.take_latest, latest)):
        try:
            outcomes.append(take(batches, at, offset_min, into))
        except MalformedInput as malformed:
            outcomes.append(type(malformed))
    by_hand = {}
    for key, value in pairs:
        by_hand.pop(key, None)
        by_hand[key] = value
    assert list(latest.items()) == list(by_hand.items())
    assert outcomes[0] == outcomes[1]
    return outcomes[0], pairs


@pytest.mark.repeats
@settings(max_examples=pick(test=150, slow=500))
@given(batches=keyed_batches, changes=mutations, in_header=header_changes, cut=st.integers(0, 100), offset_min=st.integers(-2, 80))
def test_both_loops_take_the_same_pairs(compiled, *, batches, changes, in_header, cut, offset_min):
    buffer, base = b"", 0
    for gap, chosen, codec, is_control in batches:
        base += gap
        buffer += encode_batch(chosen, base_offset=base, codec=codec, is_control=is_control)
        base += len(chosen)
    for content in (buffer, mutate(buffer, changes), mutate(buffer, in_header), buffer[: max(0, len(buffer) - cut)]):
        assert pairs_of(compiled, content, 0, offset_min) == pairs_of(_records_py, content, 0, offset_min)


def test_both_loops_take_pairs_up_to_a_compressed_batch_and_none_of_control_records(compiled):
    records = [Record(key=b"k%d" % number, value=b"v" if number % 2 else None, timestamp_ms=1) for number in range(6)]
    plain = bytes(encode_batch(records[:3], base_offset=10))
    control = bytes(encode_batch(records[3:4], base_offset=13, is_control=True))
    packed = bytes(encode_batch(records[4:], base_offset=20, codec=4))
    for loop in (compiled, _records_py):
        pairs = []
        assert loop.take_pairs(plain + control + packed, 0, 11, pairs) == (len(plain + control), 14)
        assert pairs == [(b"k1", b"v"), (b"k2", None)]
        assert loop.take_pairs(packed, 0, 11, pairs) == (0, 11)
        with pytest.raises(MalformedInput):
            loop.take_pairs(plain[:-1], 0, 11, pairs)
        with pytest.raises(MalformedInput):
            loop.take_pairs(bytes(encode_batch([Record(value=b"x", timestamp_ms=1)])), 0, 0, pairs)
