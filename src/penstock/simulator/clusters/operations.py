"""Counts the operations that users of a simulated cluster carried out: how many began, how many completed, and how many overlapped a fault.

Workloads tell when an operation begins and when it has completed; one that fails stays begun. The nemesis tells when faults were there.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

Interval = tuple[float, float]


@dataclass(slots=True)
class Operation:
    name: str
    began: float
    completed: float | None = None


@dataclass(slots=True)
class Operations:
    seen: list[Operation] = field(default_factory=list)

    def begin(self, name: str, now: float) -> Operation:
        operation = Operation(name, now)
        self.seen.append(operation)
        return operation

    def complete(self, operation: Operation, now: float) -> None:
        operation.completed = now

    def statistics(self, faults: Sequence[Interval]) -> Counter[str]:
        """Counts by name. Only an operation that completed counts as having overlapped a fault."""
        counts: Counter[str] = Counter()
        for operation in self.seen:
            counts[f"op {operation.name} begun"] += 1
            if (end := operation.completed) is not None:
                counts[f"op {operation.name} completed"] += 1
                overlaps = any(began <= end and ended >= operation.began for began, ended in faults)
                counts[f"op {operation.name} overlapped a fault"] += overlaps
        return counts
