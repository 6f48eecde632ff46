"""Entries on their way: what is cut, what is not, and how much travels at once."""

import pytest
from consensus.scene import Scene

from penstock.consensus.effects import Done, PersistEntries, Reason, Refused
from penstock.consensus.events import Propose, Received
from penstock.consensus.messages import Append, AppendReply
from penstock.consensus.options import Options

pytestmark = pytest.mark.invariant("consensus.committed-on-majority")


def leading(voters: int = 3, **options: object) -> Scene:
    scene = Scene(voters, options=Options(**options))  # type: ignore[arg-type]
    scene.elect(1)
    scene.beat(1)
    return scene


def test_what_is_proposed_reaches_everybody_in_order() -> None:
    scene = leading()
    for number in range(20):
        scene.propose(1, b"v%d" % number)
    scene.deliver()
    scene.beat(1)
    assert scene.values(1) == scene.values(2) == scene.values(3) == [b"v%d" % number for number in range(20)]


def test_entries_travel_while_the_leader_flushes_and_its_own_disk_counts_when_it_has_them() -> None:
    scene = leading()
    scene.slow = [1]
    scene.propose(1, b"v1")
    scene.cut(1, 2)
    scene.deliver()
    assert b"v1" not in scene.answers, "one disk of three has it"
    scene.flush(1)
    assert isinstance(scene.answers[b"v1"], Done)


def test_a_follower_acknowledges_what_is_on_its_disk() -> None:
    scene = leading()
    scene.slow = [2, 3]
    scene.propose(1, b"v1")
    scene.deliver()
    assert b"v1" not in scene.answers
    scene.flush(2)
    scene.deliver()
    assert isinstance(scene.answers[b"v1"], Done)


def test_a_crash_before_the_flush_takes_back_nothing_that_was_promised() -> None:
    scene = leading()
    scene.slow = [2, 3]
    scene.propose(1, b"v1")
    scene.deliver()
    scene.crash(1)
    for node in (2, 3):
        scene.restart(node)
    scene.slow = []
    scene.insist(2)
    assert b"v1" not in scene.answers
    assert scene.values(2) == []


def test_an_old_append_that_ends_earlier_cuts_nothing() -> None:
    scene = leading()
    scene.propose(1, b"v1")
    old = [link for link in scene.links if link[1] == 2]
    scene.propose(1, b"v2")
    scene.deliver()
    end = scene[2].store.end
    for _, to, message in old:
        scene.step(to, Received(message))
        assert not any(isinstance(effect, PersistEntries) for effect in scene[2].effects)
    assert scene[2].store.end == end


def test_what_contradicts_the_leader_is_cut_and_only_from_there() -> None:
    scene = leading()
    scene.propose(1, b"v1")
    scene.deliver()
    scene.cut(1)
    for number in range(5):
        scene.propose(1, b"lost %d" % number)
    scene.elect(2)
    scene.propose(2, b"v2")
    scene.deliver()
    scene.heal()
    scene.beat(2)
    scene.beat(2)
    scene.beat(2)
    assert scene.values(1) == [b"v1", b"v2"]
    assert not any(payload.startswith(b"lost") for payload in scene[1].applied)


def test_one_refusal_leads_back_over_a_whole_term() -> None:
    """Hints skip what cannot agree: a follower with a hundred entries of a lost term costs a few messages, not a hundred."""
    scene = leading()
    scene.cut(1)
    for number in range(100):
        scene.propose(1, b"lost %d" % number)
    scene.elect(2)
    for number in range(100):
        scene.propose(2, b"v%d" % number)
    scene.deliver()
    scene.heal()
    refusals = []

    def count(sender: int, to: int, message: object) -> bool:
        if isinstance(message, AppendReply) and sender == 1 and not message.is_accepted:
            refusals.append(message)
        return True

    scene.pass_time(scene.options.heartbeat_seconds + 0.001, 2)
    scene.deliver(count)
    scene.beat(2)
    assert scene[1].store.end == scene[2].store.end
    assert len(refusals) <= 3


def test_what_was_lost_on_the_way_is_sent_again() -> None:
    scene = leading(in_flight_max=2, batch_entries_max=1)
    for number in range(10):
        scene.propose(1, b"v%d" % number)
    scene.deliver(lambda sender, to, message: not (isinstance(message, Append) and message.entries))
    for _ in range(3):
        scene.beat(1)
    assert scene.values(2) == scene.values(3) == [b"v%d" % number for number in range(10)]


def test_a_bounded_number_of_appends_is_on_its_way() -> None:
    scene = leading(in_flight_max=3, batch_entries_max=1)
    for number in range(10):
        scene.propose(1, b"v%d" % number)
    appends = [message for _, to, message in scene.links if to == 2 and isinstance(message, Append) and message.entries]
    assert len(appends) == 3
    scene.deliver()
    scene.beat(1)
    assert len(scene.values(2)) == 10


def test_a_leader_without_a_majority_heaps_up_only_so_much() -> None:
    scene = leading(uncommitted_bytes_max=100)
    scene.cut(1)
    outcomes = [scene.order(1, Propose(number, bytes(60))) for number in range(5)]
    assert outcomes == [None, None, *[Refused(Reason.OVERLOADED, scene[1].node)] * 3]


def test_messages_twice_and_in_any_order_give_the_same_log() -> None:
    scene = leading(batch_entries_max=1)
    for number in range(8):
        scene.propose(1, b"v%d" % number)
    scene.links = [link for link in reversed(scene.links) for _ in range(2)]
    scene.deliver()
    for _ in range(3):
        scene.beat(1)
    assert scene.values(1) == scene.values(2) == scene.values(3) == [b"v%d" % number for number in range(8)]
