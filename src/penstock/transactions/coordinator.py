"""The transactional ids of one partition of `__transaction_state`: commands in, records and replies out.

Three things stand side by side. The *image* is what is recorded; only `replay` changes it. The *sessions* are what may be forgotten
(deadlines, which markers are written already); `decide` and `lapse` note things there. A *decision* is what they return.

Rules for the one who runs it:
- Loading: `replay` (or `replay_stored`) every record, or the last of each key in any order; then `begin`.
- After that, every decision is carried out before the next is asked for: its records are stored and replayed, then its replies may leave.
- A decision whose records cannot be stored is dropped whole: its tokens are answered with an error and nothing is replayed.
- Markers are *owed* as soon as the end of a transaction is replayed; they may leave when it is durable, as a reply may. What was owed when
  the coordinator was lost is owed again after loading: writing a marker twice must do no harm.
- `lapse` is called when `due` says so; it does a bounded piece, after which `due` may well be in the past.
Not here: disks, clocks, how markers get to partitions, and who may use which id.
"""

from collections.abc import Callable, Iterator
from typing import assert_never

from penstock.errors import require
from penstock.settings import LONG_MAX
from penstock.transactions import adding, commands, ending, initializing, lapsing, records
from penstock.transactions.bounds import IDS_MAX, SLICE_PAUSE_MS, TransactionSettings
from penstock.transactions.draft import Decision, Draft, Sessions
from penstock.transactions.image import TransactionsImage
from penstock.transactions.names import is_used_up
from penstock.transactions.records import Record, TransactionSaved
from penstock.transactions.states import TransactionState
from penstock.transactions.views import MarkersOwed, TransactionView
from penstock.vocabulary import Instant


class TransactionCoordinator:
    def __init__(self, settings: TransactionSettings, free_bytes: Callable[[], int] = lambda: LONG_MAX) -> None:
        """`free_bytes` tells how much more memory all transactional ids of the node may take, beside what they take now (`held_bytes`)."""
        self.settings = settings
        self._free_bytes = free_bytes
        self._image = TransactionsImage()
        self._sessions = Sessions()
        self._began: Instant | None = None  # When loading ended.
        self._sweep: lapsing.Sweep | None = None
        self._sweep_due: Instant | None = None

    # Loading

    def replay(self, record: Record) -> None:
        """What a record says is so. It never refuses."""
        self._image.replay(record)
        if self._began is not None:
            self._follow(record.transactional_id, self._began)

    def replay_stored(self, key: bytes, value: bytes | None) -> None:
        """The same for a record as it lies in the log."""
        self.replay(records.decode(key, value))

    def begin(self, now: Instant) -> None:
        """Loading is over."""
        self._began = now
        self._sweep_due = Instant(now + self.settings.expiry_check_ms / 1000)
        for transactional_id in self._image.saved:
            self._follow(transactional_id, now)

    def snapshot_pieces(self) -> Iterator[list[Record]]:
        """Records that replay into what is recorded, one for each key. Those replayed between the pieces belong behind the snapshot."""
        return self._image.snapshot_pieces()

    # Deciding

    def decide(self, command: commands.Command, now: Instant, wall_ms: int) -> Decision:
        draft = self._draft(now, wall_ms)
        if isinstance(command, commands.Abandoned):
            return draft.decision()
        saved = self._image.saved.get(command.transactional_id)
        match command:
            case commands.AddPartitions():
                adding.add(saved, command, draft)
            case commands.EndTransaction():
                ending.end(saved, command, draft)
            case commands.MarkersWritten():
                ending.markers_written(saved, command, draft)
            case commands.InitProducer():
                initializing.initialize(saved, command, draft, has_room=self.size < IDS_MAX)
            case _:
                assert_never(command)
        return draft.decision()

    def due(self) -> Instant | None:
        """When `lapse` has something to do, at the earliest. None before `begin`."""
        alarm = self._sessions.alarms.next()
        if alarm is None or self._sweep_due is None:
            return self._sweep_due
        return min(alarm, self._sweep_due)

    def lapse(self, now: Instant, wall_ms: int) -> Decision:
        """What the passing of time causes: overdue transactions are aborted, unused ids go."""
        draft = self._draft(now, wall_ms)
        lapsing.abort_overdue(self._image, draft)
        if self._sweep_due is not None and self._sweep_due <= now:
            self._sweep_on(draft)
        return draft.decision()

    # What is owed

    def owed(self) -> Iterator[MarkersOwed]:
        """All markers that partitions have yet to get, those longest due first. Nothing may be decided meanwhile."""
        for transactional_id in self._image.ending:
            yield self._owed(self._image.saved[transactional_id])

    def owed_by(self, transactional_id: str) -> MarkersOwed | None:
        saved = self._image.saved.get(transactional_id)
        return self._owed(saved) if saved is not None and saved.state.is_ending else None

    def newly_owed(self) -> list[MarkersOwed]:
        """What has come to be owed since this was last asked; after `begin`, all of it."""
        news, self._sessions.news = self._sessions.news, {}
        return [self._owed(self._image.saved[transactional_id]) for transactional_id in news]

    # Reading

    def needs_producer_id(self, transactional_id: str) -> bool:
        """Whether an `InitProducer` or `EndTransaction` must bring a fresh producer id; elsewhere it would be lost."""
        saved = self._image.saved.get(transactional_id)
        return saved is None or is_used_up(saved)

    @property
    def size(self) -> int:
        return len(self._image.saved)

    @property
    def held_bytes(self) -> int:
        """What all ids take in memory, about."""
        return self._image.held_bytes

    def describe(self, transactional_id: str) -> TransactionView | None:
        """None: there is no such id."""
        saved = self._image.saved.get(transactional_id)
        if saved is None:
            return None
        return TransactionView(
            transactional_id=transactional_id, state=saved.state, producer_id=saved.producer_id, producer_epoch=saved.producer_epoch,
            timeout_ms=saved.timeout_ms, started_ms=saved.started_ms, number=saved.number, partitions=saved.partitions,
        )  # fmt: skip

    def all_saved(self) -> list[TransactionSaved]:
        """Every id, for those who choose from them in their own time: there may be very many."""
        return list(self._image.saved.values())

    def _draft(self, now: Instant, wall_ms: int) -> Draft:
        require(self._began is not None, "a coordinator decides after it is loaded")
        return Draft(self._sessions, self.settings, self._free_bytes, now, wall_ms)

    def _follow(self, transactional_id: str, began: Instant) -> None:
        """What is noted beside an id agrees with what is recorded of it now."""
        sessions, saved = self._sessions, self._image.saved.get(transactional_id)
        if saved is None or not saved.state.is_ending:
            sessions.unwritten.pop(transactional_id, None)
            sessions.news.pop(transactional_id, None)
        else:
            sessions.news[transactional_id] = None
        if saved is None or saved.state is not TransactionState.ONGOING:
            sessions.deadlines.pop(transactional_id, None)
            sessions.alarms.forget(transactional_id)
        elif transactional_id not in sessions.deadlines:
            sessions.alarms.set_by(transactional_id, began)  # It is open since before; how long, the wall clock tells.

    def _owed(self, saved: TransactionSaved) -> MarkersOwed:
        unwritten = self._sessions.unwritten.get(saved.transactional_id)
        return MarkersOwed(
            transactional_id=saved.transactional_id, producer_id=saved.producer_id, producer_epoch=saved.producer_epoch,
            number=saved.number, is_commit=saved.state is TransactionState.PREPARE_COMMIT, is_v2=saved.client_version == 2,
            partitions=saved.partitions if unwritten is None else tuple(unwritten),
        )  # fmt: skip

    def _sweep_on(self, draft: Draft) -> None:
        if self._sweep is None:
            self._sweep = lapsing.Sweep(self._image, self.settings.id_expiration_ms)
        draft.records += self._sweep.slice(draft.wall_ms)
        if self._sweep.is_over:
            self._sweep = None
        self._sweep_due = draft.after(SLICE_PAUSE_MS if self._sweep else self.settings.expiry_check_ms)
