"""What does it cost two nodes to talk? A replica fetch's codec by the row, its answers by the byte, a small question by its round trip.

Both nodes live in this process, on one event loop, with real sockets between them: a second core would halve what the sockets cost.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import uvloop

from benchmarks.machine import described, header
from benchmarks.tables import table
from penstock.consensus.nouns import DirectoryId
from penstock.links.door import Door
from penstock.links.handshake import Introduction
from penstock.links.kinds import Kind
from penstock.links.links import Links
from penstock.links.replica_fetch import Fetched, Wish, read_fetch, read_fetched, read_reached, write_fetch, write_fetched, write_reached
from penstock.server.env import RealEnv
from penstock.vocabulary import Address, NodeId, Offset, TopicId

TOPIC_ID = TopicId(bytes(16))
SECRET = b"the secret of this measurement"
REPEATS = 5  # The best of these counts: the others were disturbed.


def microseconds(work: Callable[[], object], times: int) -> float:
    best = float("inf")
    for _ in range(REPEATS):
        began = time.perf_counter()
        for _ in range(times):
            work()
        best = min(best, (time.perf_counter() - began) / times)
    return best * 1e6


def fetched(number: int, record_bytes: int) -> Fetched:
    """Returns a leader's reply for one partition, with so many bytes of records."""
    return Fetched(
        TOPIC_ID,
        number,
        leader_epoch=1,
        fetch_offset=Offset(2),
        last_epoch=3,
        error_code=0,
        high_watermark=Offset(5),
        log_start=Offset(0),
        diverging=None,
        records=bytes(record_bytes),
    )


def codec_rows(count: int) -> list[list[str]]:
    rows = [fetched(number, 1024) for number in range(count)]
    wishes = [Wish(TOPIC_ID, number, 1, Offset(2), 3) for number in range(count)]
    reached = [(TOPIC_ID, number, 1, Offset(2)) for number in range(count)]
    body = memoryview(b"".join(write_fetched(7, rows)))

    def ask() -> bytes:
        return write_fetch(7, wishes, (), is_full=False, bytes_max=1, partition_bytes_max=1, wait_ms=1)

    question, report = memoryview(ask()), memoryview(write_reached(1, reached))
    works: dict[str, Callable[[], object]] = {
        "write a question": ask,
        "read a question": lambda: read_fetch(question),
        "write an answer": lambda: write_fetched(7, rows),
        "read an answer": lambda: read_fetched(body),
        "write what was reached": lambda: write_reached(1, reached),
        "read what was reached": lambda: list(read_reached(report)[1]),
    }
    return [[name, f"{microseconds(work, 20_000 // count) / count:.2f} µs a row of {count}"] for name, work in works.items()]


async def socket_rows(answer_bytes: int) -> list[list[str]]:
    directory = tempfile.mkdtemp()
    env = RealEnv(directory)
    try:
        return await _socket_rows(env, answer_bytes)
    finally:
        env.shut()
        shutil.rmtree(directory)


async def _socket_rows(env: RealEnv, answer_bytes: int) -> list[list[str]]:
    one, two = (Introduction("measured", NodeId(number), DirectoryId(bytes([number]) * 16)) for number in (1, 2))
    door = Door(env, two, SECRET, report=print)
    server = await asyncio.get_running_loop().create_server(door, "127.0.0.1", 0)
    address = Address(*server.sockets[0].getsockname()[:2])
    links = Links(env, one, SECRET, address_of=lambda node: address, report=print)
    slices = 64
    rows = [fetched(number, answer_bytes // slices) for number in range(slices)]
    door.asked[Kind.REPLICA_FETCH] = lambda asked: asked.answer(write_fetched(1, rows))
    door.asked[Kind.SUBMIT] = lambda asked: asked.answer([asked.body])
    answers, questions = max(20, (1 << 29) // answer_bytes), 5_000
    await links.ask(NodeId(2), Kind.REPLICA_FETCH, b"", timeout_s=10)
    began = time.perf_counter()
    for _ in range(answers):
        read_fetched(await links.ask(NodeId(2), Kind.REPLICA_FETCH, b"", timeout_s=10))
    bulk = answers * answer_bytes / (time.perf_counter() - began) / 1e6
    await links.ask(NodeId(2), Kind.SUBMIT, b"", timeout_s=10)
    began = time.perf_counter()
    for _ in range(questions):
        await links.ask(NodeId(2), Kind.SUBMIT, bytes(100), timeout_s=10)
    trip = (time.perf_counter() - began) / questions * 1e6
    server.close()
    door.close()
    await links.close()
    size = f"{answer_bytes >> 20} MiB" if answer_bytes >= 1 << 20 else f"{answer_bytes >> 10} KiB"
    return [[f"answers of {size}", f"{bulk:.0f} MB/s"], ["a small question and its answer", f"{trip:.0f} µs"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--answer-bytes", type=int, default=8 << 20)
    options = parser.parse_args()
    print(header("Links between nodes", described(Path(), "both ends in one process")))
    rows = codec_rows(options.rows)
    for name, factory in (("asyncio", None), ("uvloop", uvloop.new_event_loop)):
        with asyncio.Runner(loop_factory=factory) as runner:
            rows += [[f"{what}, {name}", cost] for what, cost in runner.run(socket_rows(options.answer_bytes))]
    print(table(["what", "cost"], rows))


if __name__ == "__main__":
    main()
