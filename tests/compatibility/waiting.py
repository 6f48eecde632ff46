"""Apache Kafka's brokers hear of a change a little after the answer that it was made; a Penstock has heard of it by then."""

import time
from collections.abc import Callable

SECONDS_MAX = 15.0


def until(claim: Callable[[], bool]) -> None:
    """Waits until the claim holds."""
    deadline = time.monotonic() + SECONDS_MAX
    while not claim():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.05)
