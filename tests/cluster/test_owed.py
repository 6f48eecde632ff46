"""Who is alive, and what the controller does unasked."""

import pytest
from cluster.scene import Scene
from hypothesis import given
from hypothesis import strategies as st

from penstock.cluster import electing
from penstock.cluster.commands import ElectionKind, ElectLeaders, FenceNode, Settle
from penstock.cluster.replies import Settled
from penstock.cluster.sessions import SUSPECT_SECONDS, Sessions
from penstock.settings import TopicConfig
from penstock.vocabulary import NO_NODE, Instant, NodeId

pytestmark = pytest.mark.invariant("controller.decisions-have-no-side-effect")

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def at(seconds: float) -> Instant:
    return Instant(seconds)


def sessions_of(*nodes: int) -> Sessions:
    sessions = Sessions(2.0)
    sessions.begin(at(0), {NodeId(n): 1 for n in nodes})
    return sessions


def test_a_new_controller_gives_everyone_a_full_session_but_those_it_cannot_reach() -> None:
    sessions = Sessions(2.0)
    sessions.begin(at(10), {ONE: 1, TWO: 1}, suspects=[TWO])
    assert sessions.due() == 10 + SUSPECT_SECONDS
    assert sessions.expired(at(10 + SUSPECT_SECONDS)) == [TWO]
    assert sessions.expired(at(12)) == [ONE, TWO]


def test_a_heartbeat_prolongs_a_session_and_one_of_an_older_life_does_not() -> None:
    sessions = sessions_of(1)
    assert sessions.heard(ONE, 2, at(1))
    assert not sessions.heard(ONE, 1, at(2.5))
    assert sessions.expired(at(3)) == [ONE]


def test_a_broken_link_shortens_a_session_and_a_heartbeat_on_a_new_one_restores_it() -> None:
    sessions = sessions_of(1)
    sessions.lost_contact(ONE, at(1))
    assert sessions.is_alive(ONE, at(1.4)) and not sessions.is_alive(ONE, at(1.5))
    sessions.heard(ONE, 1, at(1.4))
    assert sessions.expired(at(3.3)) == []
    sessions.lost_contact(ONE, at(3.3))
    assert sessions.expired(at(3.4)) == [ONE], "a session is never prolonged by a broken link"


def test_a_node_that_was_fenced_is_expected_again_only_when_it_is_heard() -> None:
    sessions = sessions_of(1)
    sessions.heard(ONE, 1, at(1))
    sessions.forget(ONE)
    assert sessions.expired(at(99)) == [] and sessions.due() is None
    assert sessions.seconds_since_heard(ONE, at(41)) == 40
    assert sessions.seconds_since_heard(TWO, at(41)) is None
    sessions.lost_contact(ONE, at(50))
    assert sessions.due() is None


@given(st.lists(st.tuples(st.sampled_from(["heard", "lost", "forget"]), st.integers(1, 3), st.integers(0, 8)), max_size=30))
def test_nobody_expires_while_heard_and_everybody_else_does_in_time(steps: list[tuple[str, int, int]]) -> None:
    sessions, now, heard = sessions_of(1, 2, 3), 0.0, {1: 0.0, 2: 0.0, 3: 0.0}
    lost: set[int] = set()
    for what, n, passed in steps:
        now += passed / 8  # Sums of eighths are exact.
        if what == "heard":
            sessions.heard(NodeId(n), 1, at(now))
            heard[n] = now
            lost.discard(n)
        elif what == "lost":
            sessions.lost_contact(NodeId(n), at(now))
            lost.add(n)
        else:
            sessions.forget(NodeId(n))
            heard.pop(n, None)
        expired = set(sessions.expired(at(now)))
        assert {n for n, since in heard.items() if now - since >= 2.0} <= expired <= set(heard)
        assert all(n in lost or now - heard[n] >= 2.0 for n in expired)


def test_who_is_silent_is_fenced_once() -> None:
    scene, sessions = Scene(3), sessions_of(1, 2, 3)
    scene.create("t", 1, 2, 3)
    sessions.heard(TWO, 1, at(1))
    sessions.heard(THREE, 1, at(1))
    assert scene.controller.owed(at(1), sessions) == []
    assert scene.controller.owed(at(2), sessions) == [FenceNode(ONE, 1)]
    assert scene.controller.owed(at(2), sessions) == [FenceNode(ONE, 1)], "owed until it is done"
    scene.fence(1)
    assert scene.controller.owed(at(2.1), sessions) == []


def test_nothing_is_owed_to_partitions_that_must_wait() -> None:
    scene, sessions = Scene(3), sessions_of()
    scene.create("t", 1, 2, 3)
    scene.fence(2, 3, 1)
    assert scene.image.unsettled
    assert scene.controller.owed(at(0), sessions) == []
    assert scene.ask(Settle()) == Settled(0, is_done=True)


def test_an_unclean_election_that_becomes_allowed_is_owed() -> None:
    scene, sessions = Scene(3), sessions_of()
    scene.create("t", 1, 2, 3)
    scene.set_in_sync(1)
    scene.fence(1)
    assert scene.controller.owed(at(0), sessions) == []
    scene.controller.topic_defaults = TopicConfig(unclean_leader_election_enable=True)
    assert scene.controller.owed(at(0), sessions) == [Settle()]
    assert scene.ask(Settle()) == Settled(1, is_done=True)
    assert scene.shape() == (2, (2,), ())
    assert scene.controller.owed(at(0), sessions) == []


def test_what_waits_is_not_looked_at_again_until_something_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    scene, sessions = Scene(2), sessions_of()
    scene.create("t", 1, 2)
    scene.fence(2, 1)
    settle, looks = electing.settle, []
    monkeypatch.setattr(electing, "settle", lambda draft: (looks.append(draft), settle(draft))[1])
    for _ in range(5):
        assert scene.controller.owed(at(0), sessions) == []
    assert len(looks) == 1
    scene.come_up(3)
    assert scene.controller.owed(at(0), sessions) == []
    assert len(looks) == 2


def test_leadership_is_given_back_when_it_is_looked_at_and_wanted() -> None:
    scene, sessions = Scene(3), sessions_of()
    scene.create("t", 1, 2, 3)
    scene.fence(1)
    scene.come_up(1)
    scene.set_in_sync(2, 3, 1)
    assert scene.controller.owed(at(0), sessions) == [], "a new controller waits first: everyone else is coming back too"
    assert scene.controller.owed(at(29), sessions) == []
    (command,) = scene.controller.owed(at(30), sessions)
    assert command == ElectLeaders(ElectionKind.PREFERRED, (("t", 0),))
    scene.submit(command)
    assert scene.shape() == (1, (2, 3, 1), ())
    assert scene.controller.owed(at(60), sessions) == []
    scene.fence(1)
    scene.come_up(1)
    scene.set_in_sync(2, 3, 1)
    scene.controller.gives_leadership_back = False
    assert scene.controller.owed(at(99), sessions) == []


def test_leadership_is_not_given_to_who_is_not_in_sync() -> None:
    scene, sessions = Scene(3), sessions_of()
    scene.create("t", 1, 2, 3)
    scene.create("nobody", 1)
    scene.fence(1)
    assert scene.partition("nobody").leader == NO_NODE
    scene.controller.owed(at(0), sessions)
    assert scene.controller.owed(at(30), sessions) == []


def test_settling_is_bounded_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(electing, "CHANGES_MAX", 3)
    scene, sessions = Scene(2), sessions_of()
    for n in range(5):
        scene.create(f"t{n}", 1, 2)
        scene.set_in_sync(1, name=f"t{n}")
    scene.fence(1)
    scene.controller.topic_defaults = TopicConfig(unclean_leader_election_enable=True)
    answers = []
    while owed := scene.controller.owed(at(0), sessions):
        assert owed == [Settle()]
        answers.append(scene.ask(Settle()))
    assert answers == [Settled(3, is_done=False), Settled(2, is_done=True)]
    assert all(state.leader == 2 for _, _, state in scene.image.each_partition())


def test_time_in_which_the_controller_did_not_listen_counts_against_nobody() -> None:
    sessions = sessions_of(1, 2, 3)
    sessions.heard(ONE, 1, at(1))
    sessions.excuse(5.0)
    assert sessions.expired(at(6.9)) == []
    assert sessions.expired(at(7.0)) == [TWO, THREE]
    assert sessions.expired(at(8.0)) == [ONE, TWO, THREE]
