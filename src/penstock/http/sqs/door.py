"""The queue door of the HTTP port: a plain ASGI function in front of the others, since workers ask thousands of times a second.

Every POST that names its action in `X-Amz-Target` comes here, whatever its path: some SDKs post to `/`, some to the queue's URL. The
answer is JSON, with a request id; an error says its kind twice (errors.py).

Web pages. A node on loopback is in reach of every page in a browser beside it. No form can set X-Amz-Target, and a script of another
origin may set it only after a preflight, which nobody here answers. A page that lets its own name point here (DNS rebinding) needs no
preflight, but browsers put `Origin` on every POST, and say `Sec-Fetch-Site`; SDKs send neither. So whatever bears one of them is
refused. The Host header is not looked at: SDKs come with whatever name a tunnel or a container gave the node.

Bounds: the bytes of one body and of all bodies at hand, the number of long polls (desk.py), and what messages may take of the node's room
for replies. A client that goes away ends its long poll.
"""

import asyncio
import json
from collections.abc import Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from penstock.broker.memory import HeldReply
from penstock.broker.metrics import Sample
from penstock.broker.node import Node
from penstock.errors import BrokenPromise
from penstock.http.bounds import Receive, Scope, Send
from penstock.http.sqs.actions import NATIVE_PREFIX, act, find_action
from penstock.http.sqs.answers import LARGE_BYTES, content_of, encode
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import (
    ACCESS_DENIED,
    BODY_TOO_LARGE,
    INTERNAL_FAILURE,
    OK,
    REQUEST_THROTTLED,
    SERIALIZATION,
    SERVICE_UNAVAILABLE,
    SqsError,
)
from penstock.http.sqs.refusals import in_own_words
from penstock.http.sqs.signing import Keys
from penstock.http.sqs.tally import Tally
from penstock.settings import MIB

TARGET = b"x-amz-target"
BODY_BYTES_MAX = 8 * MIB  # 1 MiB of payload, of which JSON may make six times as much where each character is escaped.
BODIES_BYTES_MAX = 64 * MIB  # Of all requests at hand.
READ_ASIDE_BYTES = 1 * MIB  # A larger body is read off the loop.

CONTENT_TYPE = (b"content-type", b"application/x-amz-json-1.0")
_BROWSER_MARKS = (b"origin", b"sec-fetch-site")

T = TypeVar("T")


class ClientGone(Exception):
    """Nobody is left to be answered."""


def is_for_queues(scope: Scope) -> bool:
    return scope["type"] == "http" and scope["method"] == "POST" and any(name == TARGET for name, _ in scope["headers"])


class QueueDoor:
    def __init__(self, node: Node, keys: Keys) -> None:
        self._node = node
        self._keys = keys
        self._desk = Desk(node.queues, node.env)
        self._room = _Room()
        self._serial = _Serial(node)
        self._tally = Tally()

    def samples(self) -> Iterator[Sample]:
        return self._tally.samples(self._desk.long_polls)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        held = HeldReply(self._node.reply_room)
        try:
            await self._serve(scope, receive, send, held)
        finally:
            held.let_go()

    async def _serve(self, scope: Scope, receive: Receive, send: Send, held: HeldReply) -> None:
        request_id = self._serial.next()
        try:
            status, content, code = await self._answer(scope, receive, held)
        except ClientGone:
            return
        except BrokenPromise as broken:
            asyncio.get_running_loop().call_exception_handler({"message": "a request to a queue broke a promise", "exception": broken})
            raise
        except Exception:
            failure = SqsError(INTERNAL_FAILURE, "the node failed to answer this; its log says why")
            await _send(send, failure.kind.status, _error_body(failure), _old_code(failure), request_id)
            raise  # The server writes it to the log.
        await _send(send, status, content, code, request_id)

    async def _answer(self, scope: Scope, receive: Receive, held: HeldReply) -> tuple[int, bytes, bytes]:
        """Status, body, and the old code of an error."""
        headers: dict[bytes, bytes] = dict(scope["headers"])
        target = headers[TARGET].decode("latin-1")
        try:
            _refuse_browsers(headers)
            action = find_action(target)
            health = self._node.health()
            if not health.is_ready:
                raise SqsError(SERVICE_UNAVAILABLE, f"the node is not ready: {health.reason}")
            body = await _read_body(headers, receive, self._room)
            try:
                key_id = self._verified(scope, headers, body) if self._keys else ""
                client = scope.get("client")
                host = headers.get(b"host", b"localhost").decode("latin-1")
                call = Call({}, host, key_id or (client[0] if client else ""), key_id, _WhileConnected(receive), held)
                content = await act(action, self._desk, call, await _read_json(self._node, body))
            finally:
                self._room.give_back(len(body))
            self._tally.add(target)
            return OK, content_of(content), b""
        except SqsError as refusal:
            error = in_own_words(refusal) if target.startswith(NATIVE_PREFIX) else refusal
            self._tally.add(target, error.kind.code)
            return error.kind.status, _error_body(error), _old_code(error)

    def _verified(self, scope: Scope, headers: Mapping[bytes, bytes], body: bytes) -> str:
        texts = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
        path, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        return self._keys.verify(path, query, texts, body, self._node.env.wall_ms())


def _refuse_browsers(headers: Mapping[bytes, bytes]) -> None:
    for mark in _BROWSER_MARKS:
        if mark in headers and (mark != b"sec-fetch-site" or headers[mark] != b"none"):
            raise SqsError(ACCESS_DENIED, "queues are not for web pages: a request with the header Origin or Sec-Fetch-Site is not taken")


# Bodies


class _Room:
    """How many bytes of bodies are at hand."""

    def __init__(self) -> None:
        self._taken = 0

    def take(self, size: int) -> None:
        if self._taken + size > BODIES_BYTES_MAX:
            raise SqsError(REQUEST_THROTTLED, "too many large requests at once; try again")
        self._taken += size

    def give_back(self, size: int) -> None:
        self._taken -= size


async def _read_body(headers: Mapping[bytes, bytes], receive: Receive, room: _Room) -> bytes:
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and int(announced) > BODY_BYTES_MAX:
        raise _too_large()
    pieces: list[bytes] = []
    size = 0
    try:
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece: bytes = message.get("body", b"")
            if size + len(piece) > BODY_BYTES_MAX:
                raise _too_large()
            room.take(len(piece))
            size += len(piece)
            if not message.get("more_body", False):
                return b"".join((*pieces, piece)) if pieces else piece
            pieces.append(piece)
    except BaseException:
        room.give_back(size)
        raise


def _too_large() -> SqsError:
    return SqsError(BODY_TOO_LARGE, f"a request may have at most {BODY_BYTES_MAX} bytes here")


async def _read_json(node: Node, body: bytes) -> object:
    try:
        return await node.env.offload(_parse, body) if len(body) > READ_ASIDE_BYTES else _parse(body)
    except UnicodeEncodeError:
        raise SqsError(SERIALIZATION, "the body has half of a surrogate pair, which is no character") from None
    except (ValueError, RecursionError) as wrong:
        raise SqsError(SERIALIZATION, f"the body is not JSON: {wrong}") from None


def _parse(body: bytes) -> object:
    """Only texts that can be written again: an escape may stand for half of a pair, and no UTF-8 could hold that."""
    value = json.loads(body or b"{}")
    if b"\\ud" in body or b"\\uD" in body:
        encode(value).encode()
    return value


# Answers


class _Serial:
    """Ids of requests: no two alike, also of two lives of a node."""

    def __init__(self, node: Node) -> None:
        self._life = f"{node.env.rng.getrandbits(64):016x}"
        self._count = 0

    def next(self) -> bytes:
        self._count += 1
        life = self._life
        return f"{life[:8]}-{life[8:12]}-{life[12:]}-{self._count >> 48 & 0xFFFF:04x}-{self._count & 0xFFFFFFFFFFFF:012x}".encode()


def _error_body(error: SqsError) -> bytes:
    content = {"__type": error.kind.namespace + error.kind.shape, "message": error.words}
    return encode(content).encode()


def _old_code(error: SqsError) -> bytes:
    return f"{error.kind.code};{'Sender' if error.kind.is_senders_fault else 'Receiver'}".encode()


async def _send(send: Send, status: int, body: bytes, code: bytes, request_id: bytes) -> None:
    headers = [CONTENT_TYPE, (b"content-length", b"%d" % len(body)), (b"x-amzn-requestid", request_id)]
    if code:
        headers.append((b"x-amzn-query-error", code))
        if status == BODY_TOO_LARGE.status:
            headers.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    if len(body) > LARGE_BYTES:
        await send({"type": "http.response.body", "body": body, "more_body": True})
        body = b""  # Sending this waits until the client has taken most of it.
    await send({"type": "http.response.body", "body": body})


# Long polls


class _WhileConnected:
    __slots__ = ("_receive",)

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    async def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        loop = asyncio.get_running_loop()
        working = loop.create_task(work)
        watching = loop.create_task(self._end_when_gone(working))
        try:
            return await working
        except asyncio.CancelledError:
            if watching.done():
                raise ClientGone from None
            raise
        finally:
            watching.cancel()

    async def _end_when_gone(self, working: "asyncio.Task[Any]") -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        working.cancel()
