"""DescribeTopicPartitions, DescribeLogDirs, DescribeProducers, ListPartitionReassignments, ListConfigResources."""

from typing import Any

import pytest
from serving import Line, Serving, sequenced
from waiting import PATIENCE_MS

from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True


async def pages(line: Line, *topics: str, limit: int) -> list[list[tuple[str, list[int]]]]:
    """What each answer holds, following the cursor to the end."""
    found, cursor = [], None
    while True:
        body: dict[str, Any] = {"topics": [{"name": name} for name in topics], "response_partition_limit": limit, "cursor": cursor}
        answer = await line.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, **body)
        found.append([(topic.name, [row.partition_index for row in topic.partitions]) for topic in answer.topics])
        if answer.next_cursor is None:
            return found
        cursor = {"topic_name": answer.next_cursor.topic_name, "partition_index": answer.next_cursor.partition_index}


async def test_topics_come_in_order_and_in_pieces(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    for name, partitions in (("c", 1), ("a", 3), ("b", 2)):
        await line.create(name, partitions)
    assert await pages(line, limit=2_000) == [[("a", [0, 1, 2]), ("b", [0, 1]), ("c", [0])]]
    assert await pages(line, limit=2) == [[("a", [0, 1])], [("a", [2]), ("b", [0])], [("b", [1]), ("c", [0])]]
    assert await pages(line, limit=3) == [[("a", [0, 1, 2])], [("b", [0, 1]), ("c", [0])]]
    assert await pages(line, "b", "a", "none", limit=4) == [[("a", [0, 1, 2]), ("b", [0])], [("b", [1]), ("none", [])]]
    assert len(await pages(line, limit=0)) == 6, "at least one each time"


async def test_a_topic_is_told_with_all_that_holds_of_it(serving: Serving) -> None:
    await serving.open(node_id=3)
    line = await serving.line()
    topic_id = await line.create("a")
    answer = await line.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=[{"name": "a"}, {"name": "none"}, {"name": "bad/name"}])
    known, bad, none = answer.topics[0], answer.topics[1], answer.topics[2]
    assert (known.error_code, known.name, known.topic_id.bytes, known.is_internal) == (0, "a", topic_id, False)
    (row,) = known.partitions
    assert (row.error_code, row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes) == (0, 3, 0, (3,), (3,))
    assert (row.offline_replicas, row.eligible_leader_replicas, row.last_known_elr) == ((), (), ())
    assert known.topic_authorized_operations > 0
    assert (none.name, none.error_code) == ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert (bad.name, bad.error_code) == ("bad/name", ErrorCode.INVALID_TOPIC_EXCEPTION)


@pytest.mark.parametrize("cursor", [("b", 0), ("a", -1)])
async def test_a_cursor_that_cannot_be_is_refused(serving: Serving, cursor: tuple[str, int]) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    body = {"topics": [{"name": "a"}], "cursor": {"topic_name": cursor[0], "partition_index": cursor[1]}}
    answer = await line.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, **body)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a", ErrorCode.INVALID_REQUEST)]


async def test_a_cursor_may_outlive_its_topic(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    await line.create("c")
    answer = await line.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=[], cursor={"topic_name": "b", "partition_index": 5})
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("c", 1)]
    answer = await line.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=[], cursor={"topic_name": "c", "partition_index": 5})
    assert [(topic.name, len(topic.partitions)) for topic in answer.topics] == [("c", 0)]


# Log directories


@pytest.mark.parametrize("version", range(1, 6))
async def test_every_partition_is_told_with_its_size(serving: Serving, version: int) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a", 2)
    await line.create("b")
    await line.produce("a", bytes(1_000), partition=1)
    answer = await line.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=None)
    (directory,) = answer.results
    assert (directory.error_code, directory.log_dir) == (0, node.data_directory)
    sizes = {(topic.name, row.partition_index): row.partition_size for topic in directory.topics for row in topic.partitions}
    assert sizes.keys() == {("a", 0), ("a", 1), ("b", 0)}
    assert sizes["a", 0] == sizes["b", 0] == 0 and 1_000 < sizes["a", 1] < 1_200
    assert {(row.offset_lag, row.is_future_key) for topic in directory.topics for row in topic.partitions} == {(0, False)}
    if version >= 4:
        assert directory.total_bytes == node.env.disk.total_bytes() >= directory.usable_bytes > 0
    wishes = [{"topic": "a", "partitions": [1, 9]}, {"topic": "x", "partitions": [0]}]
    asked = await line.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=wishes)
    assert [(topic.name, [row.partition_index for row in topic.partitions]) for topic in asked.results[0].topics] == [("a", [1])]


@pytest.mark.expects_failure
@pytest.mark.parametrize("version", [1, 5])
async def test_a_damaged_copy_is_told_as_a_failed_directory_of_its_own(serving: Serving, version: int) -> None:
    await serving.open()
    line = await serving.line()
    topic_id = await line.create("a", 2)
    await line.produce("a", b"lost", partition=1)
    await serving.stop()
    for file in (serving.directory / "topics" / topic_id.hex() / "1").files():
        file.unlink()
    node = await serving.open()
    line = await serving.line()
    for wishes in (None, [], [{"topic": "a", "partitions": [0]}]):
        healthy, damaged = (await line.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=wishes)).results
        assert (healthy.error_code, healthy.log_dir) == (0, node.data_directory)
        assert damaged.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert (damaged.log_dir, damaged.topics) == (f"{node.data_directory}/topics/{topic_id.hex()}/1", ())
    assert [row.partition_index for topic in healthy.topics for row in topic.partitions] == [0]


# Producers


async def test_the_producers_of_a_partition_are_told_with_their_last_batch(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", 2)
    for sequence in range(3):
        await line.produce_batch("a", sequenced(7, sequence, timestamp_ms=1_700_000_000_000 + sequence))
    await line.produce_batch("a", sequenced(9, 0, b"1", b"2", epoch=4, timestamp_ms=1_700_000_000_009))
    await line.produce("a", b"nobody's")
    asked = [{"name": name, "partition_indexes": indexes} for name, indexes in (("a", [0, 1, 2]), ("none", [0]), ("b/d", [0]))]
    answer = await line.ask(ApiKey.DESCRIBE_PRODUCERS, topics=asked)
    rows = {(topic.name, row.partition_index): row for topic in answer.topics for row in topic.partitions}
    told = [
        (each.producer_id, each.producer_epoch, each.last_sequence, each.last_timestamp, each.current_txn_start_offset)
        for each in rows["a", 0].active_producers
    ]
    assert told == [(7, 0, 2, 1_700_000_000_002, -1), (9, 4, 1, 1_700_000_000_009, -1)]
    assert (rows["a", 1].error_code, rows["a", 1].active_producers) == (0, ())
    assert rows["a", 2].error_code == rows["none", 0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert rows["b/d", 0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_a_thousand_producers_are_told_too(serving: Serving) -> None:
    node = await serving.open()
    line = await serving.line()
    await line.create("a", flush="os")
    for producer_id in range(1_000):
        line.send(ApiKey.PRODUCE, 12, **_one(producer_id))
    for _ in range(1_000):
        await line.receive()
    answer = await line.ask(ApiKey.DESCRIBE_PRODUCERS, topics=[{"name": "a", "partition_indexes": [0]}])
    assert [each.producer_id for each in answer.topics[0].partitions[0].active_producers] == list(range(1_000))
    assert node.metrics.batches_in == 1_000


def _one(producer_id: int) -> dict[str, Any]:
    rows = [{"index": 0, "records": sequenced(producer_id, 0)}]
    return {"transactional_id": None, "acks": 1, "timeout_ms": PATIENCE_MS, "topic_data": [{"name": "a", "partition_data": rows}]}


# Lists


async def test_nothing_ever_moves_on_one_node(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    for topics in (None, [{"name": "a", "partition_indexes": [0]}]):
        answer = await line.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=topics)
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, ())


async def test_what_can_be_configured_is_listed_by_its_type(serving: Serving) -> None:
    await serving.open(node_id=3)
    line = await serving.line()
    await line.create("a")

    async def listed(*types: int) -> tuple[int, list[tuple[int, str]]]:
        answer = await line.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=list(types))
        return answer.error_code, [(each.resource_type, each.resource_name) for each in answer.config_resources]

    assert await listed() == (0, [(2, "a"), (4, "3")])
    assert await listed(4) == (0, [(4, "3")])
    assert await listed(16, 32, 2) == (0, [(2, "a")])
    assert await listed(2, 99) == (ErrorCode.UNSUPPORTED_VERSION, [])
    old = await line.ask(ApiKey.LIST_CONFIG_RESOURCES, 0)
    assert (old.error_code, old.config_resources) == (0, ()), "version 0 asks for client metrics"
