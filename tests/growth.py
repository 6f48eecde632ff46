"""How work grows with the size of what it is given, measured so that neither a slow nor a busy machine decides.

`assert_grows_slower_than_square` compares the processor time of this thread for two sizes, one four times the other. In proportion that is
four times as much, by the square sixteen times. Both are measured in turn, and the least of each counts: what disturbs a measurement only
adds to it. It returns as soon as it can tell, so that only work that does grow by the square is measured in every round.
Choose a size at which the larger piece of work takes tens of microseconds at least, and by the square a second at most.
"""

import time
from collections.abc import Callable

FACTOR = 4
RATIO_MAX = 8.0  # As far from 4 as from 16, as factors go.
ROUNDS_MIN, ROUNDS_MAX = 3, 12


def assert_grows_slower_than_square(work: Callable[[int], object], size: int) -> None:
    """`work` does the piece of a size; what it prepares is measured with it and must grow in proportion."""
    small_s = large_s = float("inf")
    for number in range(1, ROUNDS_MAX + 1):
        small_s = min(small_s, thread_seconds(work, size))
        large_s = min(large_s, thread_seconds(work, FACTOR * size))
        if number >= ROUNDS_MIN and large_s < RATIO_MAX * small_s:
            return
    raise AssertionError(f"{FACTOR} times the size took {large_s / small_s:.1f} times as long ({small_s:.6f} s, then {large_s:.6f} s)")


def thread_seconds(work: Callable[[int], object], size: int) -> float:
    begun = time.thread_time()
    work(size)
    return time.thread_time() - begun
