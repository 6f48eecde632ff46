"""The compiled loop between records and columns answers as its Python twin does: to good bytes, changed bytes, noise, columns that lie."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.errors import MalformedInput
from penstock.wire import _columns_py, _rows_py
from penstock.wire.batches import HEADER_BYTES, Record, encode_batch, read_header
from penstock.wire.columns import EVERYTHING, BinaryColumn, HeadersColumn, RecordColumns, TimestampColumn, Wanted


@pytest.fixture(scope="module")
def compiled():
    return pytest.importorskip("penstock.wire._columns", reason="needs cc: the compiled loop was not built")


@pytest.fixture(scope="module")
def compiled_rows():
    return pytest.importorskip("penstock.wire._rows", reason="needs cc: the compiled loop was not built")


records = st.builds(
    Record,
    key=st.none() | st.binary(max_size=4),
    value=st.none() | st.binary(max_size=200),
    headers=st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=3).map(tuple),
    timestamp_ms=st.integers(0, 1000) | st.integers(-(2**60), 2**60),
)
wanted_columns = st.integers(0, EVERYTHING).map(Wanted)
ranges = st.tuples(st.integers(-2, 12), st.integers(-2, 12) | st.just(2**63 - 1))
mutations = st.lists(st.tuples(st.integers(0, 2**20), st.integers(0, 255)), max_size=3)
header_changes = st.lists(st.tuples(st.integers(0, 60), st.sampled_from([0, 1, 2, 8, 61, 127, 128, 255])), max_size=2)


def mutate(buffer, changes):
    mutated = bytearray(buffer)
    for where, byte in changes:
        if mutated:
            mutated[where % len(mutated)] = byte
    return mutated


def outcome(act):
    try:
        return act()
    except (MalformedInput, ValueError) as failure:
        return type(failure), str(failure)


def columns_from(loop, batches, wanted, bounds):
    """What each batch adds, or why it does not; and what there is at the end."""
    reader = loop.ColumnsReader(wanted)
    answers = []
    for header, payload in batches:
        answers.append(outcome(lambda: reader.add(header, payload, first_offset=bounds[0], end_offset=bounds[1])))  # noqa: B023
        answers.append((reader.rows, reader.bytes))
    return answers, reader.take(), reader.rows


@pytest.mark.repeats
@settings(max_examples=pick(test=60, slow=200))
@given(
    batches=st.lists(st.tuples(st.lists(records, min_size=1, max_size=12), mutations, header_changes, st.integers(0, 3)), max_size=4),
    wanted=wanted_columns,
    bounds=ranges,
)
def test_both_loops_read_changed_batches_alike(compiled, batches, wanted, bounds):
    read = []
    for chosen, changes, in_header, cut in batches:
        batch = encode_batch(chosen)
        header = read_header(mutate(batch[:HEADER_BYTES], in_header))
        payload = mutate(batch[HEADER_BYTES:], changes)
        read.append((header, payload[: len(payload) - cut]))
    assert columns_from(compiled, read, wanted, bounds) == columns_from(_columns_py, read, wanted, bounds)


@pytest.mark.repeats
@settings(max_examples=pick(test=60, slow=200))
@given(chosen=st.lists(records, min_size=1, max_size=20), wanted=wanted_columns, bounds=ranges, is_append_time=st.booleans())
def test_both_loops_read_untouched_batches_alike(compiled, chosen, wanted, bounds, is_append_time):
    batch = encode_batch(chosen)
    batch[22] |= is_append_time << 3
    read = [(read_header(batch), memoryview(batch)[HEADER_BYTES:])] * 2
    answers, columns, _ = columns_from(compiled, read, wanted, bounds)
    assert (answers, columns, 0) == columns_from(_columns_py, read, wanted, bounds)
    first, end = max(bounds[0], 0), min(bounds[1], len(chosen))
    assert columns.rows == 2 * max(0, end - first)


@pytest.mark.repeats
@settings(max_examples=pick(test=80, slow=300))
@given(
    payload=st.binary(max_size=60) | st.lists(st.sampled_from(b"\0\1\2\x0c\x0e\x80\xff"), max_size=40).map(bytes),
    count=st.integers(-1, 5),
)
def test_both_loops_read_noise_alike(compiled, payload, count):
    header = read_header(encode_batch([Record(timestamp_ms=5)]))._replace(record_count=count, last_offset_delta=4)
    asked = ([(header, payload)], EVERYTHING, (0, 9))
    assert columns_from(compiled, *asked) == columns_from(_columns_py, *asked)


def int32s(elements, **sizes):
    return st.lists(elements, **sizes).map(lambda numbers: struct.pack(f"={len(numbers)}i", *numbers))


plain_offsets = st.lists(st.integers(0, 6), min_size=1, max_size=12).map(sorted).map(lambda found: struct.pack(f"={len(found)}i", *found))
any_offsets = int32s(st.integers(-1, 7) | st.integers(-(2**31), 2**31 - 1), max_size=8)
validities = st.none() | st.binary(max_size=3)
firsts = st.sampled_from([0, 0, 0, 1, 2, 9, -1, 2**40, 2**70])
binaries = st.builds(BinaryColumn, validities, plain_offsets | any_offsets, st.binary(min_size=4, max_size=8), firsts)
header_columns = st.builds(HeadersColumn, validities, plain_offsets | any_offsets, binaries, binaries, firsts)
time_columns = st.builds(TimestampColumn, validities, st.binary(max_size=80), firsts)
tables = st.builds(
    RecordColumns,
    st.integers(0, 6),
    st.none() | binaries,
    st.none() | binaries,
    st.none() | header_columns,
    st.none() | time_columns,
)
selections = st.none() | int32s(st.integers(0, 5) | st.integers(-1, 7), max_size=6)


@pytest.mark.repeats
@settings(max_examples=pick(test=100, slow=400))
@given(columns=tables, selection=selections, start=st.integers(-1, 4), bytes_max=st.integers(-1, 60), wall_ms=st.integers(-2, 2**63))
def test_both_loops_write_alike(compiled_rows, *, columns, selection, start, bytes_max, wall_ms):
    first, second = (
        outcome(lambda: loop.encode_records(columns, selection, start=start, bytes_max=bytes_max, wall_ms=wall_ms))  # noqa: B023
        for loop in (compiled_rows, _rows_py)
    )
    assert first == second


@pytest.mark.repeats
@settings(max_examples=pick(test=80, slow=300))
@given(
    key=binaries,
    rows=st.integers(-1, 6),
    partition_count=st.integers(-1, 9) | st.just(2**31 - 1),
    selection=selections,
    partitions=int32s(st.integers(-1, 4), max_size=6),
)
def test_both_loops_choose_partitions_alike(compiled_rows, *, key, rows, partition_count, selection, partitions):
    wide = min(partition_count, 9)
    assert outcome(lambda: compiled_rows.partition_rows(key, rows, partition_count, selection)) == outcome(
        lambda: _rows_py.partition_rows(key, rows, partition_count, selection)
    )
    assert outcome(lambda: compiled_rows.rows_by_partition(partitions, wide, selection)) == outcome(
        lambda: _rows_py.rows_by_partition(partitions, wide, selection)
    )


@given(keys=st.lists(st.none() | st.binary(max_size=40), max_size=20), partition_count=st.integers(1, 2**31 - 1))
def test_both_loops_send_good_keys_alike(compiled_rows, keys, partition_count):
    ends = [0]
    for key in keys:
        ends.append(ends[-1] + len(key or b""))
    bits = sum((key is not None) << row for row, key in enumerate(keys))
    column = BinaryColumn(bits.to_bytes(3, "little"), struct.pack(f"={len(ends)}i", *ends), b"".join(key or b"" for key in keys))
    assert compiled_rows.partition_rows(column, len(keys), partition_count) == _rows_py.partition_rows(column, len(keys), partition_count)
