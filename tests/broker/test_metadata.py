"""Metadata and DescribeCluster: which topics there are, who serves them, and topics that are made by being asked for."""

from typing import Any

import pytest
from serving import Serving

from penstock.broker.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey
from penstock.wire.metadata import NO_OPERATIONS

ALL_LOOPS = True


def described(answer: Any) -> dict[Any, int]:
    """Error codes by name, or by id where there is no name."""
    return {topic.name if topic.name is not None else topic.topic_id.bytes: topic.error_code for topic in answer.topics}


async def test_all_none_and_some(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    for name in ("a", "b", "c"):
        await line.create(name, 2)
    for version in range(14):
        everything = None if version else []  # In version 0 an empty list asks for all.
        assert set(described(await line.ask(ApiKey.METADATA, version, topics=everything))) == {"a", "b", "c"}, version
        some = await line.ask(ApiKey.METADATA, version, topics=[{"name": "c"}, {"name": "a"}])
        assert list(described(some)) == ["c", "a"], version
        if version:
            assert described(await line.ask(ApiKey.METADATA, version, topics=[])) == {}


async def test_a_topic_is_described_with_all_its_partitions_and_who_leads_them(serving: Serving) -> None:
    node = await serving.open(node_id=7)
    line = await serving.line()
    topic_id = await line.create("a", 3)
    answer = await line.ask(ApiKey.METADATA, topics=[{"name": "a"}])
    (topic,) = answer.topics
    assert (topic.topic_id.bytes, topic.is_internal, topic.error_code) == (topic_id, False, 0)
    assert [row.partition_index for row in topic.partitions] == [0, 1, 2]
    for row in topic.partitions:
        assert (row.leader_id, row.leader_epoch, row.replica_nodes, row.isr_nodes, row.offline_replicas) == (7, 0, (7,), (7,), ())
    assert [(broker.node_id, broker.host, broker.port) for broker in answer.brokers] == [(7, *serving.address)]
    assert (answer.controller_id, answer.cluster_id) == (7, node.image.cluster_id)


async def test_clients_are_told_the_advertised_address(serving: Serving) -> None:
    await serving.open(advertised_host="broker.example", advertised_port=19092)
    line = await serving.line()
    answer = await line.ask(ApiKey.METADATA, topics=[])
    assert [(broker.host, broker.port) for broker in answer.brokers] == [("broker.example", 19092)]


async def test_by_id_it_is_the_same_topic_and_a_stranger_is_an_error(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    topic_id, stranger = await line.create("a"), bytes(15) + b"\7"
    for version in (12, 13):
        for name in (None, ""):  # Java sends an empty name beside the id.
            asked = [{"name": name, "topic_id": topic_id}, {"name": name, "topic_id": stranger}]
            answer = await line.ask(ApiKey.METADATA, version, topics=asked)
            assert described(answer) == {"a": 0, stranger: ErrorCode.UNKNOWN_TOPIC_ID}


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_before_they_can_be_asked_for(serving: Serving, version: int) -> None:
    """Versions 10 and 11 have a place for an id in the request, and none for a topic without a name in the reply."""
    await serving.open()
    line = await serving.line()
    topic_id = await line.create("a")
    asked = [{"name": None, "topic_id": topic_id}, {"name": None, "topic_id": bytes(15) + b"\7"}]
    answer = await line.ask(ApiKey.METADATA, version, topics=asked)
    assert [(topic.name, topic.error_code) for topic in answer.topics] == [("a", 0), ("", ErrorCode.UNKNOWN_TOPIC_ID)]


async def test_a_topic_is_made_by_being_asked_for(serving: Serving) -> None:
    node = await serving.open(num_partitions=4)
    line = await serving.line()
    answer = await line.ask(ApiKey.METADATA, topics=[{"name": "a"}, {"name": "b"}, {"name": "a"}], allow_auto_topic_creation=True)
    assert described(answer) == {"a": 0, "b": 0}
    assert [len(topic.partitions) for topic in answer.topics] == [4, 4, 4]
    assert (await line.produce("a", b"x", partition=3)).error_code == 0, "it can be used at once"
    assert node.image.partition_count == 8


@pytest.mark.parametrize(
    ("version", "is_on", "allowed", "is_made"),
    [(13, True, False, False), (13, False, True, False), (4, True, False, False), (3, True, False, True)],
)
async def test_both_sides_must_want_it(serving: Serving, version: int, is_on: bool, allowed: bool, is_made: bool) -> None:
    """Before version 4 clients could not say no."""
    node = await serving.open(auto_create_topics_enable=is_on)
    line = await serving.line()
    answer = await line.ask(ApiKey.METADATA, version, topics=[{"name": "a"}], allow_auto_topic_creation=allowed)
    assert described(answer) == {"a": 0 if is_made else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert ("a" in node.image.topics) == is_made


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "ä", "x" * 250, "a b", "\0"])
async def test_a_name_that_cannot_be_is_an_error_row(serving: Serving, name: str) -> None:
    node = await serving.open()
    line = await serving.line()
    answer = await line.ask(ApiKey.METADATA, topics=[{"name": name}, {"name": "good"}], allow_auto_topic_creation=True)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_TOPIC_EXCEPTION, 0]
    assert answer.topics[0].name == name
    assert list(node.image.topics) == ["good"]


async def test_no_more_partitions_are_made_by_asking_than_the_node_may_hold(serving: Serving) -> None:
    node = await serving.open(partitions_max=3, num_partitions=2)
    line = await serving.line()
    answer = await line.ask(ApiKey.METADATA, topics=[{"name": "a"}, {"name": "b"}], allow_auto_topic_creation=True)
    assert [topic.error_code == 0 for topic in answer.topics] == [True, False]
    assert node.image.partition_count == 2


async def test_operations_are_told_only_when_asked_for(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a")
    for version in range(8, 14):
        for wanted in (True, False, True):
            body = {"include_topic_authorized_operations": wanted, "include_cluster_authorized_operations": wanted}
            answer = await line.ask(ApiKey.METADATA, version, topics=[{"name": "a"}], **body)
            assert answer.topics[0].topic_authorized_operations == (TOPIC_OPERATIONS if wanted else NO_OPERATIONS)
            if version <= 10:
                assert answer.cluster_authorized_operations == (CLUSTER_OPERATIONS if wanted else NO_OPERATIONS)


async def test_what_was_encoded_once_is_told_only_while_it_holds(serving: Serving) -> None:
    await serving.open()
    line = await serving.line()
    first = await line.create("a")
    for _ in range(2):
        assert (await line.ask(ApiKey.METADATA, topics=[{"name": "a"}])).topics[0].topic_id.bytes == first
    await line.delete("a")
    answer = await line.ask(ApiKey.METADATA, topics=[{"name": "a"}], allow_auto_topic_creation=False)
    assert described(answer) == {"a": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    second = await line.create("a", 5)
    answer = await line.ask(ApiKey.METADATA, topics=None)
    assert (answer.topics[0].topic_id.bytes, len(answer.topics[0].partitions)) == (second, 5)
    await serving.crash()
    await serving.open()
    line = await serving.line()
    answer = await line.ask(ApiKey.METADATA, topics=[{"name": "a"}])
    assert {row.leader_epoch for row in answer.topics[0].partitions} == {1}


async def test_the_cluster_is_described(serving: Serving) -> None:
    node = await serving.open(node_id=3)
    line = await serving.line()
    for version in range(3):
        answer = await line.ask(ApiKey.DESCRIBE_CLUSTER, version, include_cluster_authorized_operations=True)
        assert (answer.error_code, answer.cluster_id, answer.controller_id) == (0, node.image.cluster_id, 3)
        assert [(broker.broker_id, broker.host, broker.port) for broker in answer.brokers] == [(3, *serving.address)]
        assert answer.cluster_authorized_operations == CLUSTER_OPERATIONS
    answer = await line.ask(ApiKey.DESCRIBE_CLUSTER, 2, include_cluster_authorized_operations=False)
    assert answer.cluster_authorized_operations == NO_OPERATIONS
    controllers = await line.ask(ApiKey.DESCRIBE_CLUSTER, 2, endpoint_type=2)
    assert controllers.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


async def test_a_topic_that_could_not_be_made_says_why(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    """To be told for ever that the topic is unknown helps nobody."""
    await serving.open(partitions_max=1, num_partitions=1)
    line = await serving.line()
    await line.create("a")
    names = [f"b{number}" for number in range(1_000)]
    answer = await line.ask(ApiKey.METADATA, topics=[{"name": name} for name in names], allow_auto_topic_creation=True)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.POLICY_VIOLATION}
    (told,) = [record.getMessage() for record in caplog.records if "could not be made" in record.getMessage()]
    assert "partitions.max" in told


async def test_what_clients_say_stays_on_one_line_of_the_log(serving: Serving, caplog: pytest.LogCaptureFixture) -> None:
    node = await serving.open()
    node.report("a client sent x\nerror: everything is lost " + "y" * 5_000)
    assert "\n" not in caplog.messages[-1]
    assert len(caplog.messages[-1]) < 1_100
