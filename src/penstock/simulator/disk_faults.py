"""What a simulated disk may do wrong by itself, and how long it takes.

Every probability is per operation, drawn from the disk's own seed. The default disk is quick and honest: until the power goes, nothing
fails. Faults that a test wants at one exact moment are calls on `SimDisk` instead.
"""

from dataclasses import dataclass

from penstock.simulator.platter import Loss


@dataclass(frozen=True, slots=True)
class DiskFaults:
    # How long a flush takes. Appends made meanwhile are not covered by it.
    sync_seconds_min: float = 0.000_1
    sync_seconds_max: float = 0.002
    slow_sync: float = 0.0  # Probability of a flush that takes `slow_sync_seconds` instead, as when a drive collects its garbage.
    slow_sync_seconds: float = 1.0

    read_seconds_min: float = 0.000_05
    read_seconds_max: float = 0.005
    cold_read: float = 0.0  # Probability that `read_now` answers None.

    write_failure: float = 0.0  # The append raises; a part of it may be in the file.
    flush_failure: float = 0.0  # Per file and flush: reported once, and what it covered is gone at the next power cut.
    name_flush_failure: float = 0.0  # The same for a directory.
    read_failure: float = 0.0

    # Whether the next process on the same running machine still reads what a failed flush has lost, as Linux lets it: the pages are called
    # clean and stay cached. False is a machine that dropped them in between.
    failed_pages_stay: bool = True

    # What a power cut does to each file and folder; None draws one of them for each, by the seed.
    loss: Loss | None = None


HONEST = DiskFaults()
