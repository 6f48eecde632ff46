"""What `decide` and `lapse` return. What there is one of for each call is a named tuple, here as elsewhere: made in half the time."""

from typing import NamedTuple

from penstock.queues.commands import Token
from penstock.queues.records import Record
from penstock.queues.replies import Reply


class Decision(NamedTuple):
    """What becomes true, and who hears what of it."""

    records: list[Record]
    replies: list[tuple[Token, Reply]]
