"""A batch read from a real node, as Spark's workers do it but without Spark: what comes out of every kind of record, option and filter."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, In, LessThan
from pyspark.sql.types import StructType
from source_queries import Batch
from waiting import PATIENCE_S

from penstock.pipeline.brokers import brokers
from penstock.pipeline.options import WrongOption
from penstock.pipeline.source.loss import DataLost
from penstock.pipeline.source.reading import ROWS_MAX
from penstock.wire.batches import Record, encode_batch

if TYPE_CHECKING:
    from pipeline_topics import Topics

NOW_MS = 1_767_225_600_000
DAY_MS = 86_400_000


@pytest.fixture
def asking(topics: "Topics") -> dict[str, str]:
    return {"kafka.bootstrap.servers": topics.bootstrap, "fetchOffset.retryIntervalMs": "10"}


def numbers(*spans: tuple[int, int]) -> list[bytes]:
    return [b"%d" % number for start, end in spans for number in range(start, end)]


def test_every_column_of_every_kind_of_record(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=2, max_message_bytes=4 << 20)
    large = bytes(range(256)) * 4096
    topics.write(topic, [(None, None), (b"", b""), (b"key", large)], partition=1, timestamp=NOW_MS)
    topics.write(topic, [(b"k", b"v")], partition=1, timestamp=NOW_MS + 1, headers=[("a", b"1"), ("a", None), ("ü", b"")])
    rows = Batch(asking | {"subscribe": topic, "includeHeaders": "true"}).rows()
    assert [(row["key"], row["value"]) for row in rows] == [(None, None), (b"", b""), (b"key", large), (b"k", b"v")]
    assert [row["headers"] for row in rows] == [
        None, None, None, [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "ü", "value": b""}]
    ]  # fmt: skip
    assert {row["topic"] for row in rows} == {topic} and {row["partition"] for row in rows} == {1}
    assert [row["offset"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["timestamp"] == datetime.fromtimestamp(NOW_MS / 1000, UTC) and rows[0]["timestampType"] == 0


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_unpacked(topics: "Topics", asking: dict[str, str], codec: str) -> None:
    topic = topics.create()
    producer = topics.producer(**{"compression.type": codec})
    for number in range(3_000):
        producer.produce(topic, b"%d" % number)
    producer.flush()
    assert Batch(asking | {"subscribe": topic}).values() == numbers((0, 3_000))


def test_append_time_is_told(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(message_timestamp_type="LogAppendTime")
    topics.write(topic, [(None, b"v")], timestamp=NOW_MS)
    (row,) = Batch(asking | {"subscribe": topic}).rows()
    assert row["timestampType"] == 1 and row["timestamp"] > datetime.fromtimestamp(NOW_MS / 1000, UTC)


def test_an_empty_topic_has_nothing_to_plan(topics: "Topics", asking: dict[str, str]) -> None:
    assert Batch(asking | {"subscribe": topics.create(partitions=3)}).partitions == []


def test_arrow_batches_are_bounded_however_large_the_topic(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(max_message_bytes=8 << 20)
    topics.write_values(topic, 3 * ROWS_MAX)
    topics.write(topic, [(None, bytes(1 << 20))] * 24)
    sizes = [(batch.num_rows, batch.nbytes) for batch in Batch(asking | {"subscribe": topic}).arrow()]
    assert sum(rows for rows, _ in sizes) == 3 * ROWS_MAX + 24
    assert all(rows <= ROWS_MAX and size <= 20 << 20 for rows, size in sizes)


def test_only_the_columns_that_are_asked_for_are_read(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 3)
    some = StructType().add("offset", "long").add("value", "binary").add("topic", "string")
    rows = Batch(asking | {"subscribe": topic}, schema=some).rows()
    assert rows[2] == {"offset": 2, "value": b"2", "topic": topic}
    with pytest.raises(WrongOption, match="a topic has no column 'price'"):
        Batch(asking | {"subscribe": topic}, schema=StructType().add("price", "long"))
    with pytest.raises(WrongOption, match="the column 'offset' is bigint, not int"):
        Batch(asking | {"subscribe": topic}, schema=StructType().add("offset", "integer"))


def test_topics_by_name_by_pattern_and_by_partition(topics: "Topics", asking: dict[str, str]) -> None:
    name = topics.create(partitions=2)
    other = topics.create(f"{name}-other")
    topics.write_values(name, 2, partition=0)
    topics.write_values(name, 2, partition=1, first=10)
    topics.write_values(other, 2, first=20)
    assert Batch(asking | {"subscribe": f"{name}, {other}"}).values() == [b"0", b"1", b"10", b"11", b"20", b"21"]
    assert Batch(asking | {"subscribePattern": f"^{name}-o"}).values() == [b"20", b"21"]
    assert Batch(asking | {"subscribePattern": f"^no-such-{name}"}).values() == []
    assert Batch(asking | {"assign": f'{{"{name}": [1]}}'}).values() == [b"10", b"11"]
    with pytest.raises(WrongOption, match=f"assign names {name}-7, and the topic has no such partition"):
        Batch(asking | {"assign": f'{{"{name}": [7]}}'})


def test_a_pattern_matches_no_books_and_no_dead_letters(topics: "Topics", asking: dict[str, str]) -> None:
    """A query that reads its own ledger, or what it has set aside, would find something new for ever."""
    name = topics.create()
    ledger, dead = topics.create(f"__{name}"), topics.create(f"{name}-dead")
    for topic in (name, ledger, dead):
        topics.write(topic, [(None, topic.encode())])
    asking |= {"valueFormat": "utf8", "deadLetterTopic": dead}
    assert Batch(asking | {"subscribePattern": f".*{name}"}).values() == [name.encode()]
    assert Batch(asking | {"subscribe": f"{ledger},{dead}"}).values() == [ledger.encode(), dead.encode()], "who names them reads them"


def test_from_offsets_to_offsets(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=2)
    for partition in range(2):
        topics.write_values(topic, 10, partition=partition, first=100 * partition)
    asking |= {"subscribe": topic}
    some = Batch(asking | {"startingOffsets": f'{{"{topic}":{{"0":4,"1":-2}}}}', "endingOffsets": f'{{"{topic}":{{"0":6,"1":-1}}}}'})
    assert some.values() == numbers((4, 6), (100, 110))
    with pytest.raises(WrongOption, match=f"startingOffsets does not name {topic}-1"):
        Batch(asking | {"startingOffsets": f'{{"{topic}":{{"0":4}}}}'})
    with pytest.raises(WrongOption, match=f"startingOffsets names {topic}-2, which is not read"):
        Batch(asking | {"startingOffsets": f'{{"{topic}":{{"0":4,"1":0,"2":0}}}}'})


def test_from_times_to_times(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=2)
    for number in range(10):
        topics.write(topic, [(None, b"%d" % number)], partition=0, timestamp=NOW_MS + number)
    topics.write(topic, [(None, b"old")], partition=1, timestamp=NOW_MS)
    both = asking | {"subscribe": topic}
    by_partition = f'{{"{topic}":{{"0":{NOW_MS + 3},"1":{NOW_MS}}}}}'
    assert Batch(both | {"startingOffsetsByTimestamp": by_partition}).values() == [*numbers((3, 10)), b"old"]
    ending = {"endingTimestamp": str(NOW_MS + 7)}
    assert Batch(both | {"startingOffsetsByTimestamp": by_partition} | ending).values() == [*numbers((3, 7)), b"old"]
    late = both | {"startingTimestamp": str(NOW_MS + 5)}
    with pytest.raises(WrongOption, match=f"no record of {topic}-1 is as young as"):
        Batch(late)
    assert Batch(late | {"startingOffsetsByTimestampStrategy": "latest"}).values() == numbers((5, 10))
    by_partition = f'{{"{topic}":{{"0":{NOW_MS + 2},"1":{NOW_MS + 9}}}}}'
    assert Batch(both | {"endingOffsetsByTimestamp": by_partition}).values() == [b"0", b"1", b"old"]


def test_from_where_a_group_has_come_to(topics: "Topics", asking: dict[str, str]) -> None:
    from penstock.pipeline.brokers import brokers
    from penstock.vocabulary import TopicPartition

    topic = topics.create(partitions=2)
    topics.write_values(topic, 5, partition=0)
    topics.write_values(topic, 5, partition=1, first=100)
    broker = brokers(asking)
    broker.run(broker.client.commit_offsets(f"group of {topic}", {TopicPartition(topic, 0): 3}))
    found = Batch(asking | {"subscribe": topic, "startingOffsets": "committed", "groupId": f"group of {topic}"})
    assert found.values() == numbers((3, 5), (100, 105)), "the other partition from its beginning"


def test_what_is_not_committed_stays_unseen(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write(topic, [(None, b"plain")])
    topics.write_in_transaction(topic, [(None, b"%d" % number) for number in range(500)], ends="abort")
    topics.write_in_transaction(topic, [(None, b"kept")], ends="commit")
    holding = topics.write_in_transaction(topic, [(None, b"open")], ends="open")
    topics.write(topic, [(None, b"behind")])
    asking |= {"subscribe": topic}
    assert Batch(asking).values() == [b"plain", b"kept"]
    dirty = Batch(asking | {"kafka.isolation.level": "read_uncommitted"}).values()
    assert dirty == [b"plain", *numbers((0, 500)), b"kept", b"open", b"behind"], "markers are no records"
    holding.abort_transaction(PATIENCE_S)
    assert Batch(asking).values() == [b"plain", b"kept", b"behind"]


def test_aborted_records_stay_unseen_wherever_a_range_begins(topics: "Topics", asking: dict[str, str]) -> None:
    """A task may begin in the middle of a transaction: the node still tells that it was aborted."""
    topic = topics.create()
    topics.write_in_transaction(topic, [(None, b"a%d" % number) for number in range(20)], ends="abort")
    topics.write_in_transaction(topic, [(None, b"c%d" % number) for number in range(20)], ends="commit")
    found = Batch(asking | {"subscribe": topic, "maxRecordsPerPartition": "3", "kafka.max.partition.fetch.bytes": "100"})
    assert len(found.partitions) == 14
    assert found.values() == [b"c%d" % number for number in range(20)]


def test_filters_decide_what_is_planned(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=4)
    for partition in range(4):
        topics.write_values(topic, 200, partition=partition)
    asking |= {"subscribe": topic}
    narrow = Batch(asking, filters=(EqualTo(("partition",), 2), GreaterThanOrEqual(("offset",), 100), LessThan(("offset",), 110)))
    assert narrow.planned == {2: [(100, 110)]} and narrow.left == []
    assert len(narrow.rows()) == 10
    assert list(Batch(asking, filters=(In(("partition",), (1, 3)),)).planned) == [1, 3]
    assert Batch(asking, filters=(EqualTo(("topic",), "another"),)).planned == {}


def test_a_filter_on_time_seeks(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    for number in range(6):
        topics.write(topic, [(None, b"%d" % number)], timestamp=NOW_MS + 1000 * number)
    since = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(NOW_MS / 1000 + 4, UTC))
    found = Batch(asking | {"subscribe": topic}, filters=(since,))
    assert found.planned == {0: [(4, 6)]} and found.left == [since]
    never = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(NOW_MS / 1000 + 9, UTC))
    assert Batch(asking | {"subscribe": topic}, filters=(never,)).planned == {}


def test_records_of_before_1970_and_of_no_time_are_not_missed_by_a_filter_on_time(topics: "Topics", asking: dict[str, str]) -> None:
    """Brokers are asked by times after 1970 only: a record of none has -1, which Spark shows as the last moment of 1969."""
    topic = topics.create()
    broker = brokers(asking)
    for value, timestamp_ms in ((b"1965", -157_766_400_000), (b"none", -1), (b"now", NOW_MS)):
        broker.run(broker.client.produce(topic, 0, encode_batch([Record(None, value, timestamp_ms=timestamp_ms)])))
    asking |= {"subscribe": topic}
    since_1960 = GreaterThanOrEqual(("timestamp",), datetime(1960, 1, 1, tzinfo=UTC))
    assert Batch(asking, filters=(since_1960,)).values() == [b"1965", b"none", b"now"]
    since_1966 = GreaterThanOrEqual(("timestamp",), datetime(1966, 1, 1, tzinfo=UTC))
    assert [value for value in Batch(asking, filters=(since_1966,)).values() if value != b"1965"] == [b"none", b"now"]
    since_1970 = GreaterThanOrEqual(("timestamp",), datetime(1970, 1, 1, tzinfo=UTC))
    assert Batch(asking, filters=(since_1970,)).values()[-1:] == [b"now"]


def test_a_late_record_behind_younger_ones_is_not_missed_by_a_filter_on_time(topics: "Topics", asking: dict[str, str]) -> None:
    """Times in a log go up and down: only where to begin follows from them, never where to end."""
    topic = topics.create()
    for number in (0, 9, 3, 8, 1):
        topics.write(topic, [(None, b"%d" % number)], timestamp=NOW_MS + number)
    before = LessThan(("timestamp",), datetime.fromtimestamp((NOW_MS + 2) / 1000, UTC))
    assert {b"0", b"1"} <= set(Batch(asking | {"subscribe": topic}, filters=(before,)).values())
    since = GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp((NOW_MS + 3) / 1000, UTC))
    both = Batch(asking | {"subscribe": topic}, filters=(since, LessThan(("timestamp",), datetime.fromtimestamp((NOW_MS + 9) / 1000, UTC))))
    assert both.planned == {0: [(1, 5)]} and {b"3", b"8"} <= set(both.values())


def test_ranges_are_cut_as_asked(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=2)
    topics.write_values(topic, 900, partition=0)
    topics.write_values(topic, 100, partition=1, first=900)
    cut = Batch(asking | {"subscribe": topic, "minPartitions": "5"})
    assert {partition: len(spans) for partition, spans in cut.planned.items()} == {0: 4, 1: 1}
    assert cut.values() == numbers((0, 1000))
    assert len(Batch(asking | {"subscribe": topic, "maxRecordsPerPartition": "300"}).partitions) == 4


def test_a_partition_far_above_its_share_is_read_by_several_tasks(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=4)
    topics.write(topic, ((None, b"%d" % number) for number in range(210_000)), partition=0)
    for partition in (1, 2, 3):
        topics.write_values(topic, 1, partition=partition)
    unasked = Batch(asking | {"subscribe": topic})
    assert {partition: len(spans) for partition, spans in unasked.planned.items()} == {0: 4, 1: 1, 2: 1, 3: 1}
    assert sum(batch.num_rows for batch in unasked.arrow()) == 210_003
    assert len(Batch(asking | {"subscribe": topic, "splitSkewed": "false"}).partitions) == 4


def test_records_that_aged_out_are_an_error_or_a_recorded_gap(topics: "Topics", asking: dict[str, str]) -> None:
    topic, dead = topics.create(), topics.create()
    topics.write_values(topic, 10)
    topics.trim(topic, 4)
    asking |= {"subscribe": topic, "startingOffsets": f'{{"{topic}":{{"0":1}}}}'}
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 1 to 3 are gone: they were deleted .retention"):
        Batch(asking)
    assert Batch(asking | {"failOnDataLoss": "false", "deadLetterTopic": dead}).values() == numbers((4, 10))
    (gap,) = topics.read(dead)
    told = dict(gap.headers)
    assert gap.value is None and (told["penstock.offset"], told["penstock.end_offset"]) == (b"1", b"4")
    assert told["penstock.topic"] == topic.encode() and b"deleted" in (told["penstock.reason"] or b"")


def test_offsets_that_are_not_there_yet_are_an_error(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 5)
    asking |= {"subscribe": topic, "endingOffsets": f'{{"{topic}":{{"0":9}}}}'}
    with pytest.raises(DataLost, match="offsets 5 to 8 are gone: the partition ends before them"):
        Batch(asking)
    assert Batch(asking | {"failOnDataLoss": "false"}).values() == numbers((0, 5))


def test_records_that_age_out_between_planning_and_reading(topics: "Topics", asking: dict[str, str]) -> None:
    topic, dead = topics.create(), topics.create()
    topics.write_values(topic, 10)
    strict = Batch(asking | {"subscribe": topic})
    lenient = Batch(asking | {"subscribe": topic, "failOnDataLoss": "false", "deadLetterTopic": dead})
    topics.trim(topic, 6)
    with pytest.raises(DataLost, match="offsets 0 to 5 are gone"):
        strict.rows()
    assert lenient.values() == numbers((6, 10))
    assert dict(topics.read(dead)[0].headers)["penstock.end_offset"] == b"6"


def test_a_topic_that_was_made_again_is_not_read_for_the_old_one(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 10)
    planned = Batch(asking | {"subscribe": topic})
    topics.delete(topic)
    topics.create(topic)
    topics.write_values(topic, 10, first=500)
    with pytest.raises(DataLost, match="the topic was deleted and made again"):
        planned.rows()


def test_a_topic_that_was_deleted_before_it_was_read(topics: "Topics", asking: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.pipeline.source.fetching.GONE_S", 0.2)
    topic = topics.create()
    topics.write_values(topic, 10)
    planned = Batch(asking | {"subscribe": topic})
    topics.delete(topic)
    with pytest.raises(DataLost, match="the topic or the partition was deleted"):
        planned.rows()


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        ("utf8", "ü".encode(), b"\xff\xfe"),
        ("json", b'{"a": 1}', b"{a"),
        ("json", b"null", b"[" * 100_000),
    ],
    ids=["utf8", "json", "deep"],
)
def test_malformed_values_are_errors_or_dead_letters(topics: "Topics", asking: dict[str, str], kind: str, good: bytes, bad: bytes) -> None:
    reason = {"utf8": "not UTF-8", "json": "not JSON"}[kind]
    topic, dead = topics.create(), topics.create()
    topics.write(topic, [(b"k0", good), (b"k1", bad), (b"k2", None), (b"k3", good)], headers=[("trace", b"t")], timestamp=NOW_MS)
    asking |= {"subscribe": topic, "valueFormat": kind}
    with pytest.raises(Exception, match=rf"the record at offset 1 is malformed: .*{reason}"):
        Batch(asking).rows()
    assert [row["key"] for row in Batch(asking | {"deadLetterTopic": dead}).rows()] == [b"k0", b"k2", b"k3"]
    (letter,) = topics.read(dead)
    assert (letter.key, letter.value) == (b"k1", bad)
    told: dict[str, Any] = dict(letter.headers)
    assert told["penstock.timestamp"] == b"%d" % NOW_MS
    assert letter.timestamp_ms > NOW_MS + DAY_MS, "retention would take the letter with the time of its record"
    assert told["trace"] == b"t" and reason.encode() in told["penstock.reason"]
    assert (told["penstock.topic"], told["penstock.partition"], told["penstock.offset"]) == (topic.encode(), b"0", b"1")
