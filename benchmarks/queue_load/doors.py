"""The doors through which messages are paced: the SQS API by hand, the Python client, and a share group beside a plain producer."""

import asyncio
import time
from collections import deque

from benchmarks.load import frames
from benchmarks.load.topics import Admin
from benchmarks.queue_load.calls import Calls, drop_queue, make_queue
from benchmarks.queue_load.shares import Line, ShareMember, begin_at_the_start, make_group, topic_id_of
from benchmarks.queue_load.talk import Talk
from penstock.client.queues import AsyncQueue

SENDERS = 16
WORKERS = 4
BATCH = 10


class SqsDoor:
    workers = WORKERS

    def __init__(self, host: str, port: int) -> None:
        self._place = host, port
        self._idle: asyncio.LifoQueue[Talk] = asyncio.LifoQueue()
        self._settling: list[asyncio.Future[int] | None] = [None] * WORKERS

    async def open(self) -> None:
        self._takers = [await Talk.open(*self._place) for _ in range(WORKERS)]
        self._settlers = [await Talk.open(*self._place) for _ in range(WORKERS)]
        for _ in range(SENDERS):
            self._idle.put_nowait(await Talk.open(*self._place))
        self._url = await make_queue(self._takers[0], f"pace-{time.monotonic_ns()}")
        self._calls = Calls(self._url, BATCH)

    async def send(self, number: int) -> None:
        talk = await self._idle.get()
        try:
            await self._calls.send_number(talk, number)
        finally:
            self._idle.put_nowait(talk)

    async def take(self, worker: int) -> list[int]:
        handles, numbers = await self._calls.wait(self._takers[worker])
        before = self._settling[worker]
        if before is not None:
            await before
        if handles:
            self._settling[worker] = asyncio.ensure_future(self._calls.delete(self._settlers[worker], handles))
        return numbers

    async def close(self) -> None:
        await asyncio.gather(*(each for each in self._settling if each is not None))
        await drop_queue(await Talk.open(*self._place), self._url)


class PythonDoor:
    """`penstock.client.queues.AsyncQueue`. What was taken is settled while more is waited for, as through the other doors."""

    workers = WORKERS

    def __init__(self, host: str, port: int) -> None:
        self._queue = AsyncQueue(f"pace-{time.monotonic_ns()}", url=f"http://{host}:{port}")
        self._settling: list[asyncio.Future[None] | None] = [None] * WORKERS

    async def open(self) -> None:
        await self._queue.create()

    async def send(self, number: int) -> None:
        await self._queue.send(b"%d" % number)

    async def take(self, worker: int) -> list[int]:
        taken = await self._queue.receive(BATCH)
        before = self._settling[worker]
        if before is not None:
            await before
        if taken:
            self._settling[worker] = asyncio.ensure_future(self._queue.ack_many(taken))
        return [int(message.body) for message in taken]

    async def close(self) -> None:
        await asyncio.gather(*(each for each in self._settling if each is not None))
        await self._queue.delete()
        await self._queue.close()


class ShareDoor:
    """One producer, whose records are numbered by their offsets, and one member of a share group."""

    workers = 1

    def __init__(self, host: str, port: int) -> None:
        self._place = host, port
        self._topic = f"pace-{time.monotonic_ns()}"
        self._group = f"group-{self._topic}"
        self._frame = frames.produce(self._topic, [0], frames.one_batch(1, time.time_ns() // 1_000_000), correlation_id=0)
        self._answers: deque[asyncio.Future[None]] = deque()

    async def open(self) -> None:
        admin = Admin(*self._place)
        admin.create(self._topic, 1, {})
        admin.close()
        self._asking = await Line.open(*self._place)
        await begin_at_the_start(self._asking, self._group)
        await make_group(self._asking, self._group, self._topic)
        line = await Line.open(*self._place)
        self._member = ShareMember(line, await topic_id_of(self._asking, self._topic), self._group)
        self._producer = await Line.open(*self._place)
        self._reading = asyncio.ensure_future(self._read_answers())

    async def send(self, number: int) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._answers.append(answer)
        self._producer.write(self._frame)
        await answer

    async def take(self, worker: int) -> list[int]:
        return [offset for first, last in await self._member.fetch(records_max=500, wait_ms=5_000) for offset in range(first, last + 1)]

    async def close(self) -> None:
        self._reading.cancel()
        for line in (self._producer, self._asking, self._member.line):
            line.close()
        admin = Admin(*self._place)
        admin.delete(self._topic)
        admin.close()

    async def _read_answers(self) -> None:
        while True:
            reply = await self._producer.read()
            answer = self._answers.popleft()
            try:
                frames.check_produced(memoryview(reply), self._topic, 1, 0)
                answer.set_result(None)
            except frames.UnexpectedReply as wrong:
                answer.set_exception(wrong)
