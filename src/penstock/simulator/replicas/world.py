"""The world of one partition: a heap of what happens next, links that lose, double and delay, nodes, and a controller.

One seed is one story. Nothing here waits, nothing is awaited; time jumps from one event to the next.
Links lose and double what is sent, one message at a time, so that anything may overtake anything.
"""

import heapq
import struct
from collections.abc import Callable
from random import Random
from zlib import crc32

from penstock.simulator.replicas.controller import CONTROLLER, SimController
from penstock.simulator.replicas.judging import Judge
from penstock.simulator.replicas.node import SimNode
from penstock.simulator.replicas.plan import Plan
from penstock.vocabulary import Instant, NodeId

_TRACED = struct.Struct(">dqqq")
Moment = Callable[[str, SimNode], None]


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.now = Instant(0.0)
        self.steps = 0
        self.trace = 0
        self.loss = plan.loss
        self.cuts: dict[tuple[NodeId, NodeId], None] = {}
        self.judge = Judge()
        self.moment: Moment = lambda kind, node: None  # Tells the nemesis that one of its moments has come.
        self.rng = Random(f"{plan.seed}/world")
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.controller = SimController(self)
        self.nodes = {NodeId(number): SimNode(self, NodeId(number)) for number in range(1, plan.nodes + 1)}
        self.controller.found(list(self.nodes.values()))
        for node in self.nodes.values():
            node.start()

    # Time

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now + seconds, self._count, what))

    def run_until(self, end: float, is_over: Callable[[], bool] | None = None) -> bool:
        """Whether it was over before the end came."""
        while self._heap and self._heap[0][0] <= end:
            moment, number, what = heapq.heappop(self._heap)
            self.now = Instant(moment)
            what()
            self.steps += 1
            self.trace = crc32(_TRACED.pack(self.now, number, self._count, self.controller.image.version), self.trace)
            if is_over is not None and is_over():
                return True
        self.now = Instant(max(self.now, end))
        return False

    # Links

    def is_cut(self, source: NodeId, target: NodeId) -> bool:
        return (source, target) in self.cuts

    def send(self, source: NodeId, target: NodeId, deliver: Callable[[], None]) -> None:
        """Perhaps not at all, perhaps twice."""
        rng = self.rng
        if self.is_cut(source, target) or rng.random() < self.loss:
            return
        self.after(self._delay(), lambda: self._deliver(target, deliver))
        if self.plan.doubling and rng.random() < self.plan.doubling:
            self.after(self._delay() * rng.choice((1, 3, 30)), lambda: self._deliver(target, deliver))

    def _deliver(self, target: NodeId, deliver: Callable[[], None]) -> None:
        if target == CONTROLLER:
            deliver()
            return
        node = self.nodes[target]
        if node.paused_until > self.now:
            self.after(node.paused_until - self.now, lambda: self._deliver(target, deliver))
        elif node.is_up:
            deliver()

    def _delay(self) -> float:
        return self.plan.delay_seconds * (0.2 + self.rng.expovariate(1.0))
