"""What `decide` and `lapse` return."""

from dataclasses import dataclass

from penstock.queues.commands import Token
from penstock.queues.records import Record
from penstock.queues.replies import Reply


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes true, and who hears what of it."""

    records: list[Record]
    replies: list[tuple[Token, Reply]]
