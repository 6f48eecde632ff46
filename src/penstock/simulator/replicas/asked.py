"""One record that a client wants to be written, and what became of it."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from penstock.simulator.replicas.judging import Violation
from penstock.vocabulary import LeaderEpoch, NodeId, Offset
from penstock.wire.batches import BatchHeader


class Result(Enum):
    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(slots=True, eq=False)
class Asked:
    batch: bytearray
    needs_all: bool
    tell: Callable[["Asked"], None]
    result: Result = Result.OPEN
    base_offset: Offset = field(default=Offset(-1))
    crc: int = 0
    place: tuple[NodeId, int, LeaderEpoch] | None = None

    def appended(self, node: NodeId, life: int, epoch: LeaderEpoch, header: BatchHeader) -> None:
        self.base_offset, self.crc, self.place = Offset(header.base_offset), header.crc, (node, life, epoch)

    def acknowledge(self) -> None:
        if self.result in (Result.ACKNOWLEDGED, Result.REFUSED):
            raise Violation("each is answered once", f"{self.base_offset} was {self.result.value}")
        self._end(Result.ACKNOWLEDGED)

    def refuse(self) -> None:
        """Nothing of it is stored."""
        self._end(Result.REFUSED)

    def leave_open(self) -> None:
        """It is stored here, and may be kept or not."""
        self._end(Result.UNKNOWN)

    def _end(self, result: Result) -> None:
        self.result = result
        self.tell(self)
