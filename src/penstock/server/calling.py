"""Clock and chance for a client in a process that is no node: it has no data directory."""

import time
from random import Random

from penstock.vocabulary import Instant


class CallerEnv:
    def __init__(self) -> None:
        self.rng = Random()

    def now(self) -> Instant:
        return Instant(time.monotonic())

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000
