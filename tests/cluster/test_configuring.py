"""Changes of overrides: what they make of what holds, and that deciding changes nothing."""

import pytest

from penstock.cluster import commands, records
from penstock.cluster.commands import CreateTopics, NewTopic, RegisterNode, UnfenceNode
from penstock.cluster.configuring import Change, ConfigureNode, ConfigureTopic
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage
from penstock.cluster.records import EVERY_NODE
from penstock.errors import ErrorCode, Refusal
from penstock.settings import TopicConfig
from penstock.wire.configs import Operation

SET, DELETE, APPEND, SUBTRACT = Operation
TOPIC_ID = bytes(15) + b"\1"


def controller(**overrides: str) -> Controller:
    made = Controller(ClusterImage(), TopicConfig(), 1, 100)
    told = {name.replace("_", "."): value for name, value in overrides.items()}
    register = RegisterNode(1, "c", "d", "h", 1, was_stopped_cleanly=True)
    for command in (register, UnfenceNode(1, 1), CreateTopics((NewTopic("a", TOPIC_ID, 1, overrides=told),))):
        for record in made.decide(command).records:
            made.image.replay(record)
    return made


def outcome(made: Controller, command: ConfigureTopic | ConfigureNode) -> dict[str, str] | ErrorCode:
    """The overrides as they would be, or why not; what holds stays as it is until the record is replayed."""
    held = ({name: dict(topic.overrides) for name, topic in made.image.topics.items()}, dict(made.image.node_overrides))
    decision = made.decide(command)
    assert held == ({name: topic.overrides for name, topic in made.image.topics.items()}, made.image.node_overrides)
    (reply,) = decision.replies
    if isinstance(reply, Refusal):
        assert decision.records == ()
        return reply.code
    assert isinstance(reply, records.TopicConfigured | records.NodeConfigured)
    assert records.decode(records.encode(reply)) == reply
    return reply.overrides


def topic(*changes: Change, replaces_all: bool = False) -> ConfigureTopic:
    return ConfigureTopic("a", changes, replaces_all)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], {"flush": "os", "segment.ms": "5"}),
        ([Change("flush", SET, "ack")], {"flush": "ack", "segment.ms": "5"}),
        ([Change("flush", DELETE)], {"segment.ms": "5"}),
        ([Change("no.such.setting", DELETE)], {"flush": "os", "segment.ms": "5"}),
        ([Change("cleanup.policy", APPEND, "compact")], {"flush": "os", "segment.ms": "5", "cleanup.policy": "delete,compact"}),
        ([Change("cleanup.policy", APPEND, "delete")], {"flush": "os", "segment.ms": "5", "cleanup.policy": "delete"}),
        ([Change("cleanup.policy", SUBTRACT, "compact")], {"flush": "os", "segment.ms": "5", "cleanup.policy": "delete"}),
        ([Change("cleanup.policy", SUBTRACT, "delete")], ErrorCode.INVALID_CONFIG),
        ([Change("cleanup.policy", APPEND, "shred")], ErrorCode.INVALID_CONFIG),
        ([Change("segment.ms", APPEND, "5")], ErrorCode.INVALID_CONFIG),
        ([Change("no.such.setting", SET, "5")], ErrorCode.INVALID_CONFIG),
        ([Change("segment.ms", DELETE), Change("flush", SET, "often")], ErrorCode.INVALID_CONFIG),
    ],
)
def test_each_change_makes_of_what_holds_what_it_says(changes: list[Change], expected: dict[str, str] | ErrorCode) -> None:
    assert outcome(controller(flush="os", segment_ms="5"), topic(*changes)) == expected


def test_a_change_that_stands_on_what_somebody_else_has_changed_is_refused() -> None:
    made, change = controller(flush="os"), (Change("flush", SET, "ack"),)
    assert outcome(made, ConfigureTopic("a", change, expected=(("flush", "os"), ("segment.ms", None)))) == {"flush": "ack"}
    for expected in ((("flush", "interval"),), (("flush", None),), (("segment.ms", "5"),)):
        assert outcome(made, ConfigureTopic("a", change, expected=expected)) is ErrorCode.INVALID_UPDATE_VERSION
    same = ConfigureTopic("a", (Change("flush", SET, "os"),), expected=(("flush", "ack"),))
    assert outcome(made, same) == {"flush": "os"}, "asked a second time, for the first answer got lost"
    assert commands.decode(commands.encode(same)) == same


def test_replacing_keeps_only_what_is_named() -> None:
    made = controller(flush="os", segment_ms="5")
    assert outcome(made, topic(Change("retention.ms", SET, "7"), replaces_all=True)) == {"retention.ms": "7"}
    assert outcome(made, topic(replaces_all=True)) == {}


def test_a_list_begins_with_what_topics_start_from() -> None:
    made = controller()
    made.topic_defaults = TopicConfig(cleanup_policy="compact")
    assert outcome(made, topic(Change("cleanup.policy", APPEND, "delete"))) == {"cleanup.policy": "compact,delete"}


def test_what_changes_nothing_writes_nothing() -> None:
    made = controller(flush="os")
    assert made.decide(topic(Change("flush", SET, "os"))).records == ()
    assert made.decide(ConfigureNode(EVERY_NODE, (Change("num.partitions", DELETE),))).records == ()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (ConfigureNode(EVERY_NODE, (Change("num.partitions", SET, "3"),)), {"num.partitions": "3"}),
        (ConfigureNode(1, (Change("topic.retention.ms", SET, "3"),)), {"topic.retention.ms": "3"}),
        (ConfigureNode(2, (Change("num.partitions", SET, "3"),)), ErrorCode.INVALID_REQUEST),
        (ConfigureNode(1, (Change("node.id", SET, "3"),)), ErrorCode.INVALID_REQUEST),
        (ConfigureNode(1, (Change("num.partitions", SET, "many"),)), ErrorCode.INVALID_REQUEST),
        (ConfigureNode(1, (Change("num.partitions", APPEND, "3"),)), ErrorCode.INVALID_CONFIG),
        (ConfigureNode(1, (Change("retention.ms", SET, "3"),)), ErrorCode.INVALID_CONFIG),
        (ConfigureNode(1, (Change("topic.retention.mss", SET, "3"),)), ErrorCode.INVALID_CONFIG),
    ],
)
def test_a_node_takes_what_can_be_changed_while_it_runs(command: ConfigureNode, expected: dict[str, str] | ErrorCode) -> None:
    assert outcome(controller(), command) == expected


def test_what_every_node_and_one_node_were_told_stand_beside_each_other() -> None:
    image = ClusterImage()
    image.replay(records.NodeConfigured(EVERY_NODE, {"num.partitions": "3"}))
    image.replay(records.NodeConfigured(1, {"num.partitions": "4"}))
    assert image.node_overrides == {EVERY_NODE: {"num.partitions": "3"}, 1: {"num.partitions": "4"}}
    image.replay(records.NodeConfigured(EVERY_NODE, {}))
    assert image.node_overrides == {1: {"num.partitions": "4"}}
