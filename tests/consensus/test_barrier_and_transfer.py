"""Questions that need a fresh answer, and leaders that wish to go."""

import pytest
from consensus.scene import Scene

from penstock.consensus.effects import Done, Reason, Refused
from penstock.consensus.events import AskBarrier
from penstock.consensus.messages import Append
from penstock.consensus.roles import RoleName

pytestmark = pytest.mark.invariant("consensus.barrier-reads-current")


def leading(voters: int = 3) -> Scene:
    scene = Scene(voters)
    scene.elect(1)
    scene.beat(1)
    return scene


def test_a_barrier_is_answered_when_a_majority_has_confirmed_the_leader() -> None:
    scene = leading()
    scene.propose(1, b"v1")
    scene.deliver()
    assert scene.read(1) is None
    scene.deliver()
    assert scene.answers["read"] == Done(scene[1].living.committed_end)


def test_alone_a_barrier_needs_nobody() -> None:
    scene = leading(1)
    assert scene.read(1) == Done(scene[1].living.committed_end)


def test_a_lost_round_is_asked_again_with_the_next_heartbeat() -> None:
    scene = leading()
    scene.read(1)
    scene.deliver(lambda sender, to, message: not isinstance(message, Append))
    assert "read" not in scene.answers
    scene.beat(1)
    assert isinstance(scene.answers["read"], Done)


def test_questions_share_rounds() -> None:
    scene = leading()
    for number in range(50):
        scene.order(1, AskBarrier(number))
    first_round = len(scene.links)
    scene.deliver()
    assert first_round == 2, "one message to each, for the first question; the others wait for the next round"
    assert all(isinstance(scene.answers[number], Done) for number in range(50))


def test_leadership_is_handed_to_the_one_who_is_named() -> None:
    scene = leading()
    scene.propose(1, b"v1")
    scene.deliver()
    scene.transfer(1, 3)
    scene.deliver()
    assert scene[3].role is RoleName.LEADER
    assert isinstance(scene.answers["transfer"], Done)
    assert scene.values(3) == [b"v1"]


def test_nothing_new_is_taken_while_leadership_is_handed_over() -> None:
    scene = leading()
    scene.slow = [2]
    scene.propose(1, b"v1")
    scene.deliver()
    assert scene.transfer(1, 2) is None
    assert scene.propose(1, b"v2") == Refused(Reason.TRANSFERRING, scene[1].node)
    scene.slow = []
    scene.flush(2)
    scene.deliver()
    assert scene[2].role is RoleName.LEADER


def test_a_leader_leads_on_if_nobody_takes_over_in_time() -> None:
    scene = leading()
    scene.crash(3)
    assert scene.transfer(1, 3) is None
    for _ in range(15):
        scene.beat(1)
    assert scene.answers["transfer"] == Refused(Reason.TRANSFER_FAILED)
    scene.propose(1, b"v1")
    scene.deliver()
    assert isinstance(scene.answers[b"v1"], Done)


def test_alone_there_is_nobody_to_hand_over_to() -> None:
    scene = leading(1)
    assert scene.transfer(1) == Refused(Reason.NOT_A_VOTER, scene[1].node)
