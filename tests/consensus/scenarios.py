"""Scenes for rules that chance rarely puts to the test. Each holds for the core as it is, and breaks for the variant it was made for."""

from consensus.scene import Scene

from penstock.consensus.effects import Done, Reason, Refused, Unknown
from penstock.consensus.events import Received, RemoveVoter, TimePassed
from penstock.consensus.messages import Append, Chunk, Message, VoteReply, VoteRequest
from penstock.consensus.nouns import Kind, Term
from penstock.consensus.options import Options
from penstock.consensus.roles import RoleName
from penstock.vocabulary import Offset

ONE_BY_ONE = Options(batch_entries_max=1)


def no_office(sender: int, to: int, message: Message) -> bool:
    """Lets everything through but the first entries of leaders."""
    return not (isinstance(message, Append) and any(entry.kind is Kind.OFFICE for entry in message.entries))


def only_votes(sender: int, to: int, message: Message) -> bool:
    return not isinstance(message, Append)


def figure_8() -> None:
    """An entry of an older term is on a majority of disks, and a later leader may rightly lack it."""
    scene = Scene(5, options=ONE_BY_ONE)
    scene.elect(1)
    scene.beat(1)
    scene.propose(1, b"v0")
    scene.deliver()
    scene.propose(1, b"v1")
    scene.links = []
    scene.crash(1)  # It alone has the second entry.
    scene.elect(5, only_votes)
    scene.crash(5)  # With an entry of its own at the same place.
    scene.start(1)
    scene.stand(1)
    scene.deliver(only_votes)
    scene.stand(1)  # Its term was old: the second time it is elected.
    scene.deliver(lambda sender, to, message: no_office(sender, to, message) and 4 not in (sender, to))
    assert scene[1].role is RoleName.LEADER
    for _ in range(3):
        scene.pass_time(scene.options.heartbeat_seconds + 0.001, 1)
        scene.deliver(lambda sender, to, message: no_office(sender, to, message) and 4 not in (sender, to))
    assert [scene[node].store.end for node in (2, 3)] == [4, 4], "now the old entry is on three disks of five"
    scene.crash(1)
    scene.start(5)
    scene.insist(5)
    scene.propose(5, b"v2")
    scene.deliver()
    assert scene.values(2) == [b"v0", b"v2"]


def a_change_of_voters_before_the_first_commit() -> None:
    """The flaw of 2015: two leaders, each with a change that the other does not know, and majorities that have nobody in common."""
    scene = Scene(4, spares=1)
    scene.elect(1)
    scene.beat(1)
    scene.step(5, TimePassed())  # The observer knocks and catches up.
    scene.deliver()
    scene.beat(1)
    scene.cut(1, 5)
    assert scene.add(1, scene[5].me) is None
    scene.deliver()  # On two disks of what would be five voters.
    scene.stand(2)
    scene.deliver(only_votes)
    assert scene[2].role is RoleName.LEADER
    scene.heal()
    scene.cut(2, 3)
    removed = scene.remove(2, scene[1].me)
    for _ in range(3):
        scene.beat(2)
    scene.heal()
    scene.cut(1, 4, 5)
    scene.restart(1)
    scene.insist(1)  # Nothing that the second had promised may be missing here: that is judged.
    assert removed == Refused(Reason.NOT_READY, scene[2].node)


def two_changes_at_once() -> None:
    scene = Scene(5)
    scene.elect(1)
    scene.beat(1)
    scene.cut(1, 2)
    scene.remove(1, scene[3].me)
    scene.remove(1, scene[4].me)
    scene.remove(1, scene[5].me)
    scene.deliver()
    scene.beat(1)
    scene.cut(3, 4, 5)
    scene.elect(3)
    scene.propose(3, b"v1")
    scene.deliver()
    assert scene.answers[b"v1"] == Done(scene[3].living.committed_end)


def a_lost_disk_does_not_vote_again() -> None:
    """What was promised is on two disks of three. One of them is lost, the other not heard: nobody can lead."""
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    scene.cut(1, 3)
    scene.propose(1, b"v1")
    scene.deliver()
    assert isinstance(scene.answers[b"v1"], Done)
    scene.wipe(3)
    scene.heal()
    scene.cut(2, 3)
    for _ in range(3):
        scene.stand(2)
        scene.deliver()
        scene.stand(3)
        scene.deliver()
    assert scene[2].role is not RoleName.LEADER
    scene.heal()
    scene.restart(1)
    scene.insist(1)  # With the disk that has it all, there is a majority again.


def a_vote_is_remembered() -> None:
    """A voter restarts and is asked by another candidate of the same term."""
    scene = Scene(3)
    scene.step(3, Received(_vote_request(scene, 1, 3, term=5)))
    assert _granted(scene, 3)
    scene.restart(3)
    scene.step(3, Received(_vote_request(scene, 2, 3, term=5)))
    assert not _granted(scene, 3)
    scene.step(3, Received(_vote_request(scene, 1, 3, term=5)))
    assert _granted(scene, 3), "the same answer to the same question"


def an_old_snapshot_takes_nothing_back() -> None:
    """A follower has acknowledged more than a snapshot holds, and does not know yet that it is committed."""
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    scene.propose(1, b"v1")
    scene.deliver()
    head = scene.take_snapshot(1)
    image = scene[1].store.image
    scene.propose(1, b"v2")
    scene.deliver()
    scene.restart(2)  # It forgets how far things are committed, and nothing else.
    end = scene[2].store.end
    scene.step(2, Received(Chunk(scene[1].me, scene[1].living.term, head, 0, image, 0)))
    assert scene[2].store.end == end, "what was acknowledged is still there"
    scene.beat(1)
    assert scene.values(2) == [b"v1", b"v2"]


def who_was_away_comes_back_quietly() -> None:
    """A replica that was cut off for long does not push the leader out."""
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    term = scene[1].living.term
    scene.cut(3)
    for _ in range(60):
        scene.beat(1)
        scene.step(3, TimePassed())
    scene.heal()
    for _ in range(5):
        scene.step(3, TimePassed())
        scene.beat(1)
    assert (scene[1].role, scene[1].living.term) == (RoleName.LEADER, term)
    scene.propose(1, b"v1")
    scene.deliver()
    scene.beat(1)
    assert scene.values(3) == [b"v1"]


def while_a_leader_is_heard_candidates_are_not() -> None:
    """A replica that does not know of its removal stands for good, again and again."""
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    term = scene[1].living.term
    for voter in (1, 2):
        scene.step(voter, Received(_vote_request(scene, 3, voter, term=term + 7, end=100)))
    scene.deliver()
    assert [scene[node].living.term for node in (1, 2)] == [term, term]
    assert scene[1].role is RoleName.LEADER


def a_leader_that_hears_no_majority_steps_down() -> None:
    """Whoever waits for it learns that it waits in vain; and a question is never answered from what it remembers."""
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    scene.cut(1)
    assert scene.propose(1, b"v1") is None
    assert scene.read(1) is None
    for _ in range(20):
        scene.pass_time(scene.options.heartbeat_seconds, 1)
    assert scene[1].role is not RoleName.LEADER
    assert scene.answers[b"v1"] == Unknown()
    assert scene.answers["read"] == Refused(Reason.NOT_LEADER)


def a_question_asked_of_an_old_leader_is_not_answered() -> None:
    """Another leader has promised something since; the old one does not know, and must ask before it says anything."""
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    scene.cut(1)
    scene.elect(2)
    scene.propose(2, b"v1")
    scene.deliver()
    assert isinstance(scene.answers[b"v1"], Done)
    assert scene.read(1) is None
    scene.heal()
    scene.beat(2)
    assert scene.answers["read"] == Refused(Reason.NOT_LEADER)


def a_question_waits_for_a_round_that_begins_after_it() -> None:
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    scene.read(1, "first")
    on_their_way = scene.links
    scene.links = []
    for _, to, message in on_their_way:
        scene.step(to, Received(message))
    answers, scene.links = scene.links, []  # The answers to the first round stay on the road,
    scene.cut(1)
    scene.elect(2)
    scene.propose(2, b"v1")
    scene.deliver()
    assert scene.read(1, "second") is None  # and arrive after the second question, which they say nothing about.
    for _, to, message in answers:
        scene.step(to, Received(message))
    assert "first" in scene.answers
    assert "second" not in scene.answers


def a_removed_leader_goes() -> None:
    scene = Scene(3)
    scene.elect(1)
    scene.beat(1)
    scene.order(1, RemoveVoter("remove", scene[1].me))
    scene.deliver()
    assert isinstance(scene.answers["remove"], Done)
    assert scene[1].role is RoleName.FOLLOWER
    assert RoleName.LEADER in (scene[2].role, scene[3].role), "it asked somebody to take over"
    for _ in range(3):
        scene.stand(1)
        scene.deliver()
    assert scene[1].role is RoleName.FOLLOWER


def a_snapshot_brings_its_voters() -> None:
    """Who comes late gets the voters with the snapshot: the entry that named them is gone."""
    scene = Scene(3, spares=1)
    scene.elect(1)
    scene.beat(1)
    scene.cut(1, 2, 3)
    scene.remove(1, scene[3].me)
    scene.deliver()
    scene.take_snapshot(1)
    scene.take_snapshot(2)
    scene.heal()
    scene.stand(4)
    scene.deliver()
    scene.beat(1)
    assert scene[4].living.voters == scene[1].living.voters
    assert len(scene[4].living.voters.replicas) == 2
    scene.restart(4)
    assert scene[4].living.voters == scene[1].living.voters


def _vote_request(scene: Scene, candidate: int, voter: int, *, term: int, end: int = 0) -> VoteRequest:
    last_term = Term(term - 1 if end else 0)
    return VoteRequest(scene[candidate].me, Term(term), scene[voter].me, False, False, last_term, Offset(end))


def _granted(scene: Scene, voter: int) -> bool:
    """Whether the last thing it said was yes."""
    replies = [message for sender, _, message in scene.links if sender == voter and isinstance(message, VoteReply)]
    return replies[-1].is_granted


# For each variant the scene that was made for it.
SCENARIOS = {
    "commits-entries-of-older-terms": figure_8,
    "changes-voters-before-it-has-committed": a_change_of_voters_before_the_first_commit,
    "changes-several-voters-at-once": two_changes_at_once,
    "votes-with-a-disk-that-promised-nothing": a_lost_disk_does_not_vote_again,
    "forgets-its-vote": a_vote_is_remembered,
    "takes-a-snapshot-over-what-it-acknowledged": an_old_snapshot_takes_nothing_back,
    "stands-without-asking-first": who_was_away_comes_back_quietly,
    "hears-candidates-while-it-hears-a-leader": while_a_leader_is_heard_candidates_are_not,
    "leads-on-without-a-majority": a_leader_that_hears_no_majority_steps_down,
    "reads-without-asking-anybody": a_question_asked_of_an_old_leader_is_not_answered,
    "reads-by-a-round-that-began-before": a_question_waits_for_a_round_that_begins_after_it,
    "stays-in-office-when-removed": a_removed_leader_goes,
    "forgets-the-voters-of-a-snapshot": a_snapshot_brings_its_voters,
}
