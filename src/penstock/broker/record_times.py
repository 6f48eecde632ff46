"""When the record at an offset was written.

Found through the log's index with one read of one batch, whatever the log's size; a read that would wait for the disk leaves the loop, and
so does looking inside the batch. Answers are remembered, for a group that stands still is asked about again and again.
A batch of very many records is not walked: its newest record's time stands for all of them.
Compaction may have taken the record: then the next one that is left answers, unless several batches in a row have none.
"""

from penstock.env import Env
from penstock.errors import DiskFailed, MalformedInput
from penstock.log.faults import OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.vocabulary import Buffer, Offset, TopicId
from penstock.wire.batches import decode_records, read_header

REMEMBERED_MAX = 20_000
RECORDS_WALKED_MAX = 10_000  # Some tens of milliseconds in another thread, during which the loop has to share.
BATCHES_TRIED_MAX = 4
UNPACKED_BYTES_MAX = 1 << 30  # More than any batch that was ever admitted unpacks to.

_Key = tuple[TopicId, int, int]


class RecordTimes:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._known: dict[_Key, int] = {}  # The longest known first.

    def known(self, partition: Partition, offset: int) -> int | None:
        return self._known.get((partition.topic_id, partition.index, offset))

    async def find(self, partition: Partition, offset: int) -> int | None:
        """Milliseconds since 1970; None where the record has no time, or cannot be read now."""
        known = self.known(partition, offset)
        if known is not None:
            return known
        try:
            found = await self._look(partition, offset)
        except (OffsetOutOfRange, DiskFailed, MalformedInput):
            return None  # Gone meanwhile, or damaged: who reads it is told, who counts goes on.
        if found is None or found < 0:
            return None
        self._known[partition.topic_id, partition.index, offset] = found
        if len(self._known) > REMEMBERED_MAX:
            del self._known[next(iter(self._known))]
        return found

    async def _look(self, partition: Partition, offset: int) -> int | None:
        at = offset
        for _ in range(BATCHES_TRIED_MAX):
            content = await _read(partition, at)
            if not content:
                return None
            header = read_header(content)
            if header.uses_log_append_time or header.last_offset_delta == 0 or header.record_count > RECORDS_WALKED_MAX:
                return header.max_timestamp
            found = await self._env.offload(_time_at, bytes(content[: header.size]), offset)
            if found is not None:
                return found
            at = header.end_offset
        return None


async def _read(partition: Partition, offset: int) -> Buffer:
    """One batch, the one that holds the offset or the first one after it; nothing at the end."""
    content = partition.read(Offset(offset), 1)
    return await partition.read_later(Offset(offset), 1) if content is None else content


def _time_at(batch: bytes, offset: int) -> int | None:
    for record in decode_records(batch, bytes_max=UNPACKED_BYTES_MAX):
        if record.offset >= offset:
            return record.timestamp_ms
    return None
