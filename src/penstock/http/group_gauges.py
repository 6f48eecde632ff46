"""Groups and topics at this moment, for /metrics: lag in records and seconds, time to retention loss, members, states.

The number of series has a bound, since group and topic names are other people's: past it a gauge says how many partitions, groups or topics
were left out. They are taken in the order of their names, so that the same ones stay from one look to the next.
A value that nobody knows (a record without a time, a topic that drops nothing by age) has no sample.
"""

from collections import Counter
from collections.abc import Iterator
from itertools import islice

from penstock.broker.group_lag import CommittedOffset, PartitionLag
from penstock.broker.group_views import group_now, groups_now, offsets_now
from penstock.broker.metrics import Sample
from penstock.broker.node import Node
from penstock.broker.patience import Patience
from penstock.groups.states import GroupState

OFFSETS_MAX = 5_000
GROUPS_MAX = 1_000
TOPICS_MAX = 1_000

_STATES = tuple(state for state in GroupState if state is not GroupState.DEAD)


async def group_gauges(node: Node) -> list[Sample]:
    listed = await groups_now(node)
    states = Counter(each.state for each in listed)
    samples = [_sample("groups", "Consumer groups of this node, by state.", states[state], state=state.value) for state in _STATES]
    shown = [each.group for each in listed[:GROUPS_MAX]]
    samples += [
        _sample("group_members", "Members of a consumer group.", len(view.members), group=name)
        for name in shown
        if (view := group_now(node, name)) is not None
    ]
    left_out = len(listed) - len(shown)
    samples.append(_sample("groups_left_out", "Consumer groups without samples of their own: there are too many.", left_out))
    taken: list[CommittedOffset] = []
    left_out = 0  # Partitions of the groups that are shown.
    async for committed in offsets_now(node, shown):
        if len(taken) < OFFSETS_MAX:
            taken.append(committed)
        else:
            left_out += 1
    samples.append(_sample("group_lag_left_out", "Partitions with a committed offset but no samples: there are too many.", left_out))
    patience = Patience(node.env)
    for row in await node.group_lags.measure(taken):
        samples += _lag_samples(row)
        await patience.pause_if_over()
    return samples


def topic_gauges(node: Node) -> Iterator[Sample]:
    topics = node.partitions.by_name
    for name in islice(sorted(topics), TOPICS_MAX):
        held = topics[name].values()
        ends = sum(each.high_watermark for each in held)
        reason = "Where a topic ends, added up over its partitions: it grows by one with each record."
        yield _sample("topic_end_offset", reason, ends, topic=name)
        yield _sample("topic_bytes", "Bytes in a topic's logs.", sum(each.log.size_bytes for each in held), topic=name)
    yield _sample("topics_left_out", "Topics without samples of their own: there are too many.", max(0, len(topics) - TOPICS_MAX))


def _lag_samples(row: PartitionLag) -> Iterator[Sample]:
    if row.lag is None:
        return
    labels = {"group": row.group, "topic": row.where.topic, "partition": str(row.where.partition)}
    yield _sample("group_lag", "Records from a group's committed offset to the end.", row.lag.records, **labels)
    if row.lag.time_ms is not None:
        reason = "The age of the next record that a group will read; 0 when there is none."
        yield _sample("group_lag_seconds", reason, row.lag.time_ms / 1000, **labels)
    if row.lag.loss_ms is not None:
        reason = "How long until retention may take the next record that a group has not read."
        yield _sample("group_retention_loss_seconds", reason, row.lag.loss_ms / 1000, **labels)
    if row.lag.past_end:
        yield _sample("group_past_end", "How far past a partition's end a group's committed offset lies.", row.lag.past_end, **labels)
    if row.lag.lost:
        yield _sample("group_lost_records", "Records that retention took before a group had read them.", row.lag.lost, **labels)


def _sample(name: str, reason: str, value: float, **labels: str) -> Sample:
    return Sample(f"penstock_{name}", "gauge", reason, tuple(labels.items()), value)
