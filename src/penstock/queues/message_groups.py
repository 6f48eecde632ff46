"""Messages that belong together: the groups of a FIFO queue, and the tenants of a fair one.

FIFO: a message that is in flight, or waits for its next try, is *held*: nothing behind the first one that is held is given, for the order
must hold. What has come back in front of it is given again, as AWS does it. Messages that their sender has delayed hold up nothing.
Fair: no lock and no order, but who takes much waits for the others. The rule is the one that AWS has published: a tenant is noisy when it
has at least 30 messages in flight that are more than a tenth of all, or more than a tenth of the time that workers have spent of late; then
others are served first, and among noisy ones who has the least in flight. It stays noisy until nothing of it is in line, or until it has
sent nothing for five minutes. What workers have spent is remembered for a minute or two, and forgotten at a failover.
"""

NOISY_IN_FLIGHT = 30
NOISY_SHARE = 10  # One in so many.
QUIET_AFTER_MS = 300_000
WINDOW_MS = 60_000
SPENT_MS_MIN = 30_000  # Of all workers in a window; less than that says nothing about shares.

NONE_LISTED = -1
NONE_HELD = 1 << 63  # Behind every offset.


class MessageGroup:
    __slots__ = ("held", "in_flight", "is_noisy", "listed", "pending", "sent_ms", "spent", "waiting")

    def __init__(self) -> None:
        self.pending: list[int] = []  # A heap of entries of what may be taken, if nothing before it is held.
        self.held: list[int] = []  # FIFO: a heap of offsets, all that are held among them.
        self.in_flight = 0
        self.waiting = 0  # Those that wait for their next try.
        self.listed = NONE_LISTED  # The entry that stands in a lane for the whole group.
        self.is_noisy = False
        self.sent_ms = 0
        self.spent = Spent()

    @property
    def is_over(self) -> bool:
        return not self.pending and not self.in_flight and not self.waiting

    def judge(self, wall_ms: int, in_flight: int, spent_ms: int) -> bool:
        """Whether it is noisy now, where all together have so many in flight and have spent so much time."""
        if self.is_noisy:
            self.is_noisy = self.sent_ms + QUIET_AFTER_MS > wall_ms
        if not self.is_noisy:
            holds_much = self.in_flight >= NOISY_IN_FLIGHT and self.in_flight * NOISY_SHARE > in_flight
            took_long = spent_ms >= SPENT_MS_MIN and self.spent.of_late(wall_ms) * NOISY_SHARE > spent_ms
            self.is_noisy = holds_much or (took_long and self.in_flight > 0)
        return self.is_noisy


class Spent:
    """How much time went by under leases, in this window and the one before."""

    __slots__ = ("_before", "_now", "_window")

    def __init__(self) -> None:
        self._window = 0
        self._now = 0
        self._before = 0

    def add(self, spent_ms: int, wall_ms: int) -> None:
        self._turn(wall_ms)
        self._now += spent_ms

    def of_late(self, wall_ms: int) -> int:
        self._turn(wall_ms)
        return self._now + self._before

    def _turn(self, wall_ms: int) -> None:
        window = wall_ms // WINDOW_MS
        if window != self._window:
            self._before = self._now if window == self._window + 1 else 0
            self._now, self._window = 0, window
