"""Options and schemas of the sink: what is taken, and how what is wrong is refused."""

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pyspark.sql.types import ArrayType, DataType, StructType

from penstock.pipeline.lake.sink import OPTIONS as LAKE_OPTIONS
from penstock.pipeline.options import WrongOption
from penstock.pipeline.sink.options import OPTIONS, Deliver, LostBatch, NewCheckpoint, SinkOptions, sink_options
from penstock.pipeline.sink.runs import ACTION
from penstock.pipeline.sink.schema import check_schema
from penstock.pipeline.source.options import OPTIONS as SOURCE_OPTIONS
from penstock.wire.compression import Codec

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_every_option_is_read() -> None:
    given = {
        "topic": "t", "deliver": "at-least-once", "SINKID": "orders.1", "transactionTimeoutMs": "50000", "onNewCheckpoint": "Append",
        "lostBatch": "skip", "ledgerTopic": "ledger", "includeTimestamp": "TRUE", "kafka.compression.type": "zstd",
        "kafka.batch.size": "2048", "kafka.delivery.timeout.ms": "31500", "kafka.max.block.ms": "2500", "kafka.acks": "all",
        "kafka.enable.idempotence": "true", "kafka.linger.ms": "5", "checkpointLocation": "/somewhere",
    }  # fmt: skip
    assert sink_options(BROKERS | given, is_stream=True) == SinkOptions(
        "t", Deliver.AT_LEAST_ONCE, "orders.1", None, 50_000, NewCheckpoint.APPEND, LostBatch.SKIP, "ledger", True,
        Codec.ZSTD, 2_048, 31.5, 2.5,
    )  # fmt: skip
    assert sink_options(BROKERS, is_stream=True) == SinkOptions()
    assert sink_options(BROKERS | {"sinkId": "x", "batchId": "7"}, is_stream=False).batch_id == 7


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"deliver": "at-most-once"}, "exactly-once or at-least-once"),
        ({"topic": " "}, "topic is empty"),
        ({"sinkId": "a/b"}, "letters, digits, dots, dashes"),
        ({"sinkId": "x" * 201}, "up to 200"),
        ({"sinkId": f"{ACTION}x"}, "letters, digits"),  # Names of writes that nobody resumes are never a user's.
        ({"batchId": "1"}, "counts its batches itself"),
        ({"transactionTimeoutMs": "999"}, "from 1000 on"),
        ({"onNewCheckpoint": "guess"}, "fail or skip or append"),
        ({"lostBatch": "guess"}, "fail or rewrite or skip"),
        ({"includeTimestamp": "yes"}, "true or false"),
        ({"kafka.compression.type": "rar"}, "none or gzip or snappy or lz4 or zstd"),
        ({"kafka.acks": "1"}, "kafka.acks is not all"),
        ({"kafka.enable.idempotence": "false"}, "a retry is stored twice"),
        ({"kafka.transactional.id": "mine"}, "sinkId pins the name"),
        ({"kafka.transaction.timeout.ms": "60000"}, "use transactionTimeoutMs"),
        ({"kafka.key.serializer": "X"}, "as the column's bytes"),
        ({"kafka.no.such.setting": "1"}, "kafka.no.such.setting"),
        ({"kafka.bootstrap.servers": "nowhere"}, "host:port"),
        ({"transactionTimeout": "5000"}, "the sink has no option 'transactiontimeout'\n.*did you mean transactionTimeoutMs?"),
        ({"delivery": "at-least-once"}, "did you mean deliver?"),
        ({"includeTimestamps": "true"}, "did you mean includeTimestamp?"),
        ({"onNewCheckpoints": "append"}, "did you mean onNewCheckpoint?"),
    ],
)
def test_what_is_wrong_is_refused_by_name_with_what_is_allowed(given: dict[str, str], words: str) -> None:
    with pytest.raises(WrongOption, match=words):
        sink_options(BROKERS | given, is_stream=True)


def test_options_of_spark_and_of_the_other_end_are_let_pass() -> None:
    sparks = ("path", "checkpointLocation", "mergeSchema", "queryName", "outputMode", "overwriteSchema", "maxRecordsPerFile", "compression")
    for name in (*sparks, *SOURCE_OPTIONS, *LAKE_OPTIONS):
        if name not in OPTIONS:
            assert sink_options(BROKERS | {name: "x"}, is_stream=True) == SinkOptions(), name


def test_a_batch_write_is_named_by_both_options_or_by_none() -> None:
    for given in ({"sinkId": "x"}, {"batchId": "1"}):
        with pytest.raises(WrongOption, match="sinkId and batchId together or neither"):
            sink_options(BROKERS | given, is_stream=False)


def headers(content: str = "binary") -> ArrayType:
    return ArrayType(StructType().add("key", "string").add("value", content))


def schema(**columns: str | DataType) -> StructType:
    made = StructType()
    for name, kind in columns.items():
        made.add(name, kind)
    return made


@pytest.mark.parametrize(
    "columns",
    [
        {"value": "binary", "key": "binary", "topic": "string", "partition": "integer", "headers": headers()},
        {"value": "string", "topic": "string"},
        {"KEY": "string", "Value": "string", "topic": "string", "more": "double"},
    ],
)
def test_frames_that_sparks_own_sink_takes_are_taken(columns: dict[str, str | DataType]) -> None:
    check_schema(schema(**columns), SinkOptions())


@pytest.mark.parametrize(
    ("columns", "options", "words"),
    [
        ({"key": "binary"}, SinkOptions("t"), "no column value, only key"),
        ({"value": "binary"}, SinkOptions(), "set the option topic, or give the frame a column topic"),
        ({"value": "integer"}, SinkOptions("t"), "column value is of type int\n  cast it to string or binary"),
        ({"value": "string", "key": "double"}, SinkOptions("t"), "column key is of type double"),
        ({"value": "string", "topic": "binary"}, SinkOptions(), "column topic is of type binary\n  cast it to string"),
        ({"value": "string", "partition": "long"}, SinkOptions("t"), "column partition is of type bigint\n  cast it to integer"),
        ({"value": "string", "headers": "string"}, SinkOptions("t"), "array<struct<key:string,value:binary>>"),
        ({"value": "string", "headers": headers("string")}, SinkOptions("t"), "column headers is of type array<"),
        ({"value": "string", "timestamp": "long"}, SinkOptions("t", includes_timestamp=True), "no column timestamp of that type"),
    ],
)
def test_frames_that_cannot_be_written_are_refused_before_a_task_starts(
    columns: dict[str, str | DataType], options: SinkOptions, words: str
) -> None:
    with pytest.raises(WrongOption, match=words):
        check_schema(schema(**columns), options)
