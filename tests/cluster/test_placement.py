"""Where new partitions go: spread over nodes and racks, only on brokers that are up, or exactly where a client says."""

from collections import Counter

import pytest
from cluster.scene import Scene, code_of, topic_id
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster.commands import AddPartitions, CreateTopics, MorePartitions, NewTopic
from penstock.cluster.records import CONTROLLER
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NodeId

pytestmark = pytest.mark.invariant("controller.decisions-have-no-side-effect")


def create(scene: Scene, name: str, partitions: int, replication_factor: int = -1, number: int = 0) -> str | None:
    """Why not, or None."""
    reply = scene.ask(CreateTopics((NewTopic(name, topic_id(number or len(scene.image.topics) + 1), partitions, replication_factor),)))
    return reply.reason if isinstance(reply, Refusal) else None


@given(st.integers(1, 7), st.integers(1, 4), st.data())
def test_leaders_and_replicas_are_spread_evenly_over_nodes_and_racks(nodes: int, racks: int, data: st.DataObject) -> None:
    rack_of = {n: f"rack-{n % racks}" for n in range(1, nodes + 1)}
    scene = Scene(nodes, racks=tuple(rack_of.values()), partitions_max=1000)
    for number in range(data.draw(st.integers(1, 4))):
        create(scene, f"t{number}", data.draw(st.integers(1, 9)), data.draw(st.integers(1, nodes)))
    leads: Counter[int] = Counter({n: 0 for n in rack_of})
    for _, _, state in scene.image.each_partition():
        leads[state.leader] += 1
        per_rack = Counter(rack_of[n] for n in state.replicas)
        sizes = Counter(rack_of.values())
        assert len(set(state.replicas)) == len(state.replicas)
        assert all(per_rack[rack] == sizes[rack] or per_rack[rack] >= max(per_rack.values()) - 1 for rack in sizes), "racks share evenly"
    assert max(leads.values()) - min(leads.values()) <= 1


def test_replicas_too_are_spread_where_racks_do_not_forbid_it() -> None:
    scene = Scene(4)
    create(scene, "t", 12, 2)
    held = Counter(n for _, _, state in scene.image.each_partition() for n in state.replicas)
    assert set(held.values()) == {6}


def test_more_partitions_go_where_there_are_fewest() -> None:
    scene = Scene(3)
    create(scene, "t", 2, 1)
    scene.submit(AddPartitions((MorePartitions("t", 3),)))
    assert [state.leader for state in scene.image.topics["t"].partitions] == [1, 2, 3]


def test_too_few_nodes_are_told_with_when_the_missing_one_was_last_seen() -> None:
    scene = Scene(3)
    scene.fence(3)
    scene.controller.seconds_since_heard = {NodeId(3): 40.4}.get
    assert create(scene, "orders", 1, 3) == (
        "topic 'orders' needs 3 replicas but only 2 nodes are up (1, 2; node 3 was last seen 40 s ago); "
        "start node 3, or use a replication factor of 2"
    )
    assert "orders" not in scene.image.topics


def test_a_node_alone_is_told_so() -> None:
    scene = Scene(1)
    assert create(scene, "a", 1, 2) == "topic 'a' needs 2 replicas but only 1 node is up (1); use a replication factor of 1"
    scene.fence(1)
    assert create(scene, "a", 1, 1) == "topic 'a' needs 1 replica but only 0 nodes are up (none; node 1 is not up); start node 1"


def test_stopping_nodes_and_controllers_get_nothing() -> None:
    scene = Scene(3)
    scene.come_up(4, roles=(CONTROLLER,))
    scene.stop(2)
    assert create(scene, "t", 4, 2) is None
    assert {n for _, _, state in scene.image.each_partition() for n in state.replicas} == {1, 3}
    assert "node 2 is stopping" in str(create(scene, "u", 1, 3))


def test_the_default_holds_and_is_never_made_smaller_but_for_the_clusters_own_topics() -> None:
    scene = Scene(2)
    scene.controller.replication_default = 3
    assert create(scene, "t", 1) is not None
    assert create(scene, "__consumer_offsets", 4) is None
    assert {len(state.replicas) for state in scene.image.topics["__consumer_offsets"].partitions} == {2}
    scene.come_up(3)
    assert create(scene, "t", 1) is None
    assert len(scene.partition("t").replicas) == 3


@pytest.mark.invariant("controller.internal-topics-replicated")
def test_the_clusters_own_topics_get_their_replicas_on_nodes_that_are_away_too() -> None:
    """They are made once. With fewer they would have fewer for ever, and nobody would say so."""
    scene = Scene(4)
    scene.come_up(5, roles=(CONTROLLER,))
    scene.fence(3)
    scene.stop(4)
    assert create(scene, "__transaction_state", 4) is None
    states = scene.image.topics["__transaction_state"].partitions
    assert [(state.replicas, state.in_sync) for state in states] == [
        ((1, 2, 3), (1, 2)), ((2, 1, 4), (2, 1)), ((1, 2, 3), (1, 2)), ((2, 1, 4), (2, 1)),
    ]  # fmt: skip
    assert [state.leader for state in states] == [1, 2, 1, 2]


def test_where_enough_are_up_nodes_that_are_away_get_none_of_the_clusters_own_topics() -> None:
    scene = Scene(4)
    scene.fence(4)
    assert create(scene, "__consumer_offsets", 2) is None
    assert {n for _, _, state in scene.image.each_partition() for n in state.replicas} == {1, 2, 3}


def test_the_clusters_own_topics_wait_for_a_voter_that_has_never_been_up() -> None:
    scene = Scene(2)
    scene.controller.voters = lambda: [NodeId(1), NodeId(2), NodeId(3)]
    assert create(scene, "__transaction_state", 1) == (
        "topic '__transaction_state' is to have 3 replicas, and node 3, which votes, has never been up: "
        "start it, or remove it from the voters"
    )
    scene.controller.internal_replication = {"__transaction_state": 2}
    assert create(scene, "__transaction_state", 1) is None, "that many there are"
    scene.come_up(3, roles=(CONTROLLER,))
    assert create(scene, "__consumer_offsets", 1) is None, "now it is known to hold no partitions"
    assert scene.partition("__consumer_offsets").replicas == (2, 1)


def test_no_broker_no_topic_also_for_the_cluster_itself() -> None:
    scene = Scene(1)
    scene.fence(1)
    assert create(scene, "__consumer_offsets", 4) is not None


def test_what_a_client_spells_out_is_kept_and_the_first_that_is_up_leads() -> None:
    scene = Scene(3)
    scene.fence(1)
    wish = NewTopic("orders", topic_id(1), -1, assignments=((0, (1, 2)), (1, (2, 1)), (2, (3, 2))))
    scene.submit(CreateTopics((wish,)))
    rows = [(state.leader, state.replicas, state.in_sync) for state in scene.image.topics["orders"].partitions]
    assert rows == [(2, (1, 2), (2,)), (2, (2, 1), (2,)), (3, (3, 2), (3, 2))]


@pytest.mark.parametrize("replicas", [(9,), (4,), (1,), (3,)])
def test_what_a_client_spells_out_wrongly_is_refused(replicas: tuple[int, ...]) -> None:
    """No such node; a controller only; none that is up: fenced, or stopping."""
    scene = Scene(3)
    scene.come_up(4, roles=(CONTROLLER,))
    scene.fence(1)
    scene.stop(3)
    wish = NewTopic("orders", topic_id(1), -1, assignments=((0, replicas),))
    assert scene.refuses(CreateTopics((wish,))).code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_topic_asked_for_again_under_its_id_is_answered_as_before() -> None:
    """The asker may not have heard the first answer."""
    scene = Scene(1)
    wish = CreateTopics((NewTopic("t", topic_id(5), 2),))
    first, version = scene.ask(wish), scene.image.version
    assert scene.ask(wish) == first
    assert scene.image.version == version
    assert code_of(scene.ask(CreateTopics((NewTopic("t", topic_id(6), 2),)))) is ErrorCode.TOPIC_ALREADY_EXISTS


def test_new_partitions_of_a_topic_that_moves_have_as_many_replicas_as_it_will_have() -> None:
    scene = Scene(3)
    scene.create("t", 1, 2)
    scene.reassign(3)
    scene.submit(AddPartitions((MorePartitions("t", 2),)))
    assert len(scene.partition("t", 1).replicas) == 1
