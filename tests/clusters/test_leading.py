"""`penstock cluster lead` in virtual time: an in-sync replica leads, with the ledger of its queue; others are refused with the reason."""

import pytest
from clusters.scene import TOPIC, Scene
from clusters.test_moves import reassign

from penstock.cli.cluster_lead import make_leader
from penstock.cli.faults import Fault
from penstock.cluster.topic_names import companion_name
from penstock.vocabulary import NodeId, TopicId, TopicPartition

WHERE = TopicPartition(TOPIC, 0)
FOUR = ("broker,controller", "broker,controller", "broker,controller", "broker")


def lead(scene: Scene, node: int, where: TopicPartition = WHERE) -> None:
    scene.do(lambda client: make_leader(client, node, where))


def replicas(scene: Scene, topic: str = TOPIC) -> list[int]:
    state = scene.cluster.state(topic, 0)
    assert state is not None
    return [int(node) for node in state.replicas]


def created(scene: Scene, *nodes: int, **config: str) -> bytes:
    view = scene.do(lambda client: client.create_topic(TOPIC, assignments=[nodes], config=config))
    scene.until_available()
    scene.produce(b"a")
    return bytes(view.topic_id)


def test_a_follower_in_sync_leads_and_is_preferred_from_then_on(capsys: pytest.CaptureFixture[str]) -> None:
    with Scene() as scene:
        created(scene, 1, 2, 3)
        lead(scene, 3)
        assert (scene.leads(), replicas(scene)) == (3, [3, 1, 2])
        lead(scene, 3)
        assert capsys.readouterr().out == "node 3 leads orders-0\nnode 3 leads orders-0 already\n"
        scene.check()


def test_the_preferred_leader_is_elected_where_another_leads_for_the_time_being() -> None:
    with Scene(auto_leader_rebalance=False) as scene:
        created(scene, 1, 2, 3)
        scene.kill(1)
        scene.until(lambda: scene.leader() not in (None, 1))
        scene.start(1)
        scene.until(lambda: 1 in scene.in_sync())
        assert scene.leads() != 1
        lead(scene, 1)
        assert (scene.leads(), replicas(scene)) == (1, [1, 2, 3])


def test_the_ledger_of_a_queue_goes_along() -> None:
    with Scene() as scene:
        ledger = companion_name(TopicId(created(scene, 1, 2, 3, **{"queue.enabled": "true"})))
        scene.until(lambda: scene.in_sync(ledger) == {1, 2, 3})
        lead(scene, 2)
        assert scene.leads() == scene.leads(ledger) == 2
        assert replicas(scene, ledger) == [2, 1, 3]
        with pytest.raises(Fault, match="ledgers of queues") as told:
            lead(scene, 1, TopicPartition(ledger, 0))
        assert told.value.next_step == f"name the queue's topic: --topic {TOPIC}"


def test_one_that_could_not_lead_is_refused_with_the_reason() -> None:
    with Scene(FOUR, replica_fetch_bytes=1, replication_throttle=1) as scene:
        created(scene, 1, 2)
        for _ in range(5):
            scene.produce(bytes(500))
        with pytest.raises(Fault, match="node 3 is no replica of orders-0: those are 1, 2"):
            lead(scene, 3)
        with pytest.raises(Fault, match="topic 'orders' has no partition 7"):
            lead(scene, 1, TopicPartition(TOPIC, 7))
        with pytest.raises(Fault, match="there is no topic 'none'"):
            lead(scene, 1, TopicPartition("none", 0))
        reassign(scene, [1, 4])
        with pytest.raises(Fault, match="orders-0 on node 4 is not in sync: in sync are 1, 2"):
            lead(scene, 4)
        with pytest.raises(Fault, match="orders-0 is being moved away from node 2"):
            lead(scene, 2)
        scene.kill(4)
        scene.until(lambda: not scene.node(scene.controller()).image.nodes[NodeId(4)].is_live)
        with pytest.raises(Fault, match="node 4 is not up"):
            lead(scene, 4)
        assert scene.leads() == 1 and replicas(scene) == [1, 4, 2]


def test_a_move_under_way_goes_on_with_the_replicas_that_it_is_to_have() -> None:
    with Scene(FOUR, replica_fetch_bytes=1, replication_throttle=500) as scene:
        created(scene, 1, 2)
        for _ in range(5):
            scene.produce(bytes(500))
        reassign(scene, [1, 2, 4])
        lead(scene, 2)
        assert scene.leads() == 2
        scene.until(lambda: scene.in_sync() == {1, 2, 4})
        assert replicas(scene) == [2, 1, 4]
        scene.check()
