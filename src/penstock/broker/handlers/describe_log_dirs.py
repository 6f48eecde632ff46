"""DescribeLogDirs, versions 1 to 5 (KIP-113, KIP-827 sizes): how large each partition is, and how much space its disk has.

A node has one directory, and its row has every partition that was asked for and is there, with its size. Each copy that is damaged, or
takes no more writes since its disk failed, is a failed directory besides: a row with KAFKA_STORAGE_ERROR, the path of that partition and
nothing else, as Kafka answers for a log directory that is offline. Kafka tells of every directory whichever topics are asked for, and so
do these rows. A healthy node has one row.
Gaps: nothing is ever moved to another directory, so there are no future replicas.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.partitions import topic_directory
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
        "total_bytes": node.env.disk.total_bytes(),
        "usable_bytes": node.env.disk.free_bytes(),
    }
    failed = [_failed(node, partition) for partition in node.partitions if partition.is_damaged or partition.log.failure is not None]
    rows = sum(len(partitions) for partitions in topics.values()) + len(failed)
    return await written(node, call, {"error_code": ErrorCode.NONE, "results": [directory, *failed]}, rows)


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


def _failed(node: "Node", partition: Partition) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.KAFKA_STORAGE_ERROR,
        "log_dir": f"{node.data_directory}/{topic_directory(partition.topic_id, partition.index)}",
        "topics": [],
        "total_bytes": UNKNOWN_BYTES,
        "usable_bytes": UNKNOWN_BYTES,
    }
