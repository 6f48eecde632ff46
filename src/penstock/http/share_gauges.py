"""Share groups at this moment, for /metrics: how many records of each partition a group has yet to finish, and how many are lent.

Of the partitions that this node leads: their ledgers know. Those whose ledger is being loaded have no samples. The number of series has a
bound, since names are other people's: past it a gauge says how many were left out; the same ones stay from one look to the next.
"""

from collections.abc import Iterator
from itertools import islice

from penstock.broker.metrics import Sample
from penstock.broker.node import Node
from penstock.broker.queues.leading import QueuePartition
from penstock.queues.commands import QUEUE_GROUP

PARTITIONS_MAX = 2_000

Row = tuple[str, str, int, QueuePartition]


def share_gauges(node: Node) -> Iterator[Sample]:
    rows = sorted(_rows(node), key=lambda row: row[:3])
    wall_ms = node.env.wall_ms()
    for group, topic, index, queue in islice(rows, PARTITIONS_MAX):
        state = queue.coordinator.state
        if state is None or not state.has(group):
            continue
        counts, labels = state.counts(group, wall_ms), {"group": group, "topic": topic, "partition": str(index)}
        lag = counts.ready + counts.leased + counts.delayed + counts.burying
        yield _sample("share_group_lag", "Records that a share group has yet to finish, whoever has them.", lag, **labels)
        yield _sample("share_group_lent", "Records that members of a share group hold.", counts.leased, **labels)
        oldest_ms = counts.oldest_ms or wall_ms
        reason = "The age of the oldest record that a share group has yet to finish, about; 0 when there is none."
        yield _sample("share_group_lag_seconds", reason, max(0, wall_ms - oldest_ms) / 1000, **labels)
    left_out = max(0, len(rows) - PARTITIONS_MAX)
    yield _sample("share_group_lag_left_out", "Partitions of share groups without samples: there are too many.", left_out)


def _rows(node: Node) -> Iterator[Row]:
    for queue in node.ledgers:
        state = queue.coordinator.state
        for group in () if state is None else state.groups():
            if group != QUEUE_GROUP:
                yield group, queue.data.topic, queue.data.index, queue


def _sample(name: str, reason: str, value: float, **labels: str) -> Sample:
    return Sample(f"penstock_{name}", "gauge", reason, tuple(labels.items()), value)
