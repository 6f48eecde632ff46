"""Holds back replicas that are being added, so that a move leaves room for everybody else (`replication.throttled.rate`).

A rate over all of them together: whoever has taken bytes waits until the rate has paid for them. What is owed is kept in bytes, not in
time, because the rate may be changed at any moment and then holds for what is owed already. Replicas that were there before never wait:
producers wait for those that are in sync, and while another one catches up records have fewer copies.
"""

from penstock.vocabulary import Instant


class Throttle:
    __slots__ = ("_looked_at", "_owed_bytes")

    def __init__(self) -> None:
        self._owed_bytes = 0.0
        self._looked_at = Instant(0.0)

    def took(self, size: int, bytes_per_second: int, now: Instant) -> float:
        """Bytes were taken; returns for how many seconds no more may be, at this rate."""
        self._pay(bytes_per_second, now)
        self._owed_bytes += size
        return self.seconds_left(bytes_per_second, now)

    def seconds_left(self, bytes_per_second: int, now: Instant) -> float:
        """Until everything that was taken is paid for, at this rate; a rate of 0 asks for nothing."""
        self._pay(bytes_per_second, now)
        return self._owed_bytes / bytes_per_second if bytes_per_second > 0 else 0.0

    def _pay(self, bytes_per_second: int, now: Instant) -> None:
        paid = (now - self._looked_at) * bytes_per_second
        self._owed_bytes = max(0.0, self._owed_bytes - paid) if bytes_per_second > 0 else 0.0
        self._looked_at = now
