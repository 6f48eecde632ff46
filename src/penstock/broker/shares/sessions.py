"""Share sessions: a member of a share group names its partitions once and then only what changes.

A session belongs to one member of one group, and to the connection that it last came on. It is opened by epoch 0, goes on with 1, 2, … and
is closed by -1; whoever closes it, or whose connection goes, gives back what it held. A session is never written down: after a restart of
the node the member opens another one, and still holds what it held, for leases are durable.
Opening one that is there begins it anew. Past the bound nobody is let in (SHARE_SESSION_LIMIT_REACHED); none is thrown out for another.
A request that asks for more than a session may have changes nothing of it, not even its epoch; closing is never refused.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING

from penstock.broker.shares.opening import Openings, Place
from penstock.errors import ErrorCode, Refusal
from penstock.queues.commands import WHO_BYTES_MAX
from penstock.vocabulary import Instant

if TYPE_CHECKING:
    from penstock.broker.connection import Connection

OPENS, CLOSES = 0, -1
EPOCH_MAX = 2**31 - 1  # After which comes 1.
PARTITIONS_MAX = 10_000  # Of one session.

Holds = Callable[[Place], bool]


def _nobody_holds(_: Place) -> bool:
    return False


@dataclass(eq=False, slots=True)
class ShareSession:
    group: str
    member_id: str
    connection: "Connection"
    who: str  # As which the member stands in ledgers.
    epoch: int = 1  # That it must come with next.
    places: dict[Place, None] = field(default_factory=dict)  # In the order in which they are looked at.
    left: dict[Place, None] = field(default_factory=dict)  # Those that were forgotten, where the member may still hold records.
    openings: Openings = field(default_factory=Openings)
    refused: dict[Place, tuple[Refusal, Instant]] = field(default_factory=dict)  # Partitions to be left alone, why, and until when.

    @property
    def ever(self) -> list[Place]:
        """Wherever the member may hold records."""
        return [*self.places, *self.left]

    def change(self, wanted: Iterable[Place], forgotten: Sequence[Place], holds: Holds) -> None:
        """`holds` tells whether somebody may hold records of a place that is forgotten. Raises Refusal, and then nothing has changed."""
        new = [place for place in wanted if place not in self.places]
        if not new and not forgotten:
            return
        places = self.places | dict.fromkeys(new)
        gone = [place for place in dict.fromkeys(forgotten) if places.pop(place, self) is None]
        left = {place: None for place in (*self.left, *gone) if place not in places}
        if gone or len(places) + len(left) > PARTITIONS_MAX:
            left = {place: None for place in left if holds(place)}
        if len(places) + len(left) > PARTITIONS_MAX:
            raise Refusal(ErrorCode.INVALID_REQUEST, f"a share session has at most {PARTITIONS_MAX} partitions")
        self.places, self.left = places, left
        for place in gone:
            self.refused.pop(place, None)

    def why_not(self, place: Place, now: Instant) -> Refusal | None:
        """Why nothing is to be asked of the partition now."""
        refusal, until = self.refused.get(place, (None, now))
        if refusal is not None and until <= now:
            del self.refused[place]
            return None
        return refusal

    def turn(self) -> list[Place]:
        """Its partitions, beginning with another one each time, so that none is forgotten for the others."""
        places = list(self.places)
        if len(places) > 1:
            del self.places[places[0]]
            self.places[places[0]] = None
        return places


class ShareSessions:
    def __init__(self, sessions_max: Callable[[], int], released: Callable[[ShareSession], None]) -> None:
        """`released` hears of each session that is over: what its member holds is to be given back."""
        self._sessions_max = sessions_max
        self._released = released
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._by_connection: dict[Connection, dict[ShareSession, None]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, group: str, member_id: str, connection: "Connection", wanted: Iterable[Place]) -> ShareSession:
        known = self._sessions.get((group, member_id))
        if known is None and len(self._sessions) >= self._sessions_max():
            reason = "as many share sessions are open on this node as may be (setting group.share.max.share.sessions)"
            raise Refusal(ErrorCode.SHARE_SESSION_LIMIT_REACHED, reason)
        session = ShareSession(group, member_id, connection, who_of(member_id))
        session.change(wanted, (), _nobody_holds)
        if known is not None:
            self._forget(known)
        self._sessions[group, member_id] = session
        self._by_connection.setdefault(connection, {})[session] = None
        return session

    def resume(
        self,
        group: str,
        member_id: str,
        epoch: int,
        connection: "Connection",
        *,
        wanted: Iterable[Place] = (),
        forgotten: Sequence[Place] = (),
        holds: Holds = _nobody_holds,
    ) -> ShareSession:
        """The session for its next request, changed as that wants; CLOSES is always next, and changes nothing."""
        session = self._sessions.get((group, member_id))
        if session is None:
            raise Refusal(ErrorCode.SHARE_SESSION_NOT_FOUND, f"member {member_id!r} of group {group!r} has no share session here: open one")
        if epoch != CLOSES:
            if epoch != session.epoch:
                reason = f"the share session's epoch is {session.epoch}, not {epoch}: open a new one"
                raise Refusal(ErrorCode.INVALID_SHARE_SESSION_EPOCH, reason)
            session.change(wanted, forgotten, holds)
            session.epoch = 1 if epoch == EPOCH_MAX else epoch + 1
        if session.connection is not connection:
            self._leave(session)
            session.connection = connection
            self._by_connection.setdefault(connection, {})[session] = None
        return session

    def close(self, session: ShareSession) -> None:
        if self._sessions.get((session.group, session.member_id)) is session:
            self._forget(session)
            self._released(session)

    def connection_closed(self, connection: "Connection") -> None:
        for session in list(self._by_connection.get(connection, ())):
            self.close(session)

    def forget_all(self) -> None:
        """The node stops: its members come back soon, to this node or the next, and hold what they hold."""
        for session in self._sessions.values():
            session.openings.cancel()
        self._sessions.clear()
        self._by_connection.clear()

    def _forget(self, session: ShareSession) -> None:
        del self._sessions[session.group, session.member_id]
        session.openings.cancel()
        self._leave(session)

    def _leave(self, session: ShareSession) -> None:
        beside = self._by_connection.get(session.connection, {})
        beside.pop(session, None)
        if not beside:
            self._by_connection.pop(session.connection, None)


def who_of(member_id: str) -> str:
    """How a ledger names the member. Ids of any client fit; others are told apart by their hash."""
    encoded = member_id.encode()
    return member_id if len(encoded) <= WHO_BYTES_MAX else blake2b(encoded, digest_size=WHO_BYTES_MAX // 2).hexdigest()
