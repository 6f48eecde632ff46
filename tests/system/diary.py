"""A load with a diary of promises: what was sent, what was acknowledged where, and whether the log kept its word.

Each value is unique ("<writer>:<number>"), so one read of every partition settles it: nothing acknowledged is missing or moved, offsets are
dense, and for an idempotent writer nothing is doubled, nothing is lost and its own order holds. Each key has its one partition, so that the
order of a partition is that of its keys. Not here: who kills what, and when; writers of other libraries (writers.py).
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from confluent_kafka import KafkaError, Message, Producer
from system.librdkafka import producer, read_partition
from tiers import pick, pick_step
from waiting import PATIENCE_MS, PATIENCE_S, paced, until

PADDING = b"." * 150
KEYS_PER_PARTITION = 7
# In most turns a batch of each partition sets off, so that kills meet several under way.
TURNS_PER_SECOND, LINGER_MS = pick(test=100, slow=500), pick_step(test=5, slow=2)  # tiers: the load only
UNANSWERED_MAX = 15_000


@dataclass(slots=True)
class Diary:
    """The promises made to one writer."""

    writer: str
    topic: str
    partitions: int
    is_idempotent: bool
    sent: int = 0
    acknowledged: dict[tuple[int, int], int] = field(default_factory=dict)  # (partition, offset) -> number
    # Acknowledged without a place: librdkafka takes the answer to one batch for an answer to those before it that lost their own.
    acknowledged_somewhere: list[int] = field(default_factory=list)
    doubly_promised: list[str] = field(default_factory=list)  # Places that were promised to two records.
    refused: list[str] = field(default_factory=list)
    answered_at: list[float] = field(default_factory=list)  # When each acknowledgement came, by the monotonic clock.

    def key(self, number: int) -> bytes:
        return b"key-%d" % (number % (self.partitions * KEYS_PER_PARTITION))

    def value(self, number: int) -> bytes:
        return f"{self.writer}:{number}:".encode() + PADDING

    def note(self, number: int, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.refused.append(str(error))
            return
        if message.offset() is None:
            self.acknowledged_somewhere.append(number)
            self.answered_at.append(time.monotonic())
        else:
            self.promise(number, int(message.partition() or 0), int(message.offset() or 0))

    def promise(self, number: int, partition: int, offset: int) -> None:
        self.answered_at.append(time.monotonic())
        place = (partition, offset)
        if place in self.acknowledged:
            self.doubly_promised.append(f"{partition}/{offset} to {self.acknowledged[place]} and to {number}")
        self.acknowledged[place] = number

    def wait_for_more(self, count: int) -> None:
        """Waits until so many more records are acknowledged."""
        enough = len(self.answered_at) + count
        until(lambda: len(self.answered_at) >= enough or self.refused, lambda: f"{count} more records, {len(self.answered_at)} in all")
        assert self.refused == [], self.refused[0]


@contextmanager
def writing(
    bootstrap: str,
    topic: str,
    partitions: int,
    *,
    writer: str,
    is_idempotent: bool,
    per_second: int = 4_000,
    in_flight: int = 5,
    answer_ms: int = 10_000,
) -> Iterator[Diary]:
    """Writes to all partitions in turn from a thread of its own until the block ends, then waits until everything is answered.

    A slow machine writes fewer than `per_second`, and never catches up: the load must not be the heavier the slower the machine is.
    `in_flight`: requests under way to a node. librdkafka spins while five wait for a node that answers nothing. `answer_ms`: after so long
    without an answer a request is sent again.
    """
    diary = Diary(writer, topic, partitions, is_idempotent)
    stopping = threading.Event()
    sender = _sender(bootstrap, is_idempotent, in_flight, answer_ms)
    thread = threading.Thread(target=_write, args=(sender, diary, stopping, per_second), daemon=True)
    thread.start()
    try:
        yield diary
    finally:
        stopping.set()
        thread.join()
    assert diary.sent > 0, "nothing was written"
    assert diary.refused == [], f"{len(diary.refused)} refusals, such as {diary.refused[0]}"


def _sender(bootstrap: str, is_idempotent: bool, in_flight: int, answer_ms: int) -> Producer:
    config: dict[str, object] = {
        "acks": "all", "linger_ms": LINGER_MS, "max_in_flight": in_flight,
        "message_timeout_ms": PATIENCE_MS, "queue_buffering_max_messages": 20_000,
        "reconnect_backoff_ms": 100, "reconnect_backoff_max_ms": 200, "retry_backoff_ms": 100,
        "socket_timeout_ms": answer_ms, "request_timeout_ms": max(answer_ms, 30_000),  # The latter is the leader's; 30 s by default.
    }  # fmt: skip
    return producer(bootstrap, enable_idempotence=is_idempotent, **config)


def _write(sender: Producer, diary: Diary, stopping: threading.Event, per_second: int) -> None:
    for numbers in turns(diary, stopping, per_second):
        sender.poll(0)
        if len(sender) > UNANSWERED_MAX:
            continue
        for number in numbers:
            sender.produce(
                diary.topic, diary.value(number), key=diary.key(number), partition=number % diary.partitions,
                on_delivery=lambda error, message, number=number: diary.note(number, error, message),
            )  # fmt: skip
    if unanswered := sender.flush(PATIENCE_S):
        diary.refused.append(f"{unanswered} records were never answered")


def turns(diary: Diary, stopping: threading.Event, per_second: int) -> Iterator[Iterator[int]]:
    """The numbers of the records of each turn; they count as sent when they are drawn."""
    turns_per_second = min(per_second, TURNS_PER_SECOND)

    def numbers() -> Iterator[int]:
        for _ in range(per_second // turns_per_second):
            diary.sent += 1
            yield diary.sent - 1

    for _ in paced(turns_per_second, stopping):
        yield numbers()


def check(bootstrap: str, diary: Diary) -> int:
    """Reads everything and holds it against the diary. How many records there are."""
    assert diary.doubly_promised == [], f"places that were promised to two records: {diary.doubly_promised[:10]}"
    count = 0
    for partition in range(diary.partitions):
        records = read_partition(bootstrap, diary.topic, partition)
        count += len(records)
        assert [record.offset() for record in records] == list(range(len(records))), "offsets are not dense"
        numbers = [number_in(record, diary.writer) for record in records]
        assert all(record.key() == diary.key(number) for record, number in zip(records, numbers, strict=True)), "a record changed its key"
        _check_acknowledged(diary, partition, numbers)
        if diary.is_idempotent:
            expected = [number for number in range(diary.sent) if number % diary.partitions == partition]
            assert numbers == expected, f"partition {partition}: {_difference(numbers, expected)}"
    return count


def missing(bootstrap: str, diary: Diary) -> int:
    """How many acknowledged records are not there, or not where they were promised."""
    lost = 0
    for partition in range(diary.partitions):
        found = {record.offset(): record.value() for record in read_partition(bootstrap, diary.topic, partition)}
        lost += sum(
            found.get(offset) != diary.value(number) for (where, offset), number in diary.acknowledged.items() if where == partition
        )  # fmt: skip
    return lost


def _check_acknowledged(diary: Diary, partition: int, numbers: list[int]) -> None:
    promised = {offset: number for (where, offset), number in diary.acknowledged.items() if where == partition}
    broken = {offset: number for offset, number in promised.items() if offset >= len(numbers) or numbers[offset] != number}
    assert broken == {}, (
        f"partition {partition}: {len(broken)} of {len(promised)} acknowledged records are missing or moved, "
        f"first at offset {min(broken)} of {len(numbers)}"
    )


def number_in(record: Message, writer: str) -> int:
    name, number, padding = (record.value() or b"").split(b":")
    assert name.decode() == writer and padding == PADDING, f"a record that nobody wrote: {record.value()!r}"
    return int(number)


def _difference(found: list[int], expected: list[int]) -> str:
    doubled = len(found) - len(set(found))
    lost = len(set(expected) - set(found))
    return f"{doubled} doubled, {lost} lost, order {'kept' if found == sorted(found) else 'broken'}"
