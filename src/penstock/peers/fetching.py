"""One fetch from one node: the question, the answer, and the batches in it.

Not here: which node to ask, and when to ask again.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.errors import ErrorCode, MalformedInput
from penstock.peers.aborted import AbortedTransaction
from penstock.peers.connection import Connection
from penstock.peers.failures import BadAnswer, PeerFailure, Refused
from penstock.peers.fetch_session import NO_SESSION, FetchPlan, FetchSession, FetchWish, full_plan
from penstock.peers.versions import HIGHEST_WITH_TOPIC_NAMES
from penstock.vocabulary import NO_TOPIC_ID, TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header
from penstock.wire.schemas import topic_id_bytes


@dataclass(frozen=True, slots=True)
class FetchLimits:
    wait_ms: int = 500  # How long the node may hold an answer back for want of `bytes_min`.
    bytes_min: int = 1
    bytes_max: int = 16 << 20  # Of the whole answer; its first batch comes even if it is larger.
    is_committed_only: bool = False  # Nothing of transactions that are still open, and told which of the others were aborted.
    rack: str = ""  # Where the reader is (KIP-392). A follower answers only readers that name one.


@dataclass(frozen=True, slots=True)
class Fetched:
    partition: TopicPartition
    error_code: int
    high_watermark: int
    log_start_offset: int
    records: bytes  # Whole batches, the first of which may begin below the offset that was asked for; the last may be cut off.
    last_stable_offset: int = -1  # Every transaction that began below it has ended.
    aborted: Sequence[AbortedTransaction] = ()  # Those that reach into the records, if only what is committed was asked for.


async def fetch_once(
    connection: Connection, wishes: Sequence[FetchWish], limits: FetchLimits, *, session: FetchSession | None = None, timeout_s: float
) -> list[Fetched]:
    """Rows carry their own error codes; in a session only those partitions are answered that have news."""
    plan = full_plan(wishes) if session is None else session.plan(wishes)
    try:
        answer = await _ask(connection, plan, limits, timeout_s)
        rows = _read_rows(answer, {wish.topic_id: wish.partition.topic for wish in wishes}, str(connection.address))
    except PeerFailure as failure:
        if session is not None:
            session.restart(failure.code if isinstance(failure, Refused) else ErrorCode.NONE)
        raise
    if session is not None:
        session.accept(plan, int(getattr(answer, "session_id", NO_SESSION)))
    return rows


async def close_session(connection: Connection, session: FetchSession, *, timeout_s: float) -> None:
    """Lets the node forget the session now rather than when it needs the room."""
    await _ask(connection, session.plan_close(), FetchLimits(wait_ms=0), timeout_s)


def whole_batches(records: bytes) -> Iterator[tuple[BatchHeader, memoryview]]:
    """The batches of a fetched row, each checked; a last one that is cut off is left out. Raises `MalformedInput`."""
    view, at = memoryview(records), 0
    while len(view) - at >= HEADER_BYTES:
        header = read_header(view, at)
        if header.magic != MAGIC:
            raise MalformedInput(f"a batch has format {header.magic}, not {MAGIC}")
        if header.size < HEADER_BYTES:
            raise MalformedInput("a batch is shorter than its header")
        if at + header.size > len(view):
            return
        if not crc_is_right(view, at, header.size):
            raise MalformedInput(f"the batch at offset {header.base_offset} does not match its checksum")
        yield header, view[at : at + header.size]
        at += header.size


async def _ask(connection: Connection, plan: FetchPlan, limits: FetchLimits, timeout_s: float) -> Any:
    is_nameless = all(wish.topic_id != NO_TOPIC_ID for wish in (*plan.ask, *plan.forget))
    version_max = None if is_nameless else HIGHEST_WITH_TOPIC_NAMES[ApiKey.FETCH]
    answer = await connection.call(ApiKey.FETCH, _body(plan, limits), timeout_s=timeout_s, version_max=version_max)
    code = int(getattr(answer, "error_code", ErrorCode.NONE))
    if code != ErrorCode.NONE:
        raise Refused(code, f"fetch from {connection.address}")
    return answer


def _body(plan: FetchPlan, limits: FetchLimits) -> dict[str, Any]:
    """Fits every version: each takes the fields that it knows."""
    return {
        "max_wait_ms": limits.wait_ms,
        "min_bytes": limits.bytes_min,
        "max_bytes": limits.bytes_max,
        "isolation_level": int(limits.is_committed_only),
        "rack_id": limits.rack,
        "session_id": plan.session_id,
        "session_epoch": plan.session_epoch,
        "topics": [_topic(group) | {"partitions": [_partition(wish) for wish in group]} for group in _by_topic(plan.ask)],
        "forgotten_topics_data": [
            _topic(group) | {"partitions": [wish.partition.partition for wish in group]} for group in _by_topic(plan.forget)
        ],
    }


def _read_rows(answer: Any, names: dict[TopicId, str], peer: str) -> list[Fetched]:
    """`names` holds the topics of the session by id; one that is not among them was not asked for."""
    rows = []
    for topic in answer.responses:
        name = topic.topic if hasattr(topic, "topic") else names.get(topic_id_bytes(topic.topic_id))
        if name is None:
            raise BadAnswer(f"{peer} answered a fetch with a topic that was not asked for")
        rows += [_read_row(name, row) for row in topic.partitions]
    return rows


def _read_row(topic: str, row: Any) -> Fetched:
    return Fetched(
        TopicPartition(topic, int(row.partition_index)),
        int(row.error_code),
        int(row.high_watermark),
        int(getattr(row, "log_start_offset", -1)),
        row.records or b"",
        int(row.last_stable_offset),
        tuple(AbortedTransaction(int(one.producer_id), int(one.first_offset)) for one in row.aborted_transactions or ()),
    )


def _by_topic(wishes: Sequence[FetchWish]) -> list[list[FetchWish]]:
    groups: dict[tuple[str, TopicId], list[FetchWish]] = {}
    for wish in wishes:
        groups.setdefault((wish.partition.topic, wish.topic_id), []).append(wish)
    return list(groups.values())


def _topic(group: Sequence[FetchWish]) -> dict[str, Any]:
    return {"topic": group[0].partition.topic, "topic_id": group[0].topic_id}


def _partition(wish: FetchWish) -> dict[str, Any]:
    return {
        "partition": wish.partition.partition,
        "current_leader_epoch": wish.leader_epoch,
        "fetch_offset": wish.offset,
        "partition_max_bytes": wish.bytes_max,
    }
