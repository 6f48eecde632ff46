"""A task's half: rows in, one open transaction and a report out. And the driver's half behind the same blocking door.

Nothing here knows Spark: `writer` gives it Spark's numbers, tests give it their own.
"""

from collections.abc import Iterator, Sequence
from zlib import crc32

import pyarrow as pa

from penstock.pipeline.brokers import Broker
from penstock.pipeline.sink import committing
from penstock.pipeline.sink.committing import Report
from penstock.pipeline.sink.ledger import ledger
from penstock.pipeline.sink.names import Place, task_id
from penstock.pipeline.sink.options import Deliver, SinkOptions
from penstock.pipeline.sink.rows import Cutter, gathered
from penstock.pipeline.sink.runs import Beginning, Verdict, Work, begin
from penstock.pipeline.sink.staging import Staging

PATIENCE = 10  # Calls that follow one another in one `run`, each with a deadline of its own.


def write_task(broker: Broker, options: SinkOptions, work: Work, place: Place, batches: Iterator[pa.RecordBatch]) -> Report:
    """Stores the rows, unless their batch was committed before; then it only counts them."""
    is_exact = options.deliver is Deliver.EXACTLY_ONCE
    beginning: Beginning | None = None
    staging: Staging | None = None
    cutter = _cutter(broker, options, work, place)
    rows = 0
    try:
        for batch in gathered(batches):  # A task without rows asks nobody anything.
            if beginning is None:
                beginning = _begin(broker, options, work) if is_exact else Beginning(Verdict.WRITE)
            if staging is None and beginning.verdict is Verdict.WRITE:
                staging = Staging(broker, options, task_id(work.sink, work.batch, place) if is_exact else None)
                staging.begin()
            rows += batch.num_rows
            if staging is not None:
                staging.add(cutter.cut(batch))
        winner = staging.finish() if staging is not None else None
    except BaseException:
        if staging is not None:
            staging.abandon()
        raise
    return Report(work, place, rows, beginning, winner)


def commit_batch(broker: Broker, options: SinkOptions, reports: Sequence[Report]) -> None:
    if options.deliver is Deliver.EXACTLY_ONCE:
        book = ledger(broker.client, options.ledger_topic)
        broker.run(committing.commit(broker.client, book, reports), deadline_s=PATIENCE * broker.contact.deadline_s)


def abort_batch(broker: Broker, options: SinkOptions, reports: Sequence[Report]) -> None:
    if options.deliver is Deliver.EXACTLY_ONCE:
        book = ledger(broker.client, options.ledger_topic)
        broker.run(committing.abort(broker.client, book, reports), deadline_s=PATIENCE * broker.contact.deadline_s)


def _begin(broker: Broker, options: SinkOptions, work: Work) -> Beginning:
    book = ledger(broker.client, options.ledger_topic)
    return broker.run(begin(broker.client, book, work, options), deadline_s=PATIENCE * broker.contact.deadline_s)


def _cutter(broker: Broker, options: SinkOptions, work: Work, place: Place) -> Cutter:
    counts: dict[str, int] = {}

    def partition_count(topic: str) -> int:
        if topic not in counts:
            counts[topic] = broker.run(broker.client.partition_count(topic, deadline_s=options.max_block_s), deadline_s=options.max_block_s)
        return counts[topic]

    # Tasks and batches begin at different partitions, so that small batches of rows without keys do not all go to the first.
    turn = crc32(f"{work.sink} {work.batch}".encode()) + place.partition
    return Cutter(options.topic, partition_count, turn=turn, includes_timestamp=options.includes_timestamp)
