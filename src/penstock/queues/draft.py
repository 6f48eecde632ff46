"""A decision about single messages of one ledger, in the making. Each move is checked against the table of legal ones.

What a message that was given back, or whose lease has lapsed, comes to is the same whoever caused it: done where its time is up, buried
where it has failed as often as it may, else ready again, at once or later.
"""

from collections.abc import Callable

from penstock.errors import require
from penstock.queues.ledger import Ledger
from penstock.queues.messages import Messages
from penstock.queues.policy import Policy
from penstock.queues.records import Buried, Changed, Returned
from penstock.queues.rows import Row
from penstock.queues.states import MOVES, State


class Draft:
    __slots__ = ("_buried", "_chance", "_done", "_extended", "_returned", "ledger", "messages", "policy", "settled", "wall_ms")

    def __init__(self, ledger: Ledger, messages: Messages, policy: Policy, chance: Callable[[], float], wall_ms: int) -> None:
        self.ledger = ledger
        self.messages = messages
        self.policy = policy
        self.wall_ms = wall_ms
        self.settled: dict[int, State] = {}  # What was decided here already.
        self._chance = chance
        self._done: list[tuple[int, int]] = []
        self._returned: list[Returned] = []
        self._extended: dict[int, int] = {}
        self._buried: list[Buried] = []

    def drop(self) -> None:
        """Nothing of it was decided."""
        self.settled.clear()
        for some in (self._done, self._returned, self._extended, self._buried):
            some.clear()

    def finish(self, offset: int, before: State) -> None:
        self._move(offset, before, State.DONE)
        self._extended.pop(offset, None)
        self.finish_run(offset, offset + 1)

    def finish_held(self, offsets: list[int]) -> None:
        """Messages that somebody has, and of which nothing was decided here."""
        require((State.LEASED, State.DONE) in MOVES, "a message of a queue makes legal moves only")
        self.settled.update(dict.fromkeys(offsets, State.DONE))
        start = end = offsets[0]
        for offset in offsets:
            if offset != end:
                self.finish_run(start, end)
                start = offset
            end = offset + 1
        self.finish_run(start, end)

    def finish_run(self, start: int, end: int) -> None:
        if self._done and self._done[-1][1] == start:
            self._done[-1] = (self._done[-1][0], end)
        else:
            self._done.append((start, end))

    def extend(self, offset: int, before: State, deadline_ms: int) -> None:
        self._move(offset, before, State.LEASED)
        self._extended[offset] = deadline_ms

    def give_back(
        self,
        offset: int,
        row: Row,
        *,
        delay_ms: int | None,
        is_failure: bool,
        who: bytes = b"",
        reason: bytes = b"",
        is_lapse: bool = False,
    ) -> tuple[State, int]:
        """What a leased message comes to, and when that is. No delay given: the policy's backoff."""
        self._extended.pop(offset, None)
        if self.is_expired(offset):
            self.finish(offset, State.LEASED)
            return State.DONE, 0
        if 0 < self.policy.deliveries_max <= row.attempts:
            return self.bury(offset, who=who, reason=reason), 0
        if delay_ms is None:
            delay_ms = self.policy.backoff.delay_ms(row.attempts, self._chance())
        after = State.DELAYED if delay_ms > 0 else State.READY
        self._move(offset, State.LEASED, after)
        not_before = self.wall_ms + delay_ms if delay_ms > 0 else 0
        self._returned.append(Returned(offset, not_before, self._place(offset, row), is_failure, who, reason, is_let_go=not is_lapse))
        return after, not_before

    def undo(self, offset: int, row: Row) -> State:
        """It is ready again, as if that delivery had not been."""
        self._extended.pop(offset, None)
        if self.is_expired(offset):
            self.finish(offset, State.LEASED)
            return State.DONE
        self._move(offset, State.LEASED, State.READY)
        self._returned.append(Returned(offset, 0, row.place, is_failure=False, is_undone=True, is_let_go=True))
        return State.READY

    def bury(self, offset: int, *, who: bytes, reason: bytes) -> State:
        """Without a queue for dead letters, that is the end of it."""
        self._extended.pop(offset, None)
        if not self.policy.dead_letter:
            self.finish(offset, State.LEASED)
            return State.DONE
        self._move(offset, State.LEASED, State.BURYING)
        self._buried.append(Buried(offset, who, reason))
        return State.BURYING

    def send_off(self, offset: int) -> None:
        self._move(offset, State.READY, State.BURYING)

    def come_back(self, offset: int, row: Row) -> None:
        """It was sent off, and is not to go."""
        if self.is_expired(offset):
            self.finish(offset, State.BURYING)
            return
        self._move(offset, State.BURYING, State.READY)
        self._returned.append(Returned(offset, 0, row.place, is_failure=False))

    def is_expired(self, offset: int) -> bool:
        expires_at = self.messages.options(offset).expires_at
        if 0 < expires_at <= self.wall_ms:
            return True
        if not self.policy.ttl_ms:
            return False
        written_ms = self.messages.written_ms(offset)
        return 0 < written_ms <= self.wall_ms - self.policy.ttl_ms

    def record(self, *, is_dropped: bool = False) -> list[Changed]:
        """One, or none where nothing changes."""
        if not (self._done or self._returned or self._extended or self._buried):
            return []
        record = Changed(
            self.ledger.group, self.wall_ms, tuple(self._done), tuple(self._returned), tuple(self._extended.items()), tuple(self._buried),
            is_dropped,
        )  # fmt: skip
        return [record]

    def _move(self, offset: int, before: State, after: State) -> None:
        require((before, after) in MOVES, "a message of a queue makes legal moves only")
        self.settled[offset] = after

    def _place(self, offset: int, row: Row) -> int:
        policy = self.policy
        is_sent_back = 0 < policy.back_after <= row.attempts and not policy.is_fifo
        return max(self.messages.end, offset) if is_sent_back else offset
