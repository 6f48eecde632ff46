"""A few cores on a table: the test says who hears what, when a disk has written, and when time passes. All is judged as in the worlds."""

from collections.abc import Callable
from random import Random

from penstock.consensus.core import Core
from penstock.consensus.effects import Answer, Apply, Effect, InstallSnapshot, KeepChunk, Lead, Outcome, PersistEntries, PersistVote, Send
from penstock.consensus.events import (
    AddVoter,
    AskBarrier,
    Event,
    Order,
    Persisted,
    Propose,
    Received,
    RemoveVoter,
    SnapshotTaken,
    TimePassed,
    TransferLeadership,
)
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.messages import Message
from penstock.consensus.nouns import ANY_DIRECTORY, DirectoryId, Replica
from penstock.consensus.options import Options
from penstock.consensus.roles import RoleName
from penstock.consensus.voters import Voters
from penstock.simulator.cores.judging import Judge
from penstock.simulator.cores.store import Store
from penstock.vocabulary import Instant, NodeId, Offset

OPTIONS = Options()
Filter = Callable[[int, int, Message], bool]  # Sender, receiver, what.


class Actor:
    def __init__(self, node: int, store: Store) -> None:
        self.node = NodeId(node)
        self.store = store
        self.core: Core | None = None
        self.applied: list[bytes] = []
        self.leads_in = 0
        self.effects: list[Effect] = []  # Of the last step.
        self.arriving = bytearray()

    @property
    def me(self) -> Replica:
        return Replica(self.node, self.store.directory)

    @property
    def role(self) -> RoleName:
        return self.living.role.name

    @property
    def living(self) -> Core:
        assert self.core is not None
        return self.core


class Scene:
    def __init__(self, voters: int = 3, *, spares: int = 0, options: Options = OPTIONS, directories_are_known: bool = True) -> None:
        self.now = 100.0
        self.options = options
        self.slow: list[int] = []  # Nodes whose disks write only when told to.
        self.answers: dict[object, Outcome] = {}
        self.links: list[tuple[int, int, Message]] = []  # What is on its way.
        self.cuts: list[tuple[int, int]] = []
        self.lost: list[tuple[Replica, Store]] = []
        self._disks = 0
        self.actors = {node: Actor(node, self.new_store()) for node in range(1, voters + spares + 1)}
        known = {node: self[node].store.directory if directories_are_known else ANY_DIRECTORY for node in range(1, voters + 1)}
        self.first_voters = Voters(tuple(Replica(NodeId(node), directory) for node, directory in known.items()))
        self.judge = Judge(self.first_voters)
        for node in self.actors:
            self.start(node)

    def __getitem__(self, node: int) -> Actor:
        return self.actors[node]

    def new_store(self) -> Store:
        self._disks += 1
        return Store(DirectoryId(b"disk" + self._disks.to_bytes(12)))

    # Life.

    def start(self, node: int, *, first_voters: Voters | None = None) -> None:
        actor = self[node]
        is_first = actor.me in self.first_voters.replicas or any(voter.directory == ANY_DIRECTORY for voter in self.first_voters.replicas)
        first = first_voters if first_voters is not None else self.first_voters if is_first else Voters()
        actor.applied = actor.store.image.split(b",") if actor.store.snapshot is not None else []
        actor.leads_in = 0
        actor.core = Core(
            actor.me, actor.store, actor.store.vote, Instant(self.now), draw=lambda: 0.5, first_voters=first,
            contacts=tuple(NodeId(other) for other in self.actors), options=self.options,
        )  # fmt: skip

    def crash(self, node: int) -> None:
        """What was not flushed is gone."""
        self[node].core = None
        self[node].store.crash(_Nothing())
        self.links = [link for link in self.links if link[1] != node]

    def restart(self, node: int) -> None:
        self.crash(node)
        self.start(node)

    def wipe(self, node: int) -> None:
        self.lost.append((self[node].me, self[node].store))
        self.crash(node)
        self[node].store = self.new_store()
        self.start(node)

    # Links.

    def cut(self, *nodes: int) -> None:
        """These hear each other and nobody else."""
        self.cuts += [pair for a in nodes for b in self.actors if b not in nodes for pair in ((a, b), (b, a))]
        self.links = [link for link in self.links if link[:2] not in self.cuts]

    def heal(self) -> None:
        self.cuts = []

    def deliver(self, wanted: Filter = lambda sender, to, message: True, *, steps_max: int = 2_000) -> None:
        """Lets messages through until nothing is on its way. What is not wanted is lost."""
        for _ in range(steps_max):
            if not self.links:
                return
            sender, to, message = self.links.pop(0)
            if wanted(sender, to, message) and (sender, to) not in self.cuts:
                self.step(to, Received(message))
        raise AssertionError("they never stop talking")

    # Steps.

    def step(self, node: int, event: Event) -> list[Effect]:
        actor = self[node]
        core = actor.core
        if core is None:
            return []
        committed_end, was = core.committed_end, (core.role.name, core.term)
        effects = core.step(event, Instant(self.now))
        if core.role.name is RoleName.LEADER and was != (RoleName.LEADER, core.term):
            self.judge.elected(core, actor.me)
        if core.committed_end != committed_end:
            disks = [(one.me, one.store) for one in self.actors.values()] + self.lost
            self.judge.committed(core, committed_end, core.committed_end, disks)
        for effect in effects:
            self._carry_out(actor, effect)
        actor.effects = effects
        if node not in self.slow:
            self.flush(node)
        return effects

    def flush(self, node: int) -> None:
        sequence = self[node].store.waiting_sequence
        if sequence:
            self[node].store.flush(sequence)
            self.step(node, Persisted(sequence))

    def _carry_out(self, actor: Actor, effect: Effect) -> None:
        match effect:
            case PersistVote() | PersistEntries():
                actor.store.write(effect)
            case KeepChunk():
                if effect.position == 0:
                    actor.arriving.clear()
                assert effect.position == len(actor.arriving)
                actor.arriving += effect.content
            case InstallSnapshot():
                actor.store.write(effect, bytes(actor.arriving))
                actor.applied = bytes(actor.arriving).split(b",")
            case Apply():
                actor.applied += [entry.payload for entry in actor.store.entries(effect.first, effect.end, 1 << 30)]
            case Lead():
                actor.leads_in = effect.term
            case Answer():
                assert effect.token not in self.answers, f"{effect.token} is answered twice"
                self.answers[effect.token] = effect.outcome
            case Send():
                self.judge.sent(effect.to, effect.message, actor.store)
                if (actor.node, effect.to) not in self.cuts:
                    self.links.append((actor.node, effect.to, effect.message))

    # Acts.

    def pass_time(self, seconds: float, *nodes: int) -> None:
        """Time goes on for everybody; only these notice."""
        self.now += seconds
        for node in nodes:
            self.step(node, TimePassed())

    def stand(self, node: int) -> None:
        """This node's patience ends, and so has everybody's memory of the leader."""
        self.pass_time(self.options.election_seconds_max + 0.001, node)

    def elect(self, node: int, wanted: Filter = lambda sender, to, message: True) -> None:
        self.stand(node)
        self.deliver(wanted)
        assert self[node].role is RoleName.LEADER, f"{node} is {self[node].role}"

    def insist(self, node: int, *, tries: int = 6) -> None:
        """Stands until it leads: a term may be old, a leader of old must first step down."""
        for _ in range(tries):
            if self[node].role is RoleName.LEADER and self[node].leads_in == self[node].living.term:
                return
            self.stand(node)
            self.deliver()
        raise AssertionError(f"{node} is {self[node].role} in term {self[node].living.term}")

    def beat(self, node: int) -> None:
        self.pass_time(self.options.heartbeat_seconds + 0.001, node)
        self.deliver()

    def order(self, node: int, order: Order) -> Outcome | None:
        self.step(node, order)
        return self.answers.get(order.token)

    def propose(self, node: int, payload: bytes) -> Outcome | None:
        return self.order(node, Propose(payload, payload))

    def read(self, node: int, token: str = "read") -> Outcome | None:
        return self.order(node, AskBarrier(token))

    def add(self, node: int, replica: Replica) -> Outcome | None:
        return self.order(node, AddVoter(f"add {replica.node} {self.now}", replica))

    def remove(self, node: int, replica: Replica) -> Outcome | None:
        return self.order(node, RemoveVoter(f"remove {replica.node} {self.now}", replica))

    def transfer(self, node: int, to: int | None = None) -> Outcome | None:
        return self.order(node, TransferLeadership("transfer", None if to is None else NodeId(to)))

    def take_snapshot(self, node: int) -> SnapshotHead:
        actor = self[node]
        end = Offset(actor.living.state.applied_end)
        image = b",".join(actor.applied)
        head = SnapshotHead(end, actor.store.term_before(end), actor.living.voters_at(end), len(image))
        actor.store.take_snapshot(head, image, entries_kept=0)
        self.step(node, SnapshotTaken(end))
        return head

    def values(self, node: int) -> list[bytes]:
        """The payloads that it applied, without what cores write for themselves."""
        return [payload for payload in self[node].applied if payload.startswith(b"v")]


class _Nothing(Random):
    """Chance that keeps nothing."""

    def randint(self, a: int, b: int) -> int:
        return a

    def random(self) -> float:
        return 0.99
