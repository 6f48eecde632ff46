"""Stories in which replicated logs have lost records before, each played on whole nodes step by step.

Seeds meet these seldom or never, because each needs several things in one order. Most are counterexamples from Kafka's improvement
proposals; the name of the proposal stands with the story.
"""

import pytest
from clusters.scene import BOTH, LEADER_ONLY, TOPIC, Scene, refused

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.simulator.workloads.line import LineLost
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

WHERE = TopicPartition(TOPIC, 0)
MORE_VOTERS = (BOTH, BOTH, BOTH, "controller", "controller")  # Two of the replicas may be down, and there is still somebody who decides.
pytestmark = pytest.mark.invariant("replication.acked-is-kept")


@pytest.mark.invariant("replication.last-replica-leads")
def test_the_last_replica_standing_keeps_what_was_acknowledged():
    """Both followers fall out, the leader alone acknowledges with min.insync 1, then loses its power.

    A follower that comes back first must not lead: it never had those records (KIP-966).
    """
    with Scene(MORE_VOTERS, replica_lag_ms=500) as cluster:
        cluster.create(min_insync_replicas=1)
        leader, followers = cluster.leads(), cluster.followers()
        cluster.produce(b"a")
        cluster.kill(*followers)
        cluster.until(lambda: cluster.in_sync() == {leader})
        promised = cluster.produce(b"b")
        cluster.power_cut(leader)
        cluster.start(*followers)
        cluster.run_for(30)
        assert cluster.leader() is None, "a replica without b leads"
        assert "LEADER_NOT_AVAILABLE" in refused(lambda: cluster.produce(b"c", within=3.0)) or cluster.leader() is None
        cluster.start(leader)
        cluster.until_available()
        assert cluster.read()[promised] == b"b"
        cluster.check()


def test_with_two_in_sync_replicas_demanded_one_alone_takes_nothing():
    """What is refused before it is appended is nowhere afterwards."""
    with Scene(MORE_VOTERS, replica_lag_ms=500) as cluster:
        cluster.create(min_insync_replicas=2)
        leader, followers = cluster.leads(), cluster.followers()
        cluster.produce(b"a")
        cluster.kill(*followers)
        cluster.until(lambda: cluster.in_sync() == {leader} or cluster.leader() is None)
        assert refused(lambda: cluster.produce(b"refused", within=3.0)) != "NONE"
        cluster.start(*followers)
        cluster.until_available()
        cluster.produce(b"b")
        assert list(cluster.read().values()) == [b"a", b"b"]
        cluster.check()


@pytest.mark.invariant("replication.old-leader-acks-nothing")
def test_a_leader_that_sleeps_wakes_as_nobody():
    """A leader is stopped for half a minute while requests wait at its door. Others lead meanwhile and acknowledge.

    When it wakes it must not acknowledge what waited as if no time had passed: its followers follow another.
    """
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        old = cluster.leads()
        cluster.produce(b"before")
        cluster.pause(old)
        waiting = [cluster.begin_at(old, b"stale-%d" % number) for number in range(3)]
        cluster.until(lambda: cluster.leader() not in (None, old))
        cluster.produce(b"meanwhile")
        cluster.run_for(30)
        cluster.resume(old)
        cluster.until(lambda: all(task.done() for task in waiting))
        for task in waiting:
            assert task.exception() is not None or task.result() != ErrorCode.NONE, "a leader of the past acknowledges"
        cluster.until_available()
        values = list(cluster.read().values())
        assert values == [b"before", b"meanwhile"]
        cluster.check()


@pytest.mark.invariant("replication.works-without-controller")
def test_without_anybody_who_decides_records_are_written_and_read():
    """The whole metadata quorum is stopped; leaders, followers and in-sync sets stay what they were."""
    with Scene(("controller",) * 3 + ("broker",) * 3) as cluster:
        cluster.create(min_insync_replicas=2)
        cluster.produce(b"before")
        cluster.kill(1, 2, 3)
        for number in range(20):
            cluster.produce(b"%d" % number)
            cluster.run_for(1)
        assert len(cluster.read()) == 21
        cluster.start(1, 2, 3)
        cluster.until_available()
        cluster.produce(b"after")
        cluster.check()


def test_without_anybody_who_decides_a_new_group_is_put_off_soon():
    """Its topic cannot be made now. Whoever waited for that on a connection would hold up all that is asked behind it."""

    async def find(client: Client) -> int:
        connection = await client.router.any_node(client.router.deadline(5.0))
        answer = await connection.call(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["new"]}, timeout_s=5.0)
        return int(answer.coordinators[0].error_code)

    with Scene(("controller", "controller", "controller", "broker", "broker")) as cluster:
        cluster.create(replicas=2)
        cluster.kill(1, 2, 3)
        cluster.run_for(5)
        began = cluster.world.loop.time()
        assert cluster.do(find) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.world.loop.time() < began + 2
        cluster.start(1, 2, 3)
        cluster.until_available()
        cluster.until(lambda: cluster.do(find) == ErrorCode.NONE)


@pytest.mark.invariant("replication.old-leader-acks-nothing")
def test_a_leader_that_only_the_controller_does_not_hear_gives_way():
    """Its followers and clients hear it still. Once another leads, it acknowledges nothing more, and clients find the other."""
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        old = next(node for node in (1, 2, 3) if node != cluster.controller())
        cluster.lead(old)
        cluster.produce(b"before")
        cluster.cut(old, cluster.controller())
        cluster.until(lambda: cluster.leader() not in (None, old))
        assert cluster.produce_at(old, b"stale") != ErrorCode.NONE
        cluster.produce(b"after")
        cluster.heal()
        cluster.until_available()
        assert list(cluster.read().values())[:2] == [b"before", b"after"]
        cluster.check()


@pytest.mark.invariant("replication.slow-follower-leaves")
def test_a_follower_that_is_slow_leaves_the_set_and_producers_go_on():
    """One disk takes seconds for each flush. Producers wait for it as long as it is in the set, and not longer."""
    with Scene(replica_lag_ms=1_000) as cluster:
        cluster.create(min_insync_replicas=2)
        cluster.produce(b"a")
        slow = cluster.followers()[0]
        cluster.slow_disk(slow, 30.0)
        cluster.produce(b"b", within=15.0)
        cluster.until(lambda: slow not in cluster.in_sync(), within=15.0)
        for number in range(10):
            began = cluster.world.now()
            cluster.produce(b"%d" % number)
            assert cluster.world.now() - began < 1.0, "producers wait for a replica that has left"
        cluster.slow_disk(slow, 0.0)
        cluster.until(lambda: slow in cluster.in_sync(), within=90.0)
        cluster.check()


@pytest.mark.parametrize("seed", range(4))
def test_a_follower_that_was_cut_off_comes_back_into_the_set_though_nothing_is_written(seed: int):
    """It has everything at once, before the controller lets it in: what it reports then is refused, and nothing new is there to report."""
    with Scene(seed=seed, session_timeout_ms=1_000, heartbeat_interval_ms=150, replica_lag_ms=2_000) as cluster:
        cluster.create(partitions=3, min_insync_replicas=2)
        for partition in range(3):
            cluster.produce(b"a", partition=partition)
        away = cluster.followers()[0]
        cluster.cut(away)
        cluster.until(lambda: all(away not in cluster.in_sync(partition=partition) for partition in range(3)))
        cluster.heal()
        cluster.until(lambda: all(cluster.in_sync(partition=partition) == {1, 2, 3} for partition in range(3)), within=20)
        cluster.check()


@pytest.mark.invariant("replication.metadata-images-agree")
def test_a_lost_voter_does_not_vote_with_an_empty_disk():
    """A voter comes back with an empty disk while the one that has everything is not heard (the third has not).

    If the empty disk's vote counted, the third would lead and forget what was decided.
    """
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        decides = cluster.controller()
        lags, loses = (node for node in (1, 2, 3) if node != decides)
        cluster.cut(lags)
        cluster.do(lambda client: client.create_topic("new", partitions=1, replication_factor=2, deadline_s=10.0))
        cluster.lose_disk(loses, is_told=False)
        cluster.cut(decides)
        cluster.world.network.mend(cluster.host(lags), cluster.host(loses))
        cluster.world.network.mend(cluster.host(loses), cluster.host(lags))
        cluster.start(loses)
        cluster.run_for(20)
        node = cluster.cluster.node(cluster.host(lags))
        assert node is not None and not node.quorum.is_leading, "an empty disk helped to elect one that lacks what was decided"
        cluster.heal()
        cluster.replace(loses)
        cluster.until(lambda: cluster.cluster.controller() is not None)
        assert "new" in cluster.do(lambda client: client.metadata(["new"])).topics[0].name
        cluster.check()


def test_a_replica_with_a_lost_disk_is_filled_again_before_it_counts():
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        for number in range(20):
            cluster.produce(b"%d" % number)
        lost = cluster.followers()[0]
        cluster.lose_disk(lost)
        cluster.until(lambda: lost not in cluster.in_sync())
        cluster.start(lost)
        cluster.until_available()
        partition = cluster.cluster.partition(cluster.host(lost), TOPIC)
        assert partition is not None and partition.log.end_offset >= 20
        cluster.check()


@pytest.mark.invariant("replication.truncate-by-epoch")
@pytest.mark.parametrize("change", range(1, 12))
def test_a_tail_that_nobody_else_has_is_cut_even_if_the_power_goes_in_the_middle(change: int):
    """A leader writes alone what is never acknowledged, another leads and writes in its place.

    The old one cuts its tail by epoch. Its power goes at each change that this makes to its disk, one after the other.
    """
    with Scene(seed=change) as cluster:
        cluster.create(min_insync_replicas=1, segment_bytes=1024)
        old = cluster.leads()
        cluster.produce(b"common")
        cluster.cut(old)
        for number in range(5):
            refused(lambda number=number: cluster.produce_at(old, b"alone-%d" % number * 100, acks=LEADER_ONLY))
        cluster.until(lambda: cluster.leader() not in (None, old))
        cluster.produce(b"instead")
        cluster.world.hosts[cluster.host(old)].disk.crash_at(change)
        cluster.heal()
        cluster.run_for(5)
        if cluster.world.has_ended(cluster.host(old)):
            cluster.start(old)
        cluster.check()
        assert list(cluster.read().values())[:2] == [b"common", b"instead"]


@pytest.mark.invariant("replication.end-offset-never-back")
def test_the_end_that_was_told_never_goes_back_though_the_new_leader_knows_less():
    """A follower learns of the watermark with its next fetch. It becomes leader before that (KIP-207)."""
    for seed in range(1, 6):
        with Scene(seed=seed, replica_wait_ms=500) as cluster:
            cluster.create(min_insync_replicas=2)
            ends = []
            for number in range(5):
                cluster.produce(b"%d" % number)
                ends.append(cluster.end_offset())
                leader = cluster.leads()
                cluster.kill(leader)
                ends.append(cluster.end_offset())
                cluster.start(leader)
                cluster.until_available()
            assert ends == sorted(ends)
            cluster.check()


@pytest.mark.invariant("replication.in-sync-has-committed")
def test_a_change_of_the_set_that_is_late_is_not_counted_on():
    """The leader asks to shrink the set, and does not hear what became of it. Until it does, it waits for both sets (KIP-497).

    Then it dies: whoever leads next has everything that was acknowledged.
    """
    for seed in range(1, 4):
        with Scene(seed=seed, replica_lag_ms=500) as cluster:
            cluster.create(min_insync_replicas=1)
            leader = next(node for node in (1, 2, 3) if node != cluster.controller())
            cluster.lead(leader)
            decides, other = cluster.controller(), next(node for node in (1, 2, 3) if node not in (leader, cluster.controller()))
            cluster.produce(b"a")
            cluster.cut(leader, other)
            cluster.cut(leader, decides, ways="in")  # What it asks arrives, and the answer does not.
            for number in range(5):
                refused(lambda number=number: cluster.produce(b"%d" % number, within=1.0))
            cluster.power_cut(leader)
            cluster.heal()
            cluster.run_for(10)
            cluster.check()


@pytest.mark.invariant("groups.coordinator-failover")
def test_groups_go_on_with_another_coordinator():
    """Committed offsets are there, and members find the node that coordinates now."""
    with Scene(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=0) as cluster:
        cluster.create()
        for number in range(10):
            cluster.produce(b"%d" % number)
        cluster.do(lambda client: client.commit_offsets("g", {WHERE: 7}))
        cluster.until_available()
        for _ in range(3):
            coordinator = cluster.leads("__consumer_offsets")
            cluster.kill(coordinator)
            assert cluster.do(lambda client: client.committed_offsets("g"))[WHERE].offset == 7
            cluster.start(coordinator)
            cluster.until_available()
        cluster.do(lambda client: client.commit_offsets("g", {WHERE: 9}))
        cluster.kill(1, 2, 3)
        cluster.start(1, 2, 3)
        cluster.until_available()
        assert cluster.do(lambda client: client.committed_offsets("g"))[WHERE].offset == 9
        cluster.check()


@pytest.mark.invariant("replication.slow-follower-leaves")
def test_a_follower_that_missed_what_retention_took_begins_again_where_the_leader_does():
    with Scene(retention_check_ms=200) as cluster:
        cluster.create(min_insync_replicas=1, segment_bytes=1024, retention_bytes=3000)
        late = cluster.followers()[0]
        cluster.produce(b"first")
        cluster.kill(late)
        for number in range(60):
            cluster.produce(b"%d" % number * 100)
        cluster.promised.clear()  # Retention may take any of it.
        leader = cluster.cluster.partition(cluster.host(cluster.leads()), TOPIC)
        assert leader is not None
        cluster.until(lambda: leader.log.start_offset > 10)
        cluster.start(late)
        cluster.until_available()
        replica = cluster.cluster.partition(cluster.host(late), TOPIC)
        assert replica is not None and replica.log.start_offset > 1
        last = cluster.produce(b"last")
        cluster.until(lambda: replica.log.end_offset > last)
        cluster.check()


def test_power_that_goes_everywhere_at_once_takes_nothing_that_was_acknowledged():
    for seed in range(1, 4):
        with Scene(seed=seed) as cluster:
            cluster.create(min_insync_replicas=2)
            for number in range(10):
                cluster.produce(b"%d" % number)
            cluster.power_cut(1, 2, 3)
            cluster.start(1, 2, 3)
            cluster.check()
            assert len(cluster.read()) == 10


def test_a_rolling_restart_stops_nobody_for_long():
    """Leadership moves before a node that stops in order takes its leave."""
    with Scene() as cluster:
        cluster.create(partitions=3, min_insync_replicas=2)
        for node in (1, 2, 3):
            cluster.produce(b"before %d" % node, partition=node - 1)
            cluster.stop(node)
            began = cluster.world.now()
            for partition in range(3):
                cluster.produce(b"while %d" % node, partition=partition)
            assert cluster.world.now() - began < 3.0
            cluster.start(node)
            cluster.until_available()
        cluster.check()


def test_an_unclean_election_is_an_operators_word_and_says_what_may_be_lost():
    """Two replicas, the one that was in sync alone is lost with its disk. The other leads only when it is told to."""
    with Scene(MORE_VOTERS, replica_lag_ms=500) as cluster:
        cluster.create(replicas=2, min_insync_replicas=1)
        leader, (other,) = cluster.leads(), cluster.followers()
        cluster.produce(b"a")
        cluster.kill(other)
        cluster.until(lambda: cluster.in_sync() == {leader})
        cluster.produce(b"b")
        cluster.lose_disk(leader)
        cluster.start(other)
        cluster.run_for(10)
        assert cluster.leader() is None
        assert f"acknowledged records that only node {leader} had are lost" in cluster.elect_unclean()
        cluster.until(lambda: cluster.leader() == other)
        assert cluster.read() == {0: b"a"}
        cluster.promised = {WHERE: {0: b"a"}}
        cluster.start(leader)
        cluster.check()


@pytest.mark.invariant("replication.last-replica-leads")
def test_an_empty_disk_does_not_lead_though_it_bears_the_name_of_one_that_had_everything():
    """The replica that was in sync alone loses its disk and comes back. Neither it nor the other, which lacks a record, may lead."""
    with Scene(MORE_VOTERS, replica_lag_ms=500) as cluster:
        cluster.create(replicas=2, min_insync_replicas=1)
        leader, (other,) = cluster.leads(), cluster.followers()
        cluster.produce(b"a")
        cluster.kill(other)
        cluster.until(lambda: cluster.in_sync() == {leader})
        cluster.produce(b"b")
        cluster.lose_disk(leader)
        cluster.start(leader)
        cluster.run_for(15)
        assert cluster.leader() is None, "an empty disk leads"
        cluster.start(other)
        cluster.run_for(15)
        assert cluster.leader() is None, "a replica without b leads"
        assert "lost" in cluster.elect_unclean() or cluster.leader() == other
        cluster.until(lambda: cluster.leader() == other)
        cluster.promised = {WHERE: {0: b"a"}}
        cluster.check()


def test_a_leader_whose_disk_fails_hands_over():
    """Its log takes no more writes: it asks to be left out of the set, another leads, and clients find that one."""
    with Scene() as cluster:
        cluster.create(min_insync_replicas=2)
        cluster.produce(b"before")
        old = cluster.leads()
        cluster.cluster.processes[cluster.host(old)].offline_patience_seconds = 60.0  # Its operator sleeps.
        cluster.world.hosts[cluster.host(old)].disk.fail_next_flush_where(lambda path: path.startswith("topics/"))
        cluster.produce(b"after")
        assert cluster.leader() not in (None, old)
        cluster.kill(old)
        cluster.start(old)
        cluster.check()


def test_nobody_but_an_operator_elects_uncleanly():
    with Scene(MORE_VOTERS, replica_lag_ms=500) as cluster:
        cluster.create(replicas=2, min_insync_replicas=1)
        leader, (other,) = cluster.leads(), cluster.followers()
        cluster.kill(other)
        cluster.until(lambda: cluster.in_sync() == {leader})
        cluster.produce(b"b")
        cluster.power_cut(leader)
        cluster.start(other)
        cluster.run_for(20)
        with pytest.raises((PeerFailure, LineLost)):
            cluster.produce(b"c", within=2.0)
        cluster.start(leader)
        cluster.check()
