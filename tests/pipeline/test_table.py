"""A compacted topic as a table, read as a worker reads it, without Spark: what is kept, what is read on, what is dropped."""

from collections.abc import Iterator

import pytest

pytestmark = [pytest.mark.needs("spark"), pytest.mark.invariant("pipeline.table-fresh")]

COLUMNS = ("key", "value")


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    from penstock.pipeline.source import table

    monkeypatch.setattr(table, "_tables", table._Tables())
    return table


def schema(*names: str):
    from pyspark.sql.types import StructField, StructType

    from penstock.pipeline.source.schema import COLUMNS

    return StructType([StructField(name, COLUMNS[name]) for name in names])


def rows(node, topic: str, **options: str) -> dict[bytes, bytes]:
    from penstock.pipeline.source.table import TableReader

    told = {"kafka.bootstrap.servers": node.bootstrap, "subscribe": topic, "latestByKey": "true"} | options
    reader = TableReader(told, schema(*COLUMNS))
    found = [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]
    assert len({row["key"] for row in found}) == len(found), "a key has two rows"
    return {row["key"]: row["value"] for row in found}


def test_the_last_value_of_each_key_counts_and_a_null_deletes(node, topics, tables) -> None:
    topic = topics.create(partitions=3, cleanup_policy="compact")
    topics.write(topic, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"a", b"2"), (b"b", None), (b"d", b"")])
    assert rows(node, topic) == {b"a": b"2", b"c": b"1", b"d": b""}
    topics.write(topic, [(b"b", b"back"), (b"c", None), (b"a", b"3")])
    assert rows(node, topic) == {b"a": b"3", b"b": b"back", b"d": b""}


def test_only_what_is_new_is_read_again(node, topics, tables, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topics.create(cleanup_policy="compact")
    topics.write(topic, [(b"k%d" % number, b"1") for number in range(100)])
    read = []
    genuine = tables.read_range
    monkeypatch.setattr(
        tables, "read_range", lambda options, schema, news: read.append((news.start, news.end)) or genuine(options, schema, news)
    )
    assert len(rows(node, topic)) == 100
    assert len(rows(node, topic)) == 100
    topics.write(topic, [(b"k7", b"2")])
    assert rows(node, topic)[b"k7"] == b"2"
    assert read == [(0, 100), (100, 101)]


def test_what_was_not_looked_at_for_long_is_read_from_the_beginning(node, topics, tables, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = topics.create(cleanup_policy="compact,delete")
    topics.write(topic, [(b"a", b"1")])
    assert rows(node, topic) == {b"a": b"1"}
    monkeypatch.setattr(tables, "UNSEEN_SECONDS_MAX", -1.0)
    topics.trim(topic, 1)  # As if a null had come and been cleaned away with what it deleted.
    topics.write(topic, [(b"b", b"1")])
    assert rows(node, topic) == {b"b": b"1"}


def test_a_log_that_was_cut_behind_what_is_kept_is_read_anew(node, topics, tables) -> None:
    topic = topics.create(cleanup_policy="compact,delete")
    topics.write(topic, [(b"a", b"1")])
    assert rows(node, topic) == {b"a": b"1"}
    topics.write(topic, [(b"a", None), (b"b", b"1")])
    topics.trim(topic, 2)
    assert rows(node, topic) == {b"b": b"1"}, "the null that deleted a key was cleaned away before it was seen"


def test_open_and_aborted_transactions_are_not_rows_yet_or_ever(node, topics, tables) -> None:
    topic = topics.create(cleanup_policy="compact")
    topics.write_in_transaction(topic, [(b"a", b"1")])
    topics.write_in_transaction(topic, [(b"a", b"2")], ends="abort")
    open_one = topics.write_in_transaction(topic, [(b"a", b"3")], ends="open")
    assert rows(node, topic) == {b"a": b"1"}
    open_one.commit_transaction()
    assert rows(node, topic) == {b"a": b"3"}


def test_a_table_has_the_columns_that_were_asked_for_and_no_rows_without_a_key(node, topics, tables) -> None:
    from penstock.pipeline.source.table import TableReader

    topic = topics.create()
    topics.write(topic, [(None, b"nobody"), (b"a", b"1"), (b"a", b"2")], partition=0)
    reader = TableReader({"bootstrap.servers": node.bootstrap, "subscribe": topic}, schema("offset", "topic"))
    assert [batch.to_pylist() for batch in reader.read(reader.partitions()[0])] == [[{"offset": 2, "topic": topic}]]


def test_an_empty_topic_is_an_empty_table(node, topics, tables) -> None:
    assert rows(node, topics.create(cleanup_policy="compact")) == {}


def test_a_table_too_large_for_a_worker_is_refused_in_words(node, topics, tables, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.pipeline.complaints import PipelineComplaint

    topic = topics.create(cleanup_policy="compact")
    topics.write(topic, [(b"a", b"x" * 2000), (b"b", b"x" * 2000)])
    monkeypatch.setattr(tables, "TABLE_BYTES_MAX", 1000)
    with pytest.raises(PipelineComplaint, match="more than 0 MiB"):
        rows(node, topic)


def test_what_is_kept_has_a_bound(node, topics, tables, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "KEPT_BYTES_MAX", 5000)
    names = [topics.create(cleanup_policy="compact") for _ in range(4)]
    for name in names:
        topics.write(name, [(b"a", b"x" * 2000)])
        assert len(rows(node, name)) == 1
    assert len(tables._tables._kept) == 2
    topics.write(names[0], [(b"b", b"x" * 6000)])
    assert len(rows(node, names[0])) == 2, "a table that is not kept is read all the same"


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp", "endingOffsetsByTimestamp"])
def test_a_table_is_all_that_the_topic_holds(node, option: str) -> None:
    from penstock.pipeline.options import WrongOption

    with pytest.raises(WrongOption, match=f"{option} was set together with latestByKey"):
        rows(node, "any", **{option: "earliest"})
