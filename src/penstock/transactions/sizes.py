"""What transactional ids take in memory, about: all of a node share a bound.

Counted is what the node keeps for an id and for each partition of its transaction, by generous constants, and what the id itself takes.
"""

from penstock.transactions.records import TransactionSaved

ID_BYTES = 1_000  # Its record, its numbers and its places in dictionaries.
PARTITION_BYTES = 300  # With the topic's name, which has up to 249 characters and is most often shared.
_CHARACTER_BYTES = 4  # The most that one can take.


def held_bytes(saved: TransactionSaved) -> int:
    return id_bytes(saved.transactional_id) + PARTITION_BYTES * len(saved.partitions)


def id_bytes(transactional_id: str) -> int:
    return ID_BYTES + _CHARACTER_BYTES * len(transactional_id)
