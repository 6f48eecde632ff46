"""Files that nobody needs any more are removed, and no others."""

from clusters.scene import BOTH, TOPIC, Scene

from penstock.cluster.commands import Command, DeleteTopic, Reassignment, ReassignPartitions
from penstock.cluster.replies import Reply
from penstock.vocabulary import NodeId, TopicId

FOREIGN = "0123456789abcdef" * 2
NOT_OURS = ("lost+found", FOREIGN.upper(), FOREIGN + "0")


def decide(scene: Scene, command: Command) -> list[Reply]:
    controller = scene.controller()
    done: list[Reply] = []
    node, process = scene.node(controller), scene.world.hosts[scene.host(controller)].process
    assert process is not None

    async def go() -> None:
        done.extend(await node.submit(command))

    scene.world.loop.call_soon(lambda: node.spawn(go()), context=process.context.copy())
    scene.until(lambda: done)
    return done


def plant(scene: Scene, node: int, name: str) -> None:
    disk = scene.world.host(scene.host(node)).disk
    disk.mkdir(f"topics/{name}/0")


def topics_on(scene: Scene, node: int) -> list[str]:
    return list(scene.world.hosts[scene.host(node)].disk.list("topics"))


def test_a_topic_that_was_moved_away_and_deleted_while_a_node_was_down_leaves_no_files_there():
    with Scene((BOTH, BOTH, BOTH, "broker")) as cluster:
        topic_id = cluster.create(min_insync_replicas=2)
        cluster.produce(b"a")
        state = cluster.cluster.state(TOPIC, 0)
        assert state is not None
        down = next(node for node in state.replicas if node not in (state.leader, cluster.controller()))
        spare = next(NodeId(node) for node in (1, 2, 3, 4) if node not in state.replicas)
        cluster.kill(down)
        cluster.run_for(3)
        decide(cluster, ReassignPartitions((Reassignment(TOPIC, 0, tuple(spare if node == down else node for node in state.replicas)),)))
        cluster.until(lambda: down not in cluster.cluster.state(TOPIC, 0).replicas)
        decide(cluster, DeleteTopic(TopicId(topic_id)))
        cluster.promised.clear()
        assert topics_on(cluster, down) == [topic_id.hex()]
        for name in NOT_OURS:
            plant(cluster, down, name)
        cluster.start(down)
        cluster.until_available()
        cluster.until(lambda: topic_id.hex() not in topics_on(cluster, down))
        assert topics_on(cluster, down) == sorted(NOT_OURS)
        cluster.check()


def test_a_node_that_the_cluster_did_not_know_before_leaves_alone_what_it_finds():
    """Somebody may have given it the directory of another cluster: that is the last moment to notice."""
    with Scene() as cluster:
        plant(cluster, 1, FOREIGN)
        assert cluster.node(1).membership.node_epoch == 1
        assert cluster.node(1).assignments._gone_topics() == []
        cluster.kill(1)
        cluster.start(1)
        cluster.until_available()
        cluster.until(lambda: topics_on(cluster, 1) == [])


def test_topics_that_are_there_survive_a_start():
    with Scene() as cluster:
        topic_id = cluster.create()
        cluster.produce(b"a")
        for node in (1, 2, 3):
            cluster.kill(node)
            cluster.start(node)
            cluster.until_available()
            cluster.run_for(3)
            assert topics_on(cluster, node) == [topic_id.hex()]
        cluster.check()
