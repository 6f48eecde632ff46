"""Changes of the cluster asked for from outside: leaders elected, partitions moved, nodes forgotten, voters added and removed.

Any broker takes these and passes on what only the controller can do. Elections and moves may be asked for twice without harm: the
controller looks at what holds. A voter that is added or removed twice is refused the second time, which counts as done when the answer to
the first was lost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.connection import Connection
from penstock.peers.failures import PeerFailure, Refused, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

PREFERRED, UNCLEAN = 0, 1

_DONE_ALREADY = {ApiKey.ADD_RAFT_VOTER: ErrorCode.DUPLICATE_VOTER, ApiKey.REMOVE_RAFT_VOTER: ErrorCode.VOTER_NOT_FOUND}


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    message: str | None


async def elect_leaders(
    router: Router, kind: int, partitions: Iterable[TopicPartition] | None, deadline: Deadline
) -> dict[TopicPartition, Outcome]:
    """One for each partition; of all (None), one for each that moved or could not."""
    wishes = None if partitions is None else [{"topic": name, "partitions": indexes} for name, indexes in _by_topic(partitions).items()]
    what = "elect leaders"
    answer = await _ask_controller(router, ApiKey.ELECT_LEADERS, {"election_type": kind, "topic_partitions": wishes}, what, deadline)
    check_code(getattr(answer, "error_code", ErrorCode.NONE), what)
    return {
        TopicPartition(topic.topic, int(row.partition_id)): Outcome(int(row.error_code), row.error_message)
        for topic in answer.replica_election_results
        for row in topic.partition_result
    }


async def reassign(
    router: Router, wishes: Mapping[TopicPartition, Sequence[int] | None], deadline: Deadline
) -> dict[TopicPartition, Outcome]:
    """Begins to move partitions to these replicas; None takes a move back."""
    topics = [
        {"name": name, "partitions": [{"partition_index": index, "replicas": wishes[TopicPartition(name, index)]} for index in indexes]}
        for name, indexes in _by_topic(wishes).items()
    ]
    what = "reassign partitions"
    answer = await _ask_controller(router, ApiKey.ALTER_PARTITION_REASSIGNMENTS, {"topics": topics}, what, deadline)
    check_code(answer.error_code, what, answer.error_message)
    return {
        TopicPartition(topic.name, int(row.partition_index)): Outcome(int(row.error_code), row.error_message)
        for topic in answer.responses
        for row in topic.partitions
    }


async def forget_node(router: Router, node_id: int, deadline: Deadline) -> None:
    what = f"forget node {node_id}"
    answer = await _ask_controller(router, ApiKey.UNREGISTER_BROKER, {"broker_id": node_id}, what, deadline)
    check_code(answer.error_code, what, answer.error_message)


async def add_voter(router: Router, node_id: int, directory_id: bytes, deadline: Deadline) -> None:
    body: dict[str, Any] = {"cluster_id": None, "voter_id": node_id, "voter_directory_id": directory_id, "listeners": []}
    await _change_voters(router, ApiKey.ADD_RAFT_VOTER, body, f"let node {node_id} vote", deadline)


async def remove_voter(router: Router, node_id: int, directory_id: bytes, deadline: Deadline) -> None:
    body = {"cluster_id": None, "voter_id": node_id, "voter_directory_id": directory_id}
    await _change_voters(router, ApiKey.REMOVE_RAFT_VOTER, body, f"take the vote of node {node_id}", deadline)


async def _change_voters(router: Router, api: ApiKey, body: Mapping[str, Any], what: str, deadline: Deadline) -> None:
    async def attempt() -> None:
        connection = await _controller(router, deadline)
        timeout_s, at_node_ms = router.timeouts(deadline)
        answer = await connection.call(api, {**body, "timeout_ms": at_node_ms}, timeout_s=timeout_s)
        check_code(answer.error_code, what, answer.error_message)

    try:
        await router.retry(what, deadline, attempt)
    except Refused as refusal:
        if refusal.code != _DONE_ALREADY[api] or not refusal.may_have_happened:
            raise


async def _ask_controller(router: Router, api: ApiKey, body: Mapping[str, Any], what: str, deadline: Deadline) -> Any:
    async def attempt() -> Any:
        connection = await _controller(router, deadline)
        timeout_s, at_node_ms = router.timeouts(deadline)
        return await connection.call(api, {**body, "timeout_ms": at_node_ms}, timeout_s=timeout_s)

    return await router.retry(what, deadline, attempt)


async def _controller(router: Router, deadline: Deadline) -> Connection:
    """Any broker passes on what it is asked, so one that cannot be reached is not waited for."""
    try:
        return await router.controller(deadline)
    except PeerFailure:
        router.doubt_controller()
        return await router.any_node(deadline)


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    grouped: dict[str, list[int]] = {}
    for topic, index in partitions:
        grouped.setdefault(topic, []).append(index)
    return grouped
