"""A move that a command begins and watches, where the node that it asks lags behind the controller."""

from collections.abc import Callable, Coroutine
from typing import Any

from clusters.scene import CLIENT, PATIENCE, TOPIC, Scene, T

from penstock.cli.cluster_moves import move, take_back
from penstock.cli.cluster_picture import throttle_of
from penstock.cli.reassignment_plans import Plan
from penstock.peers.client import Client
from penstock.peers.connection import Address
from penstock.simulator.clusters.menu import KAFKA_PORT
from penstock.simulator.env import SimEnv
from penstock.vocabulary import TopicPartition

WHERE = TopicPartition(TOPIC, 0)
LATE_S = 1.0


def lagging(scene: Scene) -> tuple[int, Plan]:
    """A partition on two nodes of three; a node that hears late from the controller, and a plan that moves the partition."""
    scene.create(replicas=2)
    scene.produce(b"a")
    slow = next(node for node in (1, 2, 3) if node != scene.controller())
    scene.slow_link(scene.controller(), slow, LATE_S)
    state = scene.cluster.state(TOPIC, 0)
    assert state is not None
    (new,) = {1, 2, 3} - {int(node) for node in state.replicas}
    return slow, {WHERE: (new, int(state.replicas[0]))}


def asking(scene: Scene, node: int, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """What a command does that was given the address of this node."""

    async def conversation(env: SimEnv) -> T:
        async with Client(env, [Address(scene.host(node), KAFKA_PORT)], client_id=CLIENT, settings=PATIENCE) as client:
            await client.connect()
            return await work(client)

    return scene.world.call(CLIENT, conversation, 120.0)


def test_a_move_is_not_over_because_the_node_that_is_asked_has_not_heard_of_it() -> None:
    with Scene() as scene:
        slow, plan = lagging(scene)
        asking(scene, slow, lambda client: move(client, plan, throttle=1_000_000, is_watched=True))
        assert scene.in_sync() == set(plan[WHERE])
        assert scene.do(throttle_of) is None
        scene.slow_link(scene.controller(), slow, 0)
        scene.check()


def test_a_throttle_ends_with_a_move_that_is_taken_back_though_a_node_has_not_heard_of_that() -> None:
    with Scene(replica_fetch_bytes=1) as scene:
        slow, plan = lagging(scene)
        for _ in range(5):
            scene.produce(bytes(1_000))
        asking(scene, slow, lambda client: move(client, plan, throttle=1, is_watched=False))
        scene.run_for(5 * LATE_S)
        asking(scene, slow, lambda client: take_back(client, [WHERE]))
        assert scene.do(throttle_of) is None
        scene.slow_link(scene.controller(), slow, 0)
        scene.check()
