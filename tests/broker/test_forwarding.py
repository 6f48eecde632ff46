"""Commands reach the controller from every node, through its changes."""

import asyncio

import pytest
from broker.council import Council, Councillor
from tiers import pick

from penstock.broker.second_tries import as_if_first
from penstock.cluster.commands import (
    AddPartitions,
    Command,
    CreateTopics,
    DeleteTopic,
    MorePartitions,
    NewTopic,
    Reassignment,
    ReassignPartitions,
    TakeProducerBlock,
    UnregisterNode,
)
from penstock.cluster.image import ClusterImage
from penstock.cluster.records import NodeUnregistered, PartitionChange, PartitionsAdded, ProducerBlockTaken, TopicCreated, TopicDeleted
from penstock.errors import ErrorCode, Refusal
from penstock.simulator.links import LinkQuality
from penstock.vocabulary import NodeId, TopicId


def test_a_command_is_decided_wherever_it_is_asked_and_holds_there_when_it_is_answered() -> None:
    with Council(3, observers=1) as council:
        council.start_and_wait()
        for number in (1, 2, 3, 4):

            async def create(node: Councillor, name: str = f"topic-{number}") -> bool:
                (made,) = await node.submit(CreateTopics((NewTopic(name, TopicId(name.encode().ljust(16)), 3, 3),)))
                assert isinstance(made, TopicCreated)
                return name in node.image.topics

            assert council.call(number, create)


def test_a_refusal_travels_as_well_as_a_yes() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, "orders")
        for number in (1, 2, 3):
            (refusal,) = council.create(number, "orders")
            assert isinstance(refusal, Refusal)
            assert refusal.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_command_outlives_the_death_of_the_controller() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        asker = council.other_than(leader)
        command = CreateTopics((NewTopic("orders", TopicId(b"o" * 16), 3, 3),))
        asking = council.begin(asker, lambda node: node.submit(command))
        council.world.run_for(0.0005)
        council.kill(leader)
        council.until(asking.done)
        (made,) = asking.result()
        assert isinstance(made, TopicCreated)
        assert made.topic_id == b"o" * 16


ORDERS = TopicId(b"o" * 16)


@pytest.mark.parametrize(
    ("command", "made", "repeated"),
    [
        (AddPartitions((MorePartitions("orders", 5),)), PartitionsAdded, ErrorCode.INVALID_PARTITIONS),
        (DeleteTopic(ORDERS), TopicDeleted, ErrorCode.UNKNOWN_TOPIC_ID),
        (UnregisterNode(NodeId(4)), NodeUnregistered, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (ReassignPartitions((Reassignment("orders", 0, None),)), PartitionChange, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
    ],
)
def test_whoever_succeeded_is_not_refused_because_the_answer_was_lost(command: Command, made: type, repeated: ErrorCode) -> None:
    """The controller decides, and dies before it answers. Its successor finds that there is nothing to do."""
    with Council(3, observers=1) as council:
        council.start_and_wait()
        council.submit(1, CreateTopics((NewTopic("orders", ORDERS, -1, assignments=((0, (1, 2)),)),)))
        council.submit(1, ReassignPartitions((Reassignment("orders", 0, (NodeId(3),)),)))
        council.kill(4)
        council.until(lambda: council.is_fenced(4))
        leader = council.leader()
        assert leader is not None
        asker = council.other_than(leader)
        council.slow_to_replay[leader] = None  # It answers when it has replayed.
        before = council.nodes[asker].quorum.applied_end
        asking = council.begin(asker, lambda node: node.submit(command))
        council.until(lambda: council.nodes[asker].quorum.applied_end > before)
        council.kill(leader)
        council.until(asking.done)
        assert isinstance(asking.result()[0], made)
        (refusal,) = council.submit(asker, command)
        assert isinstance(refusal, Refusal) and refusal.code is repeated, "a first try hears what holds"


def test_a_second_try_is_refused_where_what_was_asked_for_does_not_hold() -> None:
    refusal = Refusal(ErrorCode.INVALID_PARTITIONS, "it has more")
    grow = AddPartitions((MorePartitions("orders", 3),))
    image = ClusterImage()
    assert as_if_first(image, grow, (refusal,)) == (refusal,)
    image.replay(TopicCreated("orders", ORDERS, ()))
    assert as_if_first(image, grow, (refusal,)) == (refusal,)
    never = Refusal(ErrorCode.BROKER_ID_NOT_REGISTERED, "it never was")
    assert as_if_first(image, UnregisterNode(NodeId(9)), (never,)) == (never,)
    other = Refusal(ErrorCode.POLICY_VIOLATION, "too many")
    assert as_if_first(image, DeleteTopic(ORDERS), (other,)) == (other,)


def test_whoever_waits_for_a_controller_that_hangs_asks_its_successor() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        council.world.pause(f"node-{leader}")
        asking = council.begin(council.other_than(leader), lambda node: node.submit(TakeProducerBlock(node.me.node)))
        assert council.until(asking.done) < 2.5  # Long before its link would be given up.
        assert isinstance(asking.result()[0], ProducerBlockTaken)


def test_a_controller_that_loses_the_others_puts_its_own_commands_to_its_successor() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        others = [f"node-{number}" for number in (1, 2, 3) if number != leader]
        council.world.network.partition([f"node-{leader}"], others)
        asking = council.begin(leader, lambda node: node.submit(TakeProducerBlock(node.me.node)))
        council.world.run_for(4)
        assert not asking.done()
        council.world.network.heal()
        council.until(asking.done)
        assert isinstance(asking.result()[0], ProducerBlockTaken)


def test_a_change_of_the_leader_does_not_trip_over_one_who_is_just_giving_up() -> None:
    """After a pause of the process everything comes in one turn of the loop: the end of the patience, and the news of a new leader."""

    async def give_up_and_hear_of_it(node: Councillor) -> object:
        asking = asyncio.ensure_future(node.submit(TakeProducerBlock(node.me.node)))
        await asyncio.sleep(0.01)
        (scope,) = node.forwarding._waiting
        scope.reschedule(0)
        await asyncio.sleep(0)
        assert scope.expired() and scope in node.forwarding._waiting
        node.forwarding._waiting[scope] = NodeId(99)  # It waits for one who does not lead any more.
        node.forwarding.leader_changed()
        return (await asking)[0]

    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        council.world.pause(f"node-{leader}")
        asking = council.begin(council.other_than(leader), give_up_and_hear_of_it)
        council.until(asking.done)
        assert isinstance(asking.result(), ProducerBlockTaken)


def test_without_a_quorum_a_command_is_refused_in_time_with_the_reason() -> None:
    with Council() as council:
        council.start_and_wait()
        council.kill(2)
        council.kill(3)
        council.world.run_for(3)
        asking = council.begin(1, lambda node: node.submit(TakeProducerBlock(NodeId(1))))
        assert 9 < council.until(asking.done) < 12
        with pytest.raises(Refusal, match="did not answer within 10 s") as refused:
            asking.result()
        assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_cancelled_command_leaves_nothing_behind() -> None:
    with Council() as council:
        council.start_and_wait()
        asker = council.other_than(council.leader())
        asking = council.begin(asker, lambda node: node.submit(TakeProducerBlock(NodeId(1))))
        council.world.run_for(0.0001)
        asking.cancel()
        council.world.run_for(1)
        assert asking.cancelled()
        assert council.nodes[asker].forwarding._waiting == {}


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=2, slow=4)))
def test_every_block_of_producer_ids_is_given_once_on_bad_roads(seed: int) -> None:
    with Council(seed=seed, quality=LinkQuality(reset=0.005, split=0.3)) as council:
        council.start_and_wait()
        blocks: list[int] = []

        async def take(node: Councillor) -> None:
            for _ in range(20):
                try:
                    (taken,) = await node.submit(TakeProducerBlock(node.me.node))
                except Refusal:
                    continue
                assert isinstance(taken, ProducerBlockTaken)
                blocks.append(taken.first)
                await asyncio.sleep(0.05)

        takers = [council.begin(number, take) for number in (1, 2, 3)]
        council.world.run_for(1)
        leader = council.leader()
        if leader is not None:
            council.world.pause(f"node-{leader}")
            council.world.run_for(3)
            council.world.resume(f"node-{leader}")
        council.until(lambda: all(taker.done() for taker in takers), within=300)
        assert [taker.exception() for taker in takers] == [None] * 3
        assert len(blocks) == len(set(blocks)) > 30
