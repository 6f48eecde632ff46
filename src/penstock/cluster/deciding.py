"""A decision: what becomes true, and what the asker hears."""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.cluster import records
from penstock.cluster.replies import Reply
from penstock.errors import ErrorCode, Refusal


@dataclass(frozen=True, slots=True)
class Decision:
    """One reply for each thing asked, in the order asked."""

    records: tuple[records.Record, ...]
    replies: tuple[Reply, ...]


def agreed(made: Sequence[records.Record], *replies: Reply) -> Decision:
    return Decision(tuple(made), replies)


def refused(code: ErrorCode, reason: str) -> Decision:
    return Decision((), (Refusal(code, reason),))
