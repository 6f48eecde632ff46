"""One range of a partition as Arrow batches: fetched, unpacked, decoded in bulk, handed to Spark. No Python object per record on the way.

Rules:
- The next fetch is on its way while the rows of the last one are decoded and handed out.
- Memory is bounded: two answers, one unpacked batch, and the columns of at most some ten thousand rows or 16 MiB, whichever comes first;
  only a batch that is larger by itself makes more.
- Control batches, and with read_committed records of aborted transactions, are passed over.
- Batches that cannot be taken apart, and values that are not what they should be, are dead letters where there is a topic for them, and
  end the task where there is none. A checksum that fails is fetched again first: the way may have done it.
- Reading a range again gives the same rows, but for what retention and compaction have taken since.
"""

import concurrent.futures
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from penstock.errors import MalformedInput
from penstock.peers.aborted import AbortedRecords
from penstock.peers.failures import PeerFailure
from penstock.peers.fetching import Fetched
from penstock.pipeline.brokers import brokers
from penstock.pipeline.source.arrow import ArrowBatches, binary
from penstock.pipeline.source.checking import faults, letters_of
from penstock.pipeline.source.dead_letters import ADVICE, MalformedRow, of_batch, of_gap, write
from penstock.pipeline.source.fetching import Damaged, Gone, OutOfRange, fetch
from penstock.pipeline.source.filters import EVERYTHING as EVERY_TIME
from penstock.pipeline.source.filters import Span
from penstock.pipeline.source.loss import AGED_OUT, CUT_OFF, Gap, Losses
from penstock.pipeline.source.options import SourceOptions, ValueFormat
from penstock.pipeline.source.ranges import Range
from penstock.pipeline.source.schema import wanted
from penstock.vocabulary import Buffer
from penstock.wire.batches import HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header, unpack_batch
from penstock.wire.columns import EVERYTHING, Columns, ColumnsReader
from penstock.wire.compression import Codec

ROWS_MAX = 10_000  # Of one Arrow batch; more gain nothing.
BYTES_MAX = 16 << 20
UNPACKED_BYTES_MAX = 256 << 20  # Of one batch.
TRIES_MAX = 3  # For a batch whose checksum is wrong.


def read_range(options: SourceOptions, schema: StructType, given: Range, times_ms: Span = EVERY_TIME) -> Iterator[pa.RecordBatch]:
    """The rows of the range. Batches that hold nothing of `times_ms` are passed over where their header says so."""
    reading = _Reading(options, schema, given, times_ms)
    try:
        yield from reading.batches()
    finally:
        reading.close()


class _Reading:
    def __init__(self, options: SourceOptions, schema: StructType, given: Range, times_ms: Span) -> None:
        self._options = options
        self._range = given
        self._times_ms = times_ms
        self._broker = brokers(options.contact)
        self._checks = options.value_format is not ValueFormat.ANY
        self._columns = ColumnsReader(EVERYTHING if self._checks else wanted(schema))
        self._arrow = ArrowBatches(schema, given.where)
        self._losses = Losses(fails=options.fails_on_data_loss)
        self._next: concurrent.futures.Future[Fetched] | None = None
        self._offset = given.start  # Everything before it was decoded or passed over.
        self._tries = 0  # Answers in a row that were damaged at `_offset`.

    def batches(self) -> Iterator[pa.RecordBatch]:
        self._begin_fetch(self._offset)
        while self._offset < self._range.end:
            answer = self._answer()
            if answer is None:
                continue
            self._begin_fetch(self._reached(answer))
            for _ in self._decode(answer):
                yield from self._hand_out()
        yield from self._hand_out()

    def close(self) -> None:
        if self._next is not None:
            self._next.cancel()

    # Fetching.

    def _begin_fetch(self, offset: int) -> None:
        self._next = None
        if offset < self._range.end:
            self._next = self._broker.start(fetch(self._broker.client, self._range, offset, self._options.fetching))

    def _answer(self) -> Fetched | None:
        """None where something was lost, and reading goes on behind it."""
        assert self._next is not None, "nothing was asked for"
        try:
            return self._broker.wait(self._next, deadline_s=self._options.fetching.patience_s)
        except OutOfRange as lost:
            is_aged_out = lost.first > self._offset
            end = min(lost.first, self._range.end) if is_aged_out else self._range.end
            self._lose(end, AGED_OUT if is_aged_out else CUT_OFF)
        except Gone as gone:
            self._lose(self._range.end, gone.reason)
        except Damaged as damaged:
            raise MalformedRow(damaged.problem, damaged.advice) from damaged
        return None

    def _lose(self, end: int, reason: str) -> None:
        self._losses.report(Gap(self._range.where, self._offset, end, reason))
        topic = self._options.dead_letter_topic
        gaps = self._losses.take()
        if topic is not None:
            self._broker.run(write(self._broker.client, topic, [of_gap(gap) for gap in gaps]))
        self._offset = end
        self._begin_fetch(end)

    def _reached(self, answer: Fetched) -> int:
        end = _end_of(answer.records)
        if end <= self._offset:
            problem = f"{self._range.where} was answered with no whole batch from offset {self._offset} on"
            raise PeerFailure(problem, "raise kafka.max.partition.fetch.bytes above the size of its largest batch")
        return end

    # Decoding.

    def _decode(self, answer: Fetched) -> Iterator[None]:
        """Yields before a batch that would make too much of what has come together."""
        left_out = AbortedRecords(answer.aborted)
        view, at = memoryview(answer.records), 0
        while len(view) - at >= HEADER_BYTES and self._offset < self._range.end:
            header = read_header(view, at)
            size = self._checked_size(header)
            if at + size > len(view):
                break
            batch = view[at : at + size]
            at += size
            is_right, is_passed = crc_is_right(batch, 0, size), header.end_offset <= self._offset
            is_left_out = is_right and left_out.has(header, batch)
            if is_passed:
                continue
            if not is_right:
                if self._is_tried_again():
                    return
                self._bury(header, batch, "its checksum is wrong")
            elif not is_left_out and not header.is_control:
                if self._columns.rows + header.record_count > ROWS_MAX or self._columns.bytes + size > BYTES_MAX:
                    yield
                self._take(header, batch)
            self._offset, self._tries = header.end_offset, 0

    def _checked_size(self, header: BatchHeader) -> int:
        if header.magic != MAGIC or header.size < HEADER_BYTES:
            what = f"what {self._range.where} has at offset {self._offset} is no batch of format {MAGIC}"
            raise MalformedRow(what, "read on behind it with startingOffsets")
        return header.size

    def _is_tried_again(self) -> bool:
        self._tries += 1
        if self._tries >= TRIES_MAX:
            return False
        self.close()
        self._begin_fetch(self._offset)
        return True

    def _take(self, header: BatchHeader, batch: memoryview) -> None:
        if not _may_hold(header, self._times_ms):
            return
        try:
            payload: Buffer = batch[HEADER_BYTES:] if header.codec == Codec.NONE else unpack_batch(batch, bytes_max=UNPACKED_BYTES_MAX)[1]
            self._columns.add(header, payload, first_offset=self._offset, end_offset=self._range.end)
        except MalformedInput as failure:
            self._bury(header, batch, f"its records cannot be taken apart: {failure}")

    def _bury(self, header: BatchHeader, batch: memoryview, reason: str) -> None:
        where, offset = self._range.where, max(self._offset, header.base_offset)
        topic = self._options.dead_letter_topic
        if topic is None:
            raise MalformedRow(f"{where}: the batch at offset {header.base_offset} is damaged: {reason}", ADVICE)
        letter = of_batch(where, batch, offset=offset, end_offset=header.end_offset, reason=f"the batch is damaged: {reason}")
        self._broker.run(write(self._broker.client, topic, [letter]))

    # Handing out.

    def _hand_out(self) -> Iterator[pa.RecordBatch]:
        if not self._columns.rows:
            return
        columns = self._columns.take()
        rows = self._arrow.make(columns)
        if self._checks:
            rows = self._without_malformed(rows, columns)
        for at in range(0, rows.num_rows, ROWS_MAX):  # One slice, unless a single batch has more.
            yield rows.slice(at, ROWS_MAX)

    def _without_malformed(self, rows: pa.RecordBatch, columns: Columns) -> pa.RecordBatch:
        found = faults(binary(columns.value, columns.rows, pa.binary()), self._options.value_format)
        if not found:
            return rows
        letters = letters_of(self._range.where, columns, found)
        topic = self._options.dead_letter_topic
        if topic is None:
            raise MalformedRow(f"{self._range.where}: the record at offset {letters[0].offset} is malformed: {letters[0].reason}", ADVICE)
        self._broker.run(write(self._broker.client, topic, letters))
        return rows.filter(pc.invert(pc.is_in(pa.array(range(columns.rows)), pa.array(sorted(found)))))


def _end_of(records: bytes) -> int:
    """The offset after the last whole batch."""
    at, end = 0, 0
    while len(records) - at >= HEADER_BYTES:
        header = read_header(records, at)
        if header.size < HEADER_BYTES or at + header.size > len(records):
            break
        end, at = header.end_offset, at + header.size
    return end


def _may_hold(header: BatchHeader, times_ms: Span) -> bool:
    """Whether a record of the batch can be of these times. With append time all of them have the batch's; else only the latest is known."""
    return header.max_timestamp >= times_ms.low and not (header.uses_log_append_time and header.max_timestamp >= times_ms.end)
