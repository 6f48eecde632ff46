"""The one door through which Spark's processes reach brokers: a blocking call into an event loop of its own.

    broker = brokers(options)
    view = broker.run(broker.client.describe("orders"))

Spark calls a data source from plain threads in many processes: the planner, the runner of each streaming query, and every worker. Each has
one background thread with one event loop, started at the first use, and one client for each way in which brokers are contacted, kept for as
long as the process lives: workers are used again from batch to batch, and so are their connections.

Rules:
- Only Kafka's protocol is spoken, so the brokers may be Penstock's or Apache Kafka's.
- Every wait has an end: calls have deadlines of their own, and `run` gives up a while after them.
- A process that was forked starts from nothing: the threads of its parent did not come along.
- Nothing is printed. What fails is raised, in words (`PeerFailure`, `WrongOption`).
Not here: what is asked of brokers (source/, sink/).
"""

import asyncio
import atexit
import concurrent.futures
import os
import threading
import time
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from penstock.peers.client import Client, parse_bootstrap
from penstock.peers.connection import Limits
from penstock.peers.failures import PeerFailure
from penstock.peers.routing import ClientSettings
from penstock.pipeline.options import KAFKA, Options, WrongOption
from penstock.vocabulary import Instant

T = TypeVar("T")

BOOTSTRAP = "bootstrap.servers"
# What of Kafka's client settings decides how brokers are contacted; source and sink each know some more.
CONTACT_SETTINGS = (
    BOOTSTRAP, "client.id", "request.timeout.ms", "default.api.timeout.ms", "metadata.max.age.ms", "retry.backoff.ms",
    "retry.backoff.max.ms", "socket.connection.setup.timeout.ms", "security.protocol",
)  # fmt: skip
# Settings that are refused, with what to do instead.
REFUSED_SETTINGS = {
    "sasl.jaas.config": "leave it out: the pipeline signs in nowhere; give it a listener without SASL",
    "sasl.mechanism": "leave it out: the pipeline signs in nowhere; give it a listener without SASL",
    "ssl.truststore.location": "leave it out: the pipeline speaks plain text; give it a listener without TLS",
    "ssl.ca.location": "leave it out: the pipeline speaks plain text; give it a listener without TLS",
}
ANSWER_BYTES_MAX = 256 << 20  # A fetch is bounded by its own limits, but its first batch comes whole, however large.
GRACE_S = 10.0  # How much longer than a call's own deadline `run` waits before it takes the loop for dead.


@dataclass(frozen=True, slots=True)
class Contact:
    """How brokers are contacted. Two sources with the same contact share a client."""

    bootstrap: str
    client_id: str = "penstock-spark"
    request_timeout_s: float = 30.0
    deadline_s: float = 60.0
    metadata_age_max_s: float = 300.0
    backoff_first_s: float = 0.05
    backoff_longest_s: float = 1.0
    connect_s: float = 10.0


def contact(options: Mapping[str, str]) -> Contact:
    """Reads `kafka.bootstrap.servers` (or `bootstrap.servers`) and what else concerns the connection. Raises `WrongOption`."""
    given = Options(options)
    bootstrap = given.text(KAFKA + BOOTSTRAP, None) or given.text(BOOTSTRAP, None)
    if not bootstrap:
        raise WrongOption("the option kafka.bootstrap.servers is missing", "name brokers, for example localhost:9092")
    try:
        parse_bootstrap(bootstrap)
    except ValueError as wrong:
        raise WrongOption(f"kafka.bootstrap.servers is {bootstrap!r}: {wrong}") from None
    protocol = given.text(KAFKA + "security.protocol", "PLAINTEXT")
    if protocol.upper() != "PLAINTEXT":
        raise WrongOption(
            f"kafka.security.protocol is {protocol!r}, and the pipeline speaks plain text only",
            "give it a listener without TLS and SASL, and leave the option out or write PLAINTEXT",
        )
    usual = Contact(bootstrap)
    return Contact(
        bootstrap,
        given.text(KAFKA + "client.id", usual.client_id),
        _seconds(given, "request.timeout.ms", usual.request_timeout_s),
        _seconds(given, "default.api.timeout.ms", usual.deadline_s),
        _seconds(given, "metadata.max.age.ms", usual.metadata_age_max_s),
        _seconds(given, "retry.backoff.ms", usual.backoff_first_s),
        _seconds(given, "retry.backoff.max.ms", usual.backoff_longest_s),
        _seconds(given, "socket.connection.setup.timeout.ms", usual.connect_s),
    )


def brokers(options: Mapping[str, str] | Contact) -> "Broker":
    """The door to these brokers, the same one each time in a process. Connects at the first call that needs it."""
    wanted = options if isinstance(options, Contact) else contact(options)
    return _process.broker(wanted)


class Broker:
    """A client, and how to call it from a thread that may wait."""

    def __init__(self, contact: Contact, loop: asyncio.AbstractEventLoop) -> None:
        self.contact = contact
        self._loop = loop
        settings = ClientSettings(
            request_timeout_s=contact.request_timeout_s,
            deadline_s=contact.deadline_s,
            backoff_first_s=contact.backoff_first_s,
            backoff_longest_s=max(contact.backoff_first_s, contact.backoff_longest_s),
            metadata_age_max_s=contact.metadata_age_max_s,
            limits=Limits(connect_s=contact.connect_s, answer_bytes_max=ANSWER_BYTES_MAX),
        )
        self.client = Client(_CallerEnv(), contact.bootstrap, client_id=contact.client_id, settings=settings)

    def run(self, call: Coroutine[Any, Any, T], *, deadline_s: float | None = None) -> T:
        """Runs the call to its end, and gives back or raises what it does. What takes longer than its deadline is cancelled."""
        return self.wait(self.start(call), deadline_s=deadline_s)

    def start(self, call: Coroutine[Any, Any, T]) -> "concurrent.futures.Future[T]":
        """Lets the call run meanwhile; `wait` for it later, or cancel it."""
        return asyncio.run_coroutine_threadsafe(call, self._loop)

    def wait(self, running: "concurrent.futures.Future[T]", *, deadline_s: float | None = None) -> T:
        patience_s = (self.contact.deadline_s if deadline_s is None else deadline_s) + GRACE_S
        try:
            return running.result(patience_s)
        except concurrent.futures.TimeoutError:
            if running.done():
                raise  # The call itself raised it.
            running.cancel()
            problem = f"{self.contact.bootstrap} gave no answer within {patience_s:g} s"
            raise PeerFailure(problem, "look whether the cluster is well: penstock cluster status", may_have_happened=True) from None
        except BaseException:  # The thread that waits was interrupted: nobody wants the answer any more.
            running.cancel()
            raise


class _CallerEnv:
    """Clock and chance for a client in a process that is no node."""

    def __init__(self) -> None:
        self.rng = Random()

    def now(self) -> Instant:
        return Instant(time.monotonic())

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class _Process:
    """The loop of this process and its clients."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._brokers: dict[Contact, Broker] = {}

    def broker(self, wanted: Contact) -> Broker:
        with self._lock:
            if wanted not in self._brokers:
                self._brokers[wanted] = Broker(wanted, self._running_loop())
            return self._brokers[wanted]

    def close(self) -> None:
        with self._lock:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop = None
            self._brokers.clear()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = _new_loop()
            threading.Thread(target=self._loop.run_forever, name="penstock-brokers", daemon=True).start()
        return self._loop


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def _seconds(given: Options, setting: str, default: float) -> float:
    millis = given.whole(KAFKA + setting, None, low=1)
    return default if millis is None else millis / 1_000


_process = _Process()


def _start_from_nothing() -> None:
    """In a forked process: the thread that ran the loop is not there, and the lock may have been held when it was copied."""
    global _process  # noqa: PLW0603 - the one thing that a process has once.
    _process = _Process()


def _close() -> None:
    _process.close()


os.register_at_fork(after_in_child=_start_from_nothing)
atexit.register(_close)
