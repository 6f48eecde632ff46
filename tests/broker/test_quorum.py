"""The metadata quorum on simulated disks: who may decide, what is answered when, and what survives."""

import asyncio

import pytest
from broker.assembly import Actor, Assembly, worlds

from penstock.broker.quorum import NotLeading, OrderRefused
from penstock.cluster import records
from penstock.consensus.effects import Reason
from penstock.consensus.voters import Voters
from penstock.simulator.platter import Loss

# One node


def test_a_quorum_of_one_leads_at_once_and_decides() -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        alone.start_all()
        world.run_until(lambda: alone[1].quorum is not None and alone[1].living.is_leading, 0.1)
        assert [alone.take_block() for _ in range(3)] == [0, 1000, 2000]
        assert (alone[1].living.leader, alone[1].living.term) == (1, 1)
        alone.settle()


@pytest.mark.parametrize("end", ["stop", "kill", "power cut"])
def test_what_was_decided_is_there_in_the_next_life(end: str) -> None:
    with worlds() as world:
        alone = Assembly(world, 1)
        for life in range(1, 5):
            alone.start_all()
            alone.take_blocks(2)
            assert (alone[1].living.term, alone[1].living.image.next_producer_id) == (life, 2_000 * life)
            {"stop": alone.stop, "kill": alone.kill, "power cut": alone.power_cut}[end](1)
        alone.start_all()
        alone.settle()


# Three


def test_three_nodes_elect_one_that_decides_and_the_others_follow() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(5)
        three.settle()
        assert sum(three.is_leading(actor) for actor in three.actors.values()) == 1
        assert {actor.living.leader for actor in three.actors.values()} == {three.leader()}


def test_a_node_that_does_not_lead_says_who_does() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        leader = three.leader()
        world.run_for(1)
        other = leader % 3 + 1
        asker = three.ask_soon(other)
        world.run_for(1)
        assert three.refused == [asker]
        assert three[other].living.leader == leader
        three.settle()


@pytest.mark.parametrize("loss", [Loss.ALL, Loss.NONE])
def test_when_the_leader_dies_another_goes_on_with_all_that_was_granted(loss: Loss) -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        for _ in range(4):
            three.take_blocks(3)
            dead = three.leader()
            three.power_cut(dead, loss)
            three.take_blocks(3)
            three.start(dead)
        three.settle()
        assert len(three.blocks) >= 25


@pytest.mark.invariant("consensus.unknown-not-refused")
def test_a_leader_that_is_cut_off_grants_nothing_and_learns_that_nobody_knows() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_block()
        alone = three.leader()
        three.isolate(alone)
        asker = three.ask_soon(alone)
        world.run_for(3)
        assert three.unknown == [asker]
        assert not three[alone].living.is_leading
        assert three.leader() != alone
        three.take_block()
        three.heal()
        three.settle()


def test_without_a_majority_nothing_is_granted_and_with_it_again_all_goes_on() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        leader = three.leader()
        others = [number for number in three.actors if number != leader]
        for other in others:
            three.kill(other)
        asker = three.ask_soon(leader)
        world.run_for(5)
        assert asker not in three.granted
        three.start(others[0])
        three.settle()


def test_messages_that_are_lost_delay_and_nothing_else() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.loss, three.delay_seconds = 0.2, (0.001, 0.06)
        three.start_all()
        for number in range(30):
            three.ask_soon(number % 3 + 1)
            world.run_for(0.2)
        three.settle(120)


# Replay


def test_a_slow_replay_holds_up_no_election() -> None:
    with worlds() as world:
        three = Assembly(world)

        async def slowly(actor: Actor, record: records.Record) -> None:
            await asyncio.sleep(0.7)  # Much longer than an election time-out.

        three.start_all()
        three.take_block()
        three.on_replayed = slowly
        leader = three.leader()
        term = three[leader].living.term
        for _ in range(4):
            three.ask_soon(leader)
        world.run_for(5)
        assert len(three.granted) == 5
        assert three[leader].living.term == term, "nobody lost patience with it"
        three.settle()


@pytest.mark.invariant("consensus.decide-after-replay")
def test_a_new_leader_decides_only_when_it_has_replayed_all_that_was_decided_before() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_block()
        leader = three.leader()
        heir = three[leader % 3 + 1]
        gate = asyncio.Event()

        async def held(actor: Actor, record: records.Record) -> None:
            if actor is heir:
                await gate.wait()

        three.on_replayed = held
        three.take_blocks(4)
        assert world.call(three[leader].host, lambda env: three[leader].living.transfer(heir.node))
        world.run_until(lambda: heir.living.committed_end > three[leader].living.applied_end, 5)
        assert heir.living.leader == heir.node, "by its log it leads"
        asker = three.ask_soon(int(heir.node))
        world.run_for(1)
        assert three.refused == [asker] and not heir.living.is_leading
        gate.set()
        assert three.take_block() == 5_000
        three.settle()


def test_one_decision_at_a_time_each_sees_those_before_it() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        leader = three.leader()
        askers = [three.ask_soon(leader) for _ in range(20)]
        world.run_until(lambda: len(three.granted) == 20, 10)
        assert [three.granted[asker] for asker in askers] == [1_000 * place for place in range(20)]
        three.settle()


# Voters


def test_an_observer_is_added_as_a_voter_and_counts() -> None:
    with worlds() as world:
        three = Assembly(world, 3, spares=1)
        three.start_all()
        three.take_blocks(3)
        leader = three.leader()
        spare = three[4]
        world.run_until(lambda: spare.living.applied_end == three[leader].living.applied_end, 10)
        view = three[leader].living.describe()
        assert [each.replica for each in view.observers] == [spare.me]
        world.call(three[leader].host, lambda env: three[leader].living.add_voter(spare.me))
        assert spare.me in three[leader].living.voters.replicas
        three.kill(leader)
        three.kill(leader % 3 + 1)
        world.run_for(2)
        assert not any(three.is_leading(actor) for actor in three.actors.values()), "two of four are no majority"
        three.start(leader)
        three.settle()


def test_a_lost_disk_comes_back_as_another_replica_and_is_exchanged() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(3)
        leader = three.leader()
        lost = leader % 3 + 1
        old = three[lost].me
        three.new_disk(lost)
        three.start(lost)
        three.take_blocks(2)
        world.run_for(1)
        assert three[lost].living.voters.directory_of(old.node) == old.directory, "it learns from the others who votes"
        assert not three[lost].living.voters.has(three[lost].me)
        leader = three.leader()
        quorum = three[leader].living
        with pytest.raises(OrderRefused) as refused:
            world.call(three[leader].host, lambda env: quorum.add_voter(three[lost].me))
        assert refused.value.reason is Reason.ALREADY_A_VOTER
        world.call(three[leader].host, lambda env: quorum.remove_voter(old))
        world.call(three[leader].host, lambda env: quorum.add_voter(three[lost].me))
        assert quorum.voters.has(three[lost].me) and len(quorum.voters.replicas) == 3
        three.settle()


def test_a_leader_that_is_removed_goes_and_the_others_elect_one_of_them() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(2)
        leader = three.leader()
        world.call(three[leader].host, lambda env: three[leader].living.remove_voter(three[leader].me))
        world.run_for(2)
        assert three.leader() != leader
        assert len(three[three.leader()].living.voters.replicas) == 2
        three.settle()


def test_leadership_is_handed_over_at_once() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(2)
        leader = three.leader()
        began = world.now()
        assert world.call(three[leader].host, lambda env: three[leader].living.transfer())
        heir = three.leader()
        assert heir != leader
        assert world.now() - began < three.options.election_seconds_min, "nobody waited for a silence"
        assert not world.call(three[leader].host, lambda env: three[leader].living.transfer()), "it has nothing to hand over any more"
        three.settle()


def test_a_barrier_is_behind_everything_that_anybody_was_told() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(4)
        leader = three.leader()
        end = world.call(three[leader].host, lambda env: three[leader].living.barrier())
        assert three[leader].living.applied_end >= end == three[leader].living.committed_end
        other = leader % 3 + 1
        with pytest.raises(NotLeading) as elsewhere:
            world.call(three[other].host, lambda env: three[other].living.barrier())
        assert elsewhere.value.leader == leader
        world.call(three[other].host, lambda env: three[other].living.applied(end))
        assert three[other].living.image.next_producer_id == 4_000
        three.settle()


def test_the_quorum_tells_who_votes_and_how_far_each_has_come() -> None:
    with worlds() as world:
        three = Assembly(world)
        three.start_all()
        three.take_blocks(2)
        world.run_for(1)
        leader = three.leader()
        view = three[leader].living.describe()
        assert (view.leader, view.term) == (leader, three[leader].living.term)
        assert [each.replica for each in view.voters] == [actor.me for actor in three.actors.values()]
        assert {each.end for each in view.voters} == {view.committed_end}
        assert all(each.silent_seconds is not None and each.silent_seconds < 0.2 for each in view.voters)
        other = three[leader % 3 + 1].living.describe()
        assert sorted(each.end for each in other.voters)[0] == -1, "only the leader knows"
        assert other.leader == leader


def test_voters_that_are_named_by_their_nodes_alone_are_written_down_as_they_come() -> None:
    from penstock.consensus.nouns import ANY_DIRECTORY, Replica

    with worlds() as world:
        three = Assembly(world)
        three.first_voters = Voters(tuple(Replica(actor.node, ANY_DIRECTORY) for actor in three.actors.values()))
        three.start_all()
        three.take_blocks(2)
        world.run_for(2)
        assert three[three.leader()].living.voters == Voters(tuple(actor.me for actor in three.actors.values()))
        three.settle()
