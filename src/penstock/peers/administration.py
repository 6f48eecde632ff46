"""Topics: described, created, grown, deleted.

None of the latter is idempotent by itself: where the answer to a try was lost and the next try finds the work done, it counts as done by
this call.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.failures import PeerFailure, Refused, UnknownTopic, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.peers.topics import NO_LEADER, ClusterView, TopicView
from penstock.wire.api_keys import ApiKey

Assignments = Sequence[Sequence[int]]  # The replicas of each partition, in order; the first of them is preferred as leader.

_ROWS = {ApiKey.CREATE_TOPICS: "topics", ApiKey.CREATE_PARTITIONS: "results", ApiKey.DELETE_TOPICS: "responses"}


async def describe_cluster(router: Router, topics: Sequence[str] | None, deadline: Deadline) -> ClusterView:
    """The cluster as a node sees it now. A topic that is not there comes back with its error code."""
    return await router.retry("describe the cluster", deadline, lambda: router.refresh(topics, deadline))


async def describe_topic(router: Router, topic: str, deadline: Deadline) -> TopicView:
    cluster = await describe_cluster(router, [topic], deadline)
    view = next((view for view in cluster.topics if view.name == topic), None)
    if view is None or view.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopic(topic)
    if view.error_code != ErrorCode.LEADER_NOT_AVAILABLE:  # A topic without leaders can still be looked at.
        check_code(view.error_code, f"describe topic {topic!r}")
    return view


async def create_topic(
    router: Router, topic: str, deadline: Deadline, *, partitions: int, replication_factor: int, config: Mapping[str, str],
    assignments: Assignments = (),
) -> TopicView:  # fmt: skip
    """Waits until each partition has a leader."""
    wish = {
        "name": topic,
        "num_partitions": partitions,
        "replication_factor": replication_factor,
        "assignments": [{"partition_index": index, "broker_ids": list(replicas)} for index, replicas in enumerate(assignments)],
        "configs": [{"name": name, "value": value} for name, value in config.items()],
    }
    what = f"create topic {topic!r}"
    await _ask_controller(router, ApiKey.CREATE_TOPICS, {"topics": [wish]}, what, deadline, done_already=ErrorCode.TOPIC_ALREADY_EXISTS)
    return await router.retry(f"wait for the leaders of topic {topic!r}", deadline, lambda: _topic_with_leaders(router, topic, deadline))


async def add_partitions(router: Router, topic: str, deadline: Deadline, *, partitions: int, is_trial: bool) -> TopicView:
    """Lets the topic grow to this many partitions and waits until each has a leader. A trial only asks whether it could."""
    body = {"topics": [{"name": topic, "count": partitions, "assignments": None}], "validate_only": is_trial}
    what = f"add partitions to topic {topic!r}"
    await _ask_controller(router, ApiKey.CREATE_PARTITIONS, body, what, deadline, done_already=ErrorCode.INVALID_PARTITIONS)
    return await router.retry(f"wait for the leaders of topic {topic!r}", deadline, lambda: _topic_with_leaders(router, topic, deadline))


async def delete_topic(router: Router, topic: str, deadline: Deadline) -> None:
    body = {"topics": [{"name": topic}], "topic_names": [topic]}
    done_already = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        await _ask_controller(router, ApiKey.DELETE_TOPICS, body, f"delete topic {topic!r}", deadline, done_already=done_already)
    finally:
        router.doubt(topic)


async def _ask_controller(
    router: Router, api: ApiKey, body: Mapping[str, Any], what: str, deadline: Deadline, *, done_already: ErrorCode
) -> None:
    """`done_already` is the refusal that means: there is nothing left to do. Asked again it would stay so, and so would a topic that isn't
    there: the controller knows them all."""

    async def attempt() -> None:
        try:
            connection = await router.controller(deadline)
            timeout_s, at_node_ms = router.timeouts(deadline)
            answer = await connection.call(api, {**body, "timeout_ms": at_node_ms}, timeout_s=timeout_s)
            row = getattr(answer, _ROWS[api])[0]
            check_code(row.error_code, what, getattr(row, "error_message", None))
        except PeerFailure as failure:
            router.doubt_controller()
            if isinstance(failure, Refused) and failure.code in (done_already, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                failure.is_retriable = False
            raise

    try:
        await router.retry(what, deadline, attempt)
    except Refused as refusal:
        if refusal.code != done_already or not refusal.may_have_happened:
            raise


async def _topic_with_leaders(router: Router, topic: str, deadline: Deadline) -> TopicView:
    router.doubt(topic)
    view = await router.topic(topic, deadline)
    leaderless = [str(partition.partition) for partition in view.partitions if partition.leader == NO_LEADER]
    if leaderless:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"partitions {', '.join(leaderless)} of topic {topic!r} have no leader")
    return view
