"""A stream read from a real node, asked as Spark asks but without Spark: what each batch takes, and what is told of data that is gone."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from source_queries import Stream
from waiting import ASK_S, NEVER_MS, NEVER_S, PATIENCE_S, stays, until

from penstock.peers.failures import UnknownTopic
from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.options import WrongOption
from penstock.pipeline.source.loss import DataLost

if TYPE_CHECKING:
    from pipeline_topics import Topics


@pytest.fixture
def asking(topics: "Topics") -> dict[str, str]:
    return {"kafka.bootstrap.servers": topics.bootstrap, "startingOffsets": "earliest", "fetchOffset.retryIntervalMs": "10"}


def numbers(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_each_batch_reads_on_where_the_last_one_ended(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    stream = Stream(asking | {"subscribe": topic})
    assert stream.values() == []
    topics.write_values(topic, 5)
    assert stream.values() == numbers(0, 5)
    topics.write_values(topic, 5, first=5)
    assert stream.values() == numbers(5, 10)
    before = stream.at
    assert stream.values() == [] and stream.at is before, "Spark sees by the same offsets that there is nothing new"


def test_a_stream_begins_at_the_end_unless_told_otherwise(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 5)
    del asking["startingOffsets"]
    stream = Stream(asking | {"subscribe": topic})
    topics.write_values(topic, 2, first=5)
    assert stream.values() == numbers(5, 7)


def test_a_batch_that_is_planned_again_reads_the_same(topics: "Topics", asking: dict[str, str]) -> None:
    """After a crash Spark asks for the ranges of the batch that it had written down, in another process, before anything else."""
    topic = topics.create(partitions=2)
    topics.write_values(topic, 50, partition=0)
    topics.write_values(topic, 50, partition=1, first=50)
    first = Stream(asking | {"subscribe": topic, "maxOffsetsPerTrigger": "30"})
    start = first.at
    rows = first.next()
    assert len(rows) == 30
    topics.write_values(topic, 50, partition=0, first=100)
    again = Stream(asking | {"subscribe": topic, "maxOffsetsPerTrigger": "30"}, start=start)
    assert again.between(start, first.at) == rows


def test_a_first_batch_that_is_planned_again_begins_where_it_began(topics: "Topics", asking: dict[str, str]) -> None:
    """Spark asks anew where the query begins when that was stopped in its first batch: the end is another one by then."""
    topic = topics.create()
    topics.write_values(topic, 3)
    del asking["startingOffsets"]
    first = Stream(asking | {"subscribe": topic})
    topics.write_values(topic, 5, first=3)
    assert first.values() == numbers(3, 8)
    topics.write_values(topic, 4, first=8)
    again = Stream(asking | {"subscribe": topic})  # Its beginning lies behind the end of the batch that was written down.
    assert [row["value"] for row in again.between(again.at, first.at)] == numbers(3, 8)
    assert first.values() == numbers(8, 12), "and the next batch is one like any other"


def test_a_checkpoint_of_sparks_kafka_source_is_read_on_from(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=2)
    topics.write_values(topic, 5, partition=0)
    topics.write_values(topic, 5, partition=1, first=5)
    stream = Stream(asking | {"subscribe": topic, "offsetsWithTopicIds": "false"}, start={topic: {"0": 3, "1": 5}})
    assert stream.values() == numbers(3, 5)
    assert stream.at == {topic: {"0": 5, "1": 5}}, "and its form is kept where that is wanted"


@pytest.mark.parametrize("fails", ["true", "false"])
def test_a_place_behind_an_open_transaction_is_kept(topics: "Topics", asking: dict[str, str], fails: str) -> None:
    """A query that read what was not committed, as Spark's Kafka source does, has come further than one that does not may see."""
    topic = topics.create()
    topics.write_values(topic, 10)
    holding = topics.write_in_transaction(topic, [(None, b"open")] * 5, ends="open")
    asking |= {"subscribe": topic, "failOnDataLoss": fails}
    stream = Stream(asking, start={topic: {"0": 15}})
    assert stream.values() == [] and stream.at == {topic: {"0": 15}}
    ending = Stream(asking, start={topic: {"0": 15}})
    ending.reader.prepareForTriggerAvailableNow()
    assert ending.values() == [] and ending.at == {topic: {"0": 15}}
    holding.commit_transaction(PATIENCE_S)
    topics.write_values(topic, 2, first=20)
    assert stream.values() == numbers(20, 22), "no row comes again"


def test_records_that_were_cut_off_behind_an_open_transaction_are_told(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 10)
    holding = topics.write_in_transaction(topic, [(None, b"open")] * 5, ends="open")
    asking |= {"subscribe": topic, "fetchOffset.numRetries": "1"}
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 10 to 19 are gone: the partition ends before them"):
        Stream(asking, start={topic: {"0": 20}}).next()
    holding.abort_transaction(PATIENCE_S)


def test_a_batch_takes_at_most_so_many_offsets_but_all_where_spark_says_so(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=2)
    topics.write_values(topic, 90, partition=0)
    topics.write_values(topic, 10, partition=1)
    stream = Stream(asking | {"subscribe": topic, "maxOffsetsPerTrigger": "20"})
    assert stream.limit == ReadMaxRows(20)
    assert Counter(row["partition"] for row in stream.next()) == {0: 18, 1: 2}, "each in proportion"
    assert stream.reader.reportLatestOffset()[topic] == {"0": 90, "1": 10}, "what is left shows as lag"
    stream.limit = ReadAllAvailable()
    assert len(stream.next()) == 80


def test_small_batches_wait_for_more(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 1)
    stream = Stream(asking | {"subscribe": topic, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "1h"})
    assert stream.limit == ReadMinRows(10)
    assert stream.values() == numbers(0, 1), "the first does not wait"
    topics.write_values(topic, 5, first=1)
    assert stream.values() == []
    topics.write_values(topic, 5, first=6)
    assert stream.values() == numbers(1, 11)
    hasty = Stream(asking | {"subscribe": topic, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "0ms"}, start=stream.at)
    topics.write_values(topic, 1, first=11)
    assert hasty.values() == numbers(11, 12)


def test_a_run_that_ends_reads_what_there_was_when_it_began(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 10)
    stream = Stream(asking | {"subscribe": topic, "maxOffsetsPerTrigger": "6", "minOffsetsPerTrigger": "6"})
    stream.reader.prepareForTriggerAvailableNow()
    topics.write_values(topic, 10, first=10)
    assert stream.values() == numbers(0, 6)
    assert stream.values() == numbers(6, 10), "the rest does not wait for more"
    assert stream.values() == []


def test_partitions_that_are_added_begin_at_their_beginning(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 2)
    stream = Stream(asking | {"subscribe": topic})
    assert stream.values() == numbers(0, 2)
    topics.grow(topic, 3)
    producer = topics.producer()  # One that has not heard of fewer.
    producer.produce(topic, b"10", partition=2)
    producer.flush()
    assert stream.values() == [b"10"]
    assert stream.at[topic] == {"0": 2, "1": 0, "2": 1}


def test_topics_that_begin_to_match_a_pattern_are_read_too(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create()
    topics.write_values(topic, 1)
    stream = Stream(asking | {"subscribePattern": f"^{topic}"})
    assert stream.values() == numbers(0, 1)
    topics.write_values(topics.create(f"{topic}-more"), 2, first=5)
    assert stream.values() == numbers(5, 7)


def test_something_new_is_waited_for_at_the_brokers(topics: "Topics", asking: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle query is asked all the time. One question waits until something comes, and tells of it; it waits for long here."""
    monkeypatch.setattr("penstock.pipeline.source.news.WAIT_S", NEVER_S)
    topic = topics.create(partitions=2)
    stream = Stream(asking | {"subscribe": topic, "kafka.request.timeout.ms": str(2 * NEVER_MS)})
    with ThreadPoolExecutor(1) as waiting:
        asked = waiting.submit(stream.values)
        stays(lambda: not asked.done(), for_s=0.5)  # Longer than it waits by default, and than anything that it does before.
        topics.write_values(topic, 1, partition=1)
        assert asked.result(PATIENCE_S) == numbers(0, 1)


def test_progress_shows_as_that_of_a_group(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=2)
    topics.write_values(topic, 10, partition=0)
    stream = Stream(asking | {"subscribe": topic, "groupId": f"job-{topic}", "maxOffsetsPerTrigger": "6"})
    stream.next()
    assert topics.committed(f"job-{topic}", topic) == {0: 0, 1: 0}, "nothing is done yet"
    stream.next()
    assert topics.committed(f"job-{topic}", topic) == {0: 6, 1: 0}
    stream.next()
    assert topics.committed(f"job-{topic}", topic) == {0: 10, 1: 0}, "also what the last batch has read"


def test_a_group_that_has_members_is_refused(topics: "Topics", asking: dict[str, str]) -> None:
    from confluent_kafka import Consumer

    topic = topics.create()
    member = {"group.id": f"taken-{topic}", "enable.auto.commit": False, "session.timeout.ms": NEVER_MS, "max.poll.interval.ms": NEVER_MS}
    consumer = Consumer({"bootstrap.servers": topics.bootstrap} | member)
    consumer.subscribe([topic])
    until(lambda: (consumer.poll(ASK_S), consumer.assignment())[1], "the group has a member", every_s=0.0)
    stream = Stream(asking | {"subscribe": topic, "groupId": f"taken-{topic}"})
    with pytest.raises(PipelineComplaint, match=f"cannot be committed to group 'taken-{topic}'"):
        stream.next()
    consumer.close()


def test_records_that_aged_out_end_the_stream_or_are_a_recorded_gap(topics: "Topics", asking: dict[str, str]) -> None:
    topic, dead = topics.create(), topics.create()
    topics.write_values(topic, 4)
    strict = Stream(asking | {"subscribe": topic})
    lenient = Stream(asking | {"subscribe": topic, "failOnDataLoss": "false", "deadLetterTopic": dead})
    assert strict.values() == lenient.values() == numbers(0, 4)
    topics.write_values(topic, 6, first=4)
    topics.trim(topic, 7)
    with pytest.raises(DataLost, match=rf"{topic}-0: offsets 4 to 6 are gone: they were deleted \(retention"):
        strict.next()
    assert lenient.values() == numbers(7, 10)
    (gap,) = topics.read(dead)
    assert (dict(gap.headers)["penstock.offset"], dict(gap.headers)["penstock.end_offset"]) == (b"4", b"7")


def test_a_topic_that_is_deleted_ends_the_stream_or_is_left_out(topics: "Topics", asking: dict[str, str]) -> None:
    topic, other = topics.create(), topics.create()
    topics.write_values(topic, 3)
    topics.write_values(other, 3, first=10)
    both = asking | {"subscribe": f"{topic},{other}"}
    strict, lenient = Stream(both), Stream(both | {"failOnDataLoss": "false"})
    assert sorted(strict.values()) == sorted(lenient.values())
    topics.delete(topic)
    with pytest.raises(DataLost, match=rf"{topic}-0: what follows offset 3 is gone: the topic or the partition was deleted"):
        strict.next()
    with pytest.raises(DataLost, match="take it out of the subscription and start the query with a new checkpoint"):
        Stream(asking | {"subscribe": other}, start=strict.at).next()  # The old checkpoint still knows of it.
    topics.write_values(other, 2, first=13)
    assert lenient.values() == numbers(13, 15)
    assert topic not in lenient.at
    topics.create(topic)
    topics.write_values(topic, 2, first=20)
    assert lenient.values() == numbers(20, 22), "should it come back, it is read from its beginning"


def test_a_topic_that_is_deleted_after_it_was_seen_is_told_all_the_same(
    topics: "Topics", asking: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic may go between two questions of one batch: which topics there are, and where they end."""
    monkeypatch.setattr("penstock.pipeline.source.lookup.GONE_S", 0.2)
    topic, other = topics.create(), topics.create()
    topics.write_values(topic, 3)
    topics.write_values(other, 3, first=10)
    both = asking | {"subscribe": f"{topic},{other}", "partition.metadata.cache.ttl.ms": "3600000"}
    strict, lenient = Stream(both), Stream(both | {"failOnDataLoss": "false"})
    assert sorted(strict.values()) == sorted(lenient.values())
    topics.delete(topic)
    with pytest.raises(DataLost, match=rf"{topic}-0: what follows offset 3 is gone: the topic or the partition was deleted"):
        strict.next()
    topics.write_values(other, 2, first=13)
    assert lenient.values() == numbers(13, 15)
    assert topic not in lenient.at
    topics.create(topic)
    topics.write_values(topic, 2, first=20)
    assert lenient.values() == numbers(20, 22), "what was remembered is asked for again"


def test_a_batch_whose_topic_was_deleted_since_it_was_written_down(
    topics: "Topics", asking: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A restarted query is asked for the ranges of the batch first: the topic may have gone while it was down."""
    monkeypatch.setattr("penstock.pipeline.source.lookup.GONE_S", 0.2)
    topic, other, dead = topics.create(), topics.create(), topics.create()
    topics.write_values(topic, 3)
    topics.write_values(other, 3, first=10)
    asking |= {"subscribe": f"{topic},{other}"}
    planned = Stream(asking)
    start = planned.at
    planned.next()
    topics.delete(topic)
    lenient = asking | {"failOnDataLoss": "false", "deadLetterTopic": dead}
    again = Stream(lenient, start=start)
    assert [row["value"] for row in again.between(start, planned.at)] == numbers(10, 13)
    (gap,) = topics.read(dead)
    assert (dict(gap.headers)["penstock.offset"], dict(gap.headers)["penstock.end_offset"]) == (b"0", b"3")
    came_later = {name: places for name, places in start.items() if name == other}
    assert [row["value"] for row in Stream(lenient, start=start).between(came_later, planned.at)] == numbers(10, 13)
    with pytest.raises(DataLost, match=f"{topic}-0: offsets 0 to 2 are gone: the topic or the partition was deleted"):
        Stream(asking, start=start).between(start, planned.at)


def test_a_run_that_ends_goes_on_without_a_topic_that_is_gone(topics: "Topics", asking: dict[str, str]) -> None:
    topic, other = topics.create(), topics.create()
    topics.write_values(topic, 3)
    topics.write_values(other, 3, first=10)
    asking |= {"subscribe": f"{topic},{other}", "failOnDataLoss": "false"}
    first = Stream(asking)
    first.next()
    topics.write_values(other, 2, first=13)
    topics.delete(topic)
    again = Stream(asking, start=first.at)
    again.reader.prepareForTriggerAvailableNow()
    assert again.values() == numbers(13, 15) and again.values() == []
    in_its_first_batch = Stream(asking)  # Spark asks such a one again where it begins.
    in_its_first_batch.reader.prepareForTriggerAvailableNow()
    assert in_its_first_batch.values() == numbers(10, 15)


def test_a_topic_that_was_made_again_is_told_from_the_old_one(topics: "Topics", asking: dict[str, str]) -> None:
    """It has more records than were read of the old one: only its id tells that they are others."""
    topic = topics.create()
    topics.write_values(topic, 3)
    strict, lenient = Stream(asking | {"subscribe": topic}), Stream(asking | {"subscribe": topic, "failOnDataLoss": "false"})
    assert strict.values() == lenient.values() == numbers(0, 3)
    topics.delete(topic)
    topics.create(topic)
    topics.write_values(topic, 5, first=100)
    with pytest.raises(DataLost, match="the topic was deleted and made again"):
        strict.next()
    with pytest.raises(DataLost, match="start the query with a new checkpoint"):
        Stream(asking | {"subscribe": topic}, start=strict.at).next()
    assert lenient.values() == numbers(100, 105)


def test_a_topic_that_is_not_there_is_told_at_the_start(topics: "Topics", asking: dict[str, str]) -> None:
    with pytest.raises(UnknownTopic, match="there is no topic 'absent'"):
        Stream(asking | {"subscribe": "absent"})
    with pytest.raises(UnknownTopic, match="there is no topic 'absent'"):
        Stream(asking | {"subscribe": "absent", "failOnDataLoss": "false"})


def test_offsets_to_begin_at_must_name_every_partition(topics: "Topics", asking: dict[str, str]) -> None:
    topic = topics.create(partitions=2)
    with pytest.raises(WrongOption, match=f"startingOffsets does not name {topic}-1"):
        Stream(asking | {"subscribe": topic, "startingOffsets": f'{{"{topic}": {{"0": 1}}}}'})
