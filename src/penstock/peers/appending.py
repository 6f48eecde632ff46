"""Batches appended to partitions, and the ids of those who append.

A batch is sent again byte for byte, so that one with a producer id and a sequence is stored once. One without may be stored twice when an
answer is lost.
"""

from typing import Any, NamedTuple

from penstock.errors import ErrorCode
from penstock.peers.failures import BadAnswer, PeerFailure, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.peers.versions import HIGHEST_WITH_TOPIC_NAMES, HIGHEST_WITHOUT_V2
from penstock.vocabulary import NO_TOPIC_ID, ProducerId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import milliseconds

ACKS_ALL = -1
ACKS_NONE = 0

_TRANSACTION_TIMEOUT_MS = 60_000  # Must be given; means nothing without a transactional id.


class ProducerIdentity(NamedTuple):
    producer_id: ProducerId
    epoch: int


class TransactionPart(NamedTuple):
    transactional_id: str
    is_v2: bool  # Its partitions need not be announced beforehand (KIP-890).


class Produced(NamedTuple):
    base_offset: int  # -1 where the node does not tell: acks 0, or a batch that it has had for long.
    append_time_ms: int  # -1 where the topic keeps the producer's timestamps.
    log_start_offset: int


_NOTHING_TOLD = Produced(-1, -1, -1)


async def init_producer_id(router: Router, deadline: Deadline) -> ProducerIdentity:
    body = {"transactional_id": None, "transaction_timeout_ms": _TRANSACTION_TIMEOUT_MS}

    async def attempt() -> ProducerIdentity:
        connection = await router.any_node(deadline)
        answer = await connection.call(ApiKey.INIT_PRODUCER_ID, body, timeout_s=router.timeouts(deadline).whole_s)
        check_code(answer.error_code, "get a producer id")
        return ProducerIdentity(ProducerId(int(answer.producer_id)), int(answer.producer_epoch))

    return await router.retry("get a producer id", deadline, attempt)


async def produce(
    router: Router, where: TopicPartition, batch: bytes, deadline: Deadline, *, acks: int, part: TransactionPart | None = None
) -> Produced:
    """`part` says which transaction a transactional batch belongs to."""

    async def attempt() -> Produced:
        try:
            return await _produce_once(router, where, batch, deadline, acks=acks, part=part)
        except PeerFailure:
            router.doubt(where.topic)
            raise

    return await router.retry(f"produce to {where}", deadline, attempt)


async def _produce_once(
    router: Router, where: TopicPartition, batch: bytes, deadline: Deadline, *, acks: int, part: TransactionPart | None
) -> Produced:
    route = await router.leader(where, deadline, may_create=True)
    timeout_s, at_node_ms = router.timeouts(deadline)
    topic = {
        "name": where.topic,
        "topic_id": route.topic.topic_id,
        "partition_data": [{"index": where.partition, "records": batch}],
    }
    body = {"acks": acks, "timeout_ms": at_node_ms, "topic_data": [topic], "transactional_id": part.transactional_id if part else None}
    version_max = HIGHEST_WITH_TOPIC_NAMES[ApiKey.PRODUCE] if route.topic.topic_id == NO_TOPIC_ID else None
    if part is not None and not part.is_v2:
        version_max = HIGHEST_WITHOUT_V2[ApiKey.PRODUCE]
    if acks == ACKS_NONE:
        await route.connection.tell(ApiKey.PRODUCE, body, timeout_s=timeout_s, version_max=version_max)
        return _NOTHING_TOLD
    answer = await route.connection.call(ApiKey.PRODUCE, body, timeout_s=timeout_s, version_max=version_max)
    return _read_answer(answer, where, str(route.connection.address))


def _read_answer(answer: Any, where: TopicPartition, peer: str) -> Produced:
    rows = [row for topic in answer.responses for row in topic.partition_responses if row.index == where.partition]
    if len(rows) != 1:
        raise BadAnswer(f"{peer} left {where} out of its answer to a produce", may_have_happened=True)
    row = rows[0]
    if row.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # It is stored, longer ago than the node remembers where.
        return _NOTHING_TOLD
    check_code(row.error_code, f"produce to {where}", _reason(row))
    return Produced(int(row.base_offset), milliseconds(row.log_append_time), int(getattr(row, "log_start_offset", -1)))


def _reason(row: Any) -> str | None:
    """The node's own words, with those about single records."""
    words = [getattr(row, "error_message", None) or ""]
    for error in getattr(row, "record_errors", ())[:3]:
        told = error.batch_index_error_message or ""
        if told not in words[0]:
            words.append(f"record {error.batch_index}: {told}")
    return "; ".join(word for word in words if word) or None
