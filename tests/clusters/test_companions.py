"""A queue and its ledger in a cluster of nodes: whatever befalls them, they lie together and are led by one node."""

import pytest
from clusters.scene import TOPIC, Scene
from clusters.test_moves import files_of, reassign

from penstock.cluster.companions import companion_id
from penstock.cluster.topic_names import companion_name
from penstock.vocabulary import TopicId

pytestmark = pytest.mark.invariant("controller.queue-ledger-same-leader", "controller.queue-ledger-change-atomic")


class Pair:
    def __init__(self, cluster: Scene, **config: object) -> None:
        self.cluster = cluster
        self.topic_id = TopicId(cluster.create(queue_enabled="true", **config))
        self.ledger = companion_name(self.topic_id)

    def together(self) -> bool:
        """On every node, at every moment: asked between any two events."""
        for host in self.cluster.cluster.hosts:
            node = self.cluster.cluster.node(host)
            if node is None or TOPIC not in node.image.topics or self.ledger not in node.image.topics:
                continue
            data, ledger = (node.image.topics[name].partitions[0] for name in (TOPIC, self.ledger))
            assert (data.leader, data.replicas) == (ledger.leader, ledger.replicas), f"{host}: {data} and {ledger}"
        return True

    def until_led_by_another(self, than: int) -> int:
        self.cluster.until(lambda: self.together() and self.cluster.leader() not in (None, than))
        return self.cluster.leads()

    def until_full(self) -> None:
        self.cluster.until(lambda: self.together() and self.cluster.in_sync() == self.cluster.in_sync(self.ledger) == {1, 2, 3})


def test_leaders_die_one_after_another_and_nothing_is_stuck() -> None:
    with Scene() as cluster:
        pair = Pair(cluster, min_insync_replicas=2)
        for number in range(4):
            cluster.produce(b"%d" % number)
            leader = cluster.leads()
            cluster.kill(leader) if number % 2 else cluster.power_cut(leader)
            assert pair.until_led_by_another(leader) == cluster.leads(pair.ledger)
            cluster.produce(b"meanwhile")
            cluster.start(leader)
            pair.until_full()
        node = cluster.node(cluster.leads())
        for name in (TOPIC, pair.ledger):
            partition = node.partitions.find(name, 0)
            assert partition is not None and partition.leader is not None, f"the node leads {name}, and knows it"
        cluster.check()


def test_all_nodes_go_down_at_once_and_whoever_is_back_first_leads_both() -> None:
    with Scene() as cluster:
        pair = Pair(cluster, min_insync_replicas=1)
        cluster.produce(b"a")
        cluster.power_cut(1, 2, 3)
        cluster.start(2, 3)
        cluster.until(lambda: pair.together() and cluster.leader() in (2, 3))
        cluster.produce(b"b")
        cluster.check()
        pair.until_full()


def test_a_slow_ledger_takes_its_node_out_of_both_sets() -> None:
    with Scene(replica_lag_ms=1_000) as cluster:
        pair = Pair(cluster)
        slow = next(node for node in cluster.followers() if node != cluster.controller())
        cluster.pause(slow)
        cluster.produce(b"a", within=30.0)
        cluster.until(lambda: pair.together() and slow not in cluster.in_sync() | cluster.in_sync(pair.ledger))
        cluster.resume(slow)
        pair.until_full()
        cluster.check()


def test_a_queue_that_is_moved_takes_its_ledger_along_and_leaves_no_files() -> None:
    with Scene() as cluster:
        topic_id = cluster.create(replicas=2, queue_enabled="true")
        ledger_id = companion_id(TopicId(topic_id))
        ledger, state = companion_name(TopicId(topic_id)), cluster.cluster.state(TOPIC, 0)
        assert state is not None
        old, new = [int(node) for node in state.replicas], next(node for node in (1, 2, 3) if node not in state.replicas)
        cluster.produce(b"a")
        assert files_of(cluster, old[0], ledger_id), "its log lies where the data do"
        reassign(cluster, [old[1], new])
        cluster.until(lambda: cluster.in_sync() == cluster.in_sync(ledger) == {old[1], new})
        cluster.until(lambda: not files_of(cluster, old[0], topic_id) and not files_of(cluster, old[0], ledger_id))
        cluster.do(lambda client: client.delete_topic(TOPIC))
        cluster.promised.clear()
        cluster.until(lambda: not any(files_of(cluster, node, each) for node in (1, 2, 3) for each in (topic_id, ledger_id)))
        cluster.check()
