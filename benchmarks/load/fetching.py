"""Fetch load: reads a filled topic from end to end and over again, up to 1 MB of each partition per request.

The topic was filled with equal batches, so the offset of every chunk is known beforehand and requests can be encoded and pipelined.
Each reply is walked batch by batch: the first must begin where it was asked for, and each next one where the last ended. A last batch
that is cut short, as some brokers send, counts as bytes but not as records, as it does for a real consumer.
"""

from dataclasses import dataclass
from itertools import cycle
from struct import Struct

from benchmarks.load import frames
from benchmarks.load.connection import Connection
from benchmarks.load.frames import PARTITION_BYTES_MAX, UnexpectedReply
from benchmarks.load.pipeline import Lane, Outcome, Pipeline, Timing
from benchmarks.load.topics import Admin

_REPLY_HEAD = Struct(">iihii")  # Correlation id, throttle, error, session, topics.
_PARTITION_HEAD = Struct(">ihqqqi")  # Index, error, high watermark, last stable offset, log start, aborted transactions.
_BATCH_HEAD = Struct(">qiibIhi")  # Base offset, length, epoch, magic, checksum, attributes, last offset delta.
_PREFIX_BYTES = 12
CHUNKS_MAX = 64  # Larger than any processor's cache, and the same for a broker that was filled faster.


@dataclass(frozen=True, slots=True)
class FetchLoad:
    topic: str
    partitions: int
    batch_bytes: int  # The size and
    batch_records: int  # the records of each batch in the topic.
    connections: int = 2
    depth: int = 5

    def run(self, host: str, port: int, timing: Timing) -> Outcome:
        chunk_records = max(1, PARTITION_BYTES_MAX // self.batch_bytes) * self.batch_records
        admin = Admin(host, port)
        chunks = min(CHUNKS_MAX, min(admin.end_offsets(self.topic, self.partitions)) // chunk_records)
        admin.close()
        if not chunks:
            raise UnexpectedReply(f"{self.topic} does not hold one chunk of {chunk_records:,} records per partition")
        requests = [(chunk, self._request(chunk, chunk * chunk_records)) for chunk in range(chunks)]

        def check(reply: memoryview, ticket: int) -> tuple[int, int]:
            return read_fetched(reply, self.topic, {partition: ticket * chunk_records for partition in range(self.partitions)}, ticket)

        room = 2 * (self.partitions * (PARTITION_BYTES_MAX + self.batch_bytes) + (1 << 16))
        lanes = [Lane(Connection(host, port, receive_bytes=room), cycle(requests).__next__) for _ in range(self.connections)]
        outcome = Pipeline(lanes, check, depth=self.depth).run(timing)
        for lane in lanes:
            lane.connection.close()
        return outcome

    def _request(self, chunk: int, offset: int) -> bytes:
        return frames.fetch(self.topic, {partition: offset for partition in range(self.partitions)}, correlation_id=chunk)


def read_fetched(reply: memoryview, topic: str, offsets: dict[int, int], correlation_id: int) -> tuple[int, int]:
    """Checks the reply and counts (records of whole batches, bytes of records). Raises `offsets` to where the next fetch begins."""
    got_id, _, error, _, topics = _REPLY_HEAD.unpack_from(reply)
    if error or got_id != correlation_id:
        raise UnexpectedReply(f"fetch: error {error}, correlation id {got_id} for {correlation_id}")
    if topics == 0:
        return 0, 0
    at = _REPLY_HEAD.size + 2 + len(topic)
    partitions = int.from_bytes(reply[at : at + 4])
    at += 4
    records = size = 0
    for _ in range(partitions):
        partition, error, _, _, _, aborted = _PARTITION_HEAD.unpack_from(reply, at)
        if error:
            raise UnexpectedReply(f"fetch of partition {partition}: error {error}")
        at += _PARTITION_HEAD.size + 16 * max(0, aborted) + 4  # And the preferred replica.
        length = max(0, int.from_bytes(reply[at : at + 4], signed=True))
        at += 4
        begin = offsets[partition]
        offsets[partition] = _walk_batches(reply, at, at + length, begin)
        records += offsets[partition] - begin
        size += length
        at += length
    if at != len(reply):
        raise UnexpectedReply(f"a fetch reply with {len(reply) - at} bytes too many")
    return records, size


def _walk_batches(reply: memoryview, at: int, end: int, offset: int) -> int:
    while end - at >= _BATCH_HEAD.size:
        base_offset, length, _, magic, _, _, last_delta = _BATCH_HEAD.unpack_from(reply, at)
        if base_offset != offset or magic != 2:
            raise UnexpectedReply(f"a batch at offset {base_offset}, format {magic}, where offset {offset} should be")
        at += _PREFIX_BYTES + length
        if at > end:
            break
        offset = base_offset + last_delta + 1
    return offset
