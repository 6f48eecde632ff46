"""Queues at this moment, for /metrics: how many messages are ready, lent, delayed, on their way to the dead letters; how old the oldest is.

Of the partitions that this node leads, added up by queue; the whole queue is the sum over all nodes. The number of series has a bound,
since names are other people's: past it a gauge says how many queues were left out. They are taken in the order of their names, so that the
same ones stay from one look to the next. A queue whose ledger is being loaded has no samples.
"""

from collections.abc import Iterator

from penstock.broker.metrics import Sample
from penstock.broker.node import Node
from penstock.broker.queues.leading import QueuePartition
from penstock.queues.commands import QUEUE_GROUP
from penstock.queues.views import Counts

QUEUES_MAX = 1_000


def queue_gauges(node: Node) -> Iterator[Sample]:
    by_name: dict[str, list[QueuePartition]] = {}
    for queue in node.ledgers:
        if queue.data.config.queue_enabled:
            by_name.setdefault(queue.data.topic, []).append(queue)
    for name in sorted(by_name)[:QUEUES_MAX]:
        yield from _of_queue(name, by_name[name], node.env.wall_ms())
    left_out = max(0, len(by_name) - QUEUES_MAX)
    yield _sample("queues_left_out", "Queues without samples of their own: there are too many.", left_out)


def _of_queue(name: str, partitions: list[QueuePartition], wall_ms: int) -> Iterator[Sample]:
    loaded = [(each, each.coordinator.state) for each in partitions]
    every: list[Counts] = [state.counts(QUEUE_GROUP, wall_ms) for _, state in loaded if state is not None]
    if not every:
        return
    states = {
        "ready": sum(each.ready for each in every), "leased": sum(each.leased for each in every),
        "delayed": sum(each.delayed for each in every), "burying": sum(each.burying for each in every),
    }  # fmt: skip
    for state, count in states.items():
        yield _sample("queue_messages", "Unfinished messages of a queue, by state.", count, queue=name, state=state)
    oldest_ms = min((each.oldest_ms for each in every if each.oldest_ms), default=wall_ms)
    reason = "How long ago the oldest unfinished message of a queue was sent; 0 when there is none."
    yield _sample("queue_oldest_seconds", reason, max(0, wall_ms - oldest_ms) / 1000, queue=name)
    reason = "Messages that were finished since the ledger was made."
    yield _sample("queue_finished", reason, sum(each.finished for each in every), queue=name)
    reason = "Messages that were lost with their log before anybody finished them."
    yield _sample("queue_dropped", reason, sum(each.dropped for each in every), queue=name)
    yield _sample("queue_waiting", "Takers that wait for messages.", sum(each.waiting(QUEUE_GROUP) for each in partitions), queue=name)
    ledger_bytes = sum(each.companion.log.size_bytes for each in partitions)
    yield _sample("queue_ledger_bytes", "Bytes in the logs of a queue's ledgers.", ledger_bytes, queue=name)


def _sample(name: str, reason: str, value: float, **labels: str) -> Sample:
    return Sample(f"penstock_{name}", "gauge", reason, tuple(labels.items()), value)
