"""Whose acknowledgements may have come before the flush, and what an unclean end of such a life costs."""

import pytest
from cluster.scene import Scene, code_of, topic_id

from penstock.cluster import records
from penstock.cluster.commands import DeleteTopic, UnregisterNode
from penstock.cluster.configuring import Change, ConfigureNode, ConfigureTopic
from penstock.cluster.image import ClusterImage
from penstock.cluster.promises import flush_defaults
from penstock.cluster.records import EVERY_NODE
from penstock.errors import ErrorCode
from penstock.settings import TopicConfig
from penstock.vocabulary import NodeId
from penstock.wire.configs import Operation

pytestmark = pytest.mark.invariant("controller.weak-acks-remembered", "controller.decisions-have-no-side-effect")

SET, DELETE = Operation.SET, Operation.DELETE
OS, ACK = {"flush": "os"}, {"flush": "ack"}
TRUSTED, DISTRUSTED = (2, 1), (1,)  # Whom the partition counts on when node 2 is back.


def told(scene: Scene, node: int, name: str, value: str, operation: Operation = SET) -> ErrorCode:
    return code_of(scene.ask(ConfigureNode(NodeId(node), (Change(name, operation, value),))))


def promise(scene: Scene, flush: str) -> None:
    assert code_of(scene.ask(ConfigureTopic("t", (Change("flush", SET, flush),)))) is ErrorCode.NONE


def scene_with(defaults: dict[str, str] | None, **overrides: str) -> Scene:
    """One partition of node 1 and node 2; node 2 was started with these."""
    scene = Scene(2)
    scene.come_up(2, flush_defaults=defaults)
    scene.create("t", 1, 2, min_insync_replicas="2", **overrides)
    return scene


def back_after_power_cut(scene: Scene, defaults: dict[str, str] | None = None) -> tuple[int, ...]:
    scene.fence(*(n for n in (2, 1) if not scene.image.nodes[NodeId(n)].is_fenced))
    scene.ask(scene.register(2, was_stopped_cleanly=False, flush_defaults=defaults))
    return scene.partition().eligible


@pytest.mark.parametrize(
    ("defaults", "overrides", "eligible"),
    [
        (None, {}, TRUSTED),  # It did not say: the controller goes by its own.
        ({}, {}, TRUSTED),
        (OS, {}, DISTRUSTED),
        ({"flush": "interval"}, {}, DISTRUSTED),
        ({"flush": "os", "flush.messages": "1"}, {}, TRUSTED),
        ({"flush": "os", "flush.messages": "1"}, {"flush_messages": "9"}, DISTRUSTED),
        (OS, {"flush": "ack"}, TRUSTED),
        (OS, {"flush_messages": "1"}, TRUSTED),
        ({}, {"flush": "os"}, DISTRUSTED),
        ({"flush": "by-moonlight"}, {}, DISTRUSTED),
    ],
)
def test_a_node_is_judged_by_its_own_defaults_unless_the_topic_says_otherwise(
    defaults: dict[str, str] | None, overrides: dict[str, str], eligible: tuple[int, ...]
) -> None:
    assert back_after_power_cut(scene_with(defaults, **overrides)) == eligible


def test_what_every_node_was_told_counts_more_than_what_one_was_started_with() -> None:
    scene = Scene(2)
    told(scene, EVERY_NODE, "topic.flush", "ack")
    scene.come_up(2, flush_defaults=OS)
    scene.create("t", 1, 2, min_insync_replicas="2")
    assert back_after_power_cut(scene) == TRUSTED


@pytest.mark.parametrize(("before", "after", "eligible"), [(OS, {}, DISTRUSTED), ({}, OS, TRUSTED)])
def test_it_is_the_life_that_ended_that_counts(before: dict[str, str], after: dict[str, str], eligible: tuple[int, ...]) -> None:
    assert back_after_power_cut(scene_with(before), after) == eligible


@pytest.mark.parametrize("name", ["topic.flush", "topic.flush.messages", "topic.min.insync.replicas"])
def test_what_tells_who_may_lead_is_no_nodes_own(name: str) -> None:
    value = "os" if name == "topic.flush" else "2"
    scene = Scene(2)
    assert told(scene, 2, name, value) is ErrorCode.INVALID_CONFIG
    assert told(scene, EVERY_NODE, name, value) is ErrorCode.NONE
    scene.replay(records.NodeConfigured(NodeId(2), {name: value}))  # From a time when it was taken.
    assert told(scene, 2, "num.partitions", "3") is ErrorCode.NONE
    assert told(scene, 2, name, "", DELETE) is ErrorCode.NONE
    assert scene.image.node_overrides[NodeId(2)] == {"num.partitions": "3"}


# A stronger promise


def test_who_was_down_when_the_promise_became_stronger_is_judged_by_the_weaker_one() -> None:
    scene = scene_with({}, flush="os")
    scene.fence(2)
    assert scene.shape() == (1, (1,), (2,))
    promise(scene, "ack")
    scene.fence(1)
    assert back_after_power_cut(scene) == DISTRUSTED


def test_who_was_up_when_the_promise_became_stronger_may_not_have_flushed_what_it_acknowledged_before() -> None:
    scene = scene_with({}, flush="os")
    promise(scene, "ack")
    assert back_after_power_cut(scene) == DISTRUSTED


def test_a_topic_that_goes_back_to_its_default_may_promise_more_than_before() -> None:
    scene = scene_with({}, flush="os")
    scene.ask(ConfigureTopic("t", (Change("flush", DELETE),)))
    assert back_after_power_cut(scene) == DISTRUSTED


@pytest.mark.parametrize(("overrides", "eligible"), [({}, DISTRUSTED), (ACK, TRUSTED)])
def test_every_node_promises_more_in_the_topics_that_left_it_to_them(overrides: dict[str, str], eligible: tuple[int, ...]) -> None:
    scene = Scene(2)
    told(scene, EVERY_NODE, "topic.flush", "os")
    scene.come_up(2, flush_defaults={})
    scene.create("t", 1, 2, min_insync_replicas="2", **overrides)
    told(scene, EVERY_NODE, "topic.flush", "", DELETE)
    promise(scene, "ack")  # Which changes nothing any more.
    assert back_after_power_cut(scene) == eligible


def test_a_node_that_loses_a_weaker_promise_of_its_own_is_remembered_for_it() -> None:
    scene = scene_with({})
    scene.replay(records.NodeConfigured(NodeId(2), {"topic.flush": "os"}))
    told(scene, 2, "topic.flush", "", DELETE)
    assert scene.image.early == {topic_id(1): {2: scene.epoch(2)}}
    assert back_after_power_cut(scene) == DISTRUSTED


def test_the_next_life_is_under_the_stronger_promise_from_its_beginning() -> None:
    scene = scene_with({}, flush="os")
    promise(scene, "ack")
    scene.come_up(2, flush_defaults={})
    scene.set_in_sync(1, 2)
    assert 2 not in scene.image.early[topic_id(1)]
    assert back_after_power_cut(scene) == TRUSTED


def test_what_is_remembered_goes_with_the_topic_and_with_the_node() -> None:
    scene = scene_with({}, flush="os")
    scene.create("u", 1, flush="os")
    for name in ("t", "u"):
        scene.ask(ConfigureTopic(name, (Change("flush", SET, "ack"),)))
    assert {topic: set(lives) for topic, lives in scene.image.early.items()} == {topic_id(1): {1, 2}, topic_id(2): {1, 2}}
    scene.ask(DeleteTopic(topic_id(1)))
    assert list(scene.image.early) == [topic_id(2)]
    scene.fence(2)
    scene.ask(UnregisterNode(NodeId(2)))
    assert scene.image.early == {topic_id(2): {1: scene.epoch(1)}}


def test_a_snapshot_remembers_it() -> None:
    scene = scene_with(OS, flush="os")
    promise(scene, "ack")
    again = ClusterImage()
    for record in scene.image.snapshot():
        again.replay(record)
    assert again == scene.image and again.early


def test_many_topics_are_noted_in_records_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.promises.TOPICS_PER_RECORD", 2)
    scene = Scene(2)
    told(scene, EVERY_NODE, "topic.flush", "os")
    for number in range(5):
        scene.create(f"t{number}", 1)
    decision = scene.controller.decide(ConfigureNode(EVERY_NODE, (Change("topic.flush", SET, "ack"),)))
    promised = [record for record in decision.records if isinstance(record, records.FlushPromised)]
    assert [len(record.topics) for record in promised] == [2, 2, 1]
    assert {topic for record in promised for topic in record.topics} == {topic_id(number) for number in range(1, 6)}


def test_a_weaker_promise_and_no_change_are_not_noted() -> None:
    scene = scene_with({}, flush="ack")
    promise(scene, "os")
    promise(scene, "interval")
    assert scene.image.early == {}


# As nodes say it


def test_a_node_says_only_what_is_unusual() -> None:
    assert flush_defaults(TopicConfig()) == {}
    assert flush_defaults(TopicConfig(flush="os", flush_messages=7, retention_ms=5)) == {"flush": "os", "flush.messages": "7"}


def test_a_registration_of_an_older_penstock_says_nothing() -> None:
    old = records.decode(b'\0\2\0\2{"node_id":1,"node_epoch":4,"directory_id":"d","host":"h","port":1,"is_fenced":true}')
    assert isinstance(old, records.NodeRegistered) and old.flush_defaults is None
