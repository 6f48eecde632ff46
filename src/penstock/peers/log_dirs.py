"""What one node says of its disk (DescribeLogDirs): the size of its partitions, its free space, and which directories have failed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.failures import Refused
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey


@dataclass(frozen=True, slots=True)
class NodeDisk:
    sizes: Mapping[TopicPartition, int]  # Bytes, of those that were asked for and are there.
    free_bytes: int  # -1 where the node does not say.
    total_bytes: int
    failed: tuple[str, ...]  # Paths of directories that have failed; at a Penstock each is that of one damaged copy.
    well: tuple[str, ...] = ()  # Paths of the others; at a Penstock its data directory.


async def describe_disk(router: Router, node_id: int, partitions: Sequence[TopicPartition] | None, deadline: Deadline) -> NodeDisk:
    """With the sizes of these partitions, or of all that the node holds. One try."""
    connection = await router.switchboard.to_node(node_id, deadline)
    wishes = None if partitions is None else [{"topic": where.topic, "partitions": [where.partition]} for where in partitions]
    answer = await connection.call(ApiKey.DESCRIBE_LOG_DIRS, {"topics": wishes}, timeout_s=router.timeouts(deadline).whole_s)
    code = int(getattr(answer, "error_code", ErrorCode.NONE))
    if code != ErrorCode.NONE:
        raise Refused(code, f"describe the disk of node {node_id}")
    sizes = {
        TopicPartition(topic.name, int(row.partition_index)): int(row.partition_size)
        for directory in answer.results
        for topic in directory.topics
        for row in topic.partitions
    }
    well = [directory for directory in answer.results if directory.error_code == ErrorCode.NONE]
    failed = tuple(str(directory.log_dir) for directory in answer.results if directory.error_code != ErrorCode.NONE)
    paths = tuple(str(directory.log_dir) for directory in well)
    return NodeDisk(sizes, _least(well, "usable_bytes"), _least(well, "total_bytes"), failed, paths)


def _least(directories: Sequence[Any], field: str) -> int:
    """The first directory to be full matters."""
    return min((int(getattr(directory, field, -1)) for directory in directories), default=-1)
