"""Transactions through aiokafka: the oldest shapes of these requests, and one event loop."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, ClassVar, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import IllegalOperation, KafkaError
from compatibility.transaction_scenarios import Place, Reader, TransactionScenarios, Writer
from waiting import ASK_MS, NEVER_MS, PATIENCE_S

T = TypeVar("T")


class Loop:
    """An event loop that runs while somebody waits for it, and no longer."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        async def in_time() -> T:
            async with asyncio.timeout(PATIENCE_S):
                return await work

        return self._loop.run_until_complete(in_time())

    def close(self) -> None:
        self._loop.close()


class AiokafkaWriter(Writer):
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int = NEVER_MS) -> None:
        self._loop = Loop()
        self._sent: list[Any] = []
        self._loop.run(self._start(bootstrap, transactional_id, timeout_ms))

    async def _start(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._library = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
        try:
            await self._library.start()
        except BaseException:
            await self._library.stop()
            raise

    def begin(self) -> None:
        self._loop.run(self._library.begin_transaction())
        self._sent = []

    def send(self, topic: str, value: str, partition: int = 0) -> None:
        self._sent.append(self._loop.run(self._library.send(topic, value.encode(), partition=partition)))

    def flush(self) -> None:
        async def all_of_it() -> None:
            await asyncio.gather(*self._sent)

        self._loop.run(all_of_it())

    def take_in(self, offsets: Mapping[Place, int], member: Any) -> None:
        places = {TopicPartition(*place): offset for place, offset in offsets.items()}
        self._loop.run(self._library.send_offsets_to_transaction(places, member.group))

    def commit(self) -> None:
        self._loop.run(self._library.commit_transaction())

    def abort(self) -> None:
        self._loop.run(self._library.abort_transaction())

    def close(self) -> None:
        self._loop.run(self._library.stop())
        self._loop.close()


class AiokafkaMember:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self.group = group
        self._loop = Loop()
        self._loop.run(self._start(bootstrap, group, topic))

    async def _start(self, bootstrap: str, group: str, topic: str) -> None:
        self._library = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest",
            isolation_level="read_committed", session_timeout_ms=NEVER_MS,
        )  # fmt: skip
        await self._library.start()

    def read(self, count: int) -> list[str]:
        return [self._loop.run(self._library.getone()).value.decode() for _ in range(count)]

    def close(self) -> None:
        self._loop.run(self._library.stop())
        self._loop.close()


class AiokafkaReader(Reader):
    def __init__(self, bootstrap: str, topic: str, isolation: str, partitions: int) -> None:
        self._loop = Loop()
        self._loop.run(self._start(bootstrap, topic, isolation, partitions))

    async def _start(self, bootstrap: str, topic: str, isolation: str, partitions: int) -> None:
        self._library = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, auto_offset_reset="earliest")
        await self._library.start()
        self._library.assign([TopicPartition(topic, partition) for partition in range(partitions)])

    def poll(self) -> list[str]:
        found = self._loop.run(self._library.getmany(timeout_ms=ASK_MS))
        return [message.value.decode() for messages in found.values() for message in messages]

    def close(self) -> None:
        self._loop.run(self._library.stop())
        self._loop.close()


class TestAiokafka(TransactionScenarios):
    FENCED: ClassVar = (KafkaError,)
    REFUSED: ClassVar = (KafkaError,)
    OUT_OF_TURN: ClassVar = (IllegalOperation, AssertionError)

    def open(self, bootstrap: str, transactional_id: str, timeout_ms: int = NEVER_MS) -> Writer:
        return AiokafkaWriter(bootstrap, transactional_id, timeout_ms)

    def reader(self, bootstrap: str, topic: str, isolation: str, partitions: int = 1) -> Reader:
        return AiokafkaReader(bootstrap, topic, isolation, partitions)

    def member(self, bootstrap: str, group: str, topic: str, count: int) -> tuple[list[str], Any]:
        member = AiokafkaMember(bootstrap, group, topic)
        return member.read(count), member

    def leave(self, member: Any) -> None:
        member.close()
