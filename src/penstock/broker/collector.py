"""What a fetch gathers from its partitions for one reply, within the reply's bounds (KIP-74).

Whole batches below the high watermark, or the last stable offset, as many as the bounds of the partition and of the reply allow. The first
batch of a reply is sent however large it is, so that a reader never hangs on it; every later one must fit. Each partition that is looked at
gets a row, with or without batches. Readers of committed records are told which aborted transactions have records among them.
"""

from collections.abc import Callable, Sequence

from penstock.broker.fetch_sessions import Interest
from penstock.errors import DiskFailed, ErrorCode
from penstock.log.faults import LogDamaged, OffsetOutOfRange, Unreadable
from penstock.log.streaming import Stream
from penstock.partition.partition import Partition
from penstock.settings import LONG_MAX
from penstock.vocabulary import NO_NODE, Buffer, NodeId, Offset
from penstock.wire.fetch import FetchedRow
from penstock.wire.records import scan_batches


class Collector:
    def __init__(
        self, find: Callable[[Interest], Partition | ErrorCode], bytes_max: int, *,
        reads_committed: bool, report: Callable[[str], None], preferred: Callable[[Partition], NodeId] | None = None,
    ) -> None:  # fmt: skip
        self._find = find
        self._preferred = preferred  # Where a reader had better read; None: here.
        self._bytes_max = self._bytes_left = bytes_max
        self._bytes_spare = bytes_max  # What may be read only to be left out because it does not fit: reading has its price too.
        self._reads_committed = reads_committed
        self._report = report
        self.bytes_found = 0
        self.bytes_streamed = 0  # Of those: not read yet.
        self.has_error = False
        self.rows: list[tuple[Interest, FetchedRow]] = []

    @property
    def is_full(self) -> bool:
        return self._bytes_left <= 0 and self.bytes_found > 0

    def is_enough(self, bytes_min: int) -> bool:
        """Whether the reply may leave: it has an error or as many bytes as were asked for, or more are there that one look does not give
        (they would not fit, or stand in the next segment)."""
        if self.has_error or self.is_full or self.bytes_found >= bytes_min:
            return True
        return any(_ends_below(row, interest.fetch_offset, row[3] if self._reads_committed else row[2]) for interest, row in self.rows)

    def look(self, interest: Interest) -> bool:
        """Looks at one partition. False: its bytes must come from the disk, use `look_later`."""
        partition = self._checked(interest)
        if partition is None:
            return True
        try:
            offset, allowance = Offset(interest.fetch_offset), self._allowance(interest)
            may_stream = not self._reads_committed or not partition.has_aborted_after(offset)  # What a stream holds is not known yet.
            stream = partition.stream(offset, allowance, reads_committed=self._reads_committed) if may_stream else None
            data = stream or partition.read(offset, allowance, reads_committed=self._reads_committed)
        except (OffsetOutOfRange, DiskFailed) as failure:
            self._fail(interest, partition, failure)
            return True
        if data is None:
            return False
        self._add(interest, partition, data)
        return True

    async def look_later(self, interest: Interest) -> None:
        partition = self._checked(interest)
        if partition is None:
            return
        try:
            offset, allowance = Offset(interest.fetch_offset), self._allowance(interest)
            self._add(interest, partition, await partition.read_later(offset, allowance, reads_committed=self._reads_committed))
        except (OffsetOutOfRange, DiskFailed) as failure:
            self._fail(interest, partition, failure)

    def _checked(self, interest: Interest) -> Partition | None:
        """The partition, if it has bytes for this interest; otherwise its row is written already."""
        partition = self._find(interest)
        if isinstance(partition, ErrorCode):
            self._add_row(interest, partition)
            return None
        code = partition.check_leader_epoch(interest.leader_epoch)
        log = partition.log
        if code is ErrorCode.NONE and not log.start_offset <= interest.fetch_offset <= log.end_offset:
            is_behind = partition.leader is None and interest.fetch_offset > log.end_offset  # The leader has come further.
            code = ErrorCode.OFFSET_NOT_AVAILABLE if is_behind else ErrorCode.OFFSET_OUT_OF_RANGE
        if not partition.end_is_known and interest.fetch_offset >= log.end_offset:
            code = ErrorCode.KAFKA_STORAGE_ERROR
        if code is not ErrorCode.NONE:
            self._add_row(interest, code, partition)
            return None
        if self._preferred is not None and (elsewhere := self._preferred(partition)) != NO_NODE:
            self._add_row(interest, code, partition, preferred=elsewhere)
            return None
        if interest.fetch_offset >= partition.readable_end(reads_committed=self._reads_committed) or self.is_full:
            self._add_row(interest, ErrorCode.NONE, partition)
            return None
        return partition

    def _allowance(self, interest: Interest) -> int:
        return max(0, min(interest.bytes_max, self._bytes_left))

    def _add(self, interest: Interest, partition: Partition, data: Buffer | Stream) -> None:
        if self.bytes_found and len(data) > self._allowance(interest):
            self._bytes_spare -= len(data)
            if len(data) > self._bytes_left or self._bytes_spare < 0:
                self._bytes_left = 0
            data = b""
        self._bytes_left -= len(data)
        self.bytes_found += len(data)
        if isinstance(data, Stream):
            self.bytes_streamed += len(data)
        self._add_row(interest, ErrorCode.NONE, partition, data)

    def _fail(self, interest: Interest, partition: Partition, failure: Exception) -> None:
        if partition.is_deleted:
            code = ErrorCode.UNKNOWN_TOPIC_ID if isinstance(interest.topic, bytes) else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif isinstance(failure, OffsetOutOfRange) or interest.fetch_offset < partition.log.start_offset:
            code = ErrorCode.OFFSET_OUT_OF_RANGE  # Retention may have taken it while it was read.
        else:
            is_lasting = isinstance(failure, LogDamaged) and not isinstance(failure, Unreadable) and partition.is_beyond_mending
            code = ErrorCode.CORRUPT_MESSAGE if is_lasting else ErrorCode.KAFKA_STORAGE_ERROR
            self._report(f"cannot read {partition.topic}-{partition.index} at {interest.fetch_offset}: {failure}")
        self._add_row(interest, code, partition)

    def _add_row(
        self, interest: Interest, code: ErrorCode, partition: Partition | None = None, data: Buffer | Stream = b"",
        *, preferred: NodeId = NO_NODE,
    ) -> None:  # fmt: skip
        if partition is None:
            row: FetchedRow = (interest.index, code, -1, -1, -1, b"", None, -1, None, None)
        else:
            high_watermark, last_stable = (partition.high_watermark, partition.last_stable_offset) if partition.end_is_known else (-1, -1)
            aborted = self._aborted_in(partition, interest.fetch_offset, data) if self._reads_committed else None
            row = (interest.index, code, high_watermark, last_stable, partition.log.start_offset, data, aborted, preferred, None, None)
        self.has_error |= code is not ErrorCode.NONE or preferred != NO_NODE
        self.rows.append((interest, row))

    def _aborted_in(self, partition: Partition, offset: int, data: Buffer | Stream) -> Sequence[tuple[int, int]]:
        """Of the aborted transactions those that have records among these: a reader that does not know of one takes it for committed."""
        if isinstance(data, Stream) or not data or not partition.has_aborted_after(offset):
            return ()
        return partition.aborted(offset, end_of(data))


def end_of(records: Buffer) -> int:
    """The offset after the last of these batches."""
    return scan_batches(records, first_offset=0, end_offset_max=LONG_MAX, bytes_max=len(records), verify=False).end_offset


def _ends_below(row: FetchedRow, fetch_offset: int, readable_end: int) -> bool:
    """Whether there is more to read than the row has."""
    records = row[5]
    if isinstance(records, Stream):
        return True
    return (end_of(records) if records else fetch_offset) < readable_end
