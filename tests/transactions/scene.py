"""A coordinator with a clock of its own: commands go in, decisions are carried out as a node would, answers come back."""

from itertools import count
from typing import Any

from penstock.errors import ErrorCode
from penstock.settings import NodeSettings
from penstock.transactions import records
from penstock.transactions.bounds import TransactionSettings
from penstock.transactions.commands import AddPartitions, Command, EndTransaction, InitProducer, MarkersWritten
from penstock.transactions.coordinator import TransactionCoordinator
from penstock.transactions.draft import Decision
from penstock.transactions.names import NOBODY, Name
from penstock.transactions.records import Record, TransactionPartition, TransactionSaved
from penstock.transactions.replies import AddReply, EndReply, InitReply
from penstock.transactions.states import TransactionState
from penstock.transactions.views import MarkersOwed, Wanted
from penstock.vocabulary import Instant, ProducerId, TopicId

ID = "t"
TIMEOUT_MS = 60_000
WALL_MS = 1_700_000_000_000
FIRST_PRODUCER = 1_000
FOREIGN_PRODUCER = ProducerId(77)


def place(topic: str, partition: int = 0) -> TransactionPartition:
    """A partition of the topic; names that are alike have ids that are alike."""
    return TransactionPartition(topic, TopicId(topic.encode().ljust(16, b"\0")), partition)


A, B, C = place("a"), place("b"), place("c")


class Scene:
    def __init__(self, *, bytes_max: int = 1 << 40, **changes: Any) -> None:
        self.settings = TransactionSettings.of(NodeSettings(**changes))
        self.now = 1_000.0
        self.wall_ms = WALL_MS
        self.log: dict[bytes, bytes | None] = {}  # The last value of each key, as compaction would leave it.
        self.history: list[tuple[bytes, bytes | None]] = []  # All of them.
        self.recorded: list[Record] = []  # By the last decision.
        self.is_disk_full = False
        self.bytes_max = bytes_max  # What transactional ids may take in memory.
        self.next_fresh = FIRST_PRODUCER
        self._tokens = count(1)
        self.coordinator = self.loaded(self.log)

    # The node's part

    def ask(self, command: Command) -> Any:
        """The answer; None where there is none to be had."""
        replies = self.carry_out(self.coordinator.decide(command, Instant(self.now), self.wall_ms))
        if isinstance(command, MarkersWritten):
            assert replies is None or replies == []
            return None
        if replies is None:
            return None
        ((token, reply),) = replies
        assert token == command.token
        return reply

    def carry_out(self, decision: Decision) -> list[tuple[Any, Any]] | None:
        """None: the records could not be stored."""
        self.recorded = decision.records
        if decision.records and self.is_disk_full:
            return None
        for record in decision.records:
            self.put_stored(*records.encode(record))
        return decision.replies

    def wait(self, seconds: float) -> None:
        """Lets time pass, lapsing whatever is due on the way."""
        end = self.now + seconds
        while (due := self.coordinator.due()) is not None and due <= end:
            self._pass_to(max(due, self.now))
            self.carry_out(self.coordinator.lapse(Instant(self.now), self.wall_ms))
        self._pass_to(end)

    def restart(self) -> None:
        """The node goes down and comes back: only what is in the log is left."""
        self.coordinator = self.loaded(self.log)

    def loaded(self, log: dict[bytes, bytes | None]) -> TransactionCoordinator:
        coordinator = TransactionCoordinator(self.settings, lambda: self.bytes_max - self.coordinator.held_bytes)
        for key, value in log.items():
            coordinator.replay_stored(key, value)
        coordinator.begin(Instant(self.now))
        return coordinator

    def put(self, saved: TransactionSaved) -> None:
        """As if it had come to this."""
        self.put_stored(*records.encode(saved))

    def put_stored(self, key: bytes, value: bytes | None) -> None:
        self.log[key] = value
        self.history.append((key, value))
        self.coordinator.replay_stored(key, value)

    def fresh(self) -> ProducerId:
        self.next_fresh += 1
        return ProducerId(self.next_fresh - 1)

    def _pass_to(self, instant: float) -> None:
        self.wall_ms += round((instant - self.now) * 1000)
        self.now = instant

    # The producers' part

    def init(self, name: Name = NOBODY, *, id: str = ID, timeout_ms: int = TIMEOUT_MS, fresh: bool = True, **more: Any) -> InitReply | None:
        command = InitProducer(
            token=next(self._tokens), transactional_id=id, timeout_ms=timeout_ms, producer_id=name.producer_id,
            producer_epoch=name.producer_epoch, **({"fresh_producer_id": self.fresh()} if fresh else {}), **more,
        )  # fmt: skip
        reply: InitReply | None = self.ask(command)
        return reply

    def begin(self, *, id: str = ID, **more: Any) -> Name:
        """A producer begins; its name."""
        reply = self.init(id=id, **more)
        assert reply is not None
        assert reply.error is ErrorCode.NONE
        return Name(reply.producer_id, reply.producer_epoch)

    def add(self, name: Name, *partitions: TransactionPartition, id: str = ID, v2: bool = False, verify: bool = False) -> AddReply | None:
        reply: AddReply | None = self.ask(
            AddPartitions(
                token=next(self._tokens), transactional_id=id, producer_id=name.producer_id, producer_epoch=name.producer_epoch,
                partitions=partitions, is_verify_only=verify, is_transaction_v2=v2,
            )
        )  # fmt: skip
        return reply

    def added(self, name: Name, *partitions: TransactionPartition, **more: Any) -> ErrorCode:
        """The one error of all of them."""
        reply = self.add(name, *partitions, **more)
        assert reply is not None
        assert [each for each, _ in reply.partitions] == list(partitions)
        (code,) = {code for _, code in reply.partitions}
        return code

    def end(self, name: Name, *, commit: bool, v2: bool, id: str = ID, fresh: bool = True) -> EndReply | None:
        reply: EndReply | None = self.ask(
            EndTransaction(
                token=next(self._tokens), transactional_id=id, producer_id=name.producer_id, producer_epoch=name.producer_epoch,
                is_commit=commit, is_transaction_v2=v2, **({"fresh_producer_id": self.fresh()} if fresh else {}),
            )
        )  # fmt: skip
        return reply

    def ended(self, name: Name, **more: Any) -> ErrorCode:
        reply = self.end(name, **more)
        assert reply is not None
        return reply.error

    # The partitions' part

    @property
    def owed(self) -> list[MarkersOwed]:
        return list(self.coordinator.owed())

    def report(self, owed: MarkersOwed, *partitions: TransactionPartition) -> None:
        """These partitions have their marker."""
        self.ask(
            MarkersWritten(
                transactional_id=owed.transactional_id, producer_id=owed.producer_id, producer_epoch=owed.producer_epoch,
                number=owed.number, partitions=partitions,
            )
        )  # fmt: skip

    def write_markers(self) -> None:
        for owed in self.owed:
            self.report(owed, *owed.partitions)

    # Looking

    def saved(self, id: str = ID) -> TransactionSaved:
        key, _ = records.encode(records.TransactionForgotten(id))
        found = records.decode(key, self.log[key])
        assert isinstance(found, TransactionSaved)
        return found

    @property
    def state(self) -> TransactionState:
        view = self.coordinator.describe(ID)
        return TransactionState.DEAD if view is None else view.state

    def listed(self, **wanted: Any) -> list[TransactionSaved]:
        choice = Wanted(**wanted)
        return [saved for saved in self.coordinator.all_saved() if choice.includes(saved, self.wall_ms)]


def named(reply: InitReply | EndReply | None) -> Name:
    assert reply is not None
    assert reply.error is ErrorCode.NONE
    return Name(reply.producer_id, reply.producer_epoch)


def snapshot(coordinator: TransactionCoordinator) -> list[Record]:
    return sorted((record for piece in coordinator.snapshot_pieces() for record in piece), key=lambda each: each.transactional_id)
