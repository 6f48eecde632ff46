"""What must be true of a partition, whatever happens to its replicas. Looked at while it happens, so that one sees where it begins.

Batches are told apart by their checksums: every value that is written is unique.
"""

from typing import NamedTuple

from penstock.simulator.replicas.store import Store
from penstock.vocabulary import LeaderEpoch, NodeId, Offset
from penstock.wire.batches import BatchHeader


class Violation(AssertionError):
    def __init__(self, rule: str, told: str) -> None:
        super().__init__(f"{rule}: {told}")
        self.rule = rule


class Committed(NamedTuple):
    crc: int
    end_offset: Offset
    epoch: LeaderEpoch  # In which it was.


class Told(NamedTuple):
    """Ends of the partition that clients heard of, in one epoch."""

    lowest: Offset
    latest: Offset


class Judge:
    def __init__(self) -> None:
        self.committed: dict[int, Committed] = {}  # By base offset.
        self.committed_end = Offset(0)
        self.acknowledged = 0
        self._leaders: dict[LeaderEpoch, tuple[NodeId, int]] = {}
        self._told: dict[LeaderEpoch, Told] = {}

    # While it happens

    def begins_to_lead(self, node: NodeId, life: int, epoch: LeaderEpoch, store: Store) -> None:
        """Whoever leads has everything that was committed before its epoch, and no two lives lead in one epoch."""
        if self._leaders.setdefault(epoch, (node, life)) != (node, life):
            raise Violation("one leader for each epoch", f"{(node, life)} and {self._leaders[epoch]} in epoch {epoch}")
        self._check_has_everything(node, epoch, store)

    def leads_on(self, node: NodeId, life: int, epoch: LeaderEpoch) -> None:
        """After a stop in order the same node may go on in the epoch in which it led."""
        if self._leaders.get(epoch, (node, life))[0] == node:
            self._leaders[epoch] = (node, life)

    def sees(self, who: str, headers: list[BatchHeader], watermark: Offset, epoch: LeaderEpoch) -> None:
        """A replica lets readers see these, all below its watermark."""
        for header in headers:
            known = self.committed.get(header.base_offset)
            if known is None:
                if header.base_offset < self.committed_end:
                    raise Violation("logs agree below the watermark", f"{who} has a batch at {header.base_offset} where others have none")
                self.committed[header.base_offset] = Committed(header.crc, Offset(header.end_offset), epoch)
                self.committed_end = Offset(header.end_offset)
            elif (known.crc, known.end_offset) != (header.crc, header.end_offset):
                raise Violation("logs agree below the watermark", f"{who} has another batch at {header.base_offset}, watermark {watermark}")

    def acknowledges(self, node: NodeId, life: int, epoch: LeaderEpoch, base_offset: Offset, crc: int) -> None:
        """To a producer that wanted all in-sync replicas to have it."""
        self.acknowledged += 1
        if self._leaders.get(epoch) != (node, life):
            raise Violation("one leader for each epoch", f"{node} acknowledges in epoch {epoch}, in which {self._leaders.get(epoch)} leads")
        known = self.committed.get(base_offset)
        if known is None or known.crc != crc:
            raise Violation("what is acknowledged is committed", f"{base_offset} by node {node} in epoch {epoch}")

    def tells_end(self, epoch: LeaderEpoch, end_offset: Offset) -> None:
        """The end of the partition never goes back: not under one leader, nor from one to the next."""
        known = self._told.get(epoch)
        if known is not None and end_offset < known.latest:
            raise Violation("the end never goes back", f"{end_offset} after {known.latest} in epoch {epoch}")
        for other, told in self._told.items():
            if (other < epoch and told.latest > end_offset) or (other > epoch and told.lowest < end_offset):
                raise Violation("the end never goes back", f"{end_offset} in epoch {epoch}, and {told} in epoch {other}")
        self._told[epoch] = Told(known.lowest if known is not None else end_offset, end_offset)

    # At the end

    def check_logs(self, stores: dict[NodeId, Store]) -> None:
        """In the calm all have the same, and all that was ever committed."""
        for node, store in stores.items():
            self._check_has_everything(node, LeaderEpoch(1 << 30), store)
            _check_dense(node, store)
        ends = {node: store.end_offset for node, store in stores.items()}
        if len(set(ends.values())) > 1:
            raise Violation("in the calm all have the same", f"{ends}")

    def _check_has_everything(self, node: NodeId, epoch: LeaderEpoch, store: Store) -> None:
        held = {header.base_offset: header.crc for header in store.headers()}
        for base_offset, known in self.committed.items():
            if known.end_offset > store.start_offset and known.epoch < epoch and held.get(base_offset) != known.crc:
                lack = "lacks" if base_offset not in held else "has something else than"
                told = f"node {node}, epoch {epoch}, {lack} {base_offset} of epoch {known.epoch}"
                raise Violation("what is committed is never lost", told)


def _check_dense(node: NodeId, store: Store) -> None:
    end_offset = None
    for header in store.headers():
        if end_offset is not None and header.base_offset != end_offset:
            raise Violation("offsets are dense", f"node {node}: {header.base_offset} after {end_offset}")
        end_offset = header.end_offset
