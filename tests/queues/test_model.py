"""Any sequence of what senders, workers, time and a node that dies can do, against books that are kept by hand.

Hypothesis looks for short ways to a defect; thousands of steps at random meet what lies far from the beginning. Ledgers that are broken on
purpose must be caught.
"""

from collections import Counter

import pytest
from queues.play import POLICIES, walk

SEEDS = 20
STEPS = 150


@pytest.mark.parametrize("policy", POLICIES)
def test_thousands_of_steps_agree_with_the_books(policy: str) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        try:
            seen += walk(policy, seed, STEPS)
        except AssertionError as found:
            pytest.fail(f"{policy}, seed {seed}: {found!r}")
