"""One call of the queue door: sent, tried again where that is safe, and its refusals translated.

A node that cannot be reached, or that says "not now", of the whole or of a part, is asked again for as long as the caller has patience,
counted from the first failure. A cluster of several addresses is asked in turns: a node that is cut off from the others says "not now" for
ever. Each of them is asked once before patience counts: a caller without any has named them all the same, so that one of them answers.
A request that may have been carried out is sent again only where that does no harm (`is_safe`); otherwise the caller gets `InDoubt`.
The protocol is AWS JSON 1.0, which is also SQS's: the action is in a header, the body is JSON, an error has a name.
"""

import asyncio
import os
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.client.complaints import Closed
from penstock.client.queues.failures import InDoubt, NotAvailable, QueueError, Refused, Unreachable, WrongAddress, refusal
from penstock.client.queues.http import Address, Door, Lost, Reply, addresses
from penstock.client.queues.signing import Signer
from penstock.client.queues.spans import Span, seconds

URL_VARIABLE = "PENSTOCK_URL"  # The one that the commands listen to as well.
ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE = "PENSTOCK_ACCESS_KEY", "PENSTOCK_SECRET_KEY"
URL_DEFAULT = "http://127.0.0.1:8080"  # Where `penstock serve` has it.
ANSWER_SECONDS = 30.0  # How long a node may take to answer, beyond what it was asked to wait.
PAUSE_SECONDS, PAUSE_SECONDS_MAX = 0.05, 2.0
CONTENT_TYPE = "application/x-amz-json-1.0"
AGENT = "penstock-python"
NOT_NOW = "not_available"
UNAVAILABLE = 500  # From here on it is the node's fault, and may pass.

PATIENCE_SECONDS = 30.0

Wish = Mapping[str, Any]


class Told(NamedTuple):
    answer: dict[str, Any]
    may_be_done: bool  # An earlier try may have been carried out, and its answer lost.


class Caller:
    def __init__(self, url: str | None, *, patience_seconds: float, signer: Signer | None) -> None:
        try:
            self._door = Door(addresses(url or os.environ.get(URL_VARIABLE) or URL_DEFAULT))
        except ValueError as wrong:
            advice = "give the HTTP port of a node, or several of one cluster with commas between them"
            raise WrongAddress(f"url={url!r}: {wrong}" if url else f"{URL_VARIABLE}: {wrong}", advice) from None
        self._patience_seconds = patience_seconds
        self._signer = signer

    async def call(
        self, target: str, wish: Wish | Callable[[], Wish], *, queue: str = "", is_safe: bool = True, wait_seconds: float = 0.0
    ) -> Told:
        """The answer to `target`, such as Penstock.Receive. `wish` may differ from try to try."""
        loop = asyncio.get_running_loop()
        give_up_at, pause, may_be_done = None, PAUSE_SECONDS, False
        failures: dict[Address, QueueError | None] = {}  # The last of each address that was asked; None: it answered in part.
        while True:
            answer: dict[str, Any] | None = None
            address = self._door.address
            failures[address] = None
            try:
                answer = await self._once(address, target, wish() if callable(wish) else wish, queue, wait_seconds)
                if not (is_safe and _is_partly_not_now(answer)):
                    return Told(answer, may_be_done)
                may_be_done = True  # What was done of it is found done at the next try.
            except Lost as lost:
                if lost.was_sent and not is_safe:
                    raise InDoubt(
                        f"{target} was sent, and {lost.problem}", "look whether it was done before you ask for it again"
                    ) from None
                may_be_done = may_be_done or lost.was_sent
                failures[address] = Unreachable(
                    lost.problem, f"start a node, or name others of its cluster, with commas between them, with url= or {URL_VARIABLE}"
                )
            except NotAvailable as refused:
                if not is_safe:
                    raise
                failures[address], may_be_done = refused, True  # The ledger may have taken it and not be able to say so.
            give_up_at = loop.time() + self._patience_seconds if give_up_at is None else give_up_at
            if self._door.address not in failures:
                continue  # One that was not asked yet.
            if loop.time() + pause > give_up_at:
                if answer is not None:
                    return Told(answer, may_be_done)
                raise _told_by_all([failure for failure in failures.values() if failure is not None])
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(PAUSE_SECONDS_MAX, pause * 2)

    def close(self) -> None:
        self._door.close()

    async def _once(self, address: Address, target: str, wish: Wish, queue: str, wait_seconds: float) -> dict[str, Any]:
        if self._door.is_closed:
            raise Closed("the queue is closed", "make another one")
        body = as_bytes_on_the_wire(wish)
        headers = {"Content-Type": CONTENT_TYPE, "X-Amz-Target": target}
        if self._signer is not None:
            headers |= self._signer.headers(address.text, headers, body)
        headers |= {"User-Agent": AGENT}
        reply = await self._door.post(address, headers, body, seconds=wait_seconds + ANSWER_SECONDS, is_waiting=wait_seconds > 0)
        answer = _parsed(reply)
        if reply.status == 200:
            return answer
        refused = _refused(reply, answer, queue)
        if isinstance(refused, NotAvailable):
            self._door.turn_away_from(address)
        raise refused


def as_bytes_on_the_wire(content: Wish) -> bytes:
    return msgspec.json.encode(content)


def caller_for(
    url: str | None, *, patience: Span = PATIENCE_SECONDS, access_key: str | None = None, secret_key: str | None = None
) -> Caller:
    """Of what a person says of the way to a node, or else the environment."""
    if access_key is None and secret_key is None:
        access_key, secret_key = os.environ.get(ACCESS_KEY_VARIABLE), os.environ.get(SECRET_KEY_VARIABLE)
    if (access_key is None) != (secret_key is None):
        raise ValueError(f"access_key and secret_key ({ACCESS_KEY_VARIABLE}, {SECRET_KEY_VARIABLE}) belong together: give both, or neither")
    signer = None if access_key is None or secret_key is None else Signer(access_key, secret_key)
    return Caller(url, patience_seconds=seconds(patience, "patience"), signer=signer)


def _told_by_all(failures: Sequence[QueueError]) -> QueueError:
    """A node's own no says more than that others cannot be reached; where none can, each of them is told."""
    told = [failure for failure in failures if isinstance(failure, NotAvailable)]
    if told or len(failures) == 1:
        return (told or failures)[-1]
    return Unreachable("; ".join(failure.problem for failure in failures), failures[0].advice)


def _is_partly_not_now(answer: dict[str, Any]) -> bool:
    """Of what answers for each of several messages."""
    return any(each.get("Code") == NOT_NOW for each in answer.get("Results") or answer.get("Verdicts") or ())


def _parsed(reply: Reply) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(reply.body or b"{}")
    except ValueError:
        found = None
    if isinstance(found, dict):
        return found
    if reply.status >= UNAVAILABLE:
        return {}  # A node that is just stopping, or something between here and there, says so in words of its own.
    shown = reply.body[:60].decode(errors="replace")
    raise Refused(f"this is no answer of a node: {reply.status} {shown!r}", "check that url= is the HTTP port of a node")


def _refused(reply: Reply, answer: dict[str, Any], queue: str) -> QueueError:
    code = str(answer.get("__type") or answer.get("error") or reply.status).rpartition("#")[2]
    words = str(answer.get("message") or answer.get("Message") or f"the node answered {reply.status}")
    known = refusal(code, words, queue)
    if reply.status >= UNAVAILABLE and type(known) is Refused:
        return NotAvailable(words, "come again in a moment; the node's log says more", code)
    return known
