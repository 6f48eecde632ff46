"""A consumer that reads a topic while it is written and while nodes die: what it once saw must be what the log says in the end.

A reader that saw a record which a later leader does not have saw one that was never committed.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import TopicPartition
from system.diary import Diary, number_in
from system.librdkafka import consumer
from waiting import ASK_S


@dataclass(slots=True)
class Reader:
    seen: dict[int, list[tuple[int, bytes]]] = field(default_factory=dict)  # Partition -> (offset, value), as they came.
    failures: list[str] = field(default_factory=list)

    def count(self) -> int:
        return sum(map(len, self.seen.values()))

    def check(self, diary: Diary) -> int:
        """Holds what was seen against what was promised. How many records were seen."""
        assert self.failures == []
        for partition, records in self.seen.items():
            offsets = [offset for offset, _ in records]
            assert offsets == list(range(len(offsets))), f"partition {partition}: a reader was given offsets twice, or not at all"
            for offset, value in records:
                promised = diary.acknowledged.get((partition, offset))
                assert promised is None or value == diary.value(promised), f"a reader saw another record at {partition}/{offset}"
        return self.count()


@contextmanager
def reading_along(bootstrap: str, diary: Diary) -> Iterator[Reader]:
    """Reads all partitions from a thread of its own until the block ends."""
    reader, stopping = Reader({partition: [] for partition in range(diary.partitions)}), threading.Event()
    thread = threading.Thread(target=_read, args=(bootstrap, diary, reader, stopping), daemon=True)
    thread.start()
    try:
        yield reader
    finally:
        stopping.set()
        thread.join()


def _read(bootstrap: str, diary: Diary, reader: Reader, stopping: threading.Event) -> None:
    quick = {"reconnect_backoff_ms": 20, "reconnect_backoff_max_ms": 100, "socket_timeout_ms": 10_000, "fetch_error_backoff_ms": 50}
    with consumer(bootstrap, **quick) as client:
        client.assign([TopicPartition(diary.topic, partition, 0) for partition in range(diary.partitions)])
        while not stopping.is_set():
            for record in client.consume(500, timeout=ASK_S):
                if record.error() is not None:
                    if not record.error().retriable():
                        reader.failures.append(str(record.error()))
                    continue
                number_in(record, diary.writer)
                reader.seen[record.partition()].append((record.offset(), record.value()))
