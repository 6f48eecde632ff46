"""Rows that are not what they should be, set aside in a topic with the reason, so that the rest can be read.

A letter keeps the record's key, value and headers, and says in headers of its own why it is here, where it comes from and what its time
was. Its own time is when it was written: with that of an old record, retention would take it away before anybody has looked at it.
Bytes that could not be taken apart are kept as they are, a whole batch at a time; a gap in the log (loss.py) is a letter without a value.
A task that is tried again writes its letters again: readers tell them apart by topic, partition and offset.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.producer import Producer
from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.source.loss import Gap
from penstock.vocabulary import TopicPartition

PREFIX = "penstock."  # Of the headers that a letter has beside those of its record.
RAW_BYTES_MAX = 512 << 10  # Of bytes that could not be taken apart; they must fit into a record of their own.
ADVICE = "name a deadLetterTopic to set such rows aside and go on, or read on behind it with startingOffsets"

Headers = tuple[tuple[str, bytes | None], ...]


class MalformedRow(PipelineComplaint):
    """A row that is not what it should be, where no topic for dead letters was named."""


@dataclass(frozen=True, slots=True)
class Letter:
    where: TopicPartition
    offset: int
    reason: str
    key: bytes | None = None
    value: bytes | None = None
    headers: Headers = ()
    end_offset: int | None = None  # Where it stands for more than one record.
    timestamp_ms: int | None = None  # Of the record, where it is a single one.

    def all_headers(self) -> Headers:
        told = {"reason": self.reason, "topic": self.where.topic, "partition": self.where.partition, "offset": self.offset}
        if self.end_offset is not None:
            told["end_offset"] = self.end_offset
        if self.timestamp_ms is not None:
            told["timestamp"] = self.timestamp_ms
        return (*self.headers, *((PREFIX + name, str(value).encode()) for name, value in told.items()))


def of_gap(gap: Gap) -> Letter:
    return Letter(gap.where, gap.start, gap.reason, end_offset=gap.end)


def of_batch(where: TopicPartition, batch: bytes | memoryview, *, offset: int, end_offset: int, reason: str) -> Letter:
    return Letter(where, offset, reason, value=bytes(batch[:RAW_BYTES_MAX]), end_offset=end_offset)


async def write(client: Client, topic: str, letters: Sequence[Letter]) -> None:
    """Returns when all are stored. Raises for a topic that is not there: letters that go nowhere would be rows that are lost."""
    async with Producer(client) as producer:
        sent = [await producer.send(topic, each.value, key=each.key, headers=each.all_headers()) for each in letters]
        await producer.flush()
    for delivered in sent:
        try:
            delivered.result()
        except PeerFailure as failure:
            problem = f"a dead letter could not be written to topic {topic!r}: {failure.problem}"
            raise PipelineComplaint(problem, failure.advice) from failure
