"""Transactions from outside: listed, described, ended for a producer that does not come back, or in one partition where they hang.

A transaction is known in two places. Its coordinator knows the transactional id, the state and the partitions (DescribeTransactions,
ListTransactions); the leader of each partition knows whose transaction is open there and since which offset (DescribeProducers). One that
a leader has open and no coordinator knows of *hangs*: nothing will ever end it, and readers of committed records wait before it
(KIP-664). An abort marker ends it there.

Everything here may be asked twice without harm. Not here: which ones hang (hanging_transactions.py), being a transactional producer.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.errors import ErrorCode
from penstock.peers.connection import Connection
from penstock.peers.coordinators import Coordinates, Coordinator, connect, find_all, only
from penstock.peers.failures import BadAnswer, PeerFailure, Refused, check_code
from penstock.peers.patience import Deadline
from penstock.peers.routing import Router
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import milliseconds

T = TypeVar("T")

NO_OFFSET = -1  # Where a producer has no transaction open.
ANY_DURATION = -1
FENCING_TIMEOUT_MS = 1  # Of the transactions that the fencing producer will never begin.

_NO_PRODUCER = -1


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which transactions to list; empty means any."""

    states: Sequence[str] = ()
    producer_ids: Sequence[int] = ()
    running_longer_ms: int = ANY_DURATION
    pattern: str | None = None  # A regular expression that the whole id must match.


@dataclass(frozen=True, slots=True)
class ListedTransaction:
    transactional_id: str
    producer_id: int
    state: str
    coordinator: int


@dataclass(frozen=True, slots=True)
class DescribedTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None  # When the last one began; None where there was none, or the node does not say.
    partitions: tuple[TopicPartition, ...]  # Of the open one; while it ends, those that have no marker yet.
    coordinator: int


@dataclass(frozen=True, slots=True)
class PartitionProducer:
    """What a partition's leader knows of a producer."""

    where: TopicPartition
    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_written_ms: int
    coordinator_epoch: int  # -1 before its first marker here.
    open_since: int | None  # The first offset of its open transaction.


async def list_transactions(router: Router, wanted: Wanted, deadline: Deadline) -> list[ListedTransaction]:
    """Of every node, by id. Raises `Refused` where a node does not know one of the states."""
    body = {
        "state_filters": list(wanted.states),
        "producer_id_filters": list(wanted.producer_ids),
        "duration_filter": wanted.running_longer_ms,
        "transactional_id_pattern": wanted.pattern,
    }

    async def attempt() -> list[ListedTransaction]:
        found: dict[str, ListedTransaction] = {}
        for node in (await router.refresh((), deadline)).nodes:
            connection = await router.switchboard.to_node(node.node_id, deadline)
            answer = await connection.call(ApiKey.LIST_TRANSACTIONS, body, timeout_s=router.timeouts(deadline).whole_s)
            what = f"list the transactions of node {node.node_id}"
            check_code(answer.error_code, what)
            if answer.unknown_state_filters:
                raise Refused(ErrorCode.INVALID_REQUEST, what, f"it knows no state {', '.join(answer.unknown_state_filters)}")
            for row in answer.transaction_states:
                listed = ListedTransaction(str(row.transactional_id), int(row.producer_id), row.transaction_state, node.node_id)
                found[listed.transactional_id] = listed
        return [found[name] for name in sorted(found)]

    return await router.retry("list the transactions", deadline, attempt)


async def describe_transaction(router: Router, transactional_id: str, deadline: Deadline) -> DescribedTransaction:
    """Raises `Refused` with TRANSACTIONAL_ID_NOT_FOUND where there is none."""
    what = f"describe transactional id {transactional_id!r}"

    async def ask(connection: Connection, coordinator: int) -> DescribedTransaction:
        body = {"transactional_ids": [transactional_id]}
        answer = await connection.call(ApiKey.DESCRIBE_TRANSACTIONS, body, timeout_s=router.timeouts(deadline).whole_s)
        row = only(answer.transaction_states, what)
        check_code(row.error_code, what)
        return _described(row, coordinator)

    return await _coordinator(router, transactional_id).ask(what, deadline, ask)


async def describe_transactions(router: Router, transactional_ids: Sequence[str], deadline: Deadline) -> dict[str, DescribedTransaction]:
    """Many at once, by id; those that nobody knows are left out. One question for each node that coordinates some of them."""
    found: dict[str, DescribedTransaction | None] = {}

    async def attempt() -> None:
        unknown = [name for name in dict.fromkeys(transactional_ids) if name not in found]
        for node_id, names in (await find_all(router, Coordinates.TRANSACTIONS, unknown, deadline)).items():
            connection = await connect(router, node_id, deadline)
            body = {"transactional_ids": names}
            answer = await connection.call(ApiKey.DESCRIBE_TRANSACTIONS, body, timeout_s=router.timeouts(deadline).whole_s)
            for row in answer.transaction_states:
                if row.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    found[str(row.transactional_id)] = None
                    continue
                check_code(row.error_code, f"describe transactional id {row.transactional_id!r}")
                found[str(row.transactional_id)] = _described(row, node_id)
        missing = [name for name in transactional_ids if name not in found]
        if missing:
            raise BadAnswer(f"describe {len(transactional_ids)} transactional ids: nothing was said of {missing[0]!r}")

    await router.retry(f"describe {len(transactional_ids)} transactional ids", deadline, attempt)
    return {name: described for name, described in found.items() if described is not None}


async def fence(router: Router, transactional_id: str, deadline: Deadline) -> int:
    """Shuts out whoever uses the id, and so aborts what it has open: returns when that is done. The epoch from which it is shut out."""
    what = f"shut out producers with transactional id {transactional_id!r}"
    body = {
        "transactional_id": transactional_id,
        "transaction_timeout_ms": FENCING_TIMEOUT_MS,
        "producer_id": _NO_PRODUCER,
        "producer_epoch": _NO_PRODUCER,
    }

    async def ask(connection: Connection, coordinator: int) -> int:
        answer = await connection.call(ApiKey.INIT_PRODUCER_ID, body, timeout_s=router.timeouts(deadline).whole_s)
        if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # It is being aborted.
            refused = Refused(int(answer.error_code), what)
            refused.is_retriable = True
            raise refused
        check_code(answer.error_code, what)
        return int(answer.producer_epoch)

    return await _coordinator(router, transactional_id).ask(what, deadline, ask)


async def describe_producers(router: Router, where: TopicPartition, deadline: Deadline) -> list[PartitionProducer]:
    """What the partition's leader knows, by producer id."""
    what = f"describe the producers of {where}"
    body = {"topics": [{"name": where.topic, "partition_indexes": [where.partition]}]}

    async def ask(connection: Connection) -> list[PartitionProducer]:
        answer = await connection.call(ApiKey.DESCRIBE_PRODUCERS, body, timeout_s=router.timeouts(deadline).whole_s)
        row = only((row for topic in answer.topics for row in topic.partitions), what)
        check_code(row.error_code, what, row.error_message)
        return sorted((_producer(where, each) for each in row.active_producers), key=lambda producer: producer.producer_id)

    return await _at_leader(router, where, what, deadline, ask)


async def write_abort_marker(router: Router, producer: PartitionProducer, deadline: Deadline) -> None:
    """Ends what the producer has open in that partition, whatever its coordinator knows: for one that hangs, and no other."""
    where, what = producer.where, f"abort the transaction of producer {producer.producer_id} in {producer.where}"
    marker = {
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": where.topic, "partition_indexes": [where.partition]}],
        "coordinator_epoch": max(0, producer.coordinator_epoch),
    }

    async def ask(connection: Connection) -> None:
        answer = await connection.call(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, timeout_s=router.timeouts(deadline).whole_s)
        rows = (row for told in answer.markers for topic in told.topics for row in topic.partitions)
        check_code(only(rows, what).error_code, what)

    await _at_leader(router, where, what, deadline, ask)


def _coordinator(router: Router, transactional_id: str) -> Coordinator:
    return Coordinator(router, Coordinates.TRANSACTIONS, transactional_id)


async def _at_leader(router: Router, where: TopicPartition, what: str, deadline: Deadline, ask: Callable[[Connection], Awaitable[T]]) -> T:
    async def attempt() -> T:
        try:
            return await ask((await router.leader(where, deadline)).connection)
        except PeerFailure:
            router.doubt(where.topic)
            raise

    return await router.retry(what, deadline, attempt)


def _described(row: Any, coordinator: int) -> DescribedTransaction:
    started_ms = milliseconds(row.transaction_start_time)
    return DescribedTransaction(
        str(row.transactional_id),
        int(row.producer_id),
        int(row.producer_epoch),
        row.transaction_state,
        milliseconds(row.transaction_timeout),
        started_ms if started_ms >= 0 else None,
        tuple(sorted(TopicPartition(str(topic.topic), int(index)) for topic in row.topics for index in topic.partitions)),
        coordinator,
    )


def _producer(where: TopicPartition, row: Any) -> PartitionProducer:
    return PartitionProducer(
        where,
        int(row.producer_id),
        int(row.producer_epoch),
        int(row.last_sequence),
        int(row.last_timestamp),
        int(row.coordinator_epoch),
        None if row.current_txn_start_offset == NO_OFFSET else int(row.current_txn_start_offset),
    )
