"""Produce load: pre-encoded batches of one size, acks=all, each request to the next partitions in turn.

After the run the partitions' end offsets must have moved by exactly what was acknowledged.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.frames import UnexpectedReply
from benchmarks.load.leaders import Address, Leaders
from benchmarks.load.pipeline import Lane, NextRequest, Outcome, Pipeline, Timing
from benchmarks.load.topics import Admin

_REPLY_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class ProduceLoad:
    topic: str
    partitions: int
    batch_bytes: int = 0  # 0: one record per batch.
    connections: int = 2
    depth: int = 5
    partitions_per_request: int = 1
    to_leaders: bool = False  # In a cluster: `connections` to each node that leads, and to each what it leads.

    def run(self, host: str, port: int, timing: Timing) -> Outcome:
        if self.to_leaders:
            return self._run_in_cluster(Connection(host, port, receive_bytes=_REPLY_BYTES), timing)
        admin = Admin(host, port)
        before = sum(admin.end_offsets(self.topic, self.partitions))
        acknowledged, outcome = self._load({(host, port): list(range(self.partitions))}, timing)
        stored = sum(admin.end_offsets(self.topic, self.partitions)) - before
        admin.close()
        return _checked(outcome, acknowledged, stored)

    def _run_in_cluster(self, first: Connection, timing: Timing) -> Outcome:
        leaders = Leaders(first, self.topic, self.partitions)
        before = leaders.end()
        acknowledged, outcome = self._load(leaders.partitions_at, timing)
        stored = leaders.end() - before
        leaders.close()
        return _checked(outcome, acknowledged, stored)

    def _load(self, partitions_at: Mapping[Address, Sequence[int]], timing: Timing) -> tuple[int, Outcome]:
        batch, records = self.encoded_batch()
        acknowledged = 0

        def check(reply: memoryview, ticket: int) -> tuple[int, int]:
            nonlocal acknowledged
            frames.check_produced(reply, self.topic, self.partitions_per_request, ticket)
            acknowledged += records * self.partitions_per_request
            return records * self.partitions_per_request, len(batch) * self.partitions_per_request

        lanes = [
            Lane(Connection(*address, receive_bytes=_REPLY_BYTES), requests)
            for address, partitions in partitions_at.items()
            for requests in self._requests(batch, partitions)
        ]
        outcome = Pipeline(lanes, check, depth=self.depth).run(timing)
        for lane in lanes:
            lane.connection.close()
        return acknowledged, outcome

    def encoded_batch(self) -> tuple[bytes, int]:
        now_ms = time.time_ns() // 1_000_000
        return frames.batch_of_bytes(self.batch_bytes, now_ms) if self.batch_bytes else (frames.one_batch(1, now_ms), 1)

    def _requests(self, batch: bytes, partitions: Sequence[int]) -> list[NextRequest]:
        """Each connection walks all partitions of its node, starting at another one."""
        size = self.partitions_per_request
        groups = [partitions[first : first + size] for first in range(0, len(partitions), size)]
        encoded = [(ticket, frames.produce(self.topic, group, batch, correlation_id=ticket)) for ticket, group in enumerate(groups)]
        return [_in_turn(encoded, start) for start in range(self.connections)]


def _checked(outcome: Outcome, acknowledged: int, stored: int) -> Outcome:
    if stored != acknowledged:
        raise UnexpectedReply(f"{acknowledged:,} records were acknowledged, but the log grew by {stored:,}")
    return outcome


def _in_turn(encoded: Sequence[tuple[int, bytes]], start: int) -> NextRequest:
    start %= len(encoded)
    return cycle([*encoded[start:], *encoded[:start]]).__next__
