"""How clients of a simulated world reach the queues of a node: as through a door, but without one.

A call goes to some node that serves, takes its time on the way there and back, and runs within that node's process: when the node dies, it
dies with it. A call or its answer may get lost, or the way there break while the call is under way; then nobody knows (`Unanswered`). A
door that notices that nobody waits any more calls off what it began, and one that doesn't lets it go on: both happen.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.broker.node import Node
from penstock.broker.queues.calls import QueueRefusal
from penstock.broker.queues.facade import Queues
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World

T = TypeVar("T")

_LOOKS_SECONDS = 0.1
_ON_THE_WAY_SECONDS = 0.003
_CALLED_OFF = 0.5
_UNDER_WAY_SECONDS = 0.02  # A broken way breaks early: that is when there is something to be called off.


class Unanswered(Exception):
    """Nobody knows what became of the call."""


class Desk:
    def __init__(self, world: World, serving: Callable[[], dict[str, Node]], *, lost: float = 0.0) -> None:
        self._world = world
        self._serving = serving  # The nodes that take calls now, by host.
        self.lost = lost  # How many calls and answers get lost, and how many ways break.
        self.surprises: list[str] = []  # What a call raised that no door could have foreseen.

    async def ask(self, env: SimEnv, work: Callable[[Queues], Awaitable[T]], *, patience_s: float = 10.0) -> T:
        """Raises QueueRefusal or Unanswered."""
        return await self.ask_node(env, lambda node: work(node.queues), patience_s=patience_s)

    async def ask_node(self, env: SimEnv, work: Callable[[Node], Awaitable[T]], *, patience_s: float = 10.0) -> T:
        """The same of whatever else a node does for queues."""
        nodes = self._serving()
        if not nodes:
            await asyncio.sleep(_LOOKS_SECONDS)
            raise Unanswered("nobody serves")
        host = env.rng.choice(list(nodes))
        process, node = self._world.hosts[host].process, nodes[host]
        await asyncio.sleep(env.rng.random() * _ON_THE_WAY_SECONDS)
        if process is None or process.is_dead or env.rng.random() < self.lost:
            raise Unanswered("the call got lost")
        task = self._world.loop.create_task(self._carry_out(work, node), context=process.context.copy())
        ends = env.now() + (env.rng.random() * _UNDER_WAY_SECONDS if env.rng.random() < self.lost else patience_s)
        while not task.done() and not process.is_dead and env.now() < ends:
            await asyncio.wait({task}, timeout=min(_LOOKS_SECONDS, ends - env.now()))
        if not task.done() or env.rng.random() < self.lost:
            if not process.is_dead and env.rng.random() < _CALLED_OFF:
                task.cancel()
            raise Unanswered("the answer did not come")
        await asyncio.sleep(env.rng.random() * _ON_THE_WAY_SECONDS)
        if task.cancelled() or task.exception() is not None:
            raise Unanswered("the node called it off, or its power went")
        result = task.result()
        if isinstance(result, QueueRefusal):
            raise result
        return result

    async def _carry_out(self, work: Callable[[Node], Awaitable[T]], node: Node) -> T | QueueRefusal:
        try:
            return await work(node)
        except QueueRefusal as refusal:
            return refusal
        except Unanswered:
            raise
        except Exception as failure:
            self.surprises.append(repr(failure))
            raise Unanswered(repr(failure)) from failure
