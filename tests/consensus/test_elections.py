"""Who leads, and when a vote counts."""

import pytest
from consensus.scene import Scene

from penstock.consensus.effects import Done, Reason, Refused
from penstock.consensus.events import Propose, Received, TimePassed
from penstock.consensus.messages import Append, VoteReply, VoteRequest
from penstock.consensus.nouns import Term
from penstock.consensus.roles import RoleName
from penstock.vocabulary import Offset

pytestmark = pytest.mark.invariant("consensus.one-vote-per-term")


def test_one_node_elects_itself_at_once_and_commits_with_its_own_flush_alone() -> None:
    scene = Scene(1)
    scene.step(1, TimePassed())
    assert scene[1].leads_in == 1
    scene.propose(1, b"v1")
    assert isinstance(scene.answers[b"v1"], Done)
    assert scene.values(1) == [b"v1"]


def test_one_node_does_not_lead_before_its_vote_is_durable_and_answers_nobody_before_its_flush() -> None:
    scene = Scene(1)
    scene.slow = [1]
    scene.step(1, TimePassed())
    assert scene[1].role is RoleName.CANDIDATE
    scene.flush(1)
    assert scene[1].role is RoleName.LEADER
    assert scene.propose(1, b"early") == Refused(Reason.NOT_READY, scene[1].node)
    scene.flush(1)
    scene.flush(1)
    assert scene.propose(1, b"v1") is None
    scene.flush(1)
    assert isinstance(scene.answers[b"v1"], Done)


def test_three_elect_one_and_the_others_follow() -> None:
    scene = Scene(3)
    scene.elect(2)
    assert [scene[node].role for node in (1, 3)] == [RoleName.FOLLOWER, RoleName.FOLLOWER]
    assert [scene[node].living.leader for node in (1, 2, 3)] == [2, 2, 2]


def test_a_leader_decides_nothing_before_its_first_entry_is_committed() -> None:
    scene = Scene(3)
    scene.elect(1, lambda sender, to, message: not isinstance(message, Append))
    assert scene[1].leads_in == 0
    assert scene.propose(1, b"v1") == Refused(Reason.NOT_READY, scene[1].node)
    assert scene.read(1) == Refused(Reason.NOT_READY, scene[1].node)
    scene.beat(1)
    assert scene[1].leads_in == 1


def test_a_vote_is_told_when_it_is_on_the_disk() -> None:
    scene = Scene(3)
    scene.slow = [2]
    scene.step(2, Received(VoteRequest(scene[1].me, Term(1), scene[2].me, False, False, Term(0), Offset(0))))
    assert scene.links == []
    scene.flush(2)
    [(_, to, reply)] = scene.links
    assert (to, isinstance(reply, VoteReply) and reply.is_granted) == (1, True)


def test_a_trial_changes_nothing() -> None:
    scene = Scene(3)
    scene.step(2, Received(VoteRequest(scene[1].me, Term(9), scene[2].me, True, False, Term(0), Offset(0))))
    [(_, _, reply)] = scene.links
    assert isinstance(reply, VoteReply) and reply.is_granted
    assert (scene[2].living.term, scene[2].store.vote) == (0, None)


def test_who_lacks_an_entry_that_was_promised_is_not_elected() -> None:
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    scene.cut(1, 2)
    scene.propose(1, b"v1")
    scene.deliver()
    scene.crash(1)
    scene.heal()
    for _ in range(3):
        scene.stand(3)
        scene.deliver()
    assert scene[3].role is not RoleName.LEADER
    scene.insist(2)
    assert scene.values(2) == [b"v1"]


def test_an_election_without_a_winner_is_held_again() -> None:
    scene = Scene(2)
    scene.stand(1)
    scene.stand(2)
    scene.deliver(lambda sender, to, message: not (isinstance(message, VoteRequest) and not message.is_trial))
    assert [scene[node].role for node in (1, 2)] == [RoleName.CANDIDATE, RoleName.CANDIDATE]
    scene.insist(1)
    assert scene[2].living.leader == 1


def test_a_leader_of_an_older_term_learns_that_it_leads_no_longer() -> None:
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    scene.cut(1)
    scene.elect(2)
    scene.heal()
    scene.step(1, Propose("late", b"late"))
    scene.deliver()
    assert scene[1].role is RoleName.FOLLOWER
    scene.beat(2)
    assert scene[1].living.leader == 2
    assert b"late" not in scene[1].applied


def test_a_term_and_a_vote_outlive_a_restart() -> None:
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    term = scene[1].living.term
    for node in (1, 2, 3):
        scene.restart(node)
    assert [scene[node].living.term for node in (1, 2, 3)] == [term] * 3
    scene.insist(3)
    assert scene[3].living.term > term


def test_whoever_is_asked_and_does_not_lead_says_who_does() -> None:
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    assert scene.propose(2, b"v1") == Refused(Reason.NOT_LEADER, scene[1].node)
