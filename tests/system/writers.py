"""The same diary for writers of other libraries: kafka-python and aiokafka, idempotent, retrying through whatever happens to the nodes.

Each writes from a thread of its own until the block ends, then waits until everything is answered.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata
from kafka import KafkaProducer
from system.diary import Diary

PATIENCE_MS = 60_000
Write = Callable[[str, Diary, threading.Event, int], None]


@contextmanager
def writing_with(write: Write, bootstrap: str, topic: str, partitions: int, *, writer: str, per_second: int = 500) -> Iterator[Diary]:
    diary = Diary(writer, topic, partitions, is_idempotent=True)
    stopping = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            write(bootstrap, diary, stopping, per_second)
        except BaseException as failure:
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield diary
    finally:
        stopping.set()
        thread.join(timeout=90)
    assert not thread.is_alive(), f"{writer} did not come to an end"
    assert failures == [], f"{writer}: {failures[0]!r}"
    assert diary.sent > 0, "nothing was written"
    assert diary.refused == [], f"{writer}: {len(diary.refused)} refusals, such as {diary.refused[0]}"


def with_kafka_python(bootstrap: str, diary: Diary, stopping: threading.Event, per_second: int) -> None:
    sender = KafkaProducer(
        bootstrap_servers=bootstrap.split(","), acks="all", enable_idempotence=True, linger_ms=2, delivery_timeout_ms=PATIENCE_MS,
        request_timeout_ms=10_000, retry_backoff_ms=20, reconnect_backoff_ms=20, reconnect_backoff_max_ms=100,
        max_block_ms=PATIENCE_MS,
    )  # fmt: skip
    try:
        for number in _numbers(diary, stopping, per_second, time.sleep):
            sent = sender.send(
                diary.topic, diary.value(number), key=diary.key(number), partition=number % diary.partitions
            )  # fmt: skip
            sent.add_callback(lambda told, number=number: diary.promise(number, told.partition, told.offset))
            sent.add_errback(lambda failure: diary.refused.append(repr(failure)))
        sender.flush(timeout=PATIENCE_MS / 1000)
    finally:
        sender.close(timeout=5)


def with_aiokafka(bootstrap: str, diary: Diary, stopping: threading.Event, per_second: int) -> None:
    asyncio.run(_write_with_aiokafka(bootstrap, diary, stopping, per_second))


async def _write_with_aiokafka(bootstrap: str, diary: Diary, stopping: threading.Event, per_second: int) -> None:
    sender = AIOKafkaProducer(
        bootstrap_servers=bootstrap.split(","), acks="all", enable_idempotence=True, linger_ms=2, request_timeout_ms=PATIENCE_MS,
        retry_backoff_ms=20, metadata_max_age_ms=1_000,
    )  # fmt: skip
    await sender.start()

    async def hear(number: int, waiting: "asyncio.Future[RecordMetadata]") -> None:
        try:
            told = await waiting
            diary.promise(number, told.partition, told.offset)
        except Exception as failure:
            diary.refused.append(repr(failure))

    try:
        begin, under_way = time.monotonic(), []
        while not stopping.is_set():
            if diary.sent > (time.monotonic() - begin) * per_second:
                await asyncio.sleep(0.002)
                continue
            number, diary.sent = diary.sent, diary.sent + 1
            # One after the other: of several that wait for a batch or for metadata at once, any may be let in first.
            waiting = await sender.send(diary.topic, diary.value(number), key=diary.key(number), partition=number % diary.partitions)
            under_way.append(asyncio.ensure_future(hear(number, waiting)))
        await asyncio.gather(*under_way)
    finally:
        await sender.stop()


def _numbers(diary: Diary, stopping: threading.Event, per_second: int, sleep: Callable[[float], None]) -> Iterator[int]:
    begin = time.monotonic()
    while not stopping.is_set():
        if diary.sent > (time.monotonic() - begin) * per_second:
            sleep(0.002)
            continue
        diary.sent += 1
        yield diary.sent - 1
