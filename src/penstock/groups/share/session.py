"""What may be forgotten of a share group: until when its members must be heard of, and whether its ledgers are being changed (changing.py).

After a restart everybody has a full session, and nothing is being changed."""

from dataclasses import dataclass, field
from enum import Enum, auto
from math import inf
from typing import NamedTuple

from penstock.vocabulary import Instant

NEVER = Instant(inf)


class Change(Enum):
    BEGINS = auto()
    GOES = auto()


class Held(NamedTuple):
    """The ledgers of a group are being changed."""

    change: Change
    until: Instant
    number: int  # Who brings it ends the change.


@dataclass(slots=True)
class ShareSession:
    heard_by: dict[str, Instant] = field(default_factory=dict)  # By member id: when its session lapses.
    topics_version: int = -1  # Of the topics that what is recorded was last compared with.

    def lapsed(self, now: Instant) -> list[str]:
        return [member_id for member_id, deadline in self.heard_by.items() if deadline <= now]

    def earliest(self) -> Instant:
        return min(self.heard_by.values(), default=NEVER)
