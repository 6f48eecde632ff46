"""The states of a transactional id, and the only moves between them.

`MOVES` is the table that the reference page prints: from, to, and what causes it. A move that isn't in it stops the node.
Two states are Kafka's and never recorded here: Dead is what a person hears about an id that isn't there, and PrepareEpochFence names the
moment between the wish to fence a producer and the abort of its transaction, which here is one decision.
"""

from enum import IntEnum


class TransactionState(IntEnum):
    """By the numbers that are stored, which are Kafka's too."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """As Kafka spells it: admin tools show these words, and filter by them."""
        return _TITLES[self]

    @property
    def is_ending(self) -> bool:
        """How it ends is settled, and some partitions have yet to hear of it."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_recorded(self) -> bool:
        return self <= TransactionState.COMPLETE_ABORT


_TITLES = {
    TransactionState.EMPTY: "Empty",
    TransactionState.ONGOING: "Ongoing",
    TransactionState.PREPARE_COMMIT: "PrepareCommit",
    TransactionState.PREPARE_ABORT: "PrepareAbort",
    TransactionState.COMPLETE_COMMIT: "CompleteCommit",
    TransactionState.COMPLETE_ABORT: "CompleteAbort",
    TransactionState.DEAD: "Dead",
    TransactionState.PREPARE_EPOCH_FENCE: "PrepareEpochFence",
}

STATES_BY_TITLE = {title: state for state, title in _TITLES.items()}

_ABORT_OF_NOTHING = "a producer aborts before it has sent anything: there is nobody to tell (transaction version 2)"
_INIT = "a producer begins with this id, or begins anew after an error: its epoch grows"
_FIRST_PARTITION = "the first partition is added: a new transaction begins"

MOVES: dict[tuple[TransactionState, TransactionState], str] = {
    (TransactionState.EMPTY, TransactionState.EMPTY): _INIT,
    (TransactionState.EMPTY, TransactionState.ONGOING): _FIRST_PARTITION,
    (TransactionState.EMPTY, TransactionState.COMPLETE_ABORT): _ABORT_OF_NOTHING,
    (TransactionState.EMPTY, TransactionState.DEAD): "the id was not used for transactional.id.expiration.ms",
    (TransactionState.ONGOING, TransactionState.ONGOING): "another partition is added",
    (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT): "the producer commits",
    (TransactionState.ONGOING, TransactionState.PREPARE_ABORT): "the producer aborts, its time-out is over, or another one begins",
    (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT): "every partition has its marker",
    (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT): "every partition has its marker",
    (TransactionState.COMPLETE_COMMIT, TransactionState.EMPTY): _INIT,
    (TransactionState.COMPLETE_COMMIT, TransactionState.ONGOING): _FIRST_PARTITION,
    (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT): _ABORT_OF_NOTHING,
    (TransactionState.COMPLETE_COMMIT, TransactionState.DEAD): "the id was not used for transactional.id.expiration.ms",
    (TransactionState.COMPLETE_ABORT, TransactionState.EMPTY): _INIT,
    (TransactionState.COMPLETE_ABORT, TransactionState.ONGOING): _FIRST_PARTITION,
    (TransactionState.COMPLETE_ABORT, TransactionState.COMPLETE_ABORT): _ABORT_OF_NOTHING,
    (TransactionState.COMPLETE_ABORT, TransactionState.DEAD): "the id was not used for transactional.id.expiration.ms",
}
