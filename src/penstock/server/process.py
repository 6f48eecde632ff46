"""The process of one node: set up the machine's side, run until told to stop, say how it ended.

On standard output there is exactly one line, when clients may come:

    penstock ready kafka=127.0.0.1:9092 http=127.0.0.1:8080 data=/var/lib/penstock node=1

A node of a cluster adds peers=HOST:PORT, and clients may come once the cluster has a controller that knows the node; until then standard
error says every few seconds what it waits for. One that is no broker says kafka=off.
SIGTERM or SIGINT stops cleanly, a node of a cluster hands over what it leads first; a second one stops at once, which costs the next start
a recovery and loses nothing acknowledged.
Exit codes: 0 stopped as asked; 1 could not start; 2 wrong usage; 3 the node stopped itself (the disk of its metadata failed, or a
promise broke), so a supervisor should restart it; 130 a second signal cut the stopping short.
Not here: what the node does (broker/), where its settings come from (configuration.py).
"""

import asyncio
import gc
import logging
import os
import resource
import shlex
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple, NoReturn

from penstock.broker.identity import WrongDirectory
from penstock.broker.node import Node
from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise, DiskFailed, Refusal
from penstock.http.app import application
from penstock.http.door import CONNECTIONS_MAX, HttpDoor
from penstock.http.sqs.signing import Keys
from penstock.log.faults import NewerFormat
from penstock.server import logs
from penstock.server.cluster_configuration import ClusterConfiguration
from penstock.server.complaints import CannotStart
from penstock.server.configuration import Configuration
from penstock.server.env import RealEnv
from penstock.server.listeners import address_of, bind, cannot_listen
from penstock.server.vitals import vitals
from penstock.server.waiting import tell_what_it_waits_for
from penstock.settings import NodeSettings
from penstock.vocabulary import Address
from penstock.wire.records import COMPILED

log = logging.getLogger("penstock")

# What a data directory can be: somebody else's, written by a newer Penstock, on a disk that fails or is full.
CANNOT_OPEN = (WrongDirectory, NewerFormat, UnknownRecord, DiskFailed, Refusal)

STOPPED, STOPPED_ITSELF, INTERRUPTED = 0, 3, 130

OPEN_FILES_MIN, HANDLES_OF_ITS_OWN = 256, 64


class Bound(NamedTuple):
    """Where the node listens; None for what it does not open."""

    kafka: Address | None
    peers: Address | None


def run(configuration: Configuration) -> int:
    """Runs a node until it stops; the process's exit code. Raises CannotStart with what to tell the person."""
    if not __debug__:
        raise CannotStart("Penstock does not run under python -O", "its checks are part of its promise: leave out -O and PYTHONOPTIMIZE")
    logs.begin(configuration.log_level)
    configuration = replace(configuration, node=fit_into_limit(configuration.node, raise_open_files_limit()))
    if not COMPILED:
        log.warning("the compiled record loop is not installed: this node checks records many times more slowly")
    with asyncio.Runner(loop_factory=loop_factory(configuration.loop)) as runner:
        return runner.run(_serve(configuration))


def raise_open_files_limit() -> int:
    """Connections and segments are files; the soft limit of most systems, 1,024, is for programs of another kind. Returns the limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        return hard
    except (OSError, ValueError) as failure:
        log.warning("the limit on open files stays at %d: %s", soft, failure)
        return soft


def fit_into_limit(settings: NodeSettings, limit: int) -> NodeSettings:
    """Clients must never take the last file handle: a log that cannot open its file can take no more writes."""
    if limit in (resource.RLIM_INFINITY, -1):
        return settings
    if limit < OPEN_FILES_MIN:
        raise CannotStart(f"this process may open {limit} files; a node needs {OPEN_FILES_MIN} at least", "raise it: ulimit -n 65536")
    spare = limit - HANDLES_OF_ITS_OWN - min(CONNECTIONS_MAX, limit // 8)
    files = min(settings.open_files_max, spare // 2)
    connections = min(settings.connections_max, spare - files)
    if connections < settings.connections_max:
        log.warning("at most %d connections and %d log files at once, because this process may open %d files", connections, files, limit)
    return replace(settings, open_files_max=files, connections_max=connections)


def loop_factory(wanted: str) -> Callable[[], asyncio.AbstractEventLoop] | None:
    if wanted == "asyncio":
        return None
    try:
        import uvloop
    except ImportError:
        if wanted == "uvloop":
            raise CannotStart("uvloop is not installed", "pip install uvloop, or serve with --loop asyncio") from None
        return None
    return uvloop.new_event_loop


async def _serve(configuration: Configuration) -> int:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(note_failure)
    asked_to_stop = _listen_for_signals(loop)
    env = _open_world(configuration)
    secret = b"" if configuration.cluster is None else configuration.cluster.secret
    node = Node(env, configuration.node, data_directory=str(configuration.data_dir.resolve()), secret=secret)
    door, http = _open_http(node, configuration.http, Keys(configuration.queue_keys))
    try:
        bound = await _start_unless_stopped(node, configuration, asked_to_stop)
        if bound is not None:
            gc.freeze()  # What start-up made lives as long as the process: the collector need not look at it again.
            _announce(configuration, bound, http)
        code = await _until_stopped(node, asked_to_stop)
    except BrokenPromise as broken:
        _end_broken(broken)
    finally:
        is_clean = await _stop(node, door)
        env.shut()
    return code if is_clean else STOPPED_ITSELF


async def _stop(node: Node, door: HttpDoor | None) -> bool:
    try:
        await node.stop()
    except DiskFailed as failure:
        log.error("stopping was not clean, the next start will verify what is on the disk: %s", failure)
        return False
    finally:
        if door is not None:
            await door.close()
    return True


def _open_world(configuration: Configuration) -> RealEnv:
    try:
        return RealEnv(str(configuration.data_dir), awake_s=configuration.node.flush_awake_us / 1_000_000)
    except OSError as failure:
        what = f"the data directory {configuration.data_dir} cannot be used: {failure.strerror}"
        raise CannotStart(what, "choose another with --data-dir") from None


def _open_http(node: Node, address: Address | None, keys: Keys) -> tuple[HttpDoor | None, Address | None]:
    """Before the node starts, so that a probe sees it alive, and not ready, while it recovers."""
    if address is None:
        return None, None
    bound = bind(address)
    door = HttpDoor(*application(node, vitals, keys))
    door.open(bound)
    return door, address_of(bound)


async def _start_unless_stopped(node: Node, configuration: Configuration, asked_to_stop: asyncio.Future[str]) -> Bound | None:
    """A node of a cluster may wait long for the others: then a signal ends the waiting. None where it did."""
    if configuration.cluster is None:
        return await _start(node, configuration)
    loop = asyncio.get_running_loop()
    starting, telling = loop.create_task(_start(node, configuration)), loop.create_task(tell_what_it_waits_for(node, configuration.cluster))
    for future in (asked_to_stop, node.stopped):
        future.add_done_callback(lambda _: starting.cancel())
    try:
        return await starting
    except asyncio.CancelledError:
        if not asked_to_stop.done() and not node.stopped.done():
            raise
        return None
    finally:
        telling.cancel()


async def _start(node: Node, configuration: Configuration) -> Bound:
    try:
        peers = None if configuration.cluster is None else await _listen_for_peers(node, configuration.cluster)
        await node.start()
    except CANNOT_OPEN as failure:
        raise CannotStart(f"cannot start on {configuration.data_dir}: {failure}") from None
    wanted = configuration.kafka
    try:
        return Bound(None if wanted is None else Address(*await node.listen_kafka(wanted.host, wanted.port)), peers)
    except OSError as failure:
        assert wanted is not None
        raise cannot_listen(wanted, failure) from None


async def _listen_for_peers(node: Node, cluster: ClusterConfiguration) -> Address:
    """First of all: nodes that start together need each other before any of them can serve."""
    try:
        return await node.listen_peers(cluster.peers.host, cluster.peers.port, advertised=cluster.advertised)
    except OSError as failure:
        raise cannot_listen(cluster.peers, failure) from None


def _announce(configuration: Configuration, bound: Bound, http: Address | None) -> None:
    data = shlex.quote(str(configuration.data_dir.resolve()))  # It may have blanks: the line is split as a shell does.
    line = f"penstock ready kafka={bound.kafka or 'off'} http={http or 'off'} data={data} node={configuration.node.node_id}"
    print(line if bound.peers is None else f"{line} peers={bound.peers}", flush=True)


def _listen_for_signals(loop: asyncio.AbstractEventLoop) -> asyncio.Future[str]:
    asked: asyncio.Future[str] = loop.create_future()

    def stop(name: str) -> None:
        if asked.done():
            log.warning("%s again: stopping at once", name)
            _exit_now(INTERRUPTED)
        log.info("%s: stopping", name)
        asked.set_result(name)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number.name)
    return asked


async def _until_stopped(node: Node, asked_to_stop: asyncio.Future[str]) -> int:
    ended = asyncio.Event()
    for future in (asked_to_stop, node.stopped):
        future.add_done_callback(lambda _: ended.set())
    await ended.wait()
    if node.stopped.done():
        log.critical("the node stops itself: %s", node.stopped.result())
        return STOPPED_ITSELF
    return STOPPED


def note_failure(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """For the loop: what no task and no caller took."""
    failure = context.get("exception")
    if isinstance(failure, BrokenPromise):
        _end_broken(failure)
    log.error("%s", context.get("message", "a callback failed"), exc_info=failure)


def _end_broken(broken: BrokenPromise) -> NoReturn:
    log.critical("a promise broke, nothing after it can be trusted: %s", broken, exc_info=broken)
    _exit_now(STOPPED_ITSELF)


def _exit_now(code: int) -> NoReturn:
    """Without cleaning up: no clean-shutdown marker may be written, so that the next start verifies what is on the disk."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
