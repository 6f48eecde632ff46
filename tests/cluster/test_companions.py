"""A topic that is a queue and the one that has its ledger: made, grown, moved, led and ended as one thing."""

from collections.abc import Callable

import pytest
from cluster.scene import Scene, code_of, topic_id

from penstock.cluster import drafting, records
from penstock.cluster.commands import (
    AddPartitions,
    BuryTopic,
    Command,
    CreateTopics,
    DeleteTopic,
    ElectionKind,
    ElectLeaders,
    FenceNode,
    MakeCompanion,
    MorePartitions,
    NewTopic,
    Reassignment,
    ReassignPartitions,
)
from penstock.cluster.companions import companion_id
from penstock.cluster.configuring import Change, ConfigureTopic
from penstock.cluster.electing import to_be_given_back
from penstock.cluster.image import ClusterImage, Topic
from penstock.cluster.replies import LeaderElected
from penstock.cluster.topic_names import COMPANION_PREFIX, is_internal
from penstock.errors import ErrorCode
from penstock.settings import TopicConfig
from penstock.vocabulary import NO_NODE, NodeId
from penstock.wire.configs import Operation

pytestmark = pytest.mark.invariant("controller.queue-ledger-same-leader", "controller.decisions-have-no-side-effect")

QUEUE = {"queue_enabled": "true"}


def a_queue(*replicas: int, nodes: int = 3, **overrides: str) -> Scene:
    scene = Scene(nodes)
    scene.create("t", *replicas, **QUEUE, **overrides)
    return scene


def ledger(scene: Scene, name: str = "t") -> Topic:
    found = scene.image.companion_of(scene.image.topics[name].topic_id)
    assert found is not None
    return found


def shapes(scene: Scene) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """(leader, in_sync, eligible) of the data, then of the ledger."""
    return [scene.shape("t"), scene.shape(ledger(scene).name)]


def both_are(scene: Scene, leader: int, in_sync: tuple[int, ...], eligible: tuple[int, ...] = ()) -> bool:
    return shapes(scene) == [(leader, in_sync, eligible)] * 2


def told(name: str, value: str | None) -> ConfigureTopic:
    return ConfigureTopic("t", (Change(name, Operation.DELETE if value is None else Operation.SET, value or ""),))


# Making


def test_a_queue_is_made_with_its_ledger_in_the_same_places() -> None:
    scene = Scene(3)
    wish = NewTopic("t", topic_id(1), 4, 2, {"queue.enabled": "true", "min.insync.replicas": "2", "segment.ms": "5"})
    assert code_of(scene.ask(CreateTopics((wish,)))) is ErrorCode.NONE
    made = ledger(scene)
    assert made.partitions == scene.image.topics["t"].partitions and len(made.partitions) == 4
    assert made.name == COMPANION_PREFIX + topic_id(1).hex() and is_internal(made.name)
    assert scene.image.data_of(made.topic_id) is scene.image.topics["t"]
    assert made.overrides["min.insync.replicas"] == "2", "a ledger is as safe as its data"
    assert (made.overrides["cleanup.policy"], made.overrides["retention.ms"]) == ("delete", "-1"), "nothing is taken by age"
    assert "segment.ms" not in made.overrides and "queue.enabled" not in made.overrides
    again = ClusterImage()
    for record in scene.image.snapshot():
        again.replay(records.decode(records.encode(record)))
    assert again == scene.image


def test_a_ledger_is_made_once_for_a_topic_that_needs_it_later() -> None:
    scene = Scene(3)
    scene.create("t", 2, 3)
    scene.fence(2)
    assert scene.image.companion_of(topic_id(1)) is None
    made = scene.ask(MakeCompanion(topic_id(1)))
    assert isinstance(made, records.CompanionMade) and made.companion_id == companion_id(topic_id(1))
    assert both_are(scene, 3, (3,)), "whoever has all of the data has all of an empty ledger"
    version = scene.image.version
    assert scene.ask(MakeCompanion(topic_id(1))) == made and scene.image.version == version
    assert scene.refuses(MakeCompanion(topic_id(9))).code is ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_becomes_a_queue_and_keeps_its_ledger_when_it_is_none_any_more() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2)
    scene.ask(told("queue.enabled", "true"))
    made = ledger(scene)
    scene.ask(told("queue.enabled", "false"))
    assert ledger(scene) is made
    scene.ask(told("queue.enabled", "true"))
    assert ledger(scene) is made


def test_the_clusters_own_topics_have_no_ledgers() -> None:
    scene = a_queue(1, 2)
    scene.create("__consumer_offsets", 1)
    for name in ("__consumer_offsets", ledger(scene).name):
        assert scene.refuses(MakeCompanion(scene.image.topics[name].topic_id)).code is ErrorCode.INVALID_TOPIC_EXCEPTION
    queue = ConfigureTopic("__consumer_offsets", (Change("queue.enabled", Operation.SET, "true"),))
    assert scene.refuses(queue).code is ErrorCode.INVALID_CONFIG


def test_a_ledger_takes_room_too() -> None:
    scene = Scene(3, partitions_max=5)
    queue = {"queue.enabled": "true"}
    assert scene.refuses(CreateTopics((NewTopic("big", topic_id(9), 3, 1, queue),))).code is ErrorCode.POLICY_VIOLATION
    scene.create("t", 1, **QUEUE)
    grow = AddPartitions((MorePartitions("t", 3),))
    assert scene.refuses(grow).code is ErrorCode.POLICY_VIOLATION
    for name in ("u", "v"):
        scene.create(name, 2)
    scene.create("w", 2)
    assert scene.image.partition_count == 5
    assert scene.refuses(MakeCompanion(scene.image.topics["u"].topic_id)).code is ErrorCode.POLICY_VIOLATION
    switched_on = ConfigureTopic("u", (Change("queue.enabled", Operation.SET, "true"),))
    assert scene.refuses(switched_on).code is ErrorCode.POLICY_VIOLATION


def test_a_ledger_grows_with_its_queue() -> None:
    scene = a_queue(1, 2)
    scene.ask(AddPartitions((MorePartitions("t", 3, ((2, 3), (3, 1))),)))
    assert [state.replicas for state in ledger(scene).partitions] == [(1, 2), (2, 3), (3, 1)]
    assert scene.image.topics["t"].partitions == ledger(scene).partitions


def test_a_queue_is_never_compacted_from_either_side() -> None:
    scene = a_queue(1, 2)
    compact = ConfigureTopic("t", (Change("cleanup.policy", Operation.SET, "compact"),))
    assert scene.refuses(compact).code is ErrorCode.INVALID_CONFIG
    both = {"queue.enabled": "true", "cleanup.policy": "compact,delete"}
    assert scene.refuses(CreateTopics((NewTopic("u", topic_id(9), 1, 1, both),))).code is ErrorCode.INVALID_CONFIG
    scene.create("v", 1, **{"cleanup.policy": "compact"})
    queue = ConfigureTopic("v", (Change("queue.enabled", Operation.SET, "true"),))
    assert scene.refuses(queue).code is ErrorCode.INVALID_CONFIG
    assert not TopicConfig(cleanup_policy="compact", queue_enabled=True).is_compacted, "as a node's default may have it"


def test_a_fifo_queue_keeps_its_partitions() -> None:
    scene = a_queue(1, 2, queue_fifo="true")
    assert scene.refuses(AddPartitions((MorePartitions("t", 3),))).code is ErrorCode.INVALID_PARTITIONS


def test_a_fifo_queue_whose_ids_count_everywhere_has_one_partition() -> None:
    scene = a_queue(1, 2)
    fifo = {"queue.enabled": "true", "queue.fifo": "true"}
    refused = scene.refuses(CreateTopics((NewTopic("u", topic_id(9), 2, 1, fifo),)))
    assert refused.code is ErrorCode.INVALID_CONFIG and "queue.dedup.scope" in refused.reason
    scene.create("one", 1, **fifo)
    scene.ask(CreateTopics((NewTopic("many", topic_id(9), 2, 1, {**fifo, "queue.dedup.scope": "group"}),)))
    for name, value in (("queue.dedup.scope", "queue"), ("queue.dedup.scope", "")):
        change = Change(name, Operation.SET if value else Operation.DELETE, value)
        assert scene.refuses(ConfigureTopic("many", (change,))).code is ErrorCode.INVALID_CONFIG


def test_what_makes_a_queue_safe_holds_for_its_ledger() -> None:
    scene = a_queue(1, 2, 3, min_insync_replicas="3", flush="os")
    scene.fence(3)
    assert both_are(scene, 1, (1, 2), (3,))
    scene.ask(told("min.insync.replicas", "2"))
    assert ledger(scene).overrides["min.insync.replicas"] == "2"
    assert both_are(scene, 1, (1, 2)), "records are committed without node 3 from now on"
    scene.ask(told("min.insync.replicas", None))
    assert "min.insync.replicas" not in ledger(scene).overrides
    scene.ask(told("flush", "ack"))
    assert ledger(scene).overrides["flush"] == "ack"
    assert scene.image.early[ledger(scene).topic_id] == scene.image.early[topic_id(1)], "who acknowledged early until now, did so in both"


# Leading


@pytest.mark.invariant("controller.queue-ledger-change-atomic")
def test_both_get_the_next_leader_in_one_record() -> None:
    scene = a_queue(1, 2, 3)
    decision = scene.controller.decide(FenceNode(NodeId(1), scene.epoch(1)))
    (changed,) = [record for record in decision.records if isinstance(record, records.PartitionsChanged)]
    assert [(change.topic_id, change.leader) for change in changed.changes] == [(topic_id(1), 2), (ledger(scene).topic_id, 2)]


@pytest.mark.invariant("controller.queue-ledger-change-atomic")
@pytest.mark.parametrize("per_record", [1, 2, 3])
def test_no_record_ends_between_the_two(per_record: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafting, "CHANGES_PER_RECORD", per_record)
    scene = Scene(3)
    for name, is_queue in (("a", True), ("b", False), ("c", True), ("d", True)):
        scene.create(name, 1, 2, **(QUEUE if is_queue else {}))
    decision = scene.controller.decide(FenceNode(NodeId(1), scene.epoch(1)))
    cuts = [[change.topic_id for change in record.changes] for record in decision.records if isinstance(record, records.PartitionsChanged)]
    assert sum(map(len, cuts)) == 7
    for cut in cuts:
        for each in cut:
            assert all(other.topic_id in cut for other in scene.image.together(scene.image.topics_by_id[each]))


def test_only_who_has_everything_of_both_leads() -> None:
    scene = a_queue(1, 2, 3)
    scene.set_in_sync(1, 3, name="t")
    scene.set_in_sync(1, 3, 2, name=ledger(scene).name)
    assert shapes(scene) == [(1, (1, 3), ()), (1, (1, 3, 2), ())]
    scene.fence(1)
    assert shapes(scene) == [(3, (3,), ()), (3, (3, 2), ())], "node 2 comes first, and lacks something of the data"


def test_who_leaves_one_in_sync_set_leaves_both_and_joins_each_by_itself() -> None:
    scene = a_queue(1, 2, 3)
    scene.set_in_sync(1, 2, name=ledger(scene).name)
    assert both_are(scene, 1, (1, 2))
    scene.set_in_sync(1, 2, 3, name="t")
    assert shapes(scene) == [(1, (1, 2, 3), ()), (1, (1, 2), ())]


def test_a_change_that_leaves_the_other_as_it_was_does_not_disturb_it() -> None:
    scene = a_queue(1, 2, 3)
    wish = scene.in_sync_wish(1, 2, 3, name=ledger(scene).name)
    scene.set_in_sync(1, 2, 3, name="t")
    assert code_of(scene.ask(wish)) is ErrorCode.NONE, "it names a partition epoch that holds still"


def test_a_leader_whose_ledger_has_failed_leads_neither() -> None:
    scene = a_queue(1, 2, 3)
    assert code_of(scene.ask(scene.in_sync_wish(2, 3, name=ledger(scene).name))) is ErrorCode.NONE
    assert both_are(scene, 2, (2, 3))
    scene.set_in_sync(2, 3, 1, name="t")
    scene.set_in_sync(2, 1, name="t")
    assert shapes(scene) == [(2, (2, 1), ()), (2, (2,), ())]
    refusal = scene.refuses(scene.in_sync_wish(1, name="t"))
    assert refusal.code is ErrorCode.INELIGIBLE_REPLICA, "node 1 could not lead the ledger"


def test_a_pair_that_nobody_may_lead_is_led_by_the_first_that_has_both_again() -> None:
    scene = a_queue(1, 2)
    scene.set_in_sync(1, name="t")
    scene.set_in_sync(1, 2, name="t")
    scene.fence(1)
    assert shapes(scene) == [(NO_NODE, (2,), (1,)), (NO_NODE, (), (1,))], "node 2 lacks something of the ledger"
    scene.come_up(1)
    assert shapes(scene) == [(1, (1,), ()), (1, (1,), ())]


def test_who_may_have_lost_something_is_in_sync_in_neither() -> None:
    scene = a_queue(1, 2, flush="os")
    scene.set_in_sync(1, name="t")
    scene.set_in_sync(1, 2, name=ledger(scene).name)
    scene.come_up(2, was_stopped_cleanly=False)
    assert both_are(scene, 1, (1,))


def test_a_leader_that_is_back_at_once_begins_an_epoch_in_both() -> None:
    scene = a_queue(1)
    scene.come_up(1, was_stopped_cleanly=False)
    assert [scene.partition(name).leader_epoch for name in ("t", ledger(scene).name)] == [1, 1]
    assert both_are(scene, 1, (1,))


def test_a_node_that_stops_hands_over_both_or_keeps_both() -> None:
    scene = a_queue(1, 2, 3)
    scene.stop(1)
    assert both_are(scene, 2, (2, 3))
    scene = a_queue(1, 2)
    scene.set_in_sync(1, name="t")
    scene.set_in_sync(1, 2, name="t")
    scene.stop(1)
    assert shapes(scene) == [(1, (1, 2), ()), (1, (1,), ())], "nobody else could lead the ledger"


def test_leadership_is_given_back_for_both() -> None:
    scene = a_queue(1, 2)
    scene.fence(1)
    scene.unfence(1)
    scene.set_in_sync(2, 1, name="t")
    assert to_be_given_back(scene.image) == ()
    assert code_of(scene.elect(ElectionKind.PREFERRED)) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    scene.set_in_sync(2, 1, name=ledger(scene).name)
    assert to_be_given_back(scene.image) == (("t", 0),)
    (elected,) = scene.submit(ElectLeaders(ElectionKind.PREFERRED, None))
    assert isinstance(elected, LeaderElected) and elected.topic == "t"
    assert both_are(scene, 1, (2, 1))


def test_an_unclean_election_spares_the_data() -> None:
    scene = a_queue(1, 2, 3)
    scene.set_in_sync(1, name="t")
    scene.set_in_sync(1, 2, name=ledger(scene).name)
    scene.set_in_sync(1, 3, name="t")
    scene.fence(1)
    assert shapes(scene) == [(NO_NODE, (3,), (1,)), (NO_NODE, (2,), (1,))]
    elected = scene.elect(ElectionKind.UNCLEAN)
    assert isinstance(elected, LeaderElected) and elected.leader == 3 and elected.passed_over == (1,) and elected.may_have_lost
    assert both_are(scene, 3, (3,))


# Moving and ending


def test_a_reassignment_ends_when_both_are_there() -> None:
    scene = a_queue(1, 2, nodes=4)
    scene.reassign(3, 4)
    for name in ("t", ledger(scene).name):
        assert scene.partition(name).adding == (3, 4) and scene.partition(name).removing == (1, 2)
    scene.set_in_sync(1, 2, 3, 4, name="t")
    assert scene.partition().is_reassigning, "the ledger is not there yet"
    scene.set_in_sync(1, 2, 3, 4, name=ledger(scene).name)
    assert both_are(scene, 3, (3, 4)) and not scene.partition().is_reassigning


def test_a_reassignment_is_given_up_for_both() -> None:
    scene = a_queue(1, 2, nodes=4)
    scene.reassign(3, 4)
    scene.set_in_sync(1, 2, 3, name="t")
    scene.reassign()
    assert both_are(scene, 1, (1, 2))


def test_both_end_together_and_are_buried_each() -> None:
    scene = a_queue(1, 2)
    data, companion = topic_id(1), ledger(scene).topic_id
    decision = scene.controller.decide(DeleteTopic(data))
    assert [record.topic_id for record in decision.records if isinstance(record, records.TopicDeleted)] == [companion, data]
    scene.ask(DeleteTopic(data))
    assert not scene.image.topics and not scene.image.companions and not scene.image.companions_of
    assert set(scene.image.graveyard) == {data, companion}
    for n in (1, 2):
        scene.ask(BuryTopic(data, NodeId(n)))
    again = CreateTopics((NewTopic("t", data, 1, 1, {"queue.enabled": "true"}),))
    assert scene.refuses(again).code is ErrorCode.UNKNOWN_TOPIC_ID, "files of the first ledger may lie somewhere"


DIRECTLY: dict[str, Callable[[Topic], Command]] = {
    "create": lambda _: CreateTopics((NewTopic(COMPANION_PREFIX + "x", topic_id(7), 1, 1),)),
    "delete": lambda topic: DeleteTopic(topic.topic_id),
    "configure": lambda topic: ConfigureTopic(topic.name, (Change("retention.ms", Operation.SET, "1"),)),
    "grow": lambda topic: AddPartitions((MorePartitions(topic.name, 5),)),
    "reassign": lambda topic: ReassignPartitions((Reassignment(topic.name, 0, (NodeId(3),)),)),
}


@pytest.mark.parametrize("what", DIRECTLY)
def test_nobody_changes_a_ledger_by_itself(what: str) -> None:
    scene = a_queue(1, 2)
    assert scene.refuses(DIRECTLY[what](ledger(scene))).code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_nobody_elects_a_ledgers_leader_by_itself() -> None:
    scene = a_queue(1, 2)
    assert code_of(scene.elect(ElectionKind.UNCLEAN, ledger(scene).name)) is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_log_of_before_there_were_queues_is_read() -> None:
    image = ClusterImage()
    old = [
        b'\0\1\0\1{"cluster_id":"c"}',
        b'\0\2\0\2{"node_id":1,"node_epoch":1,"directory_id":"d","host":"h","port":1,"roles":["broker","controller"],"is_fenced":false}',
        b'\0\3\0\2{"name":"t","topic_id":"' + b"07" * 16 + b'","partitions":[{"replicas":[1],"in_sync":[1],"leader":1}],"overrides":{}}',
    ]
    for payload in old:
        image.replay(records.decode(payload))
    (topic,) = image.topics.values()
    assert image.companion_of(topic.topic_id) is None and image.together(topic) == (topic,) and image.group_configs == {}
