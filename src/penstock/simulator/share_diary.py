"""What members of a share group were given of a queue's log, what they said of it, and how long they surely were there.

A group reads what senders of the queue were told is written (queue_diary.py), beside the queue's own workers and without them.
"""

from dataclasses import dataclass, field

from penstock.simulator.places import Place

GROUP = "share"
LOCK_SECONDS = 30.0  # How long a record is a member's: the default of share.record.lock.duration.ms.
DELIVERIES_MAX = 5  # The default of share.delivery.count.limit.
ACCEPT, RELEASE, REJECT = 1, 2, 3


@dataclass(slots=True, eq=False)
class Session:
    """Of one member at one node. Nobody else says when a node has noticed its end, so it surely lasts while its member is answered."""

    member: str
    heard: float = 0.0  # When the last answer came.


@dataclass(slots=True, eq=False)
class ShareTold:
    """One delivery of one record."""

    place: Place
    session: Session
    count: int  # Of deliveries, as the node tells it.
    asked: float
    at: float
    word: int = 0  # What its member said of it; 0: nothing.
    said: float = 0.0
    is_believed: bool | None = None  # None: no answer told.
    ended: float = -1.0

    @property
    def may_be_over(self) -> bool:
        """Somebody may have finished it."""
        return self.word in (ACCEPT, REJECT) and self.is_believed is not False

    @property
    def held_until(self) -> float:
        """To when it surely was this member's."""
        until = min(self.session.heard, self.asked + LOCK_SECONDS)
        return min(until, self.said) if self.word else until


@dataclass(slots=True)
class ShareDiary:
    deliveries: list[ShareTold] = field(default_factory=list)
    unheard: int = 0  # Fetches without an answer, or refused ones: each may have taken what nobody ever saw.
    emptied: dict[str, bool] = field(default_factory=dict)  # Of each queue with a group, whether nothing was left at the end.

    def by_place(self) -> dict[Place, list[ShareTold]]:
        """Of each record, in the order in which they were told."""
        found: dict[Place, list[ShareTold]] = {}
        for each in sorted(self.deliveries, key=lambda told: told.at):
            found.setdefault(each.place, []).append(each)
        return found
