"""What of a frame becomes which record, in which partition: written by the sink, read back by a plain client."""

from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

import pyarrow as pa
from pipeline.sink.conftest import MakeQuery
from pipeline.sink.small_spark import Query

from penstock.peers.failures import Refused
from penstock.peers.partitioner import partition_of_key
from penstock.pipeline.sink.failures import SinkFailure
from penstock.pipeline.sink.rows import GATHER_BYTES, Cutter, gathered
from penstock.wire.columns import encode_records

if TYPE_CHECKING:
    from penstock.testing.brokers import Broker


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def cutter(topic: str | None = "t", partitions: int = 3, *, turn: int = 0) -> Cutter:
    return Cutter(topic, lambda topic: partitions, turn=turn, includes_timestamp=False)


def rows_in(cutter: Cutter, batch: pa.RecordBatch) -> dict[str, list[int]]:
    return {str(cut.where): cut.rows.tolist() for cut in cutter.cut(batch)}


def test_keys_decide_as_kafkas_own_clients_do_and_an_explicit_partition_goes_before_them() -> None:
    keys = [f"key {number}".encode() for number in range(50)]
    batch = pa.RecordBatch.from_pydict({"key": keys, "value": keys})
    found = rows_in(cutter(), batch)
    assert {row: where for where, rows in found.items() for row in rows} == {
        row: f"t-{partition_of_key(key, 3)}" for row, key in enumerate(keys)
    }
    wishes = pa.array([2 if row % 2 else None for row in range(50)], pa.int32())
    chosen = rows_in(cutter(), batch.append_column("partition", wishes))
    assert set(range(1, 50, 2)) <= set(chosen["t-2"])
    assert {row for rows in chosen.values() for row in rows} == set(range(50))


def test_rows_without_a_key_go_together_to_one_partition_after_the_other() -> None:
    batch, cutting = pa.RecordBatch.from_pydict({"value": [b"a", b"b"]}), cutter(turn=4)
    assert [rows_in(cutting, batch) for _ in range(3)] == [{"t-1": [0, 1]}, {"t-2": [0, 1]}, {"t-0": [0, 1]}]


def test_each_row_goes_to_the_topic_that_it_names_unless_the_option_says_otherwise() -> None:
    batch = pa.RecordBatch.from_pydict({"topic": ["b", "a", "b", "c"], "value": [b"0", b"1", b"2", b"3"]})
    assert rows_in(cutter(None, 1), batch) == {"b-0": [0, 2], "a-0": [1], "c-0": [3]}
    assert rows_in(cutter("d", 1), batch) == {"d-0": [0, 1, 2, 3]}


def test_a_slice_of_an_arrow_batch_is_cut_like_any_other() -> None:
    whole = pa.RecordBatch.from_pydict({"key": [b"x", b"a", b"b", b"y"], "topic": ["z", "s", "t", "z"], "value": [b"0", b"1", b"2", b"3"]})
    assert rows_in(cutter(None, 1), whole.slice(1, 2)) == {"s-0": [0], "t-0": [1]}


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"topic": ["a", None], "value": [b"", b""]}, "its column topic is null"),
        ({"topic": ["a", "a"], "value": [b"", b""], "partition": pa.array([0, 3], pa.int32())}, "partition 3 of topic 'a', which has 3"),
        ({"topic": ["a", "a"], "value": [b"", b""], "partition": pa.array([-1, 0], pa.int32())}, "partition -1"),
    ],
)
def test_rows_that_have_no_place_are_refused_with_the_reason(columns: dict[str, object], problem: str) -> None:
    with pytest.raises(SinkFailure, match=problem):
        cutter(None).cut(pa.RecordBatch.from_pydict(columns))


def test_headers_that_are_a_slice_of_others_are_those_of_the_slice() -> None:
    """Arrow slices the fields of a struct with it."""
    structs = pa.array([{"key": f"k{number}", "value": b"v%d" % number} for number in range(6)], HEADERS.value_type)
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2, 4], pa.int32()), structs.slice(2))
    (cut,) = cutter(partitions=1).cut(pa.RecordBatch.from_pydict({"value": [b"a", b"b", b"c"], "headers": headers}))
    payload = bytes(encode_records(cut.columns, cut.rows, bytes_max=1_000, wall_ms=0).payload)
    assert [number for number in range(6) if b"k%d" % number in payload] == [2, 3, 4, 5]
    assert b"v2" in payload[: payload.index(b"k3")], "the first header is with the first row"


@pytest.mark.parametrize("header", [None, {"key": None, "value": b"v"}])
def test_a_header_without_a_name_is_refused_with_the_column(header: dict[str, bytes | None] | None) -> None:
    good = {"key": "n", "value": None}
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"0", b"1", b"2", b"3"], "headers": pa.array([[good], None, [], [good, header]], HEADERS)},
    )
    with pytest.raises(SinkFailure, match=r"its column headers holds a null, or a struct whose key is null\n.*filter\(headers"):
        cutter().cut(batch)
    assert cutter().cut(batch.slice(0, 3)), "rows outside of the slice do not count"


def test_small_batches_are_put_together_and_none_is_empty() -> None:
    one = pa.RecordBatch.from_pydict({"value": [b"x" * 1000] * 10})
    empty = one.slice(0, 0)
    joined = list(gathered(iter([empty, one, empty, one, one])))
    assert [batch.num_rows for batch in joined] == [30]
    large = pa.RecordBatch.from_pydict({"value": [b"x" * GATHER_BYTES]})
    assert [batch.num_rows for batch in gathered(iter([one, large, one]))] == [11, 10]
    assert list(gathered(iter([empty]))) == []


def test_nulls_headers_and_large_values_arrive_as_they_were(query: MakeQuery, topic: str) -> None:
    megabyte = bytes(range(256)) * 3_900  # With its record it fits into the 1,048,588 bytes that a broker takes by default.
    rows = [
        {"key": b"k", "value": None, "partition": 0, "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": None}]},
        {"key": None, "value": b"v", "partition": 0, "headers": None},
        {"key": b"", "value": b"", "partition": 0, "headers": []},
        {"key": b"large", "value": megabyte, "partition": 1, "headers": None},
    ]
    writing = query()
    writing.start([[rows, []], [[], []]])
    found = [(record.partition, record.key, record.value, record.headers) for record in writing.records(topic)]
    assert found == [
        (0, b"k", None, (("a", b"1"), ("a", None))),
        (0, None, b"v", ()),
        (0, b"", b"", ()),
        (1, b"large", megabyte, ()),
    ]


def test_batches_are_made_smaller_for_a_topic_that_takes_less(node: "Broker", tmp_path: Path) -> None:
    name = f"small-{uuid4().hex[:8]}"
    node.create_topic(name, partitions=1, max_message_bytes=20_000)
    writing = Query(node.bootstrap, name, tmp_path / "checkpoint")
    values = [f"{number:05}".encode() * 200 for number in range(100)]
    writing.start([[[{"value": value} for value in values]]])
    assert [record.value for record in writing.records(name)] == values
    with pytest.raises((Refused, RuntimeError), match="MESSAGE_TOO_LARGE"):
        writing.start([[], [[*({"value": value} for value in values), {"value": bytes(30_000)}]]])
    assert len(writing.records(name)) == len(values)
    assert writing.held_back(name) == 0, "a task that fails aborts what it began"


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_is_written(query: MakeQuery, topic: str, codec: str) -> None:
    writing = query(kafka__compression__type=codec, kafka__batch__size=2_000)
    values = [f"value {number}" for number in range(300)]
    writing.start([[[{"value": value} for value in values]]])
    assert writing.values(topic) == sorted(values)


def test_timestamps_are_kept_where_that_is_asked_for(query: MakeQuery, topic: str) -> None:
    stamps = pa.array([1_700_000_000_123_000, None], pa.timestamp("us", tz="UTC"))
    rows = [{"value": "a", "partition": 0, "timestamp": stamps[0].as_py()}, {"value": "b", "partition": 0, "timestamp": None}]
    query("with", includeTimestamp="true").start([[rows]])
    query("without").start([[rows]])
    first, second, third, _ = query().records(topic)
    assert first.timestamp_ms == 1_700_000_000_123
    assert second.timestamp_ms > 1_700_000_000_123 and third.timestamp_ms > 1_700_000_000_123


def test_without_transactions_rows_count_at_once_and_again_when_tried_again(query: MakeQuery, topic: str) -> None:
    writing = query(deliver="at-least-once")
    reports = [writing.task(0, "run", 0, [{"value": "a"}]) for _ in range(2)]
    assert all(report.winner is None for report in reports)
    assert writing.values(topic) == ["a", "a"]
    writing.commit(reports)
    writing.abort(reports)
    assert writing.values(topic) == ["a", "a"]
