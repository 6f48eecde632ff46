"""Standing for election: first on trial, then for good.

A prospective asks whether it would be elected and changes nothing (pre-vote, KIP-996): a replica that was cut off does not come back with
a high term and push a good leader out. A candidate has begun a new term and voted for itself. Its own vote counts like any other,
when it is durable; alone, that is the whole election.
"""

from penstock.consensus.messages import Message, VoteReply, VoteRequest
from penstock.consensus.nouns import Term
from penstock.consensus.roles import Role, RoleName
from penstock.consensus.state import State
from penstock.vocabulary import Instant, NodeId


class _Electing(Role):
    is_trial: bool
    after_winning: RoleName

    def __init__(self, state: State, now: Instant, *, is_by_transfer: bool = False) -> None:
        self._state = state
        self.leader = None
        self.due = state.draw_election(now)
        self._granted: dict[NodeId, None] = {}
        for peer in state.peers():
            state.send(peer, VoteRequest(state.me, state.term, peer, self.is_trial, is_by_transfer, state.log.last_term, state.log.end))

    def hears_a_leader(self, now: Instant) -> bool:
        return False

    def time_passed(self, now: Instant) -> RoleName | None:
        return RoleName.PROSPECTIVE if now >= self.due else None

    def receive(self, message: Message, now: Instant) -> RoleName | None:
        if not isinstance(message, VoteReply) or message.is_trial is not self.is_trial or message.asked_term != self._state.term:
            return None
        if message.is_granted and self._state.voters.has(message.sender):
            self._granted[message.sender.node] = None
        return self.verdict()

    def persisted(self, now: Instant) -> RoleName | None:
        return self.verdict()

    def verdict(self) -> RoleName | None:
        if self._state.is_voter and self._state.out.is_vote_durable:
            self._granted[self._state.me.node] = None
        return self.after_winning if self._state.voters.is_majority(self._granted) else None


class Prospective(_Electing):
    name = RoleName.PROSPECTIVE
    is_trial = True
    after_winning = RoleName.CANDIDATE

    def __init__(self, state: State, now: Instant) -> None:
        super().__init__(state, now)
        # It may have been away so long that none of the voters it knows is left: somebody else may lead.
        state.knock(node for node in state.contacts if state.voters.directory_of(node) is None)


class Candidate(_Electing):
    name = RoleName.CANDIDATE
    is_trial = False
    after_winning = RoleName.LEADER

    def __init__(self, state: State, now: Instant, *, is_by_transfer: bool = False) -> None:
        state.raise_term(Term(state.term + 1), voted_for=state.me)
        super().__init__(state, now, is_by_transfer=is_by_transfer)
