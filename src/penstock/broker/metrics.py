"""What a node counts about itself. Plain numbers that the hot path can add to; `samples` names them for whoever shows them."""

from collections.abc import Iterator
from typing import NamedTuple


class Sample(NamedTuple):
    name: str
    kind: str  # counter or gauge
    reason: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Metrics:
    """Counters only grow; gauges are read from the node when somebody asks."""

    __slots__ = (
        "batches_in", "batches_refused", "bytes_in", "bytes_out", "compaction_bytes_freed", "compaction_bytes_read",
        "compaction_bytes_written", "compaction_records_removed", "compactions", "connections_accepted", "connections_closed_as_malformed",
        "connections_closed_as_stalled", "connections_refused", "damage_found", "damage_mended", "duplicates_in", "reads_cold",
        "records_in",        "replica_bytes_in", "replica_bytes_out", "requests", "scrub_rounds", "scrubbed_bytes",
    )  # fmt: skip

    def __init__(self) -> None:
        self.batches_in = 0
        self.batches_refused = 0
        self.bytes_in = 0
        self.bytes_out = 0
        self.compactions = 0
        self.compaction_bytes_read = 0
        self.compaction_bytes_written = 0
        self.compaction_bytes_freed = 0
        self.compaction_records_removed = 0
        self.connections_accepted = 0
        self.connections_closed_as_malformed = 0
        self.connections_closed_as_stalled = 0
        self.connections_refused = 0
        self.damage_found = 0
        self.damage_mended = 0
        self.duplicates_in = 0
        self.reads_cold = 0
        self.records_in = 0
        self.replica_bytes_in = 0
        self.replica_bytes_out = 0
        self.scrub_rounds = 0
        self.scrubbed_bytes = 0
        self.requests: dict[str, int] = {}  # by API name

    def samples(self) -> Iterator[Sample]:
        for name, reason in _COUNTERS:
            yield Sample(f"penstock_{name}_total", "counter", reason, (), getattr(self, name))
        for api, count in sorted(self.requests.items()):
            yield Sample("penstock_requests_total", "counter", "Requests handled, by API.", (("api", api),), count)


_COUNTERS = (
    ("batches_in", "Batches appended for producers."),
    ("batches_refused", "Batches that producers sent and the node did not take."),
    ("bytes_in", "Bytes of batches appended for producers."),
    ("bytes_out", "Bytes of batches sent to consumers."),
    ("records_in", "Records appended for producers."),
    ("replica_bytes_in", "Bytes fetched from leaders on other nodes."),
    ("replica_bytes_out", "Bytes sent to followers on other nodes."),
    ("duplicates_in", "Batches of idempotent producers that had been appended before and were answered with their old offset."),
    ("compactions", "Rounds of compaction over a partition's log."),
    ("compaction_bytes_read", "Bytes that compaction has read."),
    ("compaction_bytes_written", "Bytes that compaction has written."),
    ("compaction_bytes_freed", "Bytes by which compaction has made logs smaller."),
    ("compaction_records_removed", "Records that compaction has left out."),
    ("damage_found", "Times that bytes of a log were found not to be what was written."),
    ("damage_mended", "Times that such bytes were replaced by those of another replica."),
    ("scrubbed_bytes", "Bytes of closed segments that were read only to find damage."),
    ("scrub_rounds", "Times that all closed segments were read for that."),
    ("reads_cold", "Reads that had to wait for the disk."),
    ("connections_accepted", "Client connections taken."),
    ("connections_refused", "Client connections closed at once because there were too many."),
    ("connections_closed_as_malformed", "Client connections closed because of bytes that do not parse."),
    ("connections_closed_as_stalled", "Client connections closed because they took or sent nothing for too long."),
)
