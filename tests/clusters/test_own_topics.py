"""The cluster's own topics: they have all their replicas though a node is away when they are made, and transactions stand on two disks."""

import pytest
from clusters.scene import BOTH, TOPIC, Scene
from clusters.test_transactions import ONE, Story, committed_end, coordinator, write_and_commit

from penstock.broker.transactions import TRANSACTION_STATE
from penstock.simulator.loop import Stuck

pytestmark = pytest.mark.invariant("transactions.outcome-on-two-disks", "controller.internal-topics-replicated")

WITH_SPARE_CONTROLLERS = (BOTH, BOTH, BOTH, "controller", "controller")  # The cluster decides though two brokers are gone.


def replicas(scene: Scene, topic: str) -> set[int]:
    state = scene.cluster.state(topic, 0)
    assert state is not None
    return {int(node) for node in state.replicas}


def test_a_node_that_is_away_when_a_topic_of_the_cluster_is_made_holds_it_too() -> None:
    with Scene(**ONE) as scene:
        scene.create(partitions=2)
        scene.kill(3)
        scene.until(lambda: scene.in_sync() == {1, 2})
        Story(scene, write_and_commit).to_its_end()
        assert (replicas(scene, TRANSACTION_STATE), scene.in_sync(TRANSACTION_STATE)) == ({1, 2, 3}, {1, 2})
        scene.start(3)
        scene.until(lambda: scene.in_sync(TRANSACTION_STATE) == {1, 2, 3})
        scene.check()


def test_a_commit_is_not_told_while_one_disk_alone_would_have_it() -> None:
    with Scene(WITH_SPARE_CONTROLLERS, **ONE) as scene:
        scene.create(partitions=2)
        story = Story(scene, write_and_commit, deadline_s=50.0)
        story.come_to(1)
        alone = coordinator(scene)
        others = [node for node in (1, 2, 3) if node != alone]
        scene.kill(*others)
        scene.until(lambda: scene.in_sync(TRANSACTION_STATE) == {alone})
        story.go_on()
        with pytest.raises(Stuck):
            scene.until(story.task.done, within=15.0)
        scene.start(*others)
        story.to_its_end()
        scene.until(lambda: [committed_end(scene, partition) for partition in (0, 1)] == [2, 2])


def test_a_voter_that_has_never_been_up_is_waited_for() -> None:
    """Nobody knows yet whether it is to hold partitions. With two replicas the topic would have two for ever."""
    with Scene(late=(3,), **ONE) as scene:
        scene.do(lambda client: client.create_topic(TOPIC, partitions=2, replication_factor=2))
        story = Story(scene, write_and_commit)
        scene.run_for(5.0)
        assert scene.cluster.state(TRANSACTION_STATE, 0) is None
        scene.start(3)
        story.to_its_end()
        assert replicas(scene, TRANSACTION_STATE) == {1, 2, 3}
