"""Where partitions shall lie: what is read from a file, and what is made so that little moves and all is even."""

import io
from collections import Counter

import pytest

from penstock.cli.bar import Bar
from penstock.cli.cluster_processes import _new_nodes
from penstock.cli.faults import Fault
from penstock.cli.reassignment_plans import changed, read_plan, spell_plan, spread, without
from penstock.peers.cluster import PartitionDescription, TopicDescription
from penstock.vocabulary import TopicId, TopicPartition

NO_RACKS: dict[int, str | None] = {}


def topic(*replicas: tuple[int, ...], name: str = "orders") -> TopicDescription:
    rows = [PartitionDescription(index, each[0], 0, each, each, (), (), ()) for index, each in enumerate(replicas)]
    return TopicDescription(name, TopicId(bytes(16)), False, tuple(rows))


def orders(*replicas: tuple[int, ...]) -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition("orders", index): each for index, each in enumerate(replicas)}


# Plans from a file


def test_a_plan_is_written_as_kafkas_tool_reads_it_and_read_back():
    plan = orders((1, 2), (2, 3))
    assert read_plan(spell_plan(plan), "plan.json") == plan
    kafkas = '{"version":1,"partitions":[{"topic":"orders","partition":0,"replicas":[1,2],"log_dirs":["any","any"]}]}'
    assert read_plan(kafkas, "plan.json") == orders((1, 2))


@pytest.mark.parametrize(
    "text",
    [
        "nonsense", "[]", "{}", '{"partitions": [{"topic": "a"}]}', '{"partitions": [{"topic": "a", "partition": 0, "replicas": "12"}]}x',
        '{"partitions": []}', '{"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}',
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1, 1]}]}',
        '{"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}, {"topic": "a", "partition": 0, "replicas": [2]}]}',
    ],
)  # fmt: skip
def test_what_is_no_plan_is_refused_with_the_name_of_its_file(text: str):
    with pytest.raises(Fault, match=r"plan\.json"):
        read_plan(text, "plan.json")


def test_only_what_is_not_so_already_is_done():
    assert changed(orders((1, 2), (2, 1)), [topic((1, 2), (1, 2))]) == {TopicPartition("orders", 1): (2, 1)}
    unknown = {TopicPartition("none", 0): (1,)}
    assert changed(unknown, [topic((1, 2))]) == unknown, "the controller shall say that it is not there"


# Plans that are made


def test_a_topic_that_lies_evenly_on_the_named_nodes_stays_as_it_is():
    even = topic((1, 2), (2, 3), (3, 1))
    assert changed(spread(even, [1, 2, 3], NO_RACKS), [even]) == {}


def test_a_topic_is_spread_over_a_new_node_and_no_replica_moves_without_need():
    before = topic(*[(1, 2), (2, 3), (3, 1)] * 4)
    plan = spread(before, [1, 2, 3, 4], NO_RACKS)
    assert Counter(node for replicas in plan.values() for node in replicas) == {1: 6, 2: 6, 3: 6, 4: 6}
    kept = sum(len(set(plan[TopicPartition("orders", row.partition)]) & set(row.replicas)) for row in before.partitions)
    assert kept == 18, "six of twenty-four move, as many as the new node takes"
    assert max(Counter(replicas[0] for replicas in plan.values()).values()) <= 4, "and leadership is spread"


def test_a_topic_may_get_more_or_fewer_replicas():
    plan = spread(topic((1,), (2,)), [1, 2, 3], NO_RACKS, factor=3)
    assert [sorted(replicas) for replicas in plan.values()] == [[1, 2, 3], [1, 2, 3]]
    assert [len(replicas) for replicas in spread(topic((1, 2, 3)), [1, 2, 3], NO_RACKS, factor=1).values()] == [1]
    with pytest.raises(Fault, match="3 replicas of 'orders' need as many nodes, and 2 are named"):
        spread(topic((1,)), [1, 2], NO_RACKS, factor=3)


def test_replicas_go_to_racks_that_have_none():
    racks: dict[int, str | None] = {1: "east", 2: "east", 3: "west", 4: "west"}
    for replicas in spread(topic((1,), (2,), (3,), (4,)), [1, 2, 3, 4], racks, factor=2).values():
        assert {racks[node] for node in replicas} == {"east", "west"}


def test_a_node_is_emptied_and_its_places_are_taken_by_those_that_hold_least():
    plan = without(3, [topic((1, 2), (2, 3), (3, 1), name="a"), topic((3,), name="b")], [1, 2, 3, 4], NO_RACKS)
    assert plan == {TopicPartition("a", 1): (2, 4), TopicPartition("a", 2): (4, 1), TopicPartition("b", 0): (1,)}


def test_a_node_is_not_emptied_where_too_few_would_be_left():
    with pytest.raises(Fault, match="orders-0 has 3 replicas, and without node 3 there would be 2 nodes"):
        without(3, [topic((1, 2, 3))], [1, 2, 3], NO_RACKS)


def test_heirs_stand_in_racks_that_the_partition_has_no_replica_in():
    racks: dict[int, str | None] = {1: "east", 2: "west", 3: "east", 4: "west"}
    assert without(2, [topic((1, 2))], [1, 2, 3, 4], racks) == orders((1, 4))


def test_a_drained_node_gives_to_a_full_disk_only_what_no_other_can_take() -> None:
    assert without(2, [topic((1, 2), (2, 1))], [1, 2, 3, 4], NO_RACKS, full=[3]) == orders((1, 4), (4, 1))
    assert without(2, [topic((1, 2, 4))], [1, 2, 3, 4], NO_RACKS, full=[3]) == orders((1, 3, 4))


# Nodes of a new cluster


@pytest.mark.parametrize(
    ("brokers", "witnesses", "roles"),
    [
        (1, 0, ["both"]), (2, 0, ["both", "both"]), (3, 0, ["both"] * 3), (4, 0, ["both"] * 3 + ["broker"]),
        (2, 1, ["both", "both", "controller"]), (3, 2, ["both"] * 3 + ["controller"] * 2), (7, 0, ["both"] * 5 + ["broker"] * 2),
    ],
)  # fmt: skip
def test_an_odd_number_votes_where_that_is_possible(brokers: int, witnesses: int, roles: list[str]):
    nodes = _new_nodes(range(9092, 9092 + brokers), witnesses, ["east", "west"])
    spelled = {"both": "broker,controller", "broker": "broker", "controller": "controller"}
    assert [node.roles for node in nodes.values()] == [spelled[role] for role in roles]
    assert [node.kafka_port for node in nodes.values()] == [9092 + place if place < brokers else 0 for place in range(len(roles))]
    assert [node.rack for node in nodes.values()][:2] == ["east", "west"][: len(roles)]
    ports = [port for node in nodes.values() for port in (node.peers_port, node.http_port)]
    assert len(set(ports)) == len(ports)


# The bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_a_bar_that_is_written_over():
    screen = Terminal()
    bar = Bar("moving", stream=screen)
    bar.show(0.5, "1 of 2 partitions")
    bar.show(1.0, "2 of 2 partitions")
    bar.end()
    assert screen.getvalue().split("\r\x1b[K")[1:] == [
        f"moving [{'#' * 15}{'.' * 15}]  50 %  1 of 2 partitions",
        f"moving [{'#' * 30}] 100 %  2 of 2 partitions\n",
    ]


def test_a_file_gets_a_line_now_and_then():
    file, now = io.StringIO(), [0.0]
    bar = Bar("moving", stream=file, clock=lambda: now[0])
    for second in range(11):
        now[0] = float(second)
        bar.show(second / 10, f"{second} of 10")
    assert [line.split("  ")[-1] for line in file.getvalue().splitlines()] == ["0 of 10", "3 of 10", "6 of 10", "9 of 10", "10 of 10"]
