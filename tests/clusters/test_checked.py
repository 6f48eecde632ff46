"""`penstock cluster status` asks nodes about their disks and damaged copies, in virtual time."""

from clusters.scene import CLIENT, TOPIC, Scene
from clusters.test_damaged_copies import harm, written

from penstock.cli.cluster_checks import Checks, check
from penstock.cli.cluster_picture import take_picture
from penstock.peers.client import Client
from penstock.vocabulary import TopicPartition


def checked(scene: Scene) -> Checks:
    async def conversation(client: Client) -> Checks:
        return await check(client, await take_picture(client))

    return scene.do(conversation)


def test_a_damaged_only_copy_is_a_trouble_until_it_is_gone() -> None:
    with Scene(("controller", "broker")) as scene:
        topic_id = written(scene, replicas=1)
        assert checked(scene).troubles() == []
        scene.kill(2)
        harm(scene, 2, topic_id, "a missing directory")
        scene.start(2)
        scene.until(lambda: scene.cluster.serves(scene.host(2)))
        found = checked(scene)
        assert [(each.where, each.node) for each in found.damaged()] == [(TopicPartition(TOPIC, 0), 2)]
        assert found.troubles()[0].startswith("damaged copies: orders-0 on node 2; ")
        scene.do(lambda client: client.delete_topic(TOPIC))
        scene.until(lambda: scene.node(2).damaged_copies.count == 0)
        assert checked(scene).troubles() == []


def test_the_space_on_each_disk_is_told_and_what_a_node_needs_of_it() -> None:
    with Scene(disk_free_bytes_min=1 << 20) as scene:
        for node, free in ((1, 1 << 30), (2, 1 << 19)):
            disk = scene.world.hosts[scene.host(node)].disk
            disk.capacity_bytes -= disk.free_bytes() - free
        found = checked(scene)
        assert set(found.disks.told) == {1, 2, 3} and found.disks.told[2].total_bytes > 0
        (trouble,) = found.troubles()
        assert trouble.startswith("node 2 has 512.0 KiB free, less than disk.free.bytes.min (1.0 MiB): ")


def test_a_node_that_is_taken_for_up_and_does_not_answer_costs_no_waiting() -> None:
    """No controller misses it, because there is none."""
    with Scene() as scene:
        scene.create()
        scene.do(take_picture)
        scene.kill(1, 2)
        scene.run_for(1.0)
        picture = scene.do(take_picture)
        asked_at = scene.world.hosts[CLIENT].env.now()  # type: ignore[union-attr]
        found = scene.do(lambda client: check(client, picture))
        assert set(found.disks.silent) == {1, 2}
        assert scene.world.hosts[CLIENT].env.now() - asked_at < 1.5  # type: ignore[union-attr]
