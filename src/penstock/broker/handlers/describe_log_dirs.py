"""DescribeLogDirs, versions 1 to 5 (KIP-113, KIP-827 sizes): how large each partition is, and how much room its disk has.

A node has one directory. Partitions that are asked for and not there are left out, as at Kafka. A log that takes no more writes is told
with its size all the same: the directory is online as long as the node is.
Gaps: the size of the whole disk is not told (-1); nothing is ever moved to another directory, so there are no future replicas.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.errors import ErrorCode
from penstock.partition.partition import Partition
from penstock.vocabulary import Buffer
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

UNKNOWN_BYTES = -1


async def describe_log_dirs(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    topics = _all(node) if request.topics is None else _asked(node, request.topics)
    directory = {
        "error_code": ErrorCode.NONE,
        "log_dir": node.data_directory,
        "topics": [{"name": name, "partitions": [_row(each) for each in partitions]} for name, partitions in topics.items() if partitions],
        "total_bytes": UNKNOWN_BYTES,
        "usable_bytes": node.env.disk.free_bytes(),
    }
    rows = sum(len(partitions) for partitions in topics.values())
    return await written(node, call, {"error_code": ErrorCode.NONE, "results": [directory]}, rows)


def _all(node: "Node") -> dict[str, list[Partition]]:
    return {name: list(partitions.values()) for name, partitions in node.partitions.by_name.items()}


def _asked(node: "Node", wishes: Iterable[Any]) -> dict[str, list[Partition]]:
    found: dict[str, dict[int, Partition]] = {}
    for wish in wishes:
        for index in wish.partitions:
            partition = node.partitions.find(wish.topic, index)
            if partition is not None:
                found.setdefault(wish.topic, {})[index] = partition
    return {name: list(partitions.values()) for name, partitions in found.items()}


def _row(partition: Partition) -> dict[str, Any]:
    return {"partition_index": partition.index, "partition_size": partition.log.size_bytes, "offset_lag": 0, "is_future_key": False}
