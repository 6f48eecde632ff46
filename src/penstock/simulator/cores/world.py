"""A world of cores: a heap of what happens next, links that lose, double, delay and reorder, and an eye on everything.

One seed is one story. Nothing here waits, nothing is awaited; time jumps from one event to the next.
"""

import heapq
import struct
from collections.abc import Callable, Iterator
from random import Random
from zlib import crc32

from penstock.consensus.effects import Answer, Effect, Send
from penstock.consensus.events import Event, Order, Persisted, Received, TimePassed
from penstock.consensus.messages import Message
from penstock.consensus.nouns import ANY_DIRECTORY, DirectoryId, Replica
from penstock.consensus.roles import RoleName
from penstock.consensus.voters import Voters
from penstock.simulator.cores.judging import Judge
from penstock.simulator.cores.plan import Plan
from penstock.simulator.cores.replica import SimReplica
from penstock.simulator.cores.store import Store
from penstock.vocabulary import NodeId, Offset

_TRACED = struct.Struct(">dqqqq")
Answering = Callable[[SimReplica, Answer], None]
# Looks at a step before its effects are carried out, and may strike: True if the replica is to die before it sends anything.
Watching = Callable[[SimReplica, Event, list[Effect]], bool]


class World:
    def __init__(self, plan: Plan) -> None:
        self.now = 0.0
        self.plan = plan
        self.steps = 0
        self.trace = 0
        self.loss = plan.loss
        self.cuts: dict[tuple[NodeId, NodeId], None] = {}
        self.lost: dict[Replica, Store] = {}  # Voters whose disks are gone, and what was on them.
        self.answer: Answering = lambda replica, answer: None
        self.watch: Watching = lambda replica, event, effects: False
        self._rng = Random(f"{plan.seed}/world")
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._disks = 0
        stores = [self.new_store() for _ in range(plan.voters + plan.spares)]
        named = [
            Replica(NodeId(node), store.directory if plan.directories_are_known else ANY_DIRECTORY)
            for node, store in enumerate(stores[: plan.voters], 1)
        ]
        self._first_voters = Voters(tuple(named))
        self.judge = Judge(self._first_voters)
        self.replicas = [SimReplica(NodeId(node), store, plan, self.judge, self._rng) for node, store in enumerate(stores, 1)]
        self._contacts = tuple(one.node for one in self.replicas)
        for replica in self.replicas:
            self.start(replica)

    def new_store(self) -> Store:
        self._disks += 1
        return Store(DirectoryId(b"disk" + self._disks.to_bytes(12)))

    # Time.

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._heap, (self.now + seconds, self._count, what))

    def run_until(self, end: float, is_over: Callable[[], bool] | None = None) -> bool:
        """Whether it was over before the end came."""
        while self._heap and self._heap[0][0] <= end:
            self.now, _, what = heapq.heappop(self._heap)
            what()
            if is_over is not None and is_over():
                return True
        self.now = max(self.now, end)
        return False

    # Replicas.

    def alive(self) -> list[SimReplica]:
        return [one for one in self.replicas if one.core is not None]

    def leader(self) -> SimReplica | None:
        """Of those that say they lead, the one of the highest term."""
        leading = [one for one in self.replicas if one.core is not None and one.leads]
        return max(leading, key=lambda one: one.core.term if one.core is not None else 0, default=None)

    def start(self, replica: SimReplica) -> None:
        if replica.core is not None:
            return
        replica.start(self.now, self._first_voters if self._is_told_who_votes(replica) else Voters(), self._contacts)
        self._set_timer(replica)

    def _is_told_who_votes(self, replica: SimReplica) -> bool:
        """Observers know nobody. A lost disk is told again only if it takes others to elect anybody: alone it would found a cluster."""
        if self.plan.directories_are_known:
            return replica.me in self._first_voters.replicas
        return self._first_voters.directory_of(replica.node) is not None and (not replica.lives_again or self.plan.voters >= 3)

    def crash(self, replica: SimReplica) -> None:
        if replica.core is not None:
            replica.crash()

    def order(self, replica: SimReplica, order: Order) -> None:
        life = replica.life
        if replica.paused_until > self.now:
            self.after(replica.paused_until - self.now, lambda: self.step(replica, order) if replica.life == life else None)
        else:
            self.step(replica, order)

    def step(self, replica: SimReplica, event: Event) -> None:
        core = replica.core
        if core is None:
            return
        committed_end, role, term = core.committed_end, core.role.name, core.term
        effects = replica.step(event, self.now)
        self.steps += 1
        log = core.state.log
        self.trace = crc32(_TRACED.pack(self.now, replica.node, core.term, log.end, core.committed_end), self.trace)
        if core.role.name is RoleName.LEADER and (role is not RoleName.LEADER or core.term != term):
            self.judge.elected(core, replica.me)
        if core.committed_end != committed_end:
            self.judge.committed(core, committed_end, core.committed_end, self.disks())
        self._carry_out(replica, event, effects)

    def _carry_out(self, replica: SimReplica, event: Event, effects: list[Effect]) -> None:
        dies = self.watch(replica, event, effects)
        for effect in effects:
            if not isinstance(effect, Send):
                replica.carry_out(effect, lambda token, answer: self.answer(replica, answer))
            elif not dies:
                self.judge.sent(effect.to, effect.message, replica.store)
                self._send(replica.node, effect)
        if dies:
            self.crash(replica)
        if replica.core is None:
            return
        self._flush(replica)
        more = replica.take_snapshot(self.now)
        if more:
            self._carry_out(replica, event, more)
        self._set_timer(replica)

    def _set_timer(self, replica: SimReplica) -> None:
        at = max(replica.due_at(), self.now)
        if at < replica.timer_at:
            replica.timer_at = at
            life = replica.life
            self.after(at - self.now, lambda: self._ring(replica, life, at))

    def _ring(self, replica: SimReplica, life: int, at: float) -> None:
        if replica.life != life or replica.timer_at != at or replica.core is None:
            return
        if replica.paused_until > self.now:
            self.after(replica.paused_until - self.now, lambda: self._ring(replica, life, at))
            return
        replica.timer_at = float("inf")
        if replica.core.due <= replica.local(self.now):
            self.step(replica, TimePassed())
        if replica.core is not None:
            self._set_timer(replica)

    # Disks.

    def _flush(self, replica: SimReplica) -> None:
        """One flush at a time; what is written meanwhile waits for the next."""
        sequence = replica.store.waiting_sequence
        if sequence and not replica.flushing_sequence:
            replica.flushing_sequence = sequence
            life = replica.life
            self.after(self.plan.flush_seconds * (0.5 + self._rng.random()), lambda: self._flushed(replica, life, sequence))

    def _flushed(self, replica: SimReplica, life: int, sequence: int) -> None:
        if replica.life != life:
            return
        if replica.paused_until > self.now:
            self.after(replica.paused_until - self.now, lambda: self._flushed(replica, life, sequence))
            return
        replica.store.flush(sequence)
        replica.flushing_sequence = 0
        self.step(replica, Persisted(sequence))

    # Links.

    def _send(self, sender: NodeId, send: Send) -> None:
        rng = self._rng
        if send.to == sender or (sender, send.to) in self.cuts or rng.random() < self.loss:
            return
        copies = 2 if rng.random() < self.plan.doubling else 1
        for _ in range(copies):
            delay = self.plan.delay_seconds * (0.5 + rng.random()) if rng.random() < 0.9 else rng.random() * 20 * self.plan.delay_seconds
            self.after(delay, lambda: self._deliver(sender, send.to, send.message))

    def _deliver(self, sender: NodeId, to: NodeId, message: Message) -> None:
        replica = self.replicas[to - 1]
        if (sender, to) in self.cuts:
            return
        if replica.paused_until > self.now:
            self.after(replica.paused_until - self.now, lambda: self._deliver(sender, to, message))
        else:
            self.step(replica, Received(message))

    def disks(self) -> Iterator[tuple[Replica, Store]]:
        """Those that are gone count as well: what they acknowledged may be heard later."""
        yield from ((one.me, one.store) for one in self.replicas)
        yield from self.lost.items()

    # Whether it is fair to take a disk away.

    def can_lose_a_disk(self) -> bool:
        """All replicas live and know the committed voters durably, and no voter's disk is gone: a majority survives the loss of one."""
        voters = self.judge.voters.latest.replicas
        if len(voters) < 3 or any(voter in self.lost or voter.directory == ANY_DIRECTORY for voter in voters):
            return False
        return all(one.core is not None and self._knows_voters(one, self.judge.voters.latest_end) for one in self.replicas)

    def _knows_voters(self, replica: SimReplica, end: Offset) -> bool:
        assert replica.core is not None
        state = replica.core.state
        return state.voters == self.judge.voters.latest and state.log.durable_end >= end
