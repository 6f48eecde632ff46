"""Trouble, at any time and at the worst one.

It breaks only what the partition promises to survive. With a flush before each acknowledgement every node may lose its power at any time.
Without one, and for disks that are lost for good, less than `min.insync.replicas` copies may be lost until they are in sync again. There a
process that was killed counts as much as one that lost its power: nobody can tell the two apart (KIP-966).
"""

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from penstock.cluster.commands import ElectionKind, ElectLeaders, Reassignment, ReassignPartitions
from penstock.cluster.configuring import Change, ConfigureTopic
from penstock.simulator.replicas.controller import CONTROLLER, TOPIC, TOPIC_ID
from penstock.vocabulary import Instant, NodeId
from penstock.wire.configs import Operation

if TYPE_CHECKING:
    from penstock.simulator.replicas.node import SimNode
    from penstock.simulator.replicas.world import World

STOPPED_SECONDS = 0.1
STOP_SECONDS = 1.0  # More than it takes to stop in order, or to be paused.


class Nemesis:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._plan = world.plan
        self._rng = Random(f"{world.plan.seed}/nemesis")
        self._is_over = False
        self._lost: dict[NodeId, int] = {}  # Nodes that lost acknowledged records, or may have, and in which life.
        self._is_one_lost = False  # For certain.
        self.struck: dict[str, int] = {}
        world.moment = self._moment

    def begin(self) -> None:
        for kind in self._plan.faults:
            self._schedule(kind)
        if self._plan.reassign_seconds:
            self._world.after(self._plan.reassign_seconds, self._reassign)

    def calm(self) -> None:
        """From here on everything works."""
        self._is_over = True
        world = self._world
        world.cuts.clear()
        world.loss = 0.0
        for node in world.nodes.values():
            node.paused_until = Instant(min(node.paused_until, world.now))
            node.flush_seconds = self._plan.flush_seconds
            if node.store.failure is not None:
                self._restart_failed(node)
            node.start()
            world.after(STOP_SECONDS, node.start)  # One that was about to stop.

    # At any time

    def _schedule(self, kind: str) -> None:
        self._world.after(self._rng.expovariate(self._plan.faults[kind]), lambda: self._due(kind))

    def _due(self, kind: str) -> None:
        if not self._is_over:
            self._strike(kind, self._rng.choice(list(self._world.nodes.values())))
            self._schedule(kind)

    def _strike(self, kind: str, node: "SimNode") -> None:
        self.struck[kind] = self.struck.get(kind, 0) + 1
        ways: dict[str, Callable[[], object]] = {
            "kill": lambda: self._end(node, power=False),
            "lose power": lambda: self._end(node, power=True),
            "lose all power": self._end_all,
            "wipe disk": lambda: self._wipe(node),
            "disk fails": lambda: self._fail_disk(node),
            "stop": lambda: self._stop(node),
            "pause": lambda: self._pause(node),
            "pause leader": lambda: self._pause(self._leader() or node),
            "slow disk": lambda: self._slow_down(node),
            "controller away": lambda: self._world.controller.go_away(self._rng.uniform(0.05, 0.4)),
            "change min.insync": self._change_min_insync,
            "move leader": lambda: self._world.controller.order(ElectLeaders(ElectionKind.PREFERRED, ((TOPIC, 0),))),
        }
        strike = ways.get(kind)
        if strike is not None:
            strike()
        else:
            self._cut(kind, node)

    def _cut(self, kind: str, node: "SimNode") -> None:
        cuts, others = self._world.cuts, [CONTROLLER, *self._world.nodes]
        other = self._rng.choice([each for each in others if each != node.node_id])
        match kind:
            case "cut":
                cuts.update({(node.node_id, other): None, (other, node.node_id): None})
            case "one-way cut":
                cuts[(node.node_id, other) if self._rng.random() < 0.5 else (other, node.node_id)] = None
            case "isolate leader":
                leader = (self._leader() or node).node_id
                spared = self._rng.choice((None, *self._world.nodes))
                for each in others:
                    if each not in (leader, spared):
                        cuts.update({(leader, each): None, (each, leader): None})
            case "cut from controller":
                cuts.update({(node.node_id, CONTROLLER): None, (CONTROLLER, node.node_id): None})
            case "heal":
                cuts.clear()
            case _:
                raise ValueError(kind)
        self._world.after(self._rng.uniform(0.05, 0.6), self._heal_one)

    def _heal_one(self) -> None:
        """Sooner or later, one way at a time."""
        cuts = self._world.cuts
        if cuts:
            del cuts[self._rng.choice(list(cuts))]
            self._world.after(self._rng.uniform(0.0, 0.1), self._heal_one)

    # At the worst time

    def _moment(self, kind: str, node: "SimNode") -> None:
        if self._is_over or self._rng.random() >= self._plan.ambushes.get(kind, 0.0):
            return
        self.struck[f"ambush {kind}"] = self.struck.get(f"ambush {kind}", 0) + 1
        choice = self._rng.choice(("power", "power", "kill", "pause", "isolate", "cut from controller", "others"))
        if kind in ("after proposal", "after joining") and self._rng.random() < 0.5:
            choice = self._rng.choice(("cut from controller", "restart follower"))
        if kind in ("before report", "at a cut"):
            self._end(node, power=True)  # At once: what it was about to do is not done any more.
            return
        match choice:
            case "power":
                self._world.after(0.0, lambda: self._end(node, power=True))
            case "kill":
                self._world.after(0.0, lambda: self._end(node, power=False))
            case "pause":
                self._pause(node)
            case "isolate":
                self._cut("isolate leader", node)
            case "cut from controller":
                self._cut("cut from controller", node)
            case "restart follower":
                self._world.after(0.0, lambda: self._end(self._rng.choice(list(self._world.nodes.values())), power=True, away=0.002))
            case _:
                for each in self._world.nodes.values():
                    if each is not node:
                        self._end(each, power=self._rng.random() < 0.5)

    # What is done

    def _end(self, node: "SimNode", *, power: bool, away: float | None = None) -> None:
        if not node.is_up or self._is_over:
            return
        if self._plan.flushes_before_ack:
            node.lose_power() if power else node.kill()
        else:
            may_lose = self._may_lose(node)
            if self._is_one_lost and not may_lose:
                return
            self._lost[node.node_id] = node.life
            if power and may_lose:
                self._is_one_lost = True
                node.lose_power()
            else:
                node.kill()
        self._start_later(node, away)

    def _end_all(self) -> None:
        for node in self._world.nodes.values():
            self._end(node, power=True)

    def _wipe(self, node: "SimNode") -> None:
        if node.is_up and self._may_lose(node):
            self._lost[node.node_id], self._is_one_lost = node.life, True
            node.wipe()
            self._start_later(node)

    def _fail_disk(self, node: "SimNode") -> None:
        """Until somebody starts it again. Meanwhile its copy counts for nothing."""
        if not node.is_up or node.store.failure is not None or not self._may_lose(node):
            return
        self._lost[node.node_id], self._is_one_lost = node.life, True
        node.fail_disk()
        self._world.after(self._rng.uniform(0.05, 0.5), lambda: self._restart_failed(node))

    def _restart_failed(self, node: "SimNode") -> None:
        if node.store.failure is not None:
            node.lose_power()
            node.start()

    def _start_later(self, node: "SimNode", away: float | None = None) -> None:
        seconds = away if away is not None else self._rng.choice((0.001, 0.01, 0.05, 0.3))
        self._world.after(seconds, node.start)

    def _stop(self, node: "SimNode") -> None:
        node.stop()
        self._start_later(node, STOPPED_SECONDS)

    def _slow_down(self, node: "SimNode") -> None:
        node.flush_seconds = self._plan.flush_seconds * self._rng.choice((1, 10, 50))

    def _pause(self, node: "SimNode") -> None:
        node.paused_until = Instant(self._world.now + self._rng.choice((0.02, 0.1, 0.5)))

    def _may_lose(self, node: "SimNode") -> bool:
        """Whether another copy may go now. One that is in sync again in a later life is a copy again."""
        self._see_who_is_back()
        state = self._world.controller.partition
        if not any(each not in self._lost and each != node.node_id for each in state.in_sync):
            return False
        return len({**self._lost, node.node_id: 0}) < min(self._min_insync(), len(state.target))

    def _see_who_is_back(self) -> None:
        world = self._world
        state = world.controller.partition
        for lost, life in list(self._lost.items()):
            known, holder = world.controller.image.nodes[lost], world.nodes[lost]
            is_back = lost in state.in_sync and holder.life > life and known.node_epoch == holder.node_epoch
            if is_back or lost not in state.replicas:
                del self._lost[lost]
        self._is_one_lost = self._is_one_lost and bool(self._lost)

    def _min_insync(self) -> int:
        return int(self._world.controller.image.topics_by_id[TOPIC_ID].overrides["min.insync.replicas"])

    def _leader(self) -> "SimNode | None":
        return self._world.nodes.get(self._world.controller.partition.leader)

    def _change_min_insync(self) -> None:
        """Not while copies are missing: what they are worth depends on it."""
        value = self._rng.randint(1, self._plan.replicas)
        self._see_who_is_back()
        if self._lost:
            return
        change = Change("min.insync.replicas", Operation.SET, str(value))
        self._world.controller.order(ConfigureTopic(TOPIC, (change,)))

    def _reassign(self) -> None:
        if self._is_over:
            return
        self._world.after(self._plan.reassign_seconds * (0.5 + self._rng.random()), self._reassign)
        wanted = None if self._rng.random() < 0.2 else tuple(self._rng.sample(list(self._world.nodes), self._plan.replicas))
        self._world.controller.order(ReassignPartitions((Reassignment(TOPIC, 0, wanted),)))
