"""The queue door of the HTTP port: a request in, an answer out, with nothing of HTTP's ways between, since workers ask thousands of times
a second (queue_http.py brings the requests).

Every POST that names its action in `X-Amz-Target` comes here, whatever its path: some SDKs post to `/`, some to the queue's URL. The
answer is JSON; an error says its kind twice (errors.py).

Web pages. A node on loopback is in reach of every page in a browser beside it. No form can set X-Amz-Target, and a script of another
origin may set it only after a preflight, which nobody here answers. A page that lets its own name point here (DNS rebinding) needs no
preflight, but browsers put `Origin` on every POST, and say `Sec-Fetch-Site`; SDKs send neither. So whatever bears one of them is
refused. The Host header is not looked at: SDKs come with whatever name a tunnel or a container gave the node.

Bounds: the bytes of one body and of all bodies at hand (room.py), the number of long polls (desk.py), and what messages may take of the
node's room for replies. A client that goes away ends its long poll.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import httptools

from penstock.broker.memory import HeldReply, PartOfRoom
from penstock.broker.metrics import Sample
from penstock.broker.node import Node
from penstock.broker.queues.calls import QueueRefusal
from penstock.errors import Refusal
from penstock.http.sqs.actions import ACTIONS, NATIVE_PREFIX, Action, no_such_action
from penstock.http.sqs.answers import encode
from penstock.http.sqs.desk import Call, Desk
from penstock.http.sqs.errors import ACCESS_DENIED, INTERNAL_FAILURE, OK, REQUEST_THROTTLED, SERVICE_UNAVAILABLE, SqsError
from penstock.http.sqs.reading import READ_ASIDE_BYTES, read
from penstock.http.sqs.refusals import as_error, as_own_error, as_queue_refusal, in_own_words
from penstock.http.sqs.requests import Reply, Request
from penstock.http.sqs.room import Room
from penstock.http.sqs.signing import Keys
from penstock.http.sqs.tally import Tally

_BROWSER_MARKS = (b"origin", b"sec-fetch-site")


class QueueDoor:
    def __init__(self, node: Node, keys: Keys) -> None:
        self._node = node
        self._keys = keys
        self._asks_for_keys = bool(keys)
        self._desk = Desk(node.queues, node.env)
        self._tally = Tally()
        life = f"{node.env.rng.getrandbits(64):016x}"
        self._life = f"{life[:8]}-{life[8:12]}-{life[12:]}-0000-".encode()
        self._asked = 0
        self._reading = asyncio.Lock()
        self.room = Room(node.settings.memory_bytes_max)
        self.replies = PartOfRoom(node.reply_room)

    def samples(self) -> Iterator[Sample]:
        return self._tally.samples(self._desk.long_polls)

    def next_id(self) -> bytes:
        """Of a request: no two alike, also of two lives of a node."""
        self._asked += 1
        return b"%b%012x" % (self._life, self._asked)

    def refusal_of_head(self, headers: Mapping[bytes, bytes]) -> SqsError | None:
        """Where the head alone tells that its sender may not come in: no body need be waited for, or given room."""
        if not self._asks_for_keys:
            return None
        try:
            self._keys.look_at_head(_as_texts(headers), self._node.env.wall_ms())
        except SqsError as refusal:
            return refusal
        return None

    @property
    def stalled_seconds_max(self) -> float:
        return self._node.settings.connections_max_stalled_ms / 1_000

    def note_stalled(self) -> None:
        """A connection was closed because its peer was waited for too long."""
        self._node.metrics.connections_closed_as_stalled += 1

    async def answer(self, request: Request) -> Reply:
        """Raises ClientGone where nobody is left to be answered, and nothing else that a client could be the cause of."""
        target = request.target.decode("latin-1")
        try:
            action, body = self._let_in(target, request), request.body
            key_id = self._verified(request) if self._asks_for_keys else ""
            if action.shows_messages:
                replies = self.replies
                if replies.bytes_taken >= replies.bytes_max:
                    raise SqsError(REQUEST_THROTTLED, "too many answers wait for clients that do not take them; try again")
                request.held = HeldReply(replies)
            host = request.headers.get(b"host", b"localhost").decode("latin-1")
            wish = read(action, body) if len(body) <= READ_ASIDE_BYTES else await self._read_aside(action, body)
            is_plain = b"\\" not in body and body.isascii()
            call = Call(wish, host, key_id or request.client, key_id, request.while_connected, request.held, len(body), is_plain)
            answer = await action.do(self._desk, call)
        except (SqsError, QueueRefusal, Refusal) as refusal:
            error = _as_told(refusal, is_native=target.startswith(NATIVE_PREFIX))
            self._tally.add(target, error.kind.code)
            return error_reply(error)
        self._tally.add_good(target)
        return Reply(OK, answer if isinstance(answer, bytes) else encode(answer))

    def _let_in(self, target: str, request: Request) -> Action:
        headers = request.headers
        if b"origin" in headers or b"sec-fetch-site" in headers:
            _refuse_browsers(headers)
        action = ACTIONS.get(target)
        if action is None:
            raise no_such_action(target)
        health = self._node.health()
        if not health.is_ready:
            raise SqsError(SERVICE_UNAVAILABLE, f"the node is not ready: {health.reason}")
        if request.refusal is not None:
            raise request.refusal
        return action

    async def _read_aside(self, action: Action, body: bytes) -> dict[str, Any]:
        """One after the other: what is made of small pieces takes fifteen times as much once it is read, and holds up other threads."""
        async with self._reading:
            return await self._node.env.offload(read, action, body)

    def _verified(self, request: Request) -> str:
        texts = _as_texts(request.headers)
        url = httptools.parse_url(request.url)
        path, query = url.path.decode("latin-1"), (url.query or b"").decode("latin-1")
        return self._keys.verify(path, query, texts, request.body, self._node.env.wall_ms())


def _as_texts(headers: Mapping[bytes, bytes]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}


def failure_reply() -> Reply:
    """For what is our fault: the caller learns only that."""
    return error_reply(SqsError(INTERNAL_FAILURE, "the node failed to answer this; its log says why"))


def stopping_reply() -> Reply:
    return error_reply(SqsError(SERVICE_UNAVAILABLE, "the node is stopping"))


def error_reply(error: SqsError) -> Reply:
    kind = error.kind
    content = {"__type": kind.namespace + kind.shape, "message": error.words}
    return Reply(kind.status, encode(content), f"{kind.code};{'Sender' if kind.is_senders_fault else 'Receiver'}".encode())


def _as_told(refusal: SqsError | QueueRefusal | Refusal, *, is_native: bool) -> SqsError:
    """In AWS's words, or in our own."""
    if isinstance(refusal, SqsError):
        return in_own_words(refusal) if is_native else refusal
    of_queue = as_queue_refusal(refusal) if isinstance(refusal, Refusal) else refusal
    return as_own_error(of_queue) if is_native else as_error(of_queue)


def _refuse_browsers(headers: Mapping[bytes, bytes]) -> None:
    for mark in _BROWSER_MARKS:
        if mark in headers and (mark != b"sec-fetch-site" or headers[mark] != b"none"):
            raise SqsError(ACCESS_DENIED, "queues are not for web pages: a request with the header Origin or Sec-Fetch-Site is not taken")
