"""What became of a record that was sent: nothing yet, a place in a log, or a failure.

A receipt is settled exactly once, by the thread that hears the broker. One is made for every record, so it is lighter than
`concurrent.futures.Future`: the lock is its channel's, and there is an event to wait for only where somebody waits.
"""

import threading
from collections.abc import Callable

from penstock.client.failures import ClientError, TimedOut
from penstock.client.records import Placed

Callback = Callable[["Receipt"], object]


class Receipt:
    """Like a future: `result(timeout)`, `exception(timeout)`, `done()`, `add_done_callback(callback)`."""

    __slots__ = ("_callbacks", "_is_watched", "_lock", "_outcome", "_settled", "topic")

    def __init__(self, topic: str, lock: threading.Lock) -> None:
        self.topic = topic
        self._lock = lock
        self._outcome: Placed | ClientError | None = None
        self._settled: threading.Event | None = None  # Made by the first who waits.
        self._callbacks: list[Callback] | None = None
        self._is_watched = False

    def done(self) -> bool:
        return self._outcome is not None

    def result(self, timeout: float | None = None) -> Placed:
        """Where the record is. Raises what kept it from being delivered, or TimedOut: then it is still under way."""
        outcome = self._await(timeout)
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    def exception(self, timeout: float | None = None) -> ClientError | None:
        outcome = self._await(timeout)
        return outcome if isinstance(outcome, ClientError) else None

    def add_done_callback(self, callback: Callback) -> None:
        """Calls it once settled, from the thread that hears the broker; at once where it is settled already. It must not take long."""
        with self._lock:
            self._is_watched = True
            if self._outcome is None:
                self._callbacks = [*(self._callbacks or ()), callback]
                return
        callback(self)

    @property
    def is_watched(self) -> bool:
        """Whether somebody has asked what became of it. A failure that nobody asked about is told by flush()."""
        return self._is_watched

    def settle(self, outcome: Placed | ClientError) -> list[Callback]:
        """For its channel. The callbacks that are now due."""
        with self._lock:
            self._outcome = outcome
            settled, callbacks = self._settled, self._callbacks
            self._callbacks = None
        if settled is not None:
            settled.set()
        return callbacks or []

    def _await(self, timeout: float | None) -> Placed | ClientError:
        self._is_watched = True
        if self._outcome is None and not self._event().wait(timeout):
            raise TimedOut(
                f"a record for topic {self.topic!r} is not acknowledged after {timeout:g} s",
                "it is still under way: ask again, or wait longer",
            )
        assert self._outcome is not None
        return self._outcome

    def _event(self) -> threading.Event:
        with self._lock:
            if self._settled is None:
                self._settled = threading.Event()
                if self._outcome is not None:
                    self._settled.set()
            return self._settled
