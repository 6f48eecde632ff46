"""What simulated worlds have found in queues, told again in order."""

import asyncio
from unittest.mock import ANY

import pytest
from broker.queues.test_ledgers import QUEUE, ledger_of, opened, sent
from serving import Serving, until

from penstock.broker.queues.calls import Counts, Draft
from penstock.broker.trimming import trim
from penstock.vocabulary import Offset


async def test_a_purge_takes_what_its_ledger_has_yet_to_read(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.queues.following.READ_BYTES", 1)
    monkeypatch.setattr("penstock.broker.queues.following.READS_AT_ONCE", 1)
    queues = await opened(serving)
    for number in range(10):
        await sent(queues, Draft(b"%d" % number))
    await asyncio.gather(*(sent(queues, Draft(b"more %d" % number)) for number in range(10)))
    await queues.purge(QUEUE)
    assert await queues.take(QUEUE, 10, wait_s=0.2) == []


async def test_what_is_unfinished_stays_where_the_log_begins_behind_ids_that_count(serving: Serving) -> None:
    """The log's start was moved by hand; ids of what is gone still count. Upkeep took the last segment's start for the one to trim to."""
    queues = await opened(serving, segment_bytes="1024")
    await sent(queues, *[Draft(b"%d" % at + bytes(200), dedup=f"id-{at}") for at in range(5)])
    await sent(queues, *[Draft(b"%d" % at + bytes(200), dedup=f"id-{at}") for at in range(5, 10)])
    await sent(queues, *[Draft(b"%d" % at + bytes(200), dedup=f"id-{at}") for at in range(10, 15)])
    ledger = ledger_of(serving)
    await trim(serving.node, ledger.data, Offset(7))
    first = serving.directory / "topics" / ledger.data.topic_id.hex() / "0" / f"{0:020}.log"
    await until(lambda: not first.exists())
    for _ in range(3):
        await serving.node.ledgers.look_at(ledger)
    assert ledger.data.log.start_offset == 7
    assert await queues.counts(QUEUE) == Counts(ready=8, dropped=7, finished=ANY, oldest_ms=ANY)
