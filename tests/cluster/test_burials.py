"""A deleted topic is owed a burial by every node that held it."""

import pytest
from cluster.scene import Scene, topic_id

from penstock.cluster.commands import BuryTopic, CreateTopics, DeleteTopic, NewTopic, UnregisterNode
from penstock.errors import ErrorCode
from penstock.vocabulary import NodeId

pytestmark = pytest.mark.invariant("controller.decisions-have-no-side-effect")


def test_a_topic_is_forgotten_when_every_node_that_held_it_has_buried_it() -> None:
    scene = Scene(3)
    scene.create("t", 1, 3)
    scene.submit(DeleteTopic(topic_id(1)))
    assert scene.image.graveyard == {topic_id(1): (1, 3)}
    scene.submit(BuryTopic(topic_id(1), NodeId(3)))
    assert scene.image.graveyard == {topic_id(1): (1,)}
    version = scene.image.version
    scene.submit(BuryTopic(topic_id(1), NodeId(3)))
    scene.submit(BuryTopic(topic_id(1), NodeId(2)))
    assert scene.image.version == version, "what is not owed stores nothing"
    scene.submit(BuryTopic(topic_id(1), NodeId(1)))
    assert scene.image.graveyard == {}


def test_who_is_being_added_or_removed_may_have_files_too() -> None:
    scene = Scene(3)
    scene.create("t", 1)
    scene.reassign(3)
    scene.submit(DeleteTopic(topic_id(1)))
    assert scene.image.graveyard == {topic_id(1): (1, 3)}
    assert scene.image.unsettled == {} and scene.image.loads == {} and scene.image.partition_count == 0


def test_a_node_that_is_taken_off_the_list_owes_nothing() -> None:
    scene = Scene(2)
    scene.create("t", 2)
    scene.submit(DeleteTopic(topic_id(1)))
    scene.fence(2)
    scene.submit(UnregisterNode(NodeId(2)))
    assert scene.image.graveyard == {}


def test_an_order_that_comes_late_makes_no_topic_under_the_id_of_one_that_waits_for_its_burial() -> None:
    """Its asker asks again, having heard no answer; meanwhile somebody deleted what the first try had made."""
    scene = Scene(2)
    wish = CreateTopics((NewTopic("t", topic_id(1), 1, 2),))
    scene.ask(wish)
    scene.submit(DeleteTopic(topic_id(1)))
    scene.submit(BuryTopic(topic_id(1), NodeId(1)))
    assert scene.refuses(wish).code is ErrorCode.UNKNOWN_TOPIC_ID
    assert scene.image.topics == {}
    scene.submit(BuryTopic(topic_id(1), NodeId(2)))
    scene.ask(wish)
    assert list(scene.image.topics) == ["t"], "nobody has anything of the first any more"
