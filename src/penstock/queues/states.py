"""The states of a message in a ledger, and the only moves between them.

`MOVES` is the table that the reference page prints: from, to, and what causes it. A decision that makes another move stops the node.
Ready and delayed are told apart by the clock alone: a message that is ready from a given time on needs no record when that time comes.
"""

from enum import IntEnum


class State(IntEnum):
    """By the numbers that are stored. A message without a number of its own is ready (or delayed by its sender), or done."""

    READY = 1
    DELAYED = 2
    LEASED = 3
    BURYING = 4  # On its way to the dead letters, or wherever it was sent off to: nobody gets it any more.
    DONE = 5


MOVES: dict[tuple[State, State], str] = {
    (State.READY, State.LEASED): "somebody takes it, or who had it last extends a lease that had lapsed",
    (State.READY, State.BURYING): "it is sent off to another queue",
    (State.READY, State.DONE): "it is cancelled, purged, trimmed, expired, a duplicate, or finished by a lease that had lapsed",
    (State.DELAYED, State.READY): "its time has come",
    (State.DELAYED, State.LEASED): "who had it last extends a lease that had lapsed",
    (State.DELAYED, State.DONE): "it is cancelled, purged, trimmed, expired, a duplicate, or finished by a lease that had lapsed",
    (State.LEASED, State.DONE): "who holds it has finished it; or it is purged, trimmed, or failed for good without a dead-letter queue",
    (State.LEASED, State.LEASED): "who holds it has extended the lease",
    (State.LEASED, State.READY): "it is released, or its lease has lapsed, and no delay applies",
    (State.LEASED, State.DELAYED): "it is released, or its lease has lapsed, and it waits for its next turn",
    (State.LEASED, State.BURYING): "it is rejected, or has failed as often as it may",
    (State.BURYING, State.READY): "it was sent off, and the other queue is gone or refuses it",
    (State.BURYING, State.DONE): "it is safe in the other queue; or it is purged or trimmed",
    (State.DONE, State.READY): "the queue is rewound",
}
