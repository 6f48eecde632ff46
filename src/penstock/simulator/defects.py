"""Says which rules a planted defect breaks.

A planted defect is the product with one rule neglected on purpose: it shows that the tests of that rule can fail. Each one names the rules
of docs/invariants.md that it breaks:

    @breaks("log.ack-after-flush")
    def acknowledges_before_the_flush() -> Patches: ...

`scripts/invariants.py` reads the ids from the source: at run time the mark has no effect.
"""

from collections.abc import Callable
from typing import TypeVar

_Defect = TypeVar("_Defect")


def breaks(invariant: str, *others: str) -> Callable[[_Defect], _Defect]:
    """Marks a defect, or a dictionary of defects that break the same rules, with the ids of those rules."""
    return lambda defect: defect
