"""How many rows may go now, so that no second sees more than it should: a bucket that fills at the wanted rate and holds a few seconds.

Time enters as `now`; waiting is the caller's.
"""

from dataclasses import dataclass, field

BUCKET_SECONDS = 5.0  # A batch that took longer than this is not made up for: rows would go faster than asked.
STEP_SECONDS = 0.5  # A batch is worth starting for so many seconds' rows.


@dataclass(slots=True)
class Pace:
    rows_per_second: float
    started_at: float
    given: float = 0.0
    _forgiven: float = field(default=0.0)  # Seconds whose rows were not taken in time, and never will be.

    def rows_at(self, now: float) -> int:
        """The rows that may go now; 0 where it is too early."""
        waiting = self._owed(now)
        if waiting > self.rows_per_second * BUCKET_SECONDS:
            self._forgiven += waiting / self.rows_per_second - BUCKET_SECONDS
            waiting = self._owed(now)
        if waiting < max(1.0, self.rows_per_second * STEP_SECONDS):
            return 0
        return int(waiting)

    def take(self, rows: int) -> None:
        self.given += rows

    def seconds_until(self, now: float) -> float:
        """How long until rows may go."""
        missing = max(1.0, self.rows_per_second * STEP_SECONDS) - self._owed(now)
        return max(0.0, missing / self.rows_per_second)

    def _owed(self, now: float) -> float:
        return (now - self.started_at - self._forgiven) * self.rows_per_second - self.given
