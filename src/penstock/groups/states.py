"""The states of a consumer group, and the only moves between them.

`MOVES` is the table that the reference page prints: from, to, and what causes it. A move that isn't in it stops the node.
Dead is no state that a group lives in: it is what a person hears about a group that isn't there.
"""

from enum import StrEnum


class GroupState(StrEnum):
    """As Kafka spells them: admin tools show these words."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    ASSIGNING = "Assigning"  # The new protocol only: the targets are to be computed.
    RECONCILING = "Reconciling"  # The new protocol only: not everybody has yet what it shall have.
    DEAD = "Dead"


MOVES: dict[tuple[GroupState, GroupState], str] = {
    (GroupState.EMPTY, GroupState.PREPARING): "the first member joins; others may come during the initial rebalance delay",
    (GroupState.PREPARING, GroupState.COMPLETING): "everybody has joined, or the time to join is over: a generation begins",
    (GroupState.PREPARING, GroupState.EMPTY): "nobody is left",
    (GroupState.COMPLETING, GroupState.STABLE): "the leader's assignment is stored",
    (GroupState.COMPLETING, GroupState.PREPARING): "a member joins, leaves, lapses, changes its subscription, "
    "or doesn't ask for its assignment in time",
    (GroupState.STABLE, GroupState.PREPARING): "a member joins, leaves, lapses, changes its subscription, "
    "or doesn't ask for its assignment in time; or the leader joins again",
    (GroupState.EMPTY, GroupState.DEAD): "the group is deleted, or it is empty and its last offset has expired",
}
