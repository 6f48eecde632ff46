"""Where a group reads on, for whoever takes over its work: an offset that an open transaction may still change is waited for (KIP-447).

Partitions are named: asked for all, a node leaves out those that only an open transaction has an offset for. A member asks with its epoch,
and is refused when that is no longer its own; others ask as nobody.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.peers.connection import Connection
from penstock.peers.coordinators import Coordinator, only
from penstock.peers.failures import check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

_NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    """Whose offsets, and by whom: a member of the group, with its generation or member epoch; or nobody's member."""

    group: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


async def stable_offsets(
    router: Router, coordinator: Coordinator, asker: GroupIdentity, partitions: Sequence[TopicPartition], deadline: Deadline
) -> dict[TopicPartition, int]:
    """For those of the partitions that the group ever committed."""
    what, wishes = f"read the offsets of group {asker.group!r}", dict[str, list[int]]()
    for topic, partition in partitions:
        wishes.setdefault(topic, []).append(partition)
    topics = [{"name": name, "partition_indexes": indexes} for name, indexes in wishes.items()]
    member = {"member_id": asker.member_id or None, "member_epoch": asker.generation}
    group = {"group_id": asker.group, "topics": topics}

    async def ask(connection: Connection, node_id: int) -> dict[TopicPartition, int]:
        body = {**group, "groups": [group | member], "require_stable": True}
        answer = await connection.call(ApiKey.OFFSET_FETCH, body, timeout_s=router.timeouts(deadline).whole_s)
        return _read(only(answer.groups, what) if hasattr(answer, "groups") else answer, what)

    return await coordinator.ask(what, deadline, ask)


def _read(told: Any, what: str) -> dict[TopicPartition, int]:
    check_code(told.error_code, what)
    found = {}
    for topic in told.topics:
        for row in topic.partitions:
            where = TopicPartition(str(topic.name), int(row.partition_index))
            check_code(row.error_code, f"{what}: {where}")
            if row.committed_offset != _NO_OFFSET:
                found[where] = int(row.committed_offset)
    return found
