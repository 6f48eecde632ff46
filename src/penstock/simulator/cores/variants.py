"""Cores that are broken on purpose: each neglects one rule, and each must be caught, by seeds or by a scene made for it.

A variant is a handful of attributes of the product's classes, replaced while one story runs and put back afterwards.
"""

from collections.abc import Callable
from typing import Any

from penstock.consensus import changes, voting
from penstock.consensus.effects import Answer, Done, Reason
from penstock.consensus.electing import Candidate
from penstock.consensus.events import AddVoter, AskBarrier, Order, Propose, RemoveVoter
from penstock.consensus.follower import Follower
from penstock.consensus.leader import Leader
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import VoteRequest
from penstock.consensus.nouns import Entry, Replica, Term
from penstock.consensus.outbox import Outbox
from penstock.consensus.peer import Peer
from penstock.consensus.reads import Reads
from penstock.consensus.replicating import feed
from penstock.consensus.roles import RoleName
from penstock.consensus.state import State
from penstock.consensus.tail import WrittenLog
from penstock.consensus.voters import Voters, VotersHistory
from penstock.simulator.defects import breaks
from penstock.vocabulary import Instant, NodeId, Offset

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.


# Votes.


@breaks("consensus.one-vote-per-term")
def forgets_its_vote() -> Patches:
    def vote_for(self: State, candidate: Replica) -> None:
        self.voted_for = candidate

    return [(State, "vote_for", vote_for)]


@breaks("consensus.one-vote-per-term")
def tells_its_vote_before_it_is_durable() -> Patches:
    return [(Outbox, "is_vote_durable", property(lambda self: True))]


@breaks("consensus.one-vote-per-term")
def votes_twice() -> Patches:
    def votes(state: State, request: VoteRequest, *, has_leader: bool) -> bool:
        return request.term == state.term and state.is_at_least_as_complete(request.last_term, request.end)

    def vote_for(self: State, candidate: Replica) -> None:
        self.voted_for = candidate
        self.out.persist_vote(self.term, candidate)

    return [(voting, "votes", votes), (State, "vote_for", vote_for)]


@breaks("consensus.leader-completeness")
def votes_for_any_log() -> Patches:
    return [(State, "is_at_least_as_complete", lambda self, last_term, end: True)]


@breaks("consensus.lost-disk-no-vote")
def votes_with_a_disk_that_promised_nothing() -> Patches:
    def has(self: Voters, replica: Replica) -> bool:
        return self.directory_of(replica.node) is not None

    return [(voting, "is_asked", lambda state, request: True), (Voters, "has", has), (State, "is_me", _is_same_node)]


def _is_same_node(self: State, voter: Replica) -> bool:
    return voter.node == self.me.node


@breaks("consensus.stable-leadership")
def stands_without_asking_first() -> Patches:
    right = Follower.time_passed

    def time_passed(self: Follower, now: Instant) -> RoleName | None:
        return RoleName.CANDIDATE if right(self, now) is RoleName.PROSPECTIVE else None

    return [(Follower, "time_passed", time_passed)]


@breaks("consensus.stable-leadership")
def hears_candidates_while_it_hears_a_leader() -> Patches:
    return [(Follower, "hears_a_leader", lambda self, now: False), (Leader, "hears_a_leader", lambda self, now: False)]


# The log.


@breaks("consensus.committed-on-majority")
def acknowledges_before_the_flush() -> Patches:
    replace_from = WrittenLog.replace_from

    def replace_and_believe(self: WrittenLog, first: Offset, entries: tuple[Entry, ...], sequence: int) -> None:
        replace_from(self, first, entries, sequence)
        self.durable_end = self.end

    return [(WrittenLog, "replace_from", replace_and_believe)]


@breaks("consensus.committed-on-majority")
def counts_its_own_disk_before_the_flush() -> Patches:
    def match_of(self: Leader, voter: Replica) -> int:
        return self._state.log.end if self._state.is_me(voter) else self._peers[voter].match_end

    return [(Leader, "_match_of", match_of)]


@breaks("consensus.leader-completeness")
def cuts_the_log_on_every_append() -> Patches:
    def write(self: Follower, first: Offset, entries: tuple[Entry, ...]) -> bool:
        if first < self._state.log.end or entries:
            self._state.write(first, entries)
        return bool(entries)

    return [(Follower, "_write_what_is_new", write)]


@breaks("consensus.leader-completeness")
def commits_entries_of_older_terms() -> Patches:
    """Figure 8 of the Raft paper."""

    def commit(self: Leader) -> RoleName | None:
        state = self._state
        end = Offset(state.voters.reached_by_majority(self._match_of))
        if end > state.committed_end:
            state.commit(end)
            for peer in self._peers.values():
                feed(state, peer, self._reads.round)
        return None

    return [(Leader, "_commit", commit)]


@breaks("consensus.committed-on-majority")
def commits_what_it_has_not_compared() -> Patches:
    commit = State.commit

    def commit_all(self: State, end: Offset) -> None:
        commit(self, self.log.end if end > self.committed_end else end)

    return [(State, "commit", commit_all)]


@breaks("consensus.committed-on-majority")
def answers_before_a_majority_has_it() -> Patches:
    def await_commit(self: Leader, token: object, size: int) -> None:
        self._state.out.add(Answer(token, Done(self._state.log.end)))

    return [(Leader, "_await_commit", await_commit)]


# Snapshots.


@breaks("consensus.committed-on-majority")
def takes_a_snapshot_over_what_it_acknowledged() -> Patches:
    def has_all_of(self: Follower, head: SnapshotHead) -> bool:
        return head.end <= self._state.committed_end

    return [(Follower, "_has_all_of", has_all_of)]


@breaks("consensus.one-voter-change")
def forgets_the_voters_of_a_snapshot() -> Patches:
    install = State.install

    def install_without(self: State, head: SnapshotHead) -> None:
        kept = self.history
        install(self, head)
        self.history, self.voters = VotersHistory(head.end, kept.latest), kept.latest

    return [(State, "install", install_without)]


# Voters.


@breaks("consensus.one-voter-change")
def changes_voters_before_it_has_committed() -> Patches:
    """The flaw of the first membership changes, found in 2015."""
    refusal = Leader._refusal

    def refuse_less(self: Leader, order: Order) -> Reason | None:
        reason = refusal(self, order)
        return None if reason is Reason.NOT_READY and isinstance(order, AddVoter | RemoveVoter) else reason

    def decide(state: State, order: AddVoter | RemoveVoter, peer: Peer | None) -> Voters | Reason:
        end = state.history.latest_end
        is_under_way = end > state.committed_end and state.log.term_before(end) == state.term
        return Reason.CHANGE_UNDER_WAY if is_under_way else _decide_at_once(state, order, peer)

    return [(Leader, "_refusal", refuse_less), (changes, "decide", decide)]


@breaks("consensus.one-voter-change")
def changes_several_voters_at_once() -> Patches:
    return [(changes, "decide", _decide_at_once)]


def _decide_at_once(state: State, order: AddVoter | RemoveVoter, peer: Peer | None) -> Voters | Reason:
    if isinstance(order, AddVoter):
        return changes._added(state, order.replica, peer)
    return changes._removed(state.voters, order.replica)


@breaks("consensus.one-voter-change")
def keeps_voters_that_were_cut_off() -> Patches:
    add = VotersHistory.add

    def add_after(self: VotersHistory, end: Offset, voters: Voters) -> None:
        add(self, max(end, Offset(self.latest_end + 1)), voters)

    return [(VotersHistory, "cut", lambda self, end: None), (VotersHistory, "add", add_after)]


@breaks("consensus.one-voter-change")
def stays_in_office_when_removed() -> Patches:
    return [(State, "is_voter", property(lambda self: True)), (Voters, "is_majority", _is_majority_of_anybody)]


def _is_majority_of_anybody(self: Voters, nodes: dict[NodeId, None] | list[NodeId]) -> bool:
    return len(list(nodes)) >= self.majority


# Reads, and leading on.


@breaks("consensus.barrier-reads-current")
def reads_without_asking_anybody() -> Patches:
    def ask(self: Reads, token: object, committed_end: Offset) -> None:
        self._waiting.append((0, committed_end, token))

    return [(Reads, "ask", ask)]


@breaks("consensus.barrier-reads-current")
def reads_by_a_round_that_began_before() -> Patches:
    def ask(self: Reads, token: object, committed_end: Offset) -> None:
        self._waiting.append((max(self.round, 1), committed_end, token))

    return [(Reads, "ask", ask)]


@breaks("consensus.barrier-reads-current")
def reads_before_it_has_committed() -> Patches:
    refusal = Leader._refusal

    def refuse_less(self: Leader, order: Order) -> Reason | None:
        reason = refusal(self, order)
        return None if reason is Reason.NOT_READY and isinstance(order, AskBarrier | Propose) else reason

    return [(Leader, "_refusal", refuse_less)]


@breaks("consensus.stable-leadership")
def leads_on_without_a_majority() -> Patches:
    return [(Leader, "_hears_a_majority", lambda self, now: True)]


@breaks("consensus.one-vote-per-term")
def ignores_a_higher_term() -> Patches:
    """A candidate that wins in the term it lives in, instead of a new one."""

    def init(self: Candidate, state: State, now: Instant, *, is_by_transfer: bool = False) -> None:
        state.term, state.voted_for = Term(max(state.term, 1)), state.me
        state.out.persist_vote(state.term, state.me)
        super(Candidate, self).__init__(state, now, is_by_transfer=is_by_transfer)

    return [(Candidate, "__init__", init)]


_ALL = (
    forgets_its_vote, tells_its_vote_before_it_is_durable, votes_twice, votes_for_any_log, votes_with_a_disk_that_promised_nothing,
    stands_without_asking_first, hears_candidates_while_it_hears_a_leader, acknowledges_before_the_flush,
    counts_its_own_disk_before_the_flush, cuts_the_log_on_every_append, commits_entries_of_older_terms, commits_what_it_has_not_compared,
    answers_before_a_majority_has_it, takes_a_snapshot_over_what_it_acknowledged, forgets_the_voters_of_a_snapshot,
    changes_voters_before_it_has_committed, changes_several_voters_at_once, keeps_voters_that_were_cut_off, stays_in_office_when_removed,
    reads_without_asking_anybody, reads_by_a_round_that_began_before, reads_before_it_has_committed, leads_on_without_a_majority,
    ignores_a_higher_term,
)  # fmt: skip

VARIANTS: dict[str, Callable[[], Patches]] = {variant.__name__.replace("_", "-"): variant for variant in _ALL}
