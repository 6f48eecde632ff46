"""Transactions seen and ended from outside, by whoever knows their names: the driver that commits a batch, or the next run.

Rules:
- An end names the producer id and epoch that the task had. It reaches that transaction or none: an id that has been used since answers that
  the name is an old one. So every end may be asked for again, by anybody, at any time.
- Version 1 of transactions is spoken, by tasks and here. There an end leaves the epoch as it is, so that the name in the ledger stays right
  and an end that is asked for again is answered like the first. What version 2 adds, an epoch for each transaction, each task has anyway:
  it asks for a producer id first.
- A refusal means that the transaction is over. How it ended is looked up in the log before anybody is alarmed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from penstock.errors import ErrorCode
from penstock.peers.appending import ProducerIdentity
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure, Refused
from penstock.peers.transaction_admin import DescribedTransaction, Wanted, describe_transactions, list_transactions
from penstock.peers.transaction_calls import TransactionCalls
from penstock.pipeline.sink.entries import Committed, Winner
from penstock.pipeline.sink.failures import RowsLost, SinkFailure
from penstock.pipeline.sink.fate import Fate, fate_of
from penstock.pipeline.sink.names import is_task_of
from penstock.vocabulary import ProducerId

ONGOING, COMMITTING = "Ongoing", "PrepareCommit"
AT_ONCE = 32  # Ends on their way: a coordinator writes each to its log, and many of them with one flush.
MARGIN = 0.1  # Of its time-out that a transaction must have left when its batch is committed,
MARGIN_MS_MAX = 10_000  # or this long: Kafka looks for those that are over every ten seconds.
RELEASE_S = 10.0  # For what is only a courtesy: time-outs do it too.

_IS_OVER = (
    ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)  # fmt: skip

Described = Mapping[str, DescribedTransaction]


async def described(client: Client, transactional_ids: Sequence[str]) -> dict[str, DescribedTransaction]:
    return await describe_transactions(client.router, transactional_ids, client.router.deadline(None)) if transactional_ids else {}


def check_open(winners: Iterable[Winner], seen: Described, wall_ms: int) -> None:
    """Before the commit point every transaction must be open, the task's own, and have time left. Raises `SinkFailure`: nothing is lost."""
    for winner in winners:
        found = seen.get(winner.transactional_id)
        if found is None or found.state != ONGOING or (found.producer_id, found.producer_epoch) != (winner.producer_id, winner.epoch):
            state = "unknown to its coordinator" if found is None else f"{found.state} under epoch {found.producer_epoch}"
            raise SinkFailure(
                f"the transaction {winner.transactional_id} of epoch {winner.epoch} is not open any more, but {state}: it timed out, or "
                "another attempt or run has taken its id",
                "nothing of this batch was committed; start the query again. If batches take longer than transactionTimeoutMs, raise it or "
                "make them smaller",
            )
        if found.started_ms is not None and found.started_ms + found.timeout_ms - wall_ms < _margin_ms(found.timeout_ms):
            raise SinkFailure(
                f"the transaction {winner.transactional_id} has been open for {wall_ms - found.started_ms} ms of the {found.timeout_ms} ms "
                "that it may, from its start by a broker's clock until now by this machine's: to commit now would risk that it is aborted "
                "half-way",
                "nothing of this batch was committed; raise transactionTimeoutMs (up to the brokers' transaction.max.timeout.ms), or make "
                "batches smaller, and start the query again. If batches do not take that long, the clocks of the driver and the brokers "
                "are apart: set them right",
            )


async def commit_all(client: Client, committed: Committed, seen: Described, half_way: Callable[[], None]) -> None:
    """Ends every transaction of a committed batch. Raises `RowsLost` where one was aborted before, after all others are ended."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def end(winner: Winner) -> Fate:
        async with limit:
            ended = await _commit(client, winner, seen)
        half_way()
        return ended

    fates = await asyncio.gather(*(end(winner) for winner in committed.winners), return_exceptions=True)
    failures = [one for one in fates if isinstance(one, BaseException)]
    if failures:
        raise failures[0]
    lost = [winner for winner, ended in zip(committed.winners, fates, strict=True) if ended is not Fate.COMMITTED]
    if lost:
        raise _rows_lost(committed, lost)


async def until_seen(client: Client, winners: Iterable[Winner]) -> None:
    """Waits until every partition has its marker: an end is answered before. Best effort: readers see the rows in the end."""
    names = [winner.transactional_id for winner in winners]

    async def look() -> None:
        if any(one.state == COMMITTING for one in (await described(client, names)).values()):
            raise Refused(ErrorCode.CONCURRENT_TRANSACTIONS, "some partitions have no marker yet")

    with suppress(PeerFailure):
        await client.router.retry("wait for the markers of a batch", client.router.deadline(RELEASE_S), look)


async def abort_all(client: Client, winners: Iterable[Winner], seen: Described) -> None:
    """Lets readers go on sooner than time-outs would. Best effort."""

    async def abort(winner: Winner) -> None:
        calls = _calls(client, winner.transactional_id, seen, RELEASE_S)
        try:
            await calls.end(ProducerIdentity(ProducerId(winner.producer_id), winner.epoch), is_commit=False, is_v2=False)
        except PeerFailure:
            return

    await asyncio.gather(*(abort(winner) for winner in winners))


async def abort_seen(client: Client, seen: Described, *, but: Iterable[Winner] = ()) -> None:
    """Aborts those of the transactions that are open, by their names, except those that count."""
    spared = {(winner.transactional_id, winner.producer_id, winner.epoch) for winner in but}
    orphans = [
        Winner(name, one.producer_id, one.producer_epoch, "", 0, -1)
        for name, one in seen.items()
        if one.state == ONGOING and (name, one.producer_id, one.producer_epoch) not in spared
    ]
    await abort_all(client, orphans, seen)


async def open_of(client: Client, sink: str) -> dict[str, DescribedTransaction]:
    """Every open transaction of the sink's tasks, whichever attempt they are of."""
    listed = await list_transactions(client.router, Wanted(states=(ONGOING,)), client.router.deadline(RELEASE_S))
    return await described(client, [one.transactional_id for one in listed if is_task_of(sink, one.transactional_id)])


async def _commit(client: Client, winner: Winner, seen: Described) -> Fate:
    calls = _calls(client, winner.transactional_id, seen, client.router.deadline(None).span_s)
    try:
        await calls.end(ProducerIdentity(ProducerId(winner.producer_id), winner.epoch), is_commit=True, is_v2=False)
    except Refused as refusal:
        if refusal.code not in _IS_OVER:
            raise
        return await fate_of(client, winner.producer_id, winner.topic, winner.partition, winner.offset)
    return Fate.COMMITTED


def _calls(client: Client, transactional_id: str, seen: Described, deadline_s: float) -> TransactionCalls:
    coordinator = seen[transactional_id].coordinator if transactional_id in seen else None
    return TransactionCalls(client, transactional_id, deadline_s=deadline_s, coordinator=coordinator)


def _margin_ms(timeout_ms: int) -> int:
    return min(int(timeout_ms * MARGIN), MARGIN_MS_MAX)


def _rows_lost(committed: Committed, lost: Sequence[Winner]) -> RowsLost:
    names = ", ".join(winner.transactional_id for winner in lost[:3]) + (f" and {len(lost) - 3} more" if len(lost) > 3 else "")
    return RowsLost(
        f"batch {committed.batch} of sink {committed.sink!r} is committed, but {len(lost)} of its {len(committed.winners)} transactions "
        f"were aborted before they could be ended ({names}): their rows are not in the topics, those of the others are",
        "the query was down for longer than transactionTimeoutMs after it had committed the batch. Start it once with the option "
        "lostBatch=rewrite to write the whole batch again (rows of the other tasks then come twice), or with lostBatch=skip to go on "
        "without the lost rows",
    )
