"""One pipelined connection: a non-blocking socket, what is still to be sent, and replies as slices of one receive buffer."""

import socket
from collections import deque
from collections.abc import Iterator

_SEND_CHUNKS_MAX = 64
_PATIENCE_S = 120.0


class Connection:
    def __init__(self, host: str, port: int, *, receive_bytes: int) -> None:
        """`receive_bytes` must hold the largest reply; more lets several replies arrive with one call."""
        self.socket = socket.create_connection((host, port), timeout=30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.unsent: deque[memoryview] = deque()
        self._buffer = memoryview(bytearray(receive_bytes))
        self._begin = 0  # The first byte that was not handed out yet.
        self._end = 0

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, frame: bytes) -> None:
        """Keeps a frame for the next `flush`."""
        self.unsent.append(memoryview(frame))

    def flush(self) -> bool:
        """Sends as much as the socket takes. True when nothing is left."""
        while self.unsent:
            chunks = [self.unsent[at] for at in range(min(_SEND_CHUNKS_MAX, len(self.unsent)))]
            try:
                sent = self.socket.sendmsg(chunks)
            except BlockingIOError:
                return False
            self._drop(sent)
        return True

    def receive(self) -> Iterator[memoryview]:
        """Whole replies without their length, each valid until the next call."""
        if self._end == len(self._buffer):
            self._make_room()
        try:
            got = self.socket.recv_into(self._buffer[self._end :])
        except BlockingIOError:
            return
        if got == 0:
            raise ConnectionError("the broker closed the connection")
        self._end += got
        yield from self._whole_replies()

    def ask(self, frame: bytes) -> memoryview:
        """Sends one request and waits for its reply: for what is not measured."""
        self.socket.setblocking(True)
        self.socket.settimeout(_PATIENCE_S)
        self.socket.sendall(frame)
        while not (replies := list(self.receive())):
            pass
        self.socket.setblocking(False)
        return replies[0]

    def close(self) -> None:
        self.socket.close()

    def _drop(self, sent: int) -> None:
        while sent:
            first = self.unsent[0]
            if sent < len(first):
                self.unsent[0] = first[sent:]
                return
            sent -= len(first)
            self.unsent.popleft()

    def _whole_replies(self) -> Iterator[memoryview]:
        buffer = self._buffer
        while self._end - self._begin >= 4:
            size = int.from_bytes(buffer[self._begin : self._begin + 4])
            after = self._begin + 4 + size
            if after > self._end:
                break
            yield buffer[self._begin + 4 : after]
            self._begin = after
        if self._begin == self._end:
            self._begin = self._end = 0

    def _make_room(self) -> None:
        if self._begin == 0:
            raise ConnectionError(f"a reply larger than {len(self._buffer):,} bytes")
        kept = bytes(self._buffer[self._begin : self._end])
        self._buffer[: len(kept)] = kept
        self._begin, self._end = 0, len(kept)
