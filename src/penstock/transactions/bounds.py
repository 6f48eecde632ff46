"""What a coordinator may hold and how long it waits: the node's settings as this room needs them, and the bounds that nobody sets.

A changed setting takes effect by giving the coordinator another `TransactionSettings`; time-outs that already run keep their end.
"""

from dataclasses import dataclass

from penstock.settings import HOUR_MS, NodeSettings

# Characters of a transactional id. It stands in every record of its transactions; clients use tens of them.
TRANSACTIONAL_ID_MAX = 1_000

# Partitions of one transaction. Every record of it carries all of them, and so must fit into a batch. It is also about how many of them
# one call of `lapse` writes down.
PARTITIONS_MAX = 10_000

# Ids of one coordinator, beside the bound on what all of them take in memory: a list of them is made in one go, in some milliseconds.
IDS_MAX = 20_000

# As Kafka checks for ids that nobody uses; sooner where they are to be forgotten sooner.
EXPIRY_CHECK_MS = HOUR_MS

# How much one call of `lapse` does before it lets others go on.
ABORTS_PER_LAPSE = 200
IDS_PER_SLICE = 2_000
SLICE_PAUSE_MS = 10


@dataclass(frozen=True, slots=True)
class TransactionSettings:
    timeout_max_ms: int
    id_expiration_ms: int
    abort_again_ms: int

    @classmethod
    def of(cls, node: NodeSettings) -> "TransactionSettings":
        return cls(
            timeout_max_ms=node.transaction_max_timeout_ms,
            id_expiration_ms=node.transactional_id_expiration_ms,
            abort_again_ms=node.transaction_abort_interval_ms,
        )

    @property
    def expiry_check_ms(self) -> int:
        return min(self.id_expiration_ms, EXPIRY_CHECK_MS)
