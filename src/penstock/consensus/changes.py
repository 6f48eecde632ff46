"""Changes of the set of voters: by one, one at a time, and only by a leader that has committed an entry of its own term.

The last rule is the correction that Raft needed in 2015: without it two leaders, each with a change of its own that the other never saw,
can have majorities without a common member. A new voter was an observer and has caught up, so that the set does not wait for it. A voter
whose disk was lost is replaced in two steps, removed and added: in one, the new disk would stand for promises it never made.
"""

from penstock.consensus.effects import Reason
from penstock.consensus.events import AddVoter, RemoveVoter
from penstock.consensus.nouns import ANY_DIRECTORY, Replica
from penstock.consensus.peer import Pace, Peer
from penstock.consensus.state import State
from penstock.consensus.voters import Voters


def is_under_way(state: State) -> bool:
    return state.history.latest_end > state.committed_end


def decide(state: State, order: AddVoter | RemoveVoter, peer: Peer | None) -> Voters | Reason:
    """The voters as they shall be, or why not. `peer` is what the leader knows of the replica."""
    if is_under_way(state):
        return Reason.CHANGE_UNDER_WAY
    if isinstance(order, AddVoter):
        return _added(state, order.replica, peer)
    return _removed(state.voters, order.replica)


def owed(state: State, peers: dict[Replica, Peer]) -> Voters | None:
    """What the leader writes down by itself: directories of voters that were named by their nodes alone, as they become known; and
    the first voters in any case, so that the log alone says who votes.
    """
    if state.voters.are_all_known:
        return state.voters if state.history.latest_end == 0 else None
    for voter in state.voters.replicas:
        if voter.directory != ANY_DIRECTORY:
            continue
        known = state.me if state.is_me(voter) else peers[voter].replica
        if known.directory != ANY_DIRECTORY:
            return state.voters.pinned(known)
    return state.voters if state.history.latest_end == 0 else None


def _added(state: State, replica: Replica, peer: Peer | None) -> Voters | Reason:
    if state.voters.directory_of(replica.node) is not None:
        return Reason.ALREADY_A_VOTER
    is_streaming = peer is not None and peer.pace is Pace.STREAMING
    if peer is None or not is_streaming or peer.match_end + state.options.caught_up_entries_max < state.log.end:
        return Reason.NOT_CAUGHT_UP
    return state.voters.plus(replica)


def _removed(voters: Voters, replica: Replica) -> Voters | Reason:
    if replica not in voters.replicas:
        return Reason.NOT_A_VOTER
    if len(voters.replicas) == 1:
        return Reason.LAST_VOTER
    return voters.minus(replica)
