"""How far a share group is with its partitions, asked over Kafka's protocol."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.cli.group_lag import spans_of
from penstock.peers.client import Client
from penstock.peers.described_groups import DescribedGroup
from penstock.vocabulary import TopicPartition


@dataclass(frozen=True, slots=True)
class ShareRow:
    where: TopicPartition
    start: int | None  # Everything below is done. None: nobody has fetched yet.
    end: int | None  # None: the topic is gone, or has no leader.
    lag: int | None
    members: tuple[str, ...]  # Who fetches from it.


async def share_rows(client: Client, group: DescribedGroup) -> list[ShareRow]:
    offsets = await client.share_offsets(group.group)
    spans = await spans_of(client, offsets)
    return [
        ShareRow(
            where,
            offset.start_offset,
            None if where not in spans else spans[where].end_offset,
            offset.lag,
            tuple(each.member_id for each in group.members if where.partition in (each.assignment or {}).get(where.topic, ())),
        )
        for where, offset in offsets.items()
    ]


def total(rows: Sequence[ShareRow]) -> int:
    return sum(row.lag or 0 for row in rows)


def as_cells(row: ShareRow) -> list[object]:
    return [*row.where, row.start, row.end, row.lag, len(row.members)]


def row_as_json(row: ShareRow) -> dict[str, Any]:
    return {
        "topic": row.where.topic,
        "partition": row.where.partition,
        "start": row.start,
        "end": row.end,
        "lag": row.lag,
        "members": list(row.members),
    }
