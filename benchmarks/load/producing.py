"""Produce load: pre-encoded batches of one size, acks=all, each request to the next partitions in turn.

After the run the partitions' end offsets must have moved by exactly what was acknowledged.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.frames import UnexpectedReply
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

    def run(self, host: str, port: int, timing: Timing) -> Outcome:
        admin = Admin(host, port)
        before = sum(admin.end_offsets(self.topic, self.partitions))
        acknowledged, outcome = self._load(host, port, timing)
        stored = sum(admin.end_offsets(self.topic, self.partitions)) - before
        admin.close()
        if stored != acknowledged:
            raise UnexpectedReply(f"{acknowledged:,} records were acknowledged, but the log grew by {stored:,}")
        return outcome

    def _load(self, host: str, port: int, timing: Timing) -> tuple[int, Outcome]:
        batch, records = self.encoded_batch()
        acknowledged = 0

        def check(reply: memoryview, ticket: int) -> tuple[int, int]:
            nonlocal acknowledged
            frames.check_produced(reply, self.topic, self.partitions_per_request, ticket)
            acknowledged += records * self.partitions_per_request
            return records * self.partitions_per_request, len(batch) * self.partitions_per_request

        lanes = [Lane(Connection(host, port, receive_bytes=_REPLY_BYTES), requests) for requests in self._requests(batch)]
        outcome = Pipeline(lanes, check, depth=self.depth).run(timing)
        for lane in lanes:
            lane.connection.close()
        return acknowledged, outcome

    def encoded_batch(self) -> tuple[bytes, int]:
        now_ms = time.time_ns() // 1_000_000
        return frames.batch_of_bytes(self.batch_bytes, now_ms) if self.batch_bytes else (frames.one_batch(1, now_ms), 1)

    def _requests(self, batch: bytes) -> list[NextRequest]:
        """Each connection walks all partitions, starting at another one."""
        groups = [
            range(first, min(first + self.partitions_per_request, self.partitions))
            for first in range(0, self.partitions, self.partitions_per_request)
        ]
        encoded = [(ticket, frames.produce(self.topic, group, batch, correlation_id=ticket)) for ticket, group in enumerate(groups)]
        return [_in_turn(encoded, start) for start in range(self.connections)]


def _in_turn(encoded: Sequence[tuple[int, bytes]], start: int) -> NextRequest:
    start %= len(encoded)
    return cycle([*encoded[start:], *encoded[:start]]).__next__
