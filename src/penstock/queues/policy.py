"""How a queue treats its messages: its settings, as the ledger needs them.

The ledger asks for them at every decision, so a changed setting holds for what is decided from then on; leases and delays that were given
out keep their end, but for the delay of a FIFO queue (common_delay.py). The defaults are those of a queue that has been told nothing.
"""

from dataclasses import dataclass

from penstock.queues.headers import PRIORITY_DEFAULT
from penstock.settings import HOUR_MS, MINUTE_MS, SECOND_MS

LEASE_MS_MAX = 12 * HOUR_MS  # As SQS.
DELIVERIES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Backoff:
    """After the n-th failed delivery a message waits min × factor^(n-1), at most max, of which a share is left to chance."""

    min_ms: int = 0  # 0: none.
    max_ms: int = HOUR_MS
    factor: float = 2.0
    jitter: float = 0.5  # 0: exact; 1: anything between nothing and the whole.

    def delay_ms(self, failures: int, chance: float) -> int:
        """`chance` is from 0 up to 1."""
        if self.min_ms <= 0:
            return 0
        # Beyond sixty doublings every bound is reached, and a float would overflow.
        whole = min(self.min_ms * self.factor ** min(max(failures, 1) - 1, 60), self.max_ms)
        return round(whole * (1 - self.jitter * chance))


@dataclass(frozen=True, slots=True)
class Policy:
    lease_ms: int = 30 * SECOND_MS  # Where the taker says nothing.
    deliveries_max: int = 0  # After so many failed deliveries a message is buried. 0: never.
    backoff: Backoff = Backoff()
    dead_letter: str = ""  # The queue for buried messages. Empty: they are finished (in Kafka's words: archived).
    is_fifo: bool = False
    is_lenient: bool = True  # A lease that has lapsed may still finish its message (standard SQS queues). Never in FIFO queues.
    back_after: int = 0  # A message that was returned after so many deliveries goes to the back of its level. 0: never. Not in FIFO queues.
    dedup_ms: int = 5 * MINUTE_MS  # For how long a dedup id counts.
    dedup_by_group: bool = False  # The same id in two groups is two messages.
    dedup_max: int = 1_000_000  # Ids in the window of one partition; beyond that, sends with one are refused.
    is_fair: bool = False  # On other than FIFO queues: a group that takes more than its share waits for the others.
    has_priorities: bool = True
    starvation_every: int = 0  # Every so manieth delivery goes to the message that is first in line whatever its level. 0: strict levels.
    delay_ms: int = 0  # Of messages that say nothing.
    ttl_ms: int = 0  # After which a message is finished unread, counted from when it was written. 0: never.
    in_flight_max: int = 120_000  # As SQS. Takes find nothing beyond it.
    ready_max: int = 0  # Unfinished messages of one partition; beyond that, sends are refused or wait. 0: no limit.

    def level_of(self, priority: int) -> int:
        return priority if self.has_priorities else PRIORITY_DEFAULT

    @property
    def forgives_lapses(self) -> bool:
        return self.is_lenient and not self.is_fifo
