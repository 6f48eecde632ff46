"""One connection to one peer: requests out, answers in, in the same order.

Rules:
- Answers come in the order of the questions; the correlation id proves it. Anything else ends the connection.
- At most `in_flight_max` questions wait for their answer; further callers stand in line, first come first served. They also stand in line
  while the socket does not take more bytes.
- An answer that is longer than `answer_bytes_max` is refused by its first four bytes, before any memory is given to it.
- A time-out ends the connection: what comes after the late answer could only be read by waiting for it.
- When the connection ends, everyone who waits is told why, and whether their question had already left.
Not here: whom to ask, and asking again.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from penstock.errors import MalformedInput
from penstock.peers.failures import AnswerTimedOut, BadAnswer, ConnectionLost, Unreachable
from penstock.peers.versions import OWN_VERSIONS, Versions, choose_version, is_fallback_answer
from penstock.vocabulary import Address, Buffer
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import read_response, write_request

__all__ = ["Address", "Connection", "Limits"]

LENGTH_BYTES = 4
CORRELATION_BYTES = 4
SMALL_BYTES = 64 << 10  # Answers up to this are received together; a longer one into memory of its own, and not copied any more.
CORRELATION_END = 1 << 31  # Correlation ids are positive 32-bit integers, and start over.


@dataclass(frozen=True, slots=True)
class Limits:
    connect_s: float = 10.0
    in_flight_max: int = 64
    # Above the largest fetch that a node answers with by default (55 MiB), below what would hurt a small process.
    answer_bytes_max: int = 64 << 20


class _Waiting(NamedTuple):
    correlation_id: int
    answer: asyncio.Future[Buffer]  # Cancelled when nobody waits any more; its place in the order stays.


class Connection(asyncio.BufferedProtocol):
    """Made by `open`. `call` asks and gives back the answer; `tell` expects none."""

    def __init__(self, address: Address, *, client_id: str, limits: Limits) -> None:
        self.address = address
        self.theirs: dict[int, Versions] = {}  # What the peer said it speaks, by API key.
        self.features: dict[str, int] = {}  # What its cluster has agreed on, by name: the level that holds.
        self._client_id = client_id
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._ended: ConnectionLost | None = None  # Once set, nothing more is sent or awaited.
        self._small = memoryview(bytearray(SMALL_BYTES))
        self._buffer = self._small  # What is being received: short answers, or one long one with its length in front.
        self._filled = 0
        self._next_correlation_id = 0
        self._waiting: deque[_Waiting] = deque()  # Sent, in the order in which the answers must come.
        self._line: deque[asyncio.Future[None]] = deque()  # Not sent: these wait for a slot.
        self._slots_taken = 0  # Given to `_waiting`, or to someone who is about to send.
        self._is_congested = False
        self._is_turn_given = False  # Someone of the line has a slot and has not sent yet.

    @classmethod
    async def open(cls, address: Address, *, client_id: str = "penstock", limits: Limits | None = None) -> "Connection":
        """Connects and asks what the peer speaks."""
        limits = limits or Limits()
        connection = cls(address, client_id=client_id, limits=limits)
        try:
            async with asyncio.timeout(limits.connect_s):
                await asyncio.get_running_loop().create_connection(lambda: connection, address.host, address.port)
                await connection._negotiate()
        except TimeoutError:
            connection.close()
            raise Unreachable(f"{address} did not answer within {limits.connect_s:g} s") from None
        except OSError as failure:
            raise Unreachable(f"cannot connect to {address}: {_why(failure)}") from failure
        except (ConnectionLost, BadAnswer) as failure:  # Nothing was asked yet but what it speaks.
            raise Unreachable(
                failure.problem, f"check that {address} is the Kafka port of a node: it did not say what it speaks"
            ) from failure
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._ended is None and self._transport is not None

    def version(self, api: ApiKey, *, version_max: int | None = None) -> int:
        """The version that `call` will use. Raises `NotSpoken`."""
        return choose_version(api, self.theirs, str(self.address), version_max=version_max)

    async def call(self, api: ApiKey, body: Mapping[str, Any], *, timeout_s: float, version_max: int | None = None) -> Any:
        """Sends one request and waits for its answer, for at most `timeout_s` altogether."""
        version = self.version(api, version_max=version_max)
        return self._read(api, version, await self._ask(api, version, body, timeout_s))

    async def tell(self, api: ApiKey, body: Mapping[str, Any], *, timeout_s: float, version_max: int | None = None) -> None:
        """Sends a request that has no answer (Produce with acks 0)."""
        version = self.version(api, version_max=version_max)
        try:
            async with asyncio.timeout(timeout_s):
                await self._take_slot()
        except TimeoutError:
            raise self._time_out(timeout_s, was_sent=False) from None
        self._send(api, version, body)
        self._free_slot()

    def close(self, reason: str = "it was closed here") -> None:
        """Ends the connection after what was already written. Whoever waits is told."""
        self._end(ConnectionLost(f"the connection to {self.address} ended: {reason}"))
        if self._transport is not None:
            self._transport.close()

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._ended is not None:  # Given up while it was being made.
            self._transport.abort()

    def connection_lost(self, failure: Exception | None) -> None:
        why = "the peer closed it" if failure is None else _why(failure)
        self._end(ConnectionLost(f"the connection to {self.address} ended: {why}"))

    def pause_writing(self) -> None:
        self._is_congested = True

    def resume_writing(self) -> None:
        self._is_congested = False
        self._serve_line()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self._filled += nbytes
        if self._buffer is not self._small:
            if self._filled == len(self._buffer):
                answer, self._buffer, self._filled = self._buffer[LENGTH_BYTES:], self._small, 0
                self._take_answer(answer)
            return
        at = 0
        while self._ended is None and self._filled - at >= LENGTH_BYTES:
            size = int.from_bytes(self._small[at : at + LENGTH_BYTES], "big", signed=True)
            if not CORRELATION_BYTES <= size <= self._limits.answer_bytes_max:
                self._abort(f"it announced an answer of {size} bytes; at most {self._limits.answer_bytes_max} are taken")
                break
            end = at + LENGTH_BYTES + size
            if end - at > SMALL_BYTES:
                self._buffer = memoryview(bytearray(end - at))
                break
            if self._filled < end:
                break
            self._take_answer(bytes(self._small[at + LENGTH_BYTES : end]))
            at = end
        if self._ended is not None:
            return
        left = self._filled - at
        self._buffer[:left] = self._small[at : self._filled]
        self._filled = left

    # Asking and answering.

    async def _ask(self, api: ApiKey, version: int, body: Mapping[str, Any], timeout_s: float) -> Buffer:
        answer: asyncio.Future[Buffer] = asyncio.get_running_loop().create_future()
        was_sent = False
        try:
            async with asyncio.timeout(timeout_s):
                await self._take_slot()
                self._waiting.append(_Waiting(self._send(api, version, body), answer))
                was_sent = True
                return await answer
        except TimeoutError:
            raise self._time_out(timeout_s, was_sent=was_sent) from None

    def _send(self, api: ApiKey, version: int, body: Mapping[str, Any]) -> int:
        """Writes the request, in the slot that the caller holds. Returns its correlation id."""
        correlation_id = self._next_correlation_id
        try:
            if self._ended is not None or self._transport is None:
                raise self._lost(was_sent=False)
            frame: Buffer = write_request(api, version, correlation_id, self._client_id, body)
        except BaseException:
            self._free_slot()
            raise
        self._next_correlation_id = (correlation_id + 1) % CORRELATION_END
        self._transport.write(frame)
        self._serve_line()
        return correlation_id

    def _take_answer(self, frame: Buffer) -> None:
        correlation_id = int.from_bytes(frame[:CORRELATION_BYTES], "big", signed=True)
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            self._abort(f"it answered a question that was not next (correlation id {correlation_id})")
            return
        answer = self._waiting.popleft().answer
        if not answer.done():
            answer.set_result(frame)
        self._free_slot()

    def _read(self, api: ApiKey, version: int, frame: Buffer) -> Any:
        try:
            _, entity = read_response(api, version, frame)
        except MalformedInput as failure:
            self._abort(f"its answer to {api.name} version {version} does not parse")
            problem = f"{self.address} sent an answer to {api.name} that does not parse: {failure}"
            raise BadAnswer(problem, may_have_happened=True) from failure
        return entity

    async def _negotiate(self) -> None:
        version = OWN_VERSIONS[ApiKey.API_VERSIONS][1]
        frame = await self._ask_versions(version)
        if is_fallback_answer(frame):
            self._learn(self._read(ApiKey.API_VERSIONS, 0, frame))
            version = self.version(ApiKey.API_VERSIONS, version_max=version - 1)
            frame = await self._ask_versions(version)
        self._learn(self._read(ApiKey.API_VERSIONS, version, frame))

    async def _ask_versions(self, version: int) -> bytes:
        body = {"client_software_name": "penstock", "client_software_version": "1"}
        return bytes(await self._ask(ApiKey.API_VERSIONS, version, body, self._limits.connect_s))

    def _learn(self, answer: Any) -> None:
        self.theirs = {int(row.api_key): (int(row.min_version), int(row.max_version)) for row in answer.api_keys}
        if getattr(answer, "finalized_features_epoch", -1) >= 0:
            self.features = {str(row.name): int(row.max_version_level) for row in answer.finalized_features}

    # Slots.

    async def _take_slot(self) -> None:
        """The caller must send, or free the slot, before it awaits anything else."""
        if self._ended is not None:
            raise self._lost(was_sent=False)
        if not self._line and self._has_room():
            self._slots_taken += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._is_turn_given = False  # It was our turn, and we are gone.
                self._free_slot()
            raise
        self._is_turn_given = False

    def _free_slot(self) -> None:
        self._slots_taken -= 1
        self._serve_line()

    def _serve_line(self) -> None:
        """Lets in one at a time: only when that one has written can it be seen whether the socket takes more."""
        while self._line and self._has_room():
            turn = self._line.popleft()
            if not turn.done():
                self._slots_taken += 1
                self._is_turn_given = True
                turn.set_result(None)

    def _has_room(self) -> bool:
        return self._slots_taken < self._limits.in_flight_max and not self._is_congested and not self._is_turn_given

    # Ending.

    def _time_out(self, timeout_s: float, *, was_sent: bool) -> AnswerTimedOut:
        problem = f"{self.address} did not answer within {timeout_s:g} s"
        self._abort(problem)
        return AnswerTimedOut(problem, may_have_happened=was_sent)

    def _abort(self, why: str) -> None:
        self._end(ConnectionLost(f"the connection to {self.address} ended: {why}"))
        if self._transport is not None:
            self._transport.abort()

    def _end(self, reason: ConnectionLost) -> None:
        if self._ended is not None:
            return
        self._ended = reason
        self._buffer, self._filled = self._small, 0
        while self._waiting:
            answer = self._waiting.popleft().answer
            if not answer.done():
                answer.set_exception(self._lost(was_sent=True))
        while self._line:
            turn = self._line.popleft()
            if not turn.done():
                turn.set_exception(self._lost(was_sent=False))

    def _lost(self, *, was_sent: bool) -> ConnectionLost:
        """A fresh exception for each who waits: a raised one carries the traceback of whom it was raised for."""
        problem = self._ended.problem if self._ended is not None else f"there is no connection to {self.address}"
        return ConnectionLost(problem, may_have_happened=was_sent)


def _why(failure: Exception) -> str:
    if isinstance(failure, ConnectionRefusedError):
        return "connection refused"
    return str(failure) or type(failure).__name__
