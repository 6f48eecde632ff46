"""What may be forgotten of a share group: until when its members must be heard of. After a restart everybody has a full session."""

from dataclasses import dataclass, field
from math import inf

from penstock.vocabulary import Instant

NEVER = Instant(inf)


@dataclass(slots=True)
class ShareSession:
    heard_by: dict[str, Instant] = field(default_factory=dict)  # By member id: when its session lapses.
    topics_version: int = -1  # Of the topics that what is recorded was last compared with.

    def lapsed(self, now: Instant) -> list[str]:
        return [member_id for member_id, deadline in self.heard_by.items() if deadline <= now]

    def earliest(self) -> Instant:
        return min(self.heard_by.values(), default=NEVER)
