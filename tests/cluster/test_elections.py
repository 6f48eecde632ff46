"""Elections that are asked for, preferred and unclean, and what the answer says of what may be lost."""

import pytest
from cluster.scene import Scene, code_of

from penstock.cluster.commands import ElectionKind, ElectLeaders
from penstock.cluster.replies import LeaderElected, NotElected
from penstock.errors import ErrorCode
from penstock.vocabulary import NO_NODE, NodeId

pytestmark = pytest.mark.invariant("controller.unclean-election-explicit", "controller.decisions-have-no-side-effect")

PREFERRED, UNCLEAN = ElectionKind


def scene_of_three(**overrides: str) -> Scene:
    scene = Scene(3)
    scene.create("t", 1, 2, 3, **overrides)
    return scene


def test_the_first_replica_leads_again_when_it_is_in_sync() -> None:
    scene = scene_of_three()
    scene.fence(1)
    scene.come_up(1)
    assert code_of(scene.elect(PREFERRED)) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    scene.set_in_sync(2, 3, 1)
    elected = scene.elect(PREFERRED)
    assert elected == LeaderElected("t", 0, NodeId(1), scene.partition().leader_epoch)
    assert scene.shape() == (1, (2, 3, 1), ())
    assert code_of(scene.elect(PREFERRED)) is ErrorCode.ELECTION_NOT_NEEDED


def test_a_stopping_node_is_not_preferred() -> None:
    scene = scene_of_three()
    scene.set_in_sync(1)
    scene.stop(1)
    scene.set_in_sync(1, 2)
    assert scene.shape() == (2, (1, 2), ())
    assert code_of(scene.elect(PREFERRED)) is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN])
@pytest.mark.parametrize(("name", "index"), [("none", 0), ("t", 1), ("t", -1)])
def test_what_is_not_there_has_no_election(kind: ElectionKind, name: str, index: int) -> None:
    scene = scene_of_three()
    assert code_of(scene.elect(kind, name, index)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_an_unclean_election_is_not_needed_while_somebody_leads() -> None:
    assert code_of(scene_of_three().elect(UNCLEAN)) is ErrorCode.ELECTION_NOT_NEEDED


def test_an_unclean_election_says_who_was_passed_over() -> None:
    scene = scene_of_three()
    scene.fence(2, 3, 1)
    scene.come_up(3)
    scene.come_up(2)
    elected = scene.elect(UNCLEAN)
    assert isinstance(elected, LeaderElected)
    assert (elected.leader, elected.passed_over) == (2, (1,))
    assert elected.may_have_lost == "node 2 leads with what it has; acknowledged records that only node 1 had are lost"
    assert scene.shape() == (2, (2,), ())
    scene.come_up(1)
    assert scene.shape() == (2, (2,), ()), "what node 1 had more is cut when it follows"


def test_who_has_everything_is_elected_without_being_asked_for() -> None:
    scene = scene_of_three(min_insync_replicas="2")
    scene.fence(3)
    scene.set_in_sync(1)
    scene.fence(1)
    assert scene.shape() == (2, (2,), (1,))
    assert code_of(scene.elect(UNCLEAN)) is ErrorCode.ELECTION_NOT_NEEDED


def test_a_node_that_is_up_but_not_let_in_yet_is_passed_over_too() -> None:
    scene = scene_of_three()
    scene.set_in_sync(1)
    scene.ask(scene.register(1))
    assert scene.shape() == (1, (1,), ()), "it goes on leading as soon as it is let in"
    elected = scene.elect(UNCLEAN)
    assert isinstance(elected, LeaderElected) and (elected.leader, elected.passed_over) == (2, (1,))


def test_an_unclean_election_needs_a_replica_that_is_up() -> None:
    scene = Scene(4)
    scene.create("t", 1, 2, 3)
    scene.fence(1, 2, 3)
    refused = scene.elect(UNCLEAN)
    assert isinstance(refused, NotElected) and refused.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert "1, 2, 3" in refused.reason


def test_an_unclean_election_rather_takes_an_old_disk_than_one_that_was_put_in_since() -> None:
    scene = scene_of_three()
    scene.set_in_sync(1)
    scene.fence(1)
    scene.come_up(1, directory="new")
    assert scene.shape() == (NO_NODE, (), ())
    elected = scene.elect(UNCLEAN)
    assert isinstance(elected, LeaderElected)
    assert (elected.leader, elected.passed_over) == (2, ())
    assert elected.may_have_lost == "node 2 leads with what it has; no replica was known to have every acknowledged record"


def test_an_unclean_election_prefers_who_led_last_and_who_is_not_only_being_added() -> None:
    scene = Scene(4)
    scene.create("t", 1, 2, flush="os")
    scene.set_in_sync(1)
    scene.reassign(4, 1, 2)
    assert scene.partition().adding == (4,)
    scene.fence(1)
    elected = scene.elect(UNCLEAN)
    assert isinstance(elected, LeaderElected) and elected.leader == 2


def test_a_topic_that_allows_it_is_led_again_at_once() -> None:
    scene = scene_of_three(unclean_leader_election_enable="true")
    scene.set_in_sync(1)
    scene.fence(1)
    assert scene.shape() == (2, (2,), ())


def test_of_all_partitions_those_are_told_that_moved_or_could_not() -> None:
    scene = scene_of_three()
    scene.create("fine", 2, 3)
    scene.create("lost", 1)
    scene.fence(1)
    replies = scene.submit(ElectLeaders(UNCLEAN, None))
    assert [(reply.topic, code_of(reply)) for reply in replies] == [("lost", ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]  # type: ignore[union-attr]
    scene.come_up(1)
    scene.set_in_sync(2, 3, 1)
    replies = scene.submit(ElectLeaders(PREFERRED, None))
    assert replies == (LeaderElected("t", 0, NodeId(1), scene.partition().leader_epoch),)
