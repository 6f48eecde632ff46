"""Transactions that hang: a partition's leader has them open, and no coordinator will ever end them (KIP-664).

That nobody knows of a transaction can be said only when everybody who might was asked. So nothing is told to hang unless
- every node names the same leaders of `__transaction_state`, in the same epochs, and each of its partitions has one: a node that is cut off
  from the others may take itself for a coordinator that it is no longer;
- all of them have loaded what they coordinate, and answer (ListTransactions refuses before);
- it was so twice, with a pause between, while the leaders stayed the same: what was on its way has arrived by then.
Where the leaders change meanwhile it all begins anew. Where that does not come to rest, `CannotTell` says what is missing.
"""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from penstock.errors import ErrorCode
from penstock.peers.failures import PeerFailure, Refused, code_name
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.peers.topics import NO_LEADER, read_cluster
from penstock.peers.transaction_admin import PartitionProducer, Wanted, describe_producers, describe_transaction, list_transactions
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

TRANSACTION_STATE = "__transaction_state"
PAUSE_SECONDS = 1.0  # Between the two looks: an answer that was under way has come, or its asker has given up on it.
PATIENCE_SECONDS = 15.0  # For the cluster to come to rest: several times what a failover takes.

Leaders = tuple[tuple[int, int], ...]  # Of each partition of the coordinators' topic: who leads it, in which epoch.


@dataclass(frozen=True, slots=True)
class Hanging:
    producer: PartitionProducer
    transactional_id: str | None  # None where no coordinator knows the producer any more.


class CannotTell(PeerFailure):
    """Not every coordinator could be asked: one of them may know the transaction, and end it."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"nobody can tell now which transactions hang: {why}",
            "a coordinator that was not asked may yet end them: bring the missing nodes back (penstock cluster status), and ask again",
        )


class _Unsettled(PeerFailure):
    is_retriable = True


async def hanging(router: Router, producers: Iterable[PartitionProducer], deadline: Deadline) -> list[Hanging]:
    """Those of these open transactions that no coordinator will end. Raises `CannotTell`.

    A coordinator knows of a partition before anything is written there, and forgets it only after the marker.
    """
    suspects = [producer for producer in producers if producer.open_since is not None]
    if not suspects:
        return []
    patience = router.deadline(min(PATIENCE_SECONDS, deadline.left_s()))
    try:
        while patience.left_s() > 0:
            leaders = await router.retry("ask who coordinates", patience, lambda: _leaders(router, patience))
            found = await _unknown(router, suspects, patience)
            if not found:
                return []
            await asyncio.sleep(PAUSE_SECONDS)
            found = await _unknown(router, [each.producer for each in found], patience)
            if leaders == await router.retry("ask who coordinates", patience, lambda: _leaders(router, patience)):
                return found
    except PeerFailure as failure:
        raise CannotTell(failure.problem) from failure
    raise CannotTell("the coordinators change while they are asked")


async def _leaders(router: Router, deadline: Deadline) -> Leaders:
    """As every node names them. One try."""
    told: dict[int, Leaders] = {}
    nodes = (await router.refresh((TRANSACTION_STATE,), deadline)).nodes
    for node in nodes:
        connection = await router.switchboard.to_node(node.node_id, deadline)
        body = {"topics": [{"name": TRANSACTION_STATE}], "allow_auto_topic_creation": False}
        cluster = read_cluster(await connection.call(ApiKey.METADATA, body, timeout_s=router.timeouts(deadline).whole_s))
        (topic,) = cluster.topics
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):  # Where it is not there, nobody coordinates.
            raise _Unsettled(f"node {node.node_id} answers {code_name(topic.error_code)} about {TRANSACTION_STATE}")
        told[node.node_id] = tuple((each.leader, each.leader_epoch) for each in topic.partitions)
    if len(set(told.values())) != 1:
        raise _Unsettled(f"nodes {', '.join(map(str, told))} do not agree on who leads the partitions of {TRANSACTION_STATE}")
    leaders = next(iter(told.values()))
    missing = [partition for partition, (leader, _) in enumerate(leaders) if leader == NO_LEADER]
    if missing:
        raise _Unsettled(f"nobody leads {_partitions(missing)} of {TRANSACTION_STATE}")
    absent = sorted({leader for leader, _ in leaders} - told.keys())
    if absent:
        raise _Unsettled(f"node {absent[0]}, which coordinates, is not listed by the others")
    return leaders


async def _unknown(router: Router, suspects: Sequence[PartitionProducer], deadline: Deadline) -> list[Hanging]:
    """Those that no coordinator knows of, and that are open still: the marker may have come between the two questions."""
    ids = sorted({producer.producer_id for producer in suspects})
    owners = {listed.producer_id: listed.transactional_id for listed in await list_transactions(router, Wanted(producer_ids=ids), deadline)}
    found = []
    for producer in suspects:
        owner = owners.get(producer.producer_id)
        if owner is not None and producer.where in await _partitions_of(router, owner, deadline):
            continue
        now = await describe_producers(router, producer.where, deadline)
        if any((each.producer_id, each.open_since) == (producer.producer_id, producer.open_since) for each in now):
            found.append(Hanging(producer, owner))
    return found


async def _partitions_of(router: Router, transactional_id: str, deadline: Deadline) -> Sequence[TopicPartition]:
    try:
        return (await describe_transaction(router, transactional_id, deadline)).partitions
    except Refused as refused:
        if refused.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        return ()  # It was forgotten since it was listed.


def _partitions(numbers: Sequence[int]) -> str:
    if len(numbers) == 1:
        return f"partition {numbers[0]}"
    return f"partitions {', '.join(map(str, numbers[:5]))}{f' and {len(numbers) - 5} more' if len(numbers) > 5 else ''}"
