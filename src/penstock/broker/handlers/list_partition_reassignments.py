"""ListPartitionReassignments, version 0 (KIP-455): which partitions are on their way to other replicas, as this node has heard.

No topics means all. A partition that is asked for and not on its way, or not there, is left out, as at Kafka.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.cluster.image import ClusterImage
from penstock.errors import ErrorCode
from penstock.vocabulary import Buffer
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def list_partition_reassignments(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    wanted = None if request.topics is None else {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name, index, row in _under_way(node.image):
        if wanted is None or (name, index) in wanted:
            rows.setdefault(name, []).append(row)
    topics = [{"name": name, "partitions": partitions} for name, partitions in rows.items()]
    count = sum(len(partitions) for partitions in rows.values())
    return await written(node, call, {"error_code": ErrorCode.NONE, "error_message": None, "topics": topics}, count)


def _under_way(image: ClusterImage) -> Iterable[tuple[str, int, dict[str, Any]]]:
    """The image keeps a list of the partitions that are unsettled: those under way are among them."""
    for topic_id, index in image.unsettled:
        state = image.partition(topic_id, index)
        if state is not None and state.is_reassigning:
            row = {
                "partition_index": index,
                "replicas": state.replicas,
                "adding_replicas": state.adding,
                "removing_replicas": state.removing,
            }
            yield image.topics_by_id[topic_id].name, index, row
