"""The lag of groups: of one, and of all in one picture for dashboards."""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.broker.group_lag import CommittedOffset, PartitionLag
from penstock.broker.group_views import committed, described, group_now, groups_now, offsets_now
from penstock.broker.node import Node
from penstock.broker.patience import Patience
from penstock.groups.views import NO_OFFSET
from penstock.http.answers import OK, Answer
from penstock.http.api.paging import NEXT, page_of
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import Schema, integer, listing, named, or_null, shape, text
from penstock.vocabulary import TopicPartition

ROWS_AT_ONCE = 1_000  # A few milliseconds' worth of JSON.
OFFSETS_MAX = 10_000  # In one picture of all groups; a group's own page has them all.

LAG_ROW = shape(
    {
        "topic": text("The topic's name."),
        "partition": integer("The partition's number."),
        "committed": integer("Where the group reads on."),
        "start_offset": or_null(integer("The first offset that can be read; null where the partition is gone.")),
        "end_offset": or_null(integer("The next offset that consumers will see.")),
        "lag": or_null(integer("Records from the committed offset to the end.")),
        "lost": or_null(integer("Of those: gone before the group read them.")),
        "past_end": or_null(integer("How far past the end the committed offset lies; where it does, lag says nothing.")),
        "time_lag_ms": or_null(integer("The age of the next record that the group will read; 0: there is none; null: nobody knows.")),
        "retention_loss_ms": or_null(integer("How long until retention may take that record; null: never, or there is none.")),
    }
)
_TOTALS: Mapping[str, Schema] = {
    "group": text("The group's name."),
    "state": text("Empty, PreparingRebalance, CompletingRebalance or Stable."),
    "members": integer("How many."),
    "lag": integer("Of all partitions together."),
    "lost": integer("Records gone before the group read them."),
    "past_end": integer("How far past the end committed offsets lie, of all partitions together."),
    "time_lag_ms": or_null(integer("The largest of its partitions.")),
    "retention_loss_ms": or_null(integer("The smallest of its partitions.")),
    "partitions": listing(named("LagRow")),
}
GROUP_LAG = shape(_TOTALS)
LAGS = shape(
    {
        "groups": listing(named("GroupLag")),
        "next": NEXT,
        "partitions_left_out": integer(f"Rows that did not fit: a picture has {OFFSETS_MAX} at most; ask for the group itself."),
    }
)


async def get_group_lag(node: Node, request: ApiRequest) -> Answer:
    view = await described(node, request.parts["group"])
    offsets = [
        CommittedOffset(view.group, TopicPartition(each.topic, each.partition), each.offset)
        for each in await committed(node, view.group)
        if each.offset != NO_OFFSET
    ]
    rows = await node.group_lags.measure(offsets)
    return Answer(OK, _totals(view.group, view.state, len(view.members), rows), is_large=len(rows) > ROWS_AT_ONCE)


async def list_lags(node: Node, request: ApiRequest) -> Answer:
    """As things stand: nobody waits for the disk to look at a dashboard."""
    names, next_name = page_of([each.group for each in await groups_now(node)], request.query)
    taken: list[CommittedOffset] = []
    left_out = 0
    async for committed_offset in offsets_now(node, names):
        if len(taken) < OFFSETS_MAX:
            taken.append(committed_offset)
        else:
            left_out += 1
    by_group: dict[str, list[PartitionLag]] = {name: [] for name in names}
    for row in await node.group_lags.measure(taken):
        by_group[row.group].append(row)
    patience, groups = Patience(node.env), []
    for name, rows in by_group.items():
        view = group_now(node, name)
        if view is not None:  # It may go while others have their turn.
            groups.append(_totals(view.group, view.state, len(view.members), rows))
        await patience.pause_if_over()
    return Answer(OK, {"groups": groups, "next": next_name, "partitions_left_out": left_out}, is_large=True)


def _totals(group: str, state: str, members: int, rows: Sequence[PartitionLag]) -> dict[str, Any]:
    lags = [row.lag for row in rows if row.lag is not None]
    return {
        "group": group,
        "state": str(state),
        "members": members,
        "lag": sum(lag.records for lag in lags),
        "lost": sum(lag.lost for lag in lags),
        "past_end": sum(lag.past_end for lag in lags),
        "time_lag_ms": max((lag.time_ms for lag in lags if lag.time_ms is not None), default=None),
        "retention_loss_ms": min((lag.loss_ms for lag in lags if lag.loss_ms is not None), default=None),
        "partitions": [_row(row) for row in rows],
    }


def _row(row: PartitionLag) -> dict[str, Any]:
    span, lag = row.span, row.lag
    return {
        "topic": row.where.topic,
        "partition": row.where.partition,
        "committed": row.committed,
        "start_offset": None if span is None else span.start_offset,
        "end_offset": None if span is None else span.end_offset,
        "lag": None if lag is None else lag.records,
        "lost": None if lag is None else lag.lost,
        "past_end": None if lag is None else lag.past_end,
        "time_lag_ms": None if lag is None else lag.time_ms,
        "retention_loss_ms": None if lag is None else lag.loss_ms,
    }
