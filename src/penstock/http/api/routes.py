"""The table of the admin API: what is served is what stands here, and the OpenAPI document is printed from it."""

from collections.abc import Mapping

from penstock.broker.node import Node
from penstock.http.answers import CREATED, OK, Answer
from penstock.http.api import configs, groups, lag, nodes, offsets, queues, quorum, topics, unwell
from penstock.http.api.openapi import document
from penstock.http.api.paging import PAGE
from penstock.http.api.requests import ApiRequest, Parameter, Route
from penstock.http.api.schemas import Schema, flag, named, shape, text

PREFIX = "/api/v1"

COMPONENTS: Mapping[str, Schema] = {
    "Error": shape({"error": text("A word for programs."), "message": text("A sentence for people.")}),
    "Nodes": nodes.NODES,
    "Quorum": quorum.QUORUM,
    "QuorumReplica": quorum.QUORUM_REPLICA,
    "Unwell": unwell.UNWELL,
    "UnwellPartition": unwell.UNWELL_PARTITION,
    "Topics": topics.TOPICS,
    "TopicSummary": topics.TOPIC_SUMMARY,
    "Topic": topics.TOPIC,
    "Partition": topics.PARTITION,
    "Partitions": topics.PARTITIONS,
    "NewTopic": topics.NEW_TOPIC,
    "TopicOutcome": topics.OUTCOME,
    "Deleted": topics.DELETED,
    "Config": configs.CONFIG,
    "Configs": configs.CONFIGS,
    "ConfigChanges": configs.CHANGES,
    "ConfigsChanged": configs.CHANGED,
    "Queues": queues.QUEUES,
    "QueueSummary": queues.QUEUE_SUMMARY,
    "Queue": queues.QUEUE,
    "QueuePartition": queues.QUEUE_PARTITION,
    "Redrive": queues.REDRIVE,
    "ListedGroup": groups.LISTED_GROUP,
    "Groups": groups.GROUPS,
    "Group": groups.GROUP,
    "Member": groups.MEMBER,
    "TopicPartitions": groups.TOPIC_PARTITIONS,
    "LagRow": lag.LAG_ROW,
    "GroupLag": lag.GROUP_LAG,
    "Lags": lag.LAGS,
    "Offset": offsets.OFFSET,
    "Reset": offsets.RESET,
    "Move": offsets.MOVE,
    "Moves": offsets.MOVES,
}


async def get_openapi(node: Node, request: ApiRequest) -> Answer:
    return Answer(OK, document(ROUTES, COMPONENTS, PREFIX))


_INTERNAL = Parameter("internal", flag("Also the cluster's own topics."), False)

ROUTES: tuple[Route, ...] = (
    Route("GET", "/openapi.json", get_openapi, "All of this API as an OpenAPI 3.1 document.", {"type": "object"}),
    Route("GET", "/nodes", nodes.get_nodes, "Every node, what is wrong, and what the node that answers is like.", named("Nodes")),
    Route("GET", "/quorum", quorum.get_quorum, "Who votes on the cluster's metadata, and how far each has come.", named("Quorum")),
    Route("GET", "/unwell", unwell.list_unwell, "Partitions that lack something, or are on their way.", named("Unwell")),
    Route("GET", "/topics", topics.list_topics, "Topics, by name.", named("Topics"), query=(_INTERNAL, *PAGE)),
    Route(
        "POST", "/topics", topics.create_topic, "Make a topic. It can be written to when the answer comes.", named("TopicOutcome"),
        status=CREATED, body=named("NewTopic"), refusals=(409, 507),
    ),
    Route("GET", "/topics/{topic}", topics.get_topic, "One topic with its partitions.", named("Topic"), refusals=(404,)),
    Route(
        "PATCH", "/topics/{topic}", topics.widen_topic, "Give a topic more partitions. Keys may land on other partitions from then on.",
        named("TopicOutcome"), body=topics.WIDER, refusals=(404, 409, 507),
    ),
    Route(
        "DELETE", "/topics/{topic}", topics.delete_topic, "Delete a topic and all its records.", named("Deleted"),
        refusals=(404, 409, 507),
    ),
    Route("GET", "/topics/{topic}/partitions", topics.list_partitions, "A topic's partitions.", named("Partitions"), refusals=(404,)),
    Route("GET", "/topics/{topic}/configs", configs.list_configs, "Every setting of a topic.", named("Configs"), refusals=(404,)),
    Route(
        "PATCH", "/topics/{topic}/configs", configs.change_configs,
        "Change settings of a topic; they hold at once. What is not named stays.",
        named("ConfigsChanged"), body=named("ConfigChanges"), refusals=(404, 507),
    ),
    Route("GET", "/queues", queues.list_queues, "Work queues with their messages by state, by name.", named("Queues"), query=PAGE),
    Route(
        "GET", "/queues/{queue}", queues.get_queue, "One queue with its settings, partitions and redrives.", named("Queue"),
        refusals=(404,),
    ),
    Route("GET", "/groups", groups.list_groups, "Consumer groups, by name.", named("Groups"), query=PAGE),
    Route("GET", "/groups/{group}", groups.get_group, "One group with its members.", named("Group"), refusals=(404,)),
    Route(
        "DELETE", "/groups/{group}", groups.delete_group, "Delete a group without members, and its committed offsets.", named("Deleted"),
        refusals=(404, 409, 507),
    ),
    Route("GET", "/groups/{group}/lag", lag.get_group_lag, "How far a group is behind.", named("GroupLag"), refusals=(404,)),
    Route(
        "POST", "/groups/{group}/offsets", offsets.reset_offsets,
        "Set where a group without members reads on. A dry run unless `dry_run` is false.",
        named("Moves"), body=named("Reset"), refusals=(404, 409, 507),
    ),
    Route("GET", "/lag", lag.list_lags, "How far all groups are behind, in one picture.", named("Lags"), query=PAGE),
)  # fmt: skip
