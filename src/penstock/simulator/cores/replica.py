"""The shell of one core in a world of cores: a disk with flushes that take time, a register as its state, a clock of its own.

The register holds the last value that was applied, and a checksum of all of them. That is also what its snapshots hold, padded so that they
come in several pieces.
"""

import struct
from collections.abc import Callable
from random import Random
from zlib import crc32

from penstock.consensus.core import Core
from penstock.consensus.effects import (
    Answer,
    Apply,
    Effect,
    Follow,
    InstallSnapshot,
    KeepChunk,
    Lead,
    PersistEntries,
    PersistVote,
    Send,
)
from penstock.consensus.events import Event, SnapshotTaken
from penstock.consensus.log_view import SnapshotHead
from penstock.consensus.nouns import Replica
from penstock.consensus.voters import Voters
from penstock.simulator.cores.judging import Judge, Violation
from penstock.simulator.cores.plan import Plan
from penstock.simulator.cores.store import Store
from penstock.vocabulary import Instant, NodeId, Offset

VALUE = struct.Struct(">q")
_IMAGE = struct.Struct(">Iq")  # Checksum of everything applied, last value.


class SimReplica:
    def __init__(self, node: NodeId, store: Store, plan: Plan, judge: Judge, rng: Random) -> None:
        self.node = node
        self.store = store
        self.core: Core | None = None
        self.paused_until = 0.0
        self.timer_at = float("inf")
        self.life = 0  # Counts starts: what was under way in an earlier life does not reach a later one.
        self.flushing_sequence = 0
        self.applied_end = Offset(0)
        self.register = 0
        self.leads = False
        self.lives_again = False  # On another disk than its first.
        self.installed = 0  # So many snapshots came from leaders.
        self._plan, self._judge, self._rng = plan, judge, rng
        self._clock_rate = 1.0 + rng.uniform(-plan.clock_spread, plan.clock_spread)
        self._clock_offset = rng.uniform(0.0, 1_000.0)
        self._chain = 0
        self._arriving = bytearray()
        self._snapshot_end = Offset(0)

    @property
    def me(self) -> Replica:
        return Replica(self.node, self.store.directory)

    # Time.

    def local(self, now: float) -> Instant:
        return Instant(self._clock_offset + now * self._clock_rate)

    def due_at(self) -> float:
        """When its core wants to be woken, by the world's clock."""
        assert self.core is not None
        return (self.core.due - self._clock_offset) / self._clock_rate + 1e-6

    # Life and death.

    def start(self, now: float, first_voters: Voters, contacts: tuple[NodeId, ...]) -> None:
        self.life += 1
        self.flushing_sequence = 0
        self.timer_at = float("inf")
        self._restore()
        self.core = Core(
            self.me, self.store, self.store.vote, self.local(now),
            draw=self._rng.random, first_voters=first_voters, contacts=contacts, options=self._plan.options,
        )  # fmt: skip

    def crash(self) -> None:
        self.core, self.leads = None, False
        self.life += 1
        self.store.crash(self._rng)

    def wipe(self, store: Store) -> None:
        self.crash()
        self.store, self.lives_again = store, True

    # Effects.

    def step(self, event: Event, now: float) -> list[Effect]:
        assert self.core is not None
        return self.core.step(event, self.local(now))

    def carry_out(self, effect: Effect, answer: Callable[[object, Answer], None]) -> None:
        """Everything but `Send`, which is the world's."""
        match effect:
            case PersistVote() | PersistEntries():
                self.store.write(effect)
            case KeepChunk():
                if effect.position == 0:
                    self._arriving.clear()
                assert effect.position == len(self._arriving)
                self._arriving += effect.content
            case InstallSnapshot():
                self.store.write(effect, bytes(self._arriving))
                self._load(effect.head, bytes(self._arriving))
                self.installed += 1
            case Apply():
                self._apply(effect)
            case Lead():
                self.leads = True
            case Follow():
                self.leads = False
            case Answer():
                answer(effect.token, effect)
            case Send():
                raise AssertionError("messages are the world's")

    def _apply(self, effect: Apply) -> None:
        if effect.first != self.applied_end or effect.end > self.store.end:
            raise Violation("what is applied is durable and comes in order", f"{effect}, {self.applied_end} and {self.store.end}")
        for entry in self.store.entries(effect.first, effect.end, 1 << 40):
            self._chain = crc32(entry.payload, self._chain)
            if len(entry.payload) == VALUE.size:
                (self.register,) = VALUE.unpack(entry.payload)
            self.applied_end = Offset(self.applied_end + 1)
        self._judge.check_chain(self.applied_end, self._chain, self.node)

    # Snapshots.

    def take_snapshot(self, now: float) -> list[Effect]:
        """If it is time for one."""
        every = self._plan.snapshot_entries
        if self.core is None or not every or self.applied_end - self._snapshot_end < every or self.applied_end > self.store.end:
            return []
        end = self.applied_end
        image = _IMAGE.pack(self._chain, self.register) + bytes(self._plan.snapshot_padding)
        head = SnapshotHead(end, self.store.term_before(end), self.core.voters_at(end), len(image))
        self.store.take_snapshot(head, image, entries_kept=self._plan.entries_kept)
        self._snapshot_end = end
        return self.step(SnapshotTaken(end), now)

    def _restore(self) -> None:
        self.applied_end, self.register, self._chain, self._snapshot_end = Offset(0), 0, 0, Offset(0)
        if self.store.snapshot is not None:
            self._load(self.store.snapshot, self.store.image)

    def _load(self, head: SnapshotHead, image: bytes) -> None:
        assert len(image) == head.size
        self._chain, self.register = _IMAGE.unpack_from(image)
        self.applied_end = self._snapshot_end = head.end
        self._judge.check_chain(head.end, self._chain, self.node)
