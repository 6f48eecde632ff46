"""The generator for clusters finds the leaders, and counts what it sends through librdkafka. One node is a cluster of one."""

from collections.abc import Iterator

import pytest
from bench.moments import measured
from benchmarks.failover import Stream
from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.leaders import Leaders
from benchmarks.load.producing import ProduceLoad
from benchmarks.load.through_librdkafka import Course
from benchmarks.load.topics import Admin
from system.harness import Node
from waiting import EXPIRES_S

HOST = "127.0.0.1"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    with Node(tmp_path_factory.mktemp("bench") / "data") as node:
        yield node


@pytest.fixture
def admin(node: Node) -> Iterator[Admin]:
    admin = Admin(HOST, node.kafka_port)
    yield admin
    admin.close()


def test_records_go_to_those_who_lead_and_are_counted(node: Node, admin: Admin) -> None:
    admin.create_replicated("led", 4, {}, replicas=1)
    outcome = measured(ProduceLoad("led", 4, connections=1, to_leaders=True), HOST, node.kafka_port)
    assert outcome.records > 0
    leaders = Leaders(Connection(HOST, node.kafka_port, receive_bytes=1 << 20), "led", 4)
    assert leaders.partitions_at == {(HOST, node.kafka_port): [0, 1, 2, 3]}
    assert leaders.end() >= outcome.records
    leaders.close()


def test_a_topic_that_is_not_there_is_not_waited_for_without_end(node: Node) -> None:
    with pytest.raises(UnexpectedReply, match="not led"):
        Leaders(Connection(HOST, node.kafka_port, receive_bytes=1 << 20), "nowhere", 1, patience_s=EXPIRES_S)


def test_metadata_tells_where_brokers_listen(node: Node, admin: Admin) -> None:
    admin.create_replicated("told", 2, {}, replicas=1)
    connection = Connection(HOST, node.kafka_port, receive_bytes=1 << 20)
    brokers, partitions = frames.read_metadata(connection.ask(frames.metadata("told")))
    connection.close()
    assert brokers == {1: (HOST, node.kafka_port)}
    assert partitions == {0: (1, 1, 1), 1: (1, 1, 1)}


def test_what_goes_through_librdkafka_is_answered_and_read(node: Node, admin: Admin) -> None:
    admin.create_replicated("through", 2, {}, replicas=1)
    course = Course(node.bootstrap, "through", 2)
    course.send(200, 0.3)
    course.finish()
    assert (course.tally.sent, course.tally.answered, len(course.tally.read_s), course.tally.refused) == (60, 60, 60, [])


def test_slots_are_counted_where_something_was_answered() -> None:
    stream = Stream("nobody")
    stream.answered[0] = [(0.0, 10.01), (0.0, 10.02), (0.0, 10.25)]
    stream.answered[1] = [(0.0, 10.03)]
    stream.answered[2] = [(0.0, 10.04), (0.0, 10.55)]
    assert stream.shares_of_slots(10.0, 11.0) == (0.3, 0.1)
