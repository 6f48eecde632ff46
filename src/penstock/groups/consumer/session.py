"""What may be forgotten of a group of the new protocol: until when its members must be heard of, and when it may be assigned again.

After a restart everybody has a full session, and whoever was giving something up has its whole rebalance time-out for it again.
"""

from dataclasses import dataclass, field
from math import inf

from penstock.vocabulary import Instant

NEVER = Instant(inf)
LONG_AGO = Instant(-inf)

Deadlines = dict[str, Instant]  # By member id.


@dataclass(slots=True)
class ConsumerSession:
    heard_by: Deadlines = field(default_factory=dict)  # When a member's session lapses.
    revoked_by: Deadlines = field(default_factory=dict)  # When it must have given up what it was told to.
    joined_by: Deadlines = field(default_factory=dict)  # When a member of the classic protocol must have joined again,
    synced_by: Deadlines = field(default_factory=dict)  # and asked for what it got.
    assigned_from: Instant = LONG_AGO  # Not before this is the group assigned again.
    topics_version: int = -1  # Of the topics that what is recorded was last compared with.

    def lapsed(self, now: Instant) -> list[str]:
        """Whose time is up, each once."""
        return list(dict.fromkeys(member_id for each in self._all() for member_id, deadline in each.items() if deadline <= now))

    def earliest(self) -> Instant:
        return min((deadline for each in self._all() for deadline in each.values()), default=NEVER)

    def forget(self, member_id: str) -> None:
        for each in self._all():
            each.pop(member_id, None)

    def _all(self) -> tuple[Deadlines, ...]:
        return self.heard_by, self.revoked_by, self.joined_by, self.synced_by
