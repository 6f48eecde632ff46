"""The same diary for writers of other libraries: kafka-python and aiokafka, idempotent, retrying through whatever happens to the nodes.

Each writes from a thread of its own until the block ends, then waits until everything is answered.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiokafka import AIOKafkaProducer
from aiokafka.structs import RecordMetadata
from kafka import KafkaProducer
from system.diary import Diary, turns
from waiting import PATIENCE_MS, PATIENCE_S

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
        thread.join()
    assert failures == [], f"{writer}: {failures[0]!r}"
    assert diary.sent > 0, "nothing was written"
    assert diary.refused == [], f"{writer}: {len(diary.refused)} refusals, such as {diary.refused[0]}"


def with_kafka_python(bootstrap: str, diary: Diary, stopping: threading.Event, per_second: int) -> None:
    sender = KafkaProducer(
        bootstrap_servers=bootstrap.split(","), acks="all", enable_idempotence=True, linger_ms=2, delivery_timeout_ms=PATIENCE_MS,
        request_timeout_ms=PATIENCE_MS // 2, retry_backoff_ms=20, reconnect_backoff_ms=20, reconnect_backoff_max_ms=100,
        max_block_ms=PATIENCE_MS,
    )  # fmt: skip
    try:
        for numbers in turns(diary, stopping, per_second):
            for number in numbers:
                sent = sender.send(diary.topic, diary.value(number), key=diary.key(number), partition=number % diary.partitions)
                sent.add_callback(lambda told, number=number: diary.promise(number, told.partition, told.offset))
                sent.add_errback(lambda failure: diary.refused.append(repr(failure)))
        sender.flush(timeout=PATIENCE_S)
    finally:
        sender.close(timeout=PATIENCE_S)


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
        under_way = []
        waiting_turns = turns(diary, stopping, per_second)
        while (numbers := await asyncio.to_thread(next, waiting_turns, None)) is not None:
            for number in numbers:
                # One after the other: of several that wait for a batch or for metadata at once, any may be let in first.
                waiting = await sender.send(diary.topic, diary.value(number), key=diary.key(number), partition=number % diary.partitions)
                under_way.append(asyncio.ensure_future(hear(number, waiting)))
        await asyncio.gather(*under_way)
    finally:
        await sender.stop()
