"""The life of a node's process in a simulated world, as server/process.py has it in the real one.

It starts, serves until it is told to end or cannot go on, and stops in order. An operator looks after it: when a log goes offline, the node
is restarted after a while, because only opening it again makes such a log trusted.
"""

import asyncio
import logging
from random import Random
from types import TracebackType

from penstock.broker.identity import WrongDirectory
from penstock.broker.node import Node
from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise, DiskFailed, Refusal
from penstock.log.faults import NewerFormat
from penstock.partition.partition import Partition
from penstock.settings import NodeSettings
from penstock.simulator.disk import IO_ERROR, NO_ROOM, PowerCut
from penstock.simulator.env import SimEnv
from penstock.simulator.workloads.stage import PORT


class Interrupted(Exception):
    """The process ends before the node was up."""


CANNOT_START = (DiskFailed, Refusal, WrongDirectory, NewerFormat, UnknownRecord, Interrupted)
_OPERATOR_LOOKS_SECONDS = 0.25


class NodeProcess:
    def __init__(self, settings: NodeSettings, rng: Random) -> None:
        self.settings = settings
        self.node: Node | None = None  # Of the current life, once it serves.
        self.endings: list[str] = []  # What each life that ended by itself had to say.
        self.failed_starts: list[Exception] = []  # Since the last start that did not fail.
        self.broken_promises: list[str] = []
        self.offline_patience_seconds = rng.uniform(0.1, 3.0)
        self._env: SimEnv | None = None
        self._lost: list[Partition] = []  # What this life found damaged: no restart mends that.

    @property
    def serves(self) -> bool:
        """It takes requests, and nobody is about to restart it."""
        if self.node is None or not self.node.health().is_ready or self._env is None or self._env.terminated.is_set():
            return False
        return not self._offline(self.node)

    async def run(self, env: SimEnv) -> None:
        self.node, self._env = None, env
        try:
            node = await self._begin(env)
        except CANNOT_START as failure:
            self.failed_starts.append(failure)
            self.endings.append(f"could not start: {failure}")
            return
        except BrokenPromise as broken:
            self.broken_promises.append(str(broken))
            return
        self.node, self._lost = node, [partition for partition in node.partitions if _is_damaged(partition)]
        self.failed_starts.clear()
        self.endings.append(await self._until_stopped(env, node))
        self.node = None
        try:
            await node.stop()
        except DiskFailed as failure:
            self.endings.append(f"stopping was not clean: {failure}")
        except BrokenPromise as broken:
            self.broken_promises.append(str(broken))

    async def _begin(self, env: SimEnv) -> Node:
        """Makes the node and brings it up."""
        node = Node(env, self.settings)
        await node.start()
        await node.listen_kafka("0.0.0.0", PORT)
        return node

    async def _until_stopped(self, env: SimEnv, node: Node) -> str:
        offline_since: float | None = None
        while True:
            try:
                async with asyncio.timeout(_OPERATOR_LOOKS_SECONDS):
                    await env.terminated.wait()
                return "asked to end"
            except TimeoutError:
                pass
            if node.stopped.done():
                self._note_if_broken(node.stopped.result())
                return f"stopped itself: {node.stopped.result()}"
            offline = self._offline(node)
            if offline and offline_since is None:
                offline_since = env.now()
            if offline_since is not None and env.now() - offline_since > self.offline_patience_seconds:
                return f"restarted by the operator: {', '.join(f'{one.topic}-{one.index}' for one in offline) or 'nothing'} was offline"

    def _offline(self, node: Node) -> list[Partition]:
        return [partition for partition in node.partitions if partition.log.failure is not None and partition not in self._lost]

    def _note_if_broken(self, reason: str) -> None:
        if reason.startswith("a promise was broken"):
            self.broken_promises.append(reason)


def _is_damaged(partition: Partition) -> bool:
    failure = partition.log.failure
    return failure is not None and not any(passing in failure for passing in (IO_ERROR, NO_ROOM))


class Reports(logging.Handler):
    """What nodes say to their operator while a world runs, kept instead of printed."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []
        self.failures: list[str] = []  # Tasks that ended with something nobody had foreseen.
        self._logger = logging.getLogger("penstock")

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None:
            text += f": {error!r}"
            if not isinstance(error, DiskFailed | PowerCut):  # The last words of a process that loses its power are no defect.
                self.failures.append(text)
        self.lines.append(text)

    def __enter__(self) -> "Reports":
        self._before = (self._logger.propagate, self._logger.level)
        self._logger.propagate = False
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._logger.removeHandler(self)
        self._logger.propagate, level = self._before
        self._logger.setLevel(level)
