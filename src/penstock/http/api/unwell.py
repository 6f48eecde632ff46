"""GET /unwell: the partitions of the cluster that lack something, or are on their way to other nodes."""

from typing import Any

from penstock.broker.cluster_views import each_partition, is_below_min_in_sync, is_under_replicated, offline_replicas
from penstock.broker.node import Node
from penstock.http.answers import OK, Answer
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import flag, integer, listing, named, or_null, shape, text
from penstock.vocabulary import NO_NODE

ROWS_MAX = 1_000

UNWELL_PARTITION = shape(
    {
        "topic": text("The topic's name."),
        "partition": integer("The partition's number."),
        "leader": or_null(integer("The node that leads it; null: nobody does.")),
        "replicas": listing(integer("A node."), "The nodes that hold it."),
        "in_sync": listing(integer("A node."), "Those of them that have everything."),
        "eligible": listing(integer("A node."), "Those that may lead though they are not in sync."),
        "offline": listing(integer("A node."), "Those that are away."),
        "is_under_replicated": flag("It lacks replicas in sync."),
        "is_below_min_in_sync": flag("It refuses acks=all."),
        "is_reassigning": flag("It is on its way to other nodes."),
    }
)
UNWELL = shape(
    {
        "partitions": listing(named("UnwellPartition")),
        "left_out": integer(f"How many more there are: the list has {ROWS_MAX} at most."),
    }
)


async def list_unwell(node: Node, request: ApiRequest) -> Answer:
    rows: list[dict[str, Any]] = []
    left_out, config, configured = 0, node.partitions.defaults, None
    async for topic, index, state in each_partition(node):
        if configured is not topic:
            config, configured = node.partitions.config_of(topic), topic
        is_under, is_below = is_under_replicated(state), is_below_min_in_sync(state, config)
        if not (is_under or is_below or state.is_reassigning):
            continue
        if len(rows) >= ROWS_MAX:
            left_out += 1
            continue
        rows.append({
            "topic": topic.name,
            "partition": index,
            "leader": None if state.leader == NO_NODE else state.leader,
            "replicas": list(state.replicas),
            "in_sync": list(state.in_sync),
            "eligible": list(state.eligible),
            "offline": list(offline_replicas(node.image, state)),
            "is_under_replicated": is_under,
            "is_below_min_in_sync": is_below,
            "is_reassigning": state.is_reassigning,
        })  # fmt: skip
    return Answer(OK, {"partitions": rows, "left_out": left_out}, is_large=True)
