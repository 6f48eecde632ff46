"""Groups of the new protocol in a cluster: another node takes over a group, and its members notice nothing but a late answer."""

import pytest
from clusters.scene import TOPIC, Scene

from penstock.peers.client import Client
from penstock.peers.consumer_member import Change, ConsumerMember, Subscription

PARTITIONS = 4


def members(scene: Scene, count: int) -> list[ConsumerMember]:
    async def make(client: Client) -> list[ConsumerMember]:
        return [ConsumerMember(client, "g", Subscription(topics=[TOPIC], rebalance_timeout_ms=20_000)) for _ in range(count)]

    return scene.do(make)


def beat(scene: Scene, member: ConsumerMember) -> Change:
    return scene.do(lambda _: member.beat())


def settle(scene: Scene, *crowd: ConsumerMember) -> None:
    """Everybody beats, as often as it is told to, until nothing is moved any more."""
    for _ in range(12):
        changes = [beat(scene, member) for member in crowd]
        scene.run_for(1.1)
        epochs = {member.epoch for member in crowd}
        if not any(changes) and len(epochs) == 1 and sum(len(member.owned) for member in crowd) == PARTITIONS:
            return
    raise AssertionError(f"they don't settle: {[(member.epoch, member.owned) for member in crowd]}")


@pytest.mark.parametrize("dies_by", ["kill", "power_cut"])
def test_a_group_goes_on_with_the_node_that_takes_over(dies_by: str) -> None:
    with Scene(offsets_topic_num_partitions=1) as scene:
        scene.create(partitions=PARTITIONS)
        one, two = members(scene, 2)
        settle(scene, one, two)
        had, epochs = (one.owned, two.owned), (one.epoch, two.epoch)
        coordinator = scene.leads("__consumer_offsets")
        getattr(scene, dies_by)(coordinator)
        scene.until(lambda: scene.leader("__consumer_offsets") not in (None, coordinator))
        for _ in range(3):
            assert not beat(scene, one) and not beat(scene, two), "nobody gives up anything, nobody gets anything"
            scene.run_for(5)
        assert ((one.owned, two.owned), (one.epoch, two.epoch)) == (had, epochs)
        scene.start(coordinator)
        scene.until_available()


def test_a_rebalance_that_a_failover_cuts_in_two_is_finished_by_the_next_coordinator() -> None:
    with Scene(offsets_topic_num_partitions=1) as scene:
        scene.create(partitions=PARTITIONS)
        one, two = members(scene, 2)
        settle(scene, one)
        assert len(one.owned) == PARTITIONS
        assert not beat(scene, two).added, "the other has everything still"
        scene.run_for(1.1)
        assert len(beat(scene, one).revoked) == 2
        coordinator = scene.leads("__consumer_offsets")
        scene.kill(coordinator)
        scene.until(lambda: scene.leader("__consumer_offsets") not in (None, coordinator))
        settle(scene, one, two)
        assert len(one.owned) == len(two.owned) == 2
        assert not set(one.owned) & set(two.owned)
        scene.start(coordinator)
        scene.until_available()


def test_a_member_that_was_silent_through_a_failover_has_a_whole_session_with_the_next_coordinator() -> None:
    with Scene(offsets_topic_num_partitions=1, group_consumer_session_timeout_ms=10_000) as scene:
        scene.create(partitions=PARTITIONS)
        one, two = members(scene, 2)
        settle(scene, one, two)
        scene.run_for(7)
        coordinator = scene.leads("__consumer_offsets")
        scene.kill(coordinator)
        scene.until(lambda: scene.leader("__consumer_offsets") not in (None, coordinator))
        scene.run_for(5)
        assert not beat(scene, one) and not beat(scene, two)
        scene.start(coordinator)
        scene.until_available()
