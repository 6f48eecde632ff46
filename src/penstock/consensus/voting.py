"""How a replica answers those who stand for election, whatever its own role.

Rules:
- Only the replica that is asked answers: another directory under the same node has promised nothing and votes for nobody.
  A voter that was named by its node alone has this protection from when its directory is written down, and among those who have read that.
  (Rejected: an empty disk that votes for nobody who has more than it. Two voters, of which the first wrote an entry and died, would wait
  forever.)
- A vote needs a log at least as complete as one's own, and is given once in a term.
- While a leader is heard, candidates are not: not on trial, and not for good unless the leader itself asked for the election. Together
  with the leader's own check of its majority this keeps a replica that was removed, or hears badly, from disturbing the others.
  Not even their term is taken over; if it was raised for good reasons, the leader hears of it in the reply to its next append.
"""

from penstock.consensus.messages import VoteReply, VoteRequest
from penstock.consensus.nouns import ANY_DIRECTORY
from penstock.consensus.state import State


def is_asked(state: State, request: VoteRequest) -> bool:
    return request.voter.node == state.me.node and request.voter.directory in (state.me.directory, ANY_DIRECTORY)


def would_vote(state: State, request: VoteRequest) -> bool:
    return request.term >= state.term and state.is_at_least_as_complete(request.last_term, request.end)


def votes(state: State, request: VoteRequest, *, has_leader: bool) -> bool:
    """Whether it votes for the candidate, in a term that it has adopted."""
    return (
        request.term == state.term
        and not has_leader
        and state.voted_for in (None, request.sender)
        and state.is_at_least_as_complete(request.last_term, request.end)
    )


def reply(state: State, request: VoteRequest, *, is_granted: bool) -> None:
    state.send(request.sender, VoteReply(state.me, state.term, request.term, request.is_trial, is_granted))
