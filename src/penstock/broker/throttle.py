"""Holds back replicas that are catching up, so that they leave room for everybody else (`replication.throttled.rate`).

A rate over all of them together: whoever has taken bytes waits until the rate has paid for them. Replicas in the in-sync set never wait,
because producers wait for those.
"""

from penstock.vocabulary import Instant


class Throttle:
    __slots__ = ("_paid_at",)

    def __init__(self) -> None:
        self._paid_at = Instant(0.0)  # When everything taken so far is paid for.

    def took(self, size: int, bytes_per_second: int, now: Instant) -> float:
        """Bytes were taken; returns for how many seconds no more may be."""
        if bytes_per_second <= 0:
            return 0.0
        self._paid_at = Instant(max(self._paid_at, now) + size / bytes_per_second)
        return self._paid_at - now
