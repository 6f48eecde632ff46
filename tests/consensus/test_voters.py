"""Changes of the set of voters, and replicas that are known by their disks."""

import pytest
from consensus.scene import Scene

from penstock.consensus.effects import Done, Reason, Refused
from penstock.consensus.events import AddVoter, RemoveVoter, TimePassed
from penstock.consensus.messages import Append
from penstock.consensus.nouns import ANY_DIRECTORY, DirectoryId, Replica
from penstock.consensus.roles import RoleName
from penstock.consensus.voters import Voters, VotersHistory
from penstock.errors import BrokenPromise
from penstock.vocabulary import NodeId, Offset

pytestmark = pytest.mark.invariant("consensus.one-voter-change")


def leading(voters: int = 3, *, spares: int = 0, directories_are_known: bool = True) -> Scene:
    scene = Scene(voters, spares=spares, directories_are_known=directories_are_known)
    scene.elect(1)
    scene.beat(1)
    for spare in range(voters + 1, voters + spares + 1):
        scene.step(spare, TimePassed())
    scene.deliver()
    scene.beat(1)
    return scene


def replica(node: int, disk: int = 1) -> Replica:
    return Replica(NodeId(node), DirectoryId(bytes([disk]) * 16))


def test_an_observer_gets_the_log_and_does_not_count() -> None:
    scene = leading(1, spares=1)
    scene.cut(1)
    scene.propose(1, b"v1")
    assert isinstance(scene.answers[b"v1"], Done)
    scene.heal()
    scene.beat(1)
    assert scene.values(2) == [b"v1"]
    assert scene[2].living.voters.replicas == (scene[1].me,), "the log alone says who votes"


def test_an_observer_that_has_caught_up_may_vote() -> None:
    scene = leading(1, spares=2)
    for spare in (2, 3):
        scene.order(1, AddVoter(spare, scene[spare].me))
        scene.deliver()
        assert isinstance(scene.answers[spare], Done)
    scene.crash(1)
    scene.insist(2)
    scene.propose(2, b"v1")
    scene.deliver()
    assert scene.values(3) == [b"v1"]


def test_who_has_not_caught_up_may_not_vote_yet() -> None:
    scene = Scene(1, spares=1)
    scene.elect(1)
    assert scene.add(1, scene[2].me) == Refused(Reason.NOT_CAUGHT_UP, scene[1].node)


def test_one_change_at_a_time() -> None:
    scene = leading(3, spares=1)
    scene.cut(1)
    assert scene.order(1, AddVoter("one", scene[4].me)) is None
    assert scene.order(1, RemoveVoter("two", scene[3].me)) == Refused(Reason.CHANGE_UNDER_WAY, scene[1].node)
    scene.heal()
    scene.beat(1)
    assert isinstance(scene.answers["one"], Done)
    assert scene.order(1, RemoveVoter("three", scene[3].me)) is None


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        (lambda scene: AddVoter("x", scene[2].me), Reason.ALREADY_A_VOTER),
        (lambda scene: AddVoter("x", replica(2)), Reason.ALREADY_A_VOTER),
        (lambda scene: RemoveVoter("x", replica(2)), Reason.NOT_A_VOTER),
        (lambda scene: AddVoter("x", replica(9)), Reason.NOT_CAUGHT_UP),
    ],
)
def test_what_makes_no_sense_is_refused(order: object, reason: Reason) -> None:
    scene = leading(3)
    assert scene.order(1, order(scene)) == Refused(reason, scene[1].node)  # type: ignore[operator]


def test_the_last_voter_stays() -> None:
    scene = leading(1)
    assert scene.remove(1, scene[1].me) == Refused(Reason.LAST_VOTER, scene[1].node)


def test_a_change_that_is_cut_off_never_was() -> None:
    scene = leading(3, spares=1)
    scene.cut(1, 4)
    scene.add(1, scene[4].me)
    scene.deliver()
    assert len(scene[4].living.voters.replicas) == 4
    scene.elect(2)
    scene.heal()
    for _ in range(3):
        scene.beat(2)
    assert [len(scene[node].living.voters.replicas) for node in (1, 2, 3)] == [3, 3, 3]


def test_a_removed_voter_whose_removal_is_not_committed_may_be_needed() -> None:
    """Of two voters one removes itself, and dies before the other hears of it. Without its vote, with its log, they find together again."""
    scene = leading(2)
    scene.links = []
    scene.cut(1)
    scene.remove(1, scene[1].me)
    scene.restart(1)
    scene.heal()
    for _ in range(6):
        scene.stand(1)
        scene.deliver()
        scene.stand(2)
        scene.deliver()
    scene.insist(2)
    assert scene[2].living.voters.replicas == (scene[2].me,)
    scene.beat(2)
    assert scene[1].role is RoleName.FOLLOWER


def test_a_lost_disk_is_replaced_in_two_steps() -> None:
    scene = leading(3)
    old = scene[3].me
    scene.propose(1, b"v1")
    scene.deliver()
    scene.wipe(3)
    scene.step(3, TimePassed())
    scene.pass_time(scene.options.election_seconds_max - 0.5, 3)
    scene.deliver()
    scene.beat(1)
    assert scene.values(3) == [b"v1"], "as an observer it gets everything"
    assert scene.order(1, AddVoter("too early", scene[3].me)) == Refused(Reason.ALREADY_A_VOTER, scene[1].node)
    scene.order(1, RemoveVoter("remove", old))
    scene.deliver()
    scene.order(1, AddVoter("add", scene[3].me))
    scene.deliver()
    assert isinstance(scene.answers["add"], Done)
    assert scene[2].living.voters.has(scene[3].me)
    assert not scene[2].living.voters.has(old)


def test_directories_of_voters_that_were_named_by_their_nodes_are_written_down() -> None:
    scene = leading(3, directories_are_known=False)
    for _ in range(4):
        scene.beat(1)
    assert scene[2].living.voters.replicas == tuple(scene[node].me for node in (1, 2, 3))


def test_two_that_are_named_by_their_nodes_find_together_when_one_died_early() -> None:
    """The first wrote an entry and died before anybody had it: the other is empty and must vote for it all the same."""
    scene = Scene(2, directories_are_known=False)
    scene.elect(1, lambda sender, to, message: not isinstance(message, Append))
    scene.restart(1)
    scene.insist(1)
    scene.beat(1)
    assert scene[2].living.voters.replicas == (scene[1].me, scene[2].me)


def test_a_replica_whose_voters_are_all_gone_finds_the_leader() -> None:
    """It was away while every voter that it knows was replaced."""
    scene = leading(2, spares=2)
    scene.cut(2)
    scene.crash(2)
    scene.heal()
    scene.start(2)
    scene.beat(1)
    scene.crash(3)  # This one stays away.
    scene.order(1, AddVoter("add 4", scene[4].me))
    scene.deliver()
    scene.order(1, RemoveVoter("remove 2", scene[2].me))
    scene.deliver()
    scene.order(1, RemoveVoter("remove 1", scene[1].me))
    scene.deliver()
    assert isinstance(scene.answers["remove 1"], Done)
    scene.insist(4)
    scene.start(3)
    scene.pass_time(scene.options.election_seconds_min, 4)
    scene.deliver()
    scene.pass_time(scene.options.election_seconds_min, 3, 4)
    scene.deliver()
    scene.propose(4, b"v1")
    scene.deliver()
    scene.beat(4)
    assert scene.values(3) == [b"v1"]


def test_voters_are_the_same_after_a_trip_through_bytes() -> None:
    voters = Voters((replica(3), replica(1, 2), Replica(NodeId(2), ANY_DIRECTORY)))
    assert Voters.decode(voters.encode()) == voters
    with pytest.raises(BrokenPromise):
        Voters.decode(voters.encode() + b"x")


@pytest.mark.parametrize(("count", "majority"), [(0, 1), (1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_a_majority_is_more_than_half(count: int, majority: int) -> None:
    voters = Voters(tuple(replica(node) for node in range(count)))
    assert voters.majority == majority
    assert not voters.is_majority([NodeId(node) for node in range(majority - 1)])
    assert voters.reached_by_majority(lambda one: one.node) == max(count - majority, 0)


def test_history_tells_who_voted_up_to_where() -> None:
    first, second, third = (Voters((replica(node),)) for node in (1, 2, 3))
    history = VotersHistory(Offset(0), first)
    history.add(Offset(5), second)
    history.add(Offset(9), third)
    assert [history.at(Offset(end)) for end in (0, 4, 5, 8, 9, 99)] == [first, first, second, second, third, third]
    history.cut(Offset(8))
    assert (history.latest, history.latest_end) == (second, 5)
    history.forget_before(Offset(6))
    assert history.at(Offset(6)) == second
