"""Topics and their partitions: listed, shown, made, widened, deleted.

Counts of records are offsets from the start to the end; a compacted log holds fewer. Who leads and holds a partition is known of all of
them; offsets and sizes are those of the logs on the node that answers, and there are none of partitions that lie elsewhere.
The cluster's own topics can be looked at only: what stands in them is the nodes' business.
"""

from collections.abc import Mapping
from typing import Any

from penstock.broker.cluster_views import offline_replicas
from penstock.broker.node import Node
from penstock.broker.patience import Patience
from penstock.cluster import records
from penstock.cluster.commands import AddPartitions, CreateTopics, DeleteTopic, MorePartitions, NewTopic
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.topic_names import is_internal
from penstock.errors import ErrorCode, Refusal
from penstock.http.answers import CREATED, OK, Answer
from penstock.http.api.deciding import VALIDATE_ONLY, decide, topic_called
from penstock.http.api.paging import NEXT, page_of
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import Schema, flag, integer, listing, named, or_null, shape, text, texts_by_name
from penstock.partition.partition import Partition
from penstock.vocabulary import NO_NODE

_TOPIC_FIELDS: Mapping[str, Schema] = {
    "name": text("The topic's name."),
    "id": text("Its id: a topic made again under its name has another one."),
    "is_internal": flag("Whether it is the cluster's own."),
    "partition_count": integer("How many partitions it has."),
    "replicas": integer("Copies of each partition."),
    "records": integer("Offsets from start to end, over the partitions on this node."),
    "written": integer("Offsets ever given out, over the partitions on this node."),
    "bytes": integer("In the logs of this node."),
}
TOPIC_SUMMARY = shape(_TOPIC_FIELDS)
PARTITION = shape(
    {
        "partition": integer("Its number."),
        "leader": or_null(integer("The node that leads it; null: nobody does.")),
        "leader_epoch": integer("The number of that leadership."),
        "partition_epoch": integer("Grows with every change of who holds, leads and is in sync."),
        "replicas": listing(integer("A node."), "The nodes that hold it."),
        "in_sync": listing(integer("A node."), "Those of them that have everything."),
        "eligible": listing(integer("A node."), "Those that may lead though they are not in sync."),
        "adding": listing(integer("A node."), "Those that join by the reassignment under way."),
        "removing": listing(integer("A node."), "Those that leave by it."),
        "offline": listing(integer("A node."), "Those that are away."),
        "start_offset": or_null(integer("The first that can be read; null where it is not on this node.")),
        "end_offset": or_null(integer("The next that consumers will see; null where a damaged log keeps it unknown, or it is elsewhere.")),
        "bytes": or_null(integer("In its log; null where it is not on this node.")),
        "failure": or_null(text("Why it takes no writes any more.")),
    }
)
TOPIC = shape(
    {**_TOPIC_FIELDS, "overrides": texts_by_name("Settings of its own, by name."), "partitions": listing(named("Partition"))}
)
TOPICS = shape({"topics": listing(named("TopicSummary")), "next": NEXT})
PARTITIONS = shape({"topic": text("The topic's name."), "partitions": listing(named("Partition"))})
NEW_TOPIC = shape(
    {
        "name": text("1 to 249 letters, digits, '.', '_' and '-'."),
        "partitions": integer("How many; the node's num.partitions if left out.", minimum=1),
        "replication_factor": integer("Copies of each; the node's choice if left out.", minimum=1),
        "configs": texts_by_name("Settings of its own, by name."),
        "validate_only": VALIDATE_ONLY,
    },
    optional=("partitions", "replication_factor", "configs", "validate_only"),
)
WIDER = shape(
    {"partitions": integer("How many in all; never fewer than there are.", minimum=1), "validate_only": VALIDATE_ONLY},
    optional=("validate_only",),
)
OUTCOME = shape(
    {
        "topic": text("The topic's name."),
        "partitions": integer("How many partitions it has, or would have."),
        "is_done": flag("False where it was only tried."),
    }
)
DELETED = shape({"deleted": text("What is gone.")})


async def list_topics(node: Node, request: ApiRequest) -> Answer:
    wanted = (name for name in node.image.topics if request.query["internal"] or not is_internal(name))
    names, next_name = page_of(wanted, request.query)
    patience, rows = Patience(node.env), []
    for name in names:
        topic = node.image.topics.get(name)
        if topic is not None:  # It may go while others have their turn.
            rows.append(_summary(node, topic))
        await patience.pause_if_over()
    return Answer(OK, {"topics": rows, "next": next_name}, is_large=True)


async def create_topic(node: Node, request: ApiRequest) -> Answer:
    body = request.body
    _check_not_internal(body["name"])
    wish = NewTopic(
        body["name"], node.new_topic_id(), body.get("partitions", -1), body.get("replication_factor", -1), dict(body.get("configs", {}))
    )
    is_trial = body.get("validate_only", False)
    made = await decide(node, CreateTopics((wish,)), is_trial=is_trial)
    assert isinstance(made, records.TopicCreated)
    headers = {} if is_trial else {"Location": f"/api/v1/topics/{made.name}"}
    return Answer(CREATED, {"topic": made.name, "partitions": len(made.partitions), "is_done": not is_trial}, headers)


async def get_topic(node: Node, request: ApiRequest) -> Answer:
    topic = topic_called(node, request.parts["topic"])
    return Answer(OK, {**_summary(node, topic), "overrides": dict(topic.overrides), "partitions": _partitions(node, topic)})


async def widen_topic(node: Node, request: ApiRequest) -> Answer:
    topic, is_trial = topic_called(node, request.parts["topic"]), request.body.get("validate_only", False)
    _check_not_internal(topic.name)
    wish = MorePartitions(topic.name, request.body["partitions"])
    added = await decide(node, AddPartitions((wish,)), is_trial=is_trial)
    assert isinstance(added, records.PartitionsAdded)
    return Answer(OK, {"topic": topic.name, "partitions": wish.partitions, "is_done": not is_trial})


async def delete_topic(node: Node, request: ApiRequest) -> Answer:
    topic = topic_called(node, request.parts["topic"])
    _check_not_internal(topic.name)
    await decide(node, DeleteTopic(topic.topic_id), is_trial=False)
    return Answer(OK, {"deleted": topic.name})


async def list_partitions(node: Node, request: ApiRequest) -> Answer:
    topic = topic_called(node, request.parts["topic"])
    return Answer(OK, {"topic": topic.name, "partitions": _partitions(node, topic)})


def _check_not_internal(name: str) -> None:
    if is_internal(name):
        raise Refusal(ErrorCode.POLICY_VIOLATION, f"topic {name!r} is the cluster's own")


def _summary(node: Node, topic: Topic) -> dict[str, Any]:
    held = node.partitions.by_name.get(topic.name, {}).values()
    return {
        "name": topic.name,
        "id": topic.topic_id.hex(),
        "is_internal": is_internal(topic.name),
        "partition_count": len(topic.partitions),
        "replicas": max((len(state.replicas) for state in topic.partitions), default=0),
        "records": sum(each.high_watermark - each.log.start_offset for each in held),
        "written": sum(each.high_watermark for each in held),
        "bytes": sum(each.log.size_bytes for each in held),
    }


def _partitions(node: Node, topic: Topic) -> list[dict[str, Any]]:
    held = node.partitions.by_name.get(topic.name, {})
    return [
        {"partition": index, **_standing(node.image, state), **_log(held.get(index))} for index, state in enumerate(topic.partitions)
    ]


def _standing(image: ClusterImage, state: PartitionState) -> dict[str, Any]:
    return {
        "leader": None if state.leader == NO_NODE else state.leader,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "replicas": list(state.replicas),
        "in_sync": list(state.in_sync),
        "eligible": list(state.eligible),
        "adding": list(state.adding),
        "removing": list(state.removing),
        "offline": list(offline_replicas(image, state)),
    }


def _log(partition: Partition | None) -> dict[str, Any]:
    if partition is None:
        return {"start_offset": None, "end_offset": None, "bytes": None, "failure": None}
    return {
        "start_offset": partition.log.start_offset,
        "end_offset": partition.high_watermark if partition.end_is_known else None,
        "bytes": partition.log.size_bytes,
        "failure": partition.log.failure,
    }
