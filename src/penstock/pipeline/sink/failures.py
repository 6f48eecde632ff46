"""What a sink raises: what happened to the batch, why, and what to do."""

from penstock.peers.failures import PeerFailure


class SinkFailure(PeerFailure):
    """Nothing of the batch counts: it can be written again, and is when the query is started again."""


class TakenOver(SinkFailure):
    """Another run of the query writes in the place of this one, or this attempt came too late."""


class WrongCheckpoint(SinkFailure):
    """The batch that Spark brings does not follow the one that the ledger knows."""


class RowsLost(SinkFailure):
    """The batch is committed, and a transaction of it was aborted all the same: its rows are gone, those of the others are there."""


class Undecided(SinkFailure):
    """The commit record was sent and not acknowledged: the next run finds out."""
