"""Handing leadership over: the leader takes nothing new, brings one voter level with itself, and asks it to stand at once.

It leads on if that does not happen within an election time-out: the one who was asked may be gone, and a cluster without decisions helps
nobody.
"""

from dataclasses import dataclass

from penstock.consensus.nouns import Replica
from penstock.consensus.peer import Peer
from penstock.consensus.voters import Voters
from penstock.vocabulary import Instant, NodeId


@dataclass(slots=True)
class Transfer:
    token: object
    to: Replica
    gives_up_at: Instant
    is_asked: bool = False


def choose(voters: Voters, peers: dict[Replica, Peer], to: NodeId | None) -> Peer | None:
    """The voter that is wished for, or the one that has come farthest and was heard last."""
    candidates = [peers[voter] for voter in voters.replicas if voter in peers and to in (None, voter.node)]
    return max(candidates, key=lambda peer: (peer.match_end, peer.heard_at), default=None)
