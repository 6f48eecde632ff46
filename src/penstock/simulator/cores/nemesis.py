"""Trouble in a world of cores: some of it blind, some of it laid in ambush where it hurts."""

from collections import Counter
from collections.abc import Callable
from random import Random

from penstock.consensus.effects import Answer, Apply, Done, Effect, PersistEntries, Send
from penstock.consensus.events import Event, Persisted
from penstock.consensus.messages import AppendReply, VoteReply
from penstock.consensus.nouns import Kind
from penstock.consensus.roles import RoleName
from penstock.simulator.cores.plan import Plan
from penstock.simulator.cores.replica import SimReplica
from penstock.simulator.cores.world import World
from penstock.vocabulary import NodeId


class Nemesis:
    def __init__(self, world: World, plan: Plan) -> None:
        self.struck: Counter[str] = Counter()
        self._world, self._plan = world, plan
        self._rng = Random(f"{plan.seed}/nemesis")
        self._is_over = False
        self._strikes: dict[str, Callable[[], None]] = {
            "crash": lambda: self._crash(self._anybody()),
            "crash leader": lambda: self._crash(self._leader()),
            "crash all": self._crash_all,
            "pause": self._pause,
            "cut": lambda: self._cut(both_ways=True),
            "one-way cut": lambda: self._cut(both_ways=False),
            "isolate leader": lambda: self._isolate(self._leader()),
            "split": self._split,
            "heal": self._world.cuts.clear,
            "wipe": self._wipe,
        }

    def begin(self) -> None:
        self._world.watch = self._watch
        for kind in self._plan.faults:
            self._strike_later(kind)

    def calm(self) -> None:
        """The trouble is over: everybody lives, hears and is heard."""
        self._is_over = True
        world = self._world
        world.watch = lambda replica, event, effects: False
        world.loss = 0.0
        world.cuts.clear()
        for replica in world.replicas:
            replica.paused_until = min(replica.paused_until, world.now)
            world.start(replica)

    # Blind.

    def _strike_later(self, kind: str) -> None:
        self._world.after(self._rng.expovariate(self._plan.faults[kind]), lambda: self._strike(kind))

    def _strike(self, kind: str) -> None:
        if not self._is_over:
            self.struck[kind] += 1
            self._strikes[kind]()
            self._strike_later(kind)

    def _anybody(self) -> SimReplica:
        return self._rng.choice(self._world.replicas)

    def _leader(self) -> SimReplica:
        return self._world.leader() or self._anybody()

    def _crash(self, replica: SimReplica) -> None:
        self._world.crash(replica)
        self._restart_later(replica)

    def _restart_later(self, replica: SimReplica) -> None:
        self._world.after(self._rng.choice((0.001, 0.05, 0.5)), lambda: self._world.start(replica))

    def _crash_all(self) -> None:
        for replica in self._world.replicas:
            self._crash(replica)

    def _pause(self) -> None:
        replica = self._rng.choice((self._anybody(), self._leader()))
        replica.paused_until = max(replica.paused_until, self._world.now + self._rng.choice((0.05, 0.2, 0.6)))

    def _cut(self, *, both_ways: bool) -> None:
        one, other = self._anybody().node, self._anybody().node
        self._cut_for_a_while([(one, other), (other, one)] if both_ways else [(one, other)])

    def _isolate(self, replica: SimReplica, *, friends: tuple[NodeId, ...] = (), ways: str = "") -> None:
        others = [one.node for one in self._world.replicas if one is not replica and one.node not in friends]
        ways = ways or self._rng.choice(("both", "both", "in", "out"))
        out = [(replica.node, other) for other in others] if ways != "in" else []
        into = [(other, replica.node) for other in others] if ways != "out" else []
        self._cut_for_a_while(out + into)

    def _split(self) -> None:
        nodes = [one.node for one in self._world.replicas]
        self._rng.shuffle(nodes)
        middle = self._rng.randint(0, len(nodes))
        left, right = nodes[:middle], nodes[middle:]
        self._cut_for_a_while([pair for a in left for b in right for pair in ((a, b), (b, a))])

    def _cut_for_a_while(self, links: list[tuple[NodeId, NodeId]]) -> None:
        for link in links:
            self._world.cuts[link] = None
        self._world.after(self._rng.choice((0.1, 0.4, 1.0)), lambda: self._mend(links))

    def _mend(self, links: list[tuple[NodeId, NodeId]]) -> None:
        for link in links:
            self._world.cuts.pop(link, None)

    def _wipe(self) -> None:
        world, replica = self._world, self._anybody()
        if not world.can_lose_a_disk():
            return
        self.struck["disk lost"] += 1
        if world.judge.voters.latest.has(replica.me):
            world.lost[replica.me] = replica.store
        replica.wipe(world.new_store())
        self._restart_later(replica)
        if self._rng.random() < 0.5:
            # The disk that is left with everything is not heard: now an empty one must not help to elect somebody with less.
            self._isolate(self._leader())

    # In ambush.

    def _watch(self, replica: SimReplica, event: Event, effects: list[Effect]) -> bool:
        """Whether the replica dies now, before it has told anybody. What it answered to clients has been heard."""
        ambushes = self._plan.ambushes
        if not ambushes or not effects:
            return False
        if "after change" in ambushes and _writes(Kind.VOTERS, effects) and self._springs("after change"):
            self._isolate(replica, friends=(self._anybody().node,))
        if "after election" in ambushes and _has_just_begun_to_lead(replica, effects) and self._springs("after election"):
            self._strike_new_leader(replica)
        if "after answer" in ambushes and _has_answered(effects) and self._springs("after answer"):
            self._isolate(replica, ways="both")
        if "after vote" in ambushes and _has_voted(effects) and self._springs("after vote"):
            self._world.after(0.0, lambda: self._crash(replica))
        if "after acknowledgement" in ambushes and _has_acknowledged(effects) and self._springs("after acknowledgement"):
            self._world.after(0.0, lambda: self._crash(replica))
        if "before send" in ambushes and isinstance(event, Persisted) and self._springs("before send"):
            self._restart_later(replica)
            return True
        if "after commit" in ambushes and _has_committed(replica, effects) and self._springs("after commit"):
            self._restart_later(replica)
            return True
        return False

    def _springs(self, ambush: str) -> bool:
        if self._rng.random() >= self._plan.ambushes[ambush]:
            return False
        self.struck[ambush] += 1
        return True

    def _strike_new_leader(self, replica: SimReplica) -> None:
        if self._rng.random() < 0.5:
            self._isolate(replica, friends=(self._anybody().node,))
        else:
            self._world.after(self._rng.random() * 5 * self._plan.delay_seconds, lambda: self._crash(replica))


def _has_committed(replica: SimReplica, effects: list[Effect]) -> bool:
    return replica.leads and any(isinstance(effect, Apply) for effect in effects)


def _has_just_begun_to_lead(replica: SimReplica, effects: list[Effect]) -> bool:
    is_leader = replica.core is not None and replica.core.role.name is RoleName.LEADER
    return is_leader and _writes(Kind.OFFICE, effects)


def _writes(kind: Kind, effects: list[Effect]) -> bool:
    return any(entry.kind is kind for effect in effects if isinstance(effect, PersistEntries) for entry in effect.entries)


def _has_voted(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Send) and isinstance(effect.message, VoteReply) and effect.message.is_granted for effect in effects)


def _has_acknowledged(effects: list[Effect]) -> bool:
    """To the leader, or to a client."""
    sends = [effect.message for effect in effects if isinstance(effect, Send)]
    return _has_answered(effects) or any(isinstance(message, AppendReply) and message.is_accepted for message in sends)


def _has_answered(effects: list[Effect]) -> bool:
    return any(isinstance(effect, Answer) and isinstance(effect.outcome, Done) for effect in effects)
