"""Transactional producers and one coordinator of groups, driven by a seed: requests and ends overtake each other, come twice and late,
disks fill, nodes restart.

The coordinator of transactions is a few lines here: a producer's transaction is idle, open or ending, and the next one begins when its end
was heard to be over. Requests take the way they take in a node: they arrive, perhaps somebody is asked, and then they are decided.
"""

from dataclasses import dataclass, field
from random import Random

from groups.checkers import must
from groups.pending_model import Model, Place
from groups.scene import WALL_MS

from penstock.errors import ErrorCode
from penstock.groups import records
from penstock.groups.bounds import GroupSettings
from penstock.groups.commands import Command, CommitOffsets, CommitPending, DeleteGroup, DeleteOffsets, EndPending, ForgetTopic, NewOffset
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.guards import Guard
from penstock.groups.replies import CommitReply, DeleteGroupReply, PendingEnded, Reply
from penstock.settings import NodeSettings
from penstock.vocabulary import Instant, ProducerId

GROUPS, TOPICS, PARTITIONS = ("a", "b"), ("t", "u"), 3
PLACES: list[Place] = [(group, topic, number) for group in GROUPS for topic in TOPICS for number in range(PARTITIONS)]
NOW = Instant(1_000.0)

View = list[tuple[object, ...]]


@dataclass(slots=True)
class Producer:
    producer_id: ProducerId
    bumps: bool  # Whether each end bumps its epoch (KIP-890), or only a time-out.
    epoch: int = 0
    number: int = 0
    mood: str = "idle"  # idle, open, ending
    marker: EndPending | None = None  # The end of its last transaction.


@dataclass(slots=True)
class Request:
    producer: Producer
    epoch: int
    group: str
    offsets: tuple[NewOffset, ...]
    guard: Guard | None = None
    number: int | None = None  # Once the transaction was found open.
    life: int = -1  # In which of the coordinator's lives the guard was taken.


@dataclass(slots=True)
class Copy:
    """A snapshot that is being taken in pieces, and what was stored since."""

    pieces: object
    taken: list[records.Record] = field(default_factory=list)
    since: list[records.Record] = field(default_factory=list)


class Walk:
    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.settings = GroupSettings.of(NodeSettings())
        self.model = Model()
        self.coordinator = GroupCoordinator(self.settings)
        self.coordinator.begin(NOW)
        self.life = 0
        self.producers = [Producer(ProducerId(n), bumps=self.dice.random() < 0.5) for n in range(3)]
        self.requests: list[Request] = []
        self.markers: list[EndPending] = []  # All ends that were ever sent.
        self.ended: dict[tuple[ProducerId, int], None] = {}  # Transactions whose end has arrived.
        self.batches: list[list[tuple[bytes, bytes | None]]] = []
        self.views: list[View] = []  # What was seen after each of them.
        self.copy: Copy | None = None
        self.tokens = 0
        self.seen: dict[str, int] = {}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self._step()
            self.model.check(self.coordinator, PLACES)
        self._settle()
        self._check_cuts()

    # The world's moves

    def _step(self) -> None:
        roll = self.dice.random()
        producer = self.dice.choice(self.producers)
        if roll < 0.25:
            self._send(producer)
        elif roll < 0.60 and self.requests:
            self._go_on(self.dice.choice(self.requests))
        elif roll < 0.68:
            self._begin_end(producer)
        elif roll < 0.82:
            self._deliver_end(producer)
        elif roll < 0.88 and self.markers:
            self._deliver_late(self.dice.choice(self.markers))
        elif roll < 0.94:
            self._admin()
        elif roll < 0.96:
            self._restart()
        else:
            self._copy_on()

    def _send(self, producer: Producer) -> None:
        if producer.mood == "idle":
            producer.mood, producer.number = "open", producer.number + 1
        if producer.mood == "open":
            self.requests.append(Request(producer, producer.epoch, self.dice.choice(GROUPS), self._offsets()))

    def _go_on(self, request: Request) -> None:
        producer = request.producer
        if request.number is not None:
            self.requests.remove(request)
            self._pend(request)
        elif request.guard is not None:
            if producer.mood == "open" and producer.epoch == request.epoch:
                request.number = producer.number
            else:
                self._count("not open any more")
                self.requests.remove(request)
        elif self.coordinator.needs_verification(producer.producer_id, request.epoch):
            request.guard, request.life = self.coordinator.guard(producer.producer_id), self.life
        else:
            self.requests.remove(request)
            self._pend(request)

    def _pend(self, request: Request) -> None:
        producer_id = request.producer.producer_id
        told = {} if request.number is None else {"number": request.number}
        command = CommitPending(
            token=self._token(), group=request.group, producer_id=producer_id, producer_epoch=request.epoch, offsets=request.offsets,
            guard=request.guard, **told,
        )  # fmt: skip
        reply = self._ask(command)
        if reply is None:
            return
        assert isinstance(reply, CommitReply)
        error = reply.offsets[0][2]
        self._count(f"offsets in transactions: {error.name}")
        if error is not ErrorCode.NONE:
            is_open = request.producer.mood == "open" and request.number == request.producer.number and request.life == self.life
            must(not is_open or error is ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{command} of an open transaction: {error.name}")
            return
        number = self.model.open[producer_id].number if request.number is None else request.number
        must((producer_id, number) not in self.ended, f"{command} is taken after the end of {number}")
        for new in request.offsets:
            self.model.pend(producer_id, number, (request.group, new.topic, new.partition), new.offset)

    def _begin_end(self, producer: Producer) -> None:
        if producer.mood != "open":
            return
        commits, is_late = self.dice.random() < 0.6, self.dice.random() < 0.2
        producer.mood = "ending"
        producer.epoch += producer.bumps or is_late
        producer.marker = EndPending(
            token=0, producer_id=producer.producer_id, producer_epoch=producer.epoch, number=producer.number,
            is_commit=commits and not is_late,
        )  # fmt: skip
        self.markers.append(producer.marker)

    def _deliver_end(self, producer: Producer) -> None:
        if producer.mood != "ending" or producer.marker is None:
            return
        marker = producer.marker
        self.model.end_begins(marker.producer_id, marker.number, marker.is_commit)
        self.ended[marker.producer_id, marker.number] = None
        reply = self._ask(self._again(marker))
        if reply is None:
            return
        assert isinstance(reply, PendingEnded)
        must(reply.error is ErrorCode.NONE, f"{marker} is refused: {reply.error.name}")
        self._count("ends" if reply.is_over else "pieces of ends")
        if reply.is_over:
            self.model.end_is_over(marker.producer_id, marker.number)
            producer.mood = "idle"

    def _deliver_late(self, marker: EndPending) -> None:
        producer = self.producers[marker.producer_id]
        if producer.marker is marker and producer.mood == "ending":
            return
        before = self.view()
        reply = self._ask(self._again(marker))
        if isinstance(reply, PendingEnded):
            must((reply.offsets, reply.is_over) == (0, True), f"{marker} has come before, and now {reply}")
        must(self.view() == before, f"{marker} has come before, and changes something")
        self._count("late ends")

    def _admin(self) -> None:
        group, topic, number = self.dice.choice(PLACES)
        match self.dice.randrange(5):
            case 0 | 1:
                offsets = self._offsets()
                if self._ask(CommitOffsets(token=self._token(), group=group, offsets=offsets)) is not None:
                    for new in offsets:
                        self.model.commit((group, new.topic, new.partition), new.offset)
            case 2:
                if self._ask(DeleteOffsets(token=self._token(), group=group, partitions=((topic, number),))) is not None:
                    self.model.delete(group=group, topic=topic, partition=number)
            case 3:
                reply = self._ask(DeleteGroup(token=self._token(), group=group))
                if isinstance(reply, DeleteGroupReply) and reply.error is ErrorCode.NONE:
                    self.model.delete(group=group)
            case 4:
                if self._ask(ForgetTopic(token=self._token(), topic=topic)) is not None:
                    self.model.delete(topic=topic)

    def _restart(self) -> None:
        last = {key: value for batch in self.batches for key, value in batch}
        pairs = list(last.items())
        self.dice.shuffle(pairs)
        held_bytes = self.coordinator.held_bytes
        self.coordinator = self._loaded(pairs)
        must(self.coordinator.held_bytes == held_bytes, f"{held_bytes} bytes were counted, {self.coordinator.held_bytes} after loading")
        self.life += 1
        self.copy = None
        self._count("restarts")

    def _copy_on(self) -> None:
        """Takes the next piece of a snapshot."""
        if self.copy is None:
            self.copy = Copy(self.coordinator.snapshot_pieces())
        for piece in self.copy.pieces:  # type: ignore[attr-defined]
            self.copy.taken += piece
            return
        pairs = [records.encode(record) for record in self.copy.taken + self.copy.since]
        must(self._seen_by(self._loaded(pairs)) == self.view(), "a snapshot and what was stored since give something else")
        self.copy = None
        self._count("snapshots")

    def _settle(self) -> None:
        """Everything ends and everything is deleted: nothing is left."""
        for producer in self.producers:
            self._begin_end(producer)
            while producer.mood == "ending":
                self._deliver_end(producer)
        self.model.check(self.coordinator, PLACES)
        must(not self.coordinator.open_transactions(), f"{self.coordinator.open_transactions()} have ended")
        must(not self.coordinator._sessions.open, f"{self.coordinator._sessions.open} are kept for nothing")
        for group in GROUPS:
            while self.coordinator.holds(group):
                self._ask(DeleteGroup(token=self._token(), group=group))
        must(self.coordinator.held_bytes == 0, f"{self.coordinator.held_bytes} bytes are counted for nothing")

    def _check_cuts(self) -> None:
        """Wherever the log ends, the answers are those that were given then."""
        last: dict[bytes, bytes | None] = {}
        for number, (batch, seen) in enumerate(zip(self.batches, self.views, strict=True)):
            last.update(batch)
            must(self._seen_by(self._loaded(list(last.items()))) == seen, f"after batch {number} something else was seen")

    # Looking and asking

    def view(self) -> View:
        return self._seen_by(self.coordinator)

    def _seen_by(self, coordinator: GroupCoordinator) -> View:
        stable = [tuple(coordinator.offsets(group, [(topic, number)], require_stable=True)[0]) for group, topic, number in PLACES]
        plain = [tuple(coordinator.offsets(group, [(topic, number)])[0]) for group, topic, number in PLACES]
        transactions = [(each,) for each in sorted(coordinator.open_transactions(), key=lambda each: each.producer_id)]
        groups = [(group, coordinator.holds(group), sorted(coordinator.unstable(group))) for group in GROUPS]
        return [*stable, *plain, *((each[0].producer_id, each[0].number, each[0].offsets) for each in transactions), *groups]

    def _loaded(self, pairs: list[tuple[bytes, bytes | None]]) -> GroupCoordinator:
        coordinator = GroupCoordinator(self.settings)
        for key, value in pairs:
            coordinator.replay_stored(key, value)
        coordinator.begin(NOW)
        return coordinator

    def _ask(self, command: Command) -> Reply | None:
        """None: the disk was full, and nothing has happened."""
        decision = self.coordinator.decide(command, NOW, WALL_MS)
        if decision.records and self.dice.random() < 0.04:
            self._count("dropped decisions")
            return None
        if decision.records:
            for record in decision.records:
                self.coordinator.replay(record)
            self.batches.append([records.encode(record) for record in decision.records])
            self.views.append(self.view())
            if self.copy is not None:
                self.copy.since += decision.records
        ((_, reply),) = decision.replies
        return reply

    def _again(self, marker: EndPending) -> EndPending:
        return EndPending(
            token=self._token(), producer_id=marker.producer_id, producer_epoch=marker.producer_epoch, number=marker.number,
            is_commit=marker.is_commit,
        )  # fmt: skip

    def _offsets(self) -> tuple[NewOffset, ...]:
        size = self.dice.choice((1, 2, 5))
        return tuple(NewOffset(self.dice.choice(TOPICS), self.dice.randrange(PARTITIONS), self.dice.randrange(1_000)) for _ in range(size))

    def _token(self) -> int:
        self.tokens += 1
        return self.tokens

    def _count(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
