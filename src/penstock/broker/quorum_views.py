"""The quorum as operators see it (DescribeQuorum): who votes, who looks on, how far each has come. Only a leader knows more than names."""

from typing import NamedTuple

from penstock.consensus.core import Core
from penstock.consensus.leader import Leader
from penstock.consensus.nouns import Replica, Term
from penstock.vocabulary import Instant, NodeId, Offset

NOT_KNOWN = Offset(-1)


class ReplicaView(NamedTuple):
    replica: Replica
    end: Offset  # Every entry below is on its disk and is the leader's; -1 where nobody knows.
    silent_seconds: float | None  # Since the leader last heard from it; None where nobody knows.


class QuorumView(NamedTuple):
    leader: NodeId | None
    term: Term
    committed_end: Offset
    voters: tuple[ReplicaView, ...]
    observers: tuple[ReplicaView, ...]


def describe(core: Core, now: Instant) -> QuorumView:
    state, role = core.state, core.role
    known = {state.me: ReplicaView(state.me, state.log.durable_end, 0.0)}
    if isinstance(role, Leader):
        known |= {peer.replica: ReplicaView(peer.replica, peer.match_end, max(0.0, now - peer.heard_at)) for peer in role.peers}
    by_node = {replica.node: view for replica, view in known.items() if core.voters.has(replica)}
    voters = [by_node.get(voter.node, ReplicaView(voter, NOT_KNOWN, None)) for voter in core.voters.replicas]
    observers = [view for replica, view in known.items() if not core.voters.has(replica)]
    return QuorumView(core.leader, core.term, core.committed_end, tuple(voters), tuple(observers))
