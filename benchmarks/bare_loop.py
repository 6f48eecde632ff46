"""The ceiling: the least that any Python broker must do, and nothing else.

One event loop reads the socket, takes Produce and Fetch apart by hand, checks each batch's CRC-32C, stamps offset and epoch, writes the
file, and (with `--flush`) answers after a group-committed flush: one flush in flight, replies that come meanwhile wait for the next.
No validation, no recovery, no retention, no metadata, no limits; a bad frame ends the process. It exists to be compared with.
"""

import argparse
import asyncio
import os
from bisect import bisect_right
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from struct import Struct, pack
from typing import cast

import uvloop
from crc32c import crc32c

from penstock.server import kernel
from penstock.server.disk import WRITE_BACK_BYTES
from penstock.server.env import KEPT_MEMORY_BYTES_MAX

_HEADER = Struct(">hhih")  # Api key, version, correlation id, length of the client id.
_PAIR = Struct(">ii")
_FETCHED = Struct(">iiqqi")
_PRODUCED = Struct(">ihqqq")
_LISTED = Struct(">ihqq")
_INT = Struct(">i")
_STAMP = Struct(">q")
_BUFFER_BYTES = 4 << 20
_CRC_FROM = 21


class Part:
    """One partition: one file, and where each batch begins."""

    def __init__(self, path: Path, thread: ThreadPoolExecutor) -> None:
        self._thread = thread
        self._written_back = 0
        self.fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self.end_offset = 0
        self.offsets: list[int] = []
        self.positions: list[int] = [0]  # One more than batches: the last is the size.

    def append(self, batch: memoryview) -> int:
        if crc32c(batch[_CRC_FROM:]) != int.from_bytes(batch[17:_CRC_FROM]):
            raise ValueError("wrong checksum")
        base = self.end_offset
        batch[:8], batch[12:16] = _STAMP.pack(base), _INT.pack(0)
        os.write(self.fd, batch)
        size = self.positions[-1] + len(batch)
        self.offsets.append(base)
        self.positions.append(size)
        self.end_offset = base + int.from_bytes(batch[23:27]) + 1
        if size - self._written_back >= WRITE_BACK_BYTES:
            self._thread.submit(kernel.start_write_back, self.fd, self._written_back, size - self._written_back)
            self._written_back = size
        return base

    def read(self, offset: int, bytes_max: int) -> bytes:
        if offset >= self.end_offset:
            return b""
        first = bisect_right(self.offsets, offset) - 1
        begin = self.positions[first]
        last = max(first + 1, bisect_right(self.positions, begin + bytes_max) - 1)
        return os.pread(self.fd, self.positions[last] - begin, begin)


class Store:
    """All partitions, the group commit, and the fetches that wait for an append."""

    def __init__(self, data_dir: Path, *, flushes: bool) -> None:
        self._data_dir = data_dir
        self.flushes = flushes
        self._parts: dict[tuple[bytes, int], Part] = {}
        self._root_fd = os.open(data_dir, os.O_RDONLY)
        self._thread = ThreadPoolExecutor(1)
        self._write_back = ThreadPoolExecutor(1)
        self._dirty: dict[int, None] = {}
        self._parked: list[Callable[[], None]] = []
        self._is_flushing = False
        self._waiting_fetches: list[Callable[[], None]] = []

    def part(self, topic: bytes, partition: int) -> Part:
        found = self._parts.get((topic, partition))
        if found is None:
            found = self._parts[topic, partition] = Part(self._data_dir / f"{topic.decode()}-{partition}", self._write_back)
        return found

    def appended(self, dirty: list[int], answer: Callable[[], None]) -> None:
        if not self.flushes:
            answer()
            self._wake_fetches()
            return
        self._dirty.update(dict.fromkeys(dirty))
        self._parked.append(answer)
        if not self._is_flushing:
            self._begin_flush()

    def wait_for_append(self, wake: Callable[[], None]) -> None:
        self._waiting_fetches.append(wake)

    def _begin_flush(self) -> None:
        dirty, self._dirty = list(self._dirty), {}
        parked, self._parked = self._parked, []
        self._is_flushing = True
        self._thread.submit(self._flush, dirty, parked, asyncio.get_running_loop())

    def _flush(self, dirty: list[int], parked: list[Callable[[], None]], loop: asyncio.AbstractEventLoop) -> None:
        if len(dirty) == 1 or not kernel.IS_LINUX:
            for fd in dirty:
                kernel.flush_file(fd)
        else:
            kernel.flush_file_system(self._root_fd)
        loop.call_soon_threadsafe(self._end_flush, parked)

    def _end_flush(self, parked: list[Callable[[], None]]) -> None:
        self._is_flushing = False
        if self._parked:
            self._begin_flush()
        for answer in parked:
            answer()
        self._wake_fetches()

    def _wake_fetches(self) -> None:
        woken, self._waiting_fetches = self._waiting_fetches, []
        for wake in woken:
            wake()


class Client(asyncio.BufferedProtocol):
    def __init__(self, store: Store) -> None:
        self._store = store
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._begin = 0
        self._end = 0
        self._is_paused = False
        self._is_waiting = False  # A fetch waits for an append; what came after it waits too.
        self._replies: list[bytes] = []
        self._dirty: dict[int, None] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name.

    def connection_lost(self, error: Exception | None) -> None:
        self._is_paused = True

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self._serve()

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._end == len(self._buffer):
            kept = bytes(self._buffer[self._begin : self._end])
            self._buffer[: len(kept)] = kept
            self._begin, self._end = 0, len(kept)
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        self._serve()

    def _serve(self) -> None:
        buffer = self._buffer
        while self._end - self._begin >= 4 and not self._is_paused and not self._is_waiting:
            after = self._begin + 4 + int.from_bytes(buffer[self._begin : self._begin + 4])
            if after > self._end:
                break
            if self._answer(buffer[self._begin + 4 : after]):
                self._begin = after
        if self._begin == self._end:
            self._begin = self._end = 0
        if self._replies:
            replies, self._replies = b"".join(self._replies), []
            dirty, self._dirty = list(self._dirty), {}
            self._store.appended(dirty, lambda: self._transport.write(replies))

    def _answer(self, frame: memoryview) -> bool:
        """False: asked again later."""
        api_key, _, correlation_id, client_id_bytes = _HEADER.unpack_from(frame)
        at = _HEADER.size + client_id_bytes
        match api_key:
            case 0:
                self._replies.append(_framed(correlation_id, self._produce(frame, at)))
            case 1:
                return self._fetch(frame, at, correlation_id)
            case 2:
                self._transport.write(_framed(correlation_id, self._list_offsets(frame, at)))
            case 19:
                self._transport.write(_framed(correlation_id, bytes(4) + frame[at : at + 6 + frame[at + 5]] + pack(">hh", 0, -1)))
            case 20:
                self._transport.write(_framed(correlation_id, bytes(4) + frame[at : at + 6 + frame[at + 5]] + bytes(2)))
            case _:
                self._transport.write(_framed(correlation_id, bytes(6)))
        return True

    def _produce(self, frame: memoryview, at: int) -> bytes:
        at += 2 + 2 + 4  # No transactional id, acks, time-out.
        topic, head, partitions, at = _one_topic(frame, at)
        reply = [head]
        for _ in range(partitions):
            partition, size = _PAIR.unpack_from(frame, at)
            at += 8
            part = self._store.part(topic, partition)
            reply.append(_PRODUCED.pack(partition, 0, part.append(frame[at : at + size]), -1, 0))
            self._dirty[part.fd] = None
            at += size
        reply.append(bytes(4))
        return b"".join(reply)

    def _fetch(self, frame: memoryview, at: int, correlation_id: int) -> bool:
        _, wait_ms = _PAIR.unpack_from(frame, at)
        topic, head, partitions, at = _one_topic(frame, at + 25)
        pieces: list[bytes] = [bytes(10), head]
        size = 0
        for number in range(partitions):
            partition, _, offset, _, bytes_max = _FETCHED.unpack_from(frame, at + number * _FETCHED.size)
            part = self._store.part(topic, partition)
            records = part.read(offset, bytes_max)
            end = part.end_offset
            pieces.append(pack(">ihqqqiii", partition, 0, end, end, 0, -1, -1, len(records)))
            pieces.append(records)
            size += len(records)
        if size == 0 and wait_ms:
            self._wait(wait_ms / 1000)
            return False
        total = 4 + sum(map(len, pieces))
        self._transport.writelines([pack(">ii", total, correlation_id), *pieces])
        return True

    def _wait(self, seconds: float) -> None:
        """Looks again at the next append, or in half a second at the latest; the generator never asks for an empty reply."""
        self._is_waiting = True
        late = asyncio.get_running_loop().call_later(seconds, self._look_again)

        def wake() -> None:
            late.cancel()
            self._look_again()

        self._store.wait_for_append(wake)

    def _look_again(self) -> None:
        self._is_waiting = False
        self._serve()

    def _list_offsets(self, frame: memoryview, at: int) -> bytes:
        topic, head, partitions, at = _one_topic(frame, at + 4)
        rows = []
        for number in range(partitions):
            (partition,) = _INT.unpack_from(frame, at + 12 * number)
            rows.append(_LISTED.pack(partition, 0, -1, self._store.part(topic, partition).end_offset))
        return head + b"".join(rows)


def _one_topic(frame: memoryview, at: int) -> tuple[bytes, bytes, int, int]:
    """The topic's name, the same bytes as a reply repeats them, how many partitions follow, and where."""
    name_from = at + 4 + 2
    name_to = name_from + int.from_bytes(frame[name_from - 2 : name_from])
    after = name_to + 4
    return bytes(frame[name_from:name_to]), bytes(frame[at:after]), int.from_bytes(frame[name_to:after]), after


def _framed(correlation_id: int, body: bytes) -> bytes:
    return pack(">ii", 4 + len(body), correlation_id) + body


async def _main(arguments: argparse.Namespace) -> None:
    kernel.keep_freed_memory(KEPT_MEMORY_BYTES_MAX)
    store = Store(Path(arguments.data_dir), flushes=arguments.flush)
    server = await asyncio.get_running_loop().create_server(lambda: Client(store), "127.0.0.1", arguments.port)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--data-dir", required=True, help="must be there, and empty")
    parser.add_argument("--flush", action="store_true", help="answer only after a flush")
    uvloop.run(_main(parser.parse_args()))
