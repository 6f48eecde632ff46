"""The ledgers of one data partition: commands in, records and replies out.

Three things stand side by side. The *facts* are what the companion log records: what is done, who holds what, what has failed and how.
The *index* is derived from facts, from the options of unfinished messages and from the clock: which message is next. A *decision* is what
`decide` and `lapse` return.

Rules for the one who runs it:
- Loading: `restore` the last whole checkpoint, if there is one; `replay_stored` every record since that checkpoint began; `learn` of the
  data log's messages from `learned_end` up to the watermark; `prepare` until that is done; then `begin`.
- After that, every decision is carried out before the next is asked for: its records are stored and replayed, then its replies may leave.
- A decision whose records cannot be stored is dropped whole: its tokens are answered with an error and nothing is replayed.
- New messages are learned when the watermark passes them, in order. After a `Rewind`, or a `Start` that is
  not at the end, `learned_end` is lower than before: learn again.
- Dead letters are *owed* as soon as the end of the last delivery is replayed. What was owed when the ledger was lost is owed again.
- `lapse` is called when `due` says so; it does a bounded piece, after which `due` may well be in the past.
Not here: disks, clocks, bodies, waiting for messages, moving dead letters.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import assert_never

from penstock.errors import require
from penstock.queues import checkpoint, commands, lapsing, learning, looking, records, turning
from penstock.queues.bits import DoneSet
from penstock.queues.commands import QUEUE_GROUP, Command
from penstock.queues.decision import Decision
from penstock.queues.dedup import DedupWindow
from penstock.queues.draft import Draft
from penstock.queues.exchanging import exchange
from penstock.queues.headers import TIME_MS_MAX
from penstock.queues.ids import group_hash as hash_of_group
from penstock.queues.learning import Marked, Run
from penstock.queues.ledger import Ledger
from penstock.queues.messages import Messages
from penstock.queues.moves import Moves
from penstock.queues.pages import MemoryPages, PageStore
from penstock.queues.picking import pick
from penstock.queues.policy import Policy
from penstock.queues.records import Bound, Changed, CheckpointPiece, Leased, Noted, Record, Turn, Turned
from penstock.queues.replies import Done, Exchanged, Fault, Reply, Settled, Taken
from penstock.queues.rows import read
from penstock.queues.settling import proof, release_all, settle
from penstock.queues.states import State
from penstock.queues.taking import take
from penstock.queues.views import Counts, LetterOwed, MessageView
from penstock.vocabulary import Instant

__all__ = ["Decision", "LedgerState", "Marked", "Run"]

DUE_MS_MAX = 60_000  # The wall clock may be set: nothing that waits for it is left alone for longer.
NEVER_MS = 1 << 62
UNLIMITED = 1 << 62
COME_MAX = 2_000  # Delayed messages that get into line in one call.


class LedgerState:
    def __init__(
        self, policy_of: Callable[[str], Policy], chance: Callable[[], float], pages: PageStore | None = None, wall_ms: int = 0
    ) -> None:
        """`policy_of` tells how the ledger of a group treats messages now; `chance` is `env.rng.random`, for the jitter of a backoff;
        `pages` is where delays lie that are far from `wall_ms`, which is now: memory, if nobody says otherwise."""
        self._policy_of = policy_of
        self._chance = chance
        self.pages = MemoryPages() if pages is None else pages
        self.messages = Messages(self.pages, wall_ms)
        self.window = DedupWindow()
        self.moves = Moves()
        self.notes: dict[str, bytes] = {}
        self.dedup_from = 0  # Ids of messages below this count no more, or are in the window already.
        self.ledgers: dict[str, Ledger] = {}
        self.add_ledger(QUEUE_GROUP, 0)
        self._is_prepared = self._began = False
        self._now, self._wall_ms = Instant(0), 0  # When something was last decided, by both clocks.

    # Loading

    def restoring(self) -> checkpoint.Restoring:
        """Who takes the contents of all pieces of a checkpoint, one by one."""
        return checkpoint.Restoring(self)

    def restore(self, pieces: Iterable[bytes | None]) -> None:
        """The same in one go."""
        restoring = self.restoring()
        for piece in pieces:
            if piece is not None:
                restoring.read(piece)

    def replay(self, record: Record) -> None:
        """What a record says is so. It never refuses. Pieces of checkpoints are `restore`d instead, and change nothing here."""
        match record:
            case Leased():
                self._ledger(record.group).replay_leased(record)
            case Changed():
                self._ledger(record.group).replay_changed(record)
            case Turned():
                self._replay_turned(record)
            case Bound():
                self._ledger(record.group).replay_bound(record)
            case Noted():
                self.notes.pop(record.name, None)
                if record.text:
                    self.notes[record.name] = record.text
            case CheckpointPiece():
                pass
            case _:
                assert_never(record)

    def replay_stored(self, key: bytes, value: bytes | None) -> None:
        """The same for a record as it lies in the log."""
        self.replay(records.decode(key, value))

    def learn(self, entries: Sequence[Run | Marked], end_offset: int, wall_ms: int = TIME_MS_MAX) -> None:
        """What the data log has from `learned_end` up to `end_offset`, in order; offsets that are not told of hold no message. It is
        `wall_ms` now: one that a wrong clock has dated later must not keep those behind it beyond the queue's time to live."""
        learning.learn(self, entries, end_offset, self._policy_of(QUEUE_GROUP), wall_ms)

    def prepare(self, wall_ms: int) -> bool:
        """The last step of loading, in steps: delays that are due are opened, and options of messages that somebody has are brought. That
        they were given is recorded, that their time had come is not. False: call again, when pages were fetched or others had a turn."""
        messages = self.messages
        if not messages.delays.open_due(wall_ms):
            return False
        held = sorted({offset for ledger in self.ledgers.values() for offset in ledger.rows if offset in messages.waiting})
        self._is_prepared = not held or messages.delays.recall(held)
        if self._is_prepared:
            for offset in held:
                messages.waiting.discard(offset)
        return self._is_prepared

    def begin(self, now: Instant, wall_ms: int) -> None:
        """Loading is over."""
        while not self._is_prepared:
            self.prepare(wall_ms)
        self._now, self._wall_ms, self._began = now, wall_ms, True
        self.messages.look_for_expired(wall_ms)
        for ledger in self.ledgers.values():
            ledger.index(self._policy_of(ledger.group), wall_ms)
            ledger.news = dict(ledger.burying)

    def checkpoint(self) -> Iterator[bytes | None]:
        """The state as it is now, in pieces of at most some hundred KiB; while they are drawn, anything may be replayed and learned.
        None: the next piece is not at hand yet; draw again a little later."""
        return checkpoint.pieces(self)

    @property
    def learned_end(self) -> int:
        """Every message below this is known."""
        return self.messages.learned_end

    # Deciding

    def decide(self, command: Command, now: Instant, wall_ms: int) -> Decision:
        self._pass_time(now, wall_ms)
        if isinstance(command, commands.Abandoned):
            return Decision([], [])
        if isinstance(command, commands.Trimmed):
            return turning.trim([self._draft(ledger) for ledger in self.ledgers.values()], command)
        if isinstance(command, commands.Note):
            return turning.note(self.notes, command)
        if isinstance(command, commands.Start):
            made, reply = turning.start(self.ledgers, command, self.messages.end, wall_ms)
            return Decision([*made], [(command.token, reply)])
        ledger = self.ledgers.get(command.group)
        if ledger is None:
            return Decision([], [(command.token, _no_such_group(command))])
        found, answer = self._decide(self._draft(ledger), command)
        return Decision(found, [(command.token, answer)])

    def _decide(self, draft: Draft, command: commands.OfLedger) -> tuple[list[Record], Reply]:
        reply: Reply
        match command:
            case commands.Take():
                return take(draft, command)
            case commands.Settle():
                reply = settle(draft, command)
                return [*(draft.record(is_dropped=command.is_dropped) or proof(draft, reply))], reply
            case commands.Exchange():
                return exchange(draft, command)
            case commands.ReleaseAll():
                reply = release_all(draft, command)
            case commands.Cancel():
                reply = turning.cancel(draft, command)
            case commands.Bind():
                return turning.bind(draft, command)
            case commands.Unbind():
                reply = turning.unbind(draft, command)
            case commands.Buried():
                reply = turning.buried(draft, command)
            case commands.Purge() | commands.Pause() | commands.Resume() | commands.NoteDelay() | commands.Rewind() | commands.Forget():
                return turning.turn(draft, command)
            case _:
                assert_never(command)
        return [*draft.record()], reply

    def due(self) -> Instant | None:
        """When `lapse` has something to do, at the earliest. None before `begin`, and while nothing is."""
        due_ms = self._due_ms() if self._began else NEVER_MS
        return None if due_ms == NEVER_MS else Instant(self._now + min(due_ms - self._wall_ms, DUE_MS_MAX) / 1000)

    def lapse(self, now: Instant, wall_ms: int) -> Decision:
        """What the passing of time causes."""
        self._pass_time(now, wall_ms)
        drafts = [self._draft(ledger) for ledger in self.ledgers.values()]
        lapsing.expire(self.messages, drafts)
        self.messages.unmark(min(ledger.done.base for ledger in self.ledgers.values()))
        for draft in drafts:
            ledger = draft.ledger
            ledger.repeats.prune(wall_ms)
            assert ledger.ready is not None
            lapsing.lapse_leases(ledger.ready, draft)
            lapsing.sweep(draft)
            lapsing.finish_duplicates(self.messages, draft)
        return Decision([record for draft in drafts for record in draft.record()], [])

    # Sending

    def dedup(self, key: bytes, wall_ms: int) -> int | None:
        """The offset of the message that has this dedup id already."""
        return self.window.find(key, wall_ms)

    def dedup_key(self, dedup: bytes, group: bytes) -> bytes:
        """By the queue's policy: ids count in the whole queue, or in each group."""
        return learning.dedup_key(self._policy_of(QUEUE_GROUP), dedup, group)

    def expect(self, key: bytes, offset: int, wall_ms: int) -> None:
        """A message with this dedup id was appended and will be learned of."""
        self.window.note(key, offset, wall_ms + self._policy_of(QUEUE_GROUP).dedup_ms)

    def room(self, end_offset: int, *, is_dedup: bool) -> int:
        """How many more messages the queue's limit lets in, and the dedup window. The data log ends at `end_offset`: what was appended
        counts at once, though it is learned of when it is safe."""
        policy, done = self._policy_of(QUEUE_GROUP), self.ledgers[QUEUE_GROUP].done
        room = UNLIMITED
        if policy.ready_max:
            room = policy.ready_max - (max(end_offset, self.learned_end) - done.base - done.bits.count)
        return max(min(room, policy.dedup_max - len(self.window)) if is_dedup else room, 0)

    def find_moved(self, source: bytes) -> int | None:
        """The offset of the message that this move has brought here."""
        return self.moves.find(source)

    def expect_moved(self, source: bytes, offset: int, wall_ms: int) -> None:
        self.moves.note(source, offset, wall_ms)

    # What is owed

    def is_owed(self, group_hash: int, offset: int, lease: int) -> bool:
        """Whether this move has yet to be made, or may be made again."""
        for ledger in self.ledgers.values():
            if offset in ledger.burying and hash_of_group(ledger.group) == group_hash and read(ledger.rows[offset]).lease == lease:
                return True
        return False

    def is_burying(self, group: str, offset: int) -> bool:
        ledger = self.ledgers.get(group)
        return ledger is not None and offset in ledger.burying

    @property
    def is_owing(self) -> bool:
        """Whether there are any dead letters that have yet to be moved: asked after each decision."""
        for ledger in self.ledgers.values():  # noqa: SIM110 - a generator would cost more than all of it.
            if ledger.burying:
                return True
        return False

    def owed(self) -> Iterator[LetterOwed]:
        """All dead letters that have yet to be moved, those longest due first. Nothing may be replayed meanwhile."""
        for ledger in self.ledgers.values():
            for offset in ledger.burying:
                yield looking.letter(ledger, offset)

    def owed_of(self, group: str, offsets: Iterable[int]) -> list[LetterOwed]:
        """Those of these messages that have yet to be moved."""
        ledger = self.ledgers.get(group)
        return [] if ledger is None else [looking.letter(ledger, offset) for offset in offsets if offset in ledger.burying]

    def newly_owed(self) -> list[LetterOwed]:
        """What has come to be owed since this was last asked; after `begin`, all of it."""
        letters = [looking.letter(ledger, offset) for ledger in self.ledgers.values() for offset in ledger.news]
        for ledger in self.ledgers.values():
            ledger.news = {}
        return letters

    # Reading

    def groups(self) -> list[str]:
        return list(self.ledgers)

    def has(self, group: str) -> bool:
        return group in self.ledgers

    def base(self, group: str) -> int:
        """Every message below this is finished."""
        return self.ledgers[group].done.base

    @property
    def base_of_all(self) -> int:
        """The data log may be trimmed to here: every message below is finished in all groups, and has no dedup id or source that counts.

        Ids are learned from the data log again when the ledger is lost before its next checkpoint.
        """
        base = min(ledger.done.base for ledger in self.ledgers.values())
        needed = self.window.first_offset, self.moves.first_offset
        return min(base, *(offset for offset in needed if offset is not None)) if needed != (None, None) else base

    @property
    def known_end(self) -> int:
        """Nothing at or above this was ever given to anybody: a data log that ends before has lost something. Looks at every row."""
        ends = [max(ledger.done.end, max(ledger.rows, default=-1) + 1) for ledger in self.ledgers.values()]
        return max(self.learned_end, *ends)

    def knows_attempt(self, group: str, attempt_id: bytes) -> bool:
        """Whether it may be that messages were given to it that it still holds."""
        ledger = self.ledgers.get(group)
        return ledger is not None and attempt_id in ledger.repeats.taken

    def ready_at(self, group: str, wall_ms: int) -> int | None:
        """0: something can be taken now. Else the next time at which that may change by the clock alone; None: never."""
        ledger = self.ledgers.get(group)
        if ledger is None or ledger.is_paused:
            return None
        self._pass_time(self._now, wall_ms)
        require(ledger.ready is not None, "a ledger is asked after it is loaded")
        assert ledger.ready is not None
        has_room = ledger.leased < ledger.ready.policy.in_flight_max
        if has_room and pick(ledger.ready, self.messages, 1, next_lease=1, in_flight=ledger.leased, wall_ms=wall_ms):
            return 0
        if has_room and ledger.ready.is_cut:
            return wall_ms + 1  # There may be something behind all that had to be passed over.
        schedules = self.messages.delays, ledger.ready.retries, ledger.ready.leases
        times = [schedule.next_ms(wall_ms) for schedule in schedules]
        if self.messages.waiting.count:
            times.append(self.messages.common_delay.next_ms())
        return min((time for time in times if time is not None), default=None)

    def counts(self, group: str, wall_ms: int) -> Counts:
        self._pass_time(self._now, wall_ms)
        return looking.counts(self.ledgers[group], self.messages)

    def find(self, group: str, offset: int, wall_ms: int) -> MessageView | None:
        """None: the ledger has not learned of such a message."""
        self._pass_time(self._now, wall_ms)
        return looking.find(self.ledgers[group], self.messages, offset, wall_ms)

    def page(
        self, group: str, states: tuple[State, ...], first: int, *, count: int, looked_at_max: int, wall_ms: int
    ) -> tuple[list[MessageView], int]:
        """As `peek`, bounded by how many are looked at, and the offset to go on from; `learned_end` when that is all."""
        self._pass_time(self._now, wall_ms)
        return looking.page(self.ledgers[group], self.messages, states, first, count=count, looked_at_max=looked_at_max, wall_ms=wall_ms)

    def peek(self, group: str, states: tuple[State, ...], first: int, count: int, wall_ms: int) -> list[MessageView]:
        """Unfinished messages from offset `first` on that are in one of these states."""
        self._pass_time(self._now, wall_ms)
        return list(islice(looking.peek(self.ledgers[group], self.messages, states, first, wall_ms), count))

    @property
    def held_bytes(self) -> int:
        """What all of it takes in memory, about."""
        return looking.held_bytes(self)

    # Ledgers

    def add_ledger(self, group: str, base: int) -> Ledger:
        ledger = self.ledgers[group] = Ledger(group, self.messages, base, self._done_by_one, self._run_done_by_one)
        return ledger

    def _ledger(self, group: str) -> Ledger:
        return self.ledgers.get(group) or self.add_ledger(group, 0)

    def _draft(self, ledger: Ledger) -> Draft:
        """After `_pass_time`, which has looked at the policy."""
        assert ledger.ready is not None
        return Draft(ledger, self.messages, ledger.ready.policy, self._chance, self._wall_ms)

    def _done_by_one(self, offset: int) -> None:
        messages = self.messages
        if (offset in messages.kept or messages.waiting.count or messages.duplicates) and self._is_done_by_all(offset):
            messages.forget(offset)

    def _run_done_by_one(self, start: int, end: int) -> None:
        self.messages.forget_waiting(self._dones(), start, end)

    def _dones(self) -> list[DoneSet]:
        return [ledger.done for ledger in self.ledgers.values()]

    def _is_done_by_all(self, offset: int) -> bool:
        return all(offset in ledger.done for ledger in self.ledgers.values())

    def _replay_turned(self, record: Turned) -> None:
        if record.what is Turn.FORGOTTEN:
            self.ledgers.pop(record.group, None)
            self.messages.forget_done(self._dones())
            return
        if record.what is Turn.DELAYED:
            self.messages.common_delay.tell(record.offset, record.end)
            return
        ledger = self._ledger(record.group)
        ledger.replay_turned(record)
        is_queues_purge = record.what is Turn.PURGED and record.group == QUEUE_GROUP
        if is_queues_purge:
            self.window.clear()
            self.dedup_from = max(self.dedup_from, record.offset)
            self.messages.exempt_from_dedup(0, record.offset)
        elif record.what in (Turn.REWOUND, Turn.STARTED):
            self.messages.exempt_from_dedup(record.offset, record.end)
        if record.what in (Turn.PURGED, Turn.STARTED):
            self.messages.forget_done(self._dones())
        is_unlearned = record.what in (Turn.REWOUND, Turn.STARTED) and record.offset < self.learned_end
        if is_unlearned:  # Options were forgotten with the messages that were done.
            self.messages.unlearn(record.offset, lambda offset: any(offset in each.rows for each in self.ledgers.values()))
        if self._began:
            for each in self.ledgers.values():
                if each.ready is None or is_unlearned or is_queues_purge:
                    each.index(self._policy_of(each.group), self._wall_ms)

    # Time

    def _pass_time(self, now: Instant, wall_ms: int) -> None:
        """The index shows what is ready now."""
        require(self._began, "a ledger decides after it is loaded")
        self._now, self._wall_ms = now, wall_ms
        if self.window.ends:
            self.window.prune(wall_ms, self._policy_of(QUEUE_GROUP).dedup_ms)
        for group, ledger in self.ledgers.items():
            policy, ready = self._policy_of(group), ledger.ready
            if ready is None or ready.policy is not policy:
                self._follow(ledger, policy, wall_ms)
            elif ready.retries.size:
                ready.come(wall_ms, COME_MAX)
        learning.come(self, wall_ms, COME_MAX)
        has_retired = len(self.messages.expiries) > 0 and lapsing.retire(self.messages, list(self.ledgers.values()), wall_ms)
        for ledger in self.ledgers.values():
            if ledger.ready is not None and (has_retired or ledger.ready.is_cut):
                ledger.ready.clean()

    def _follow(self, ledger: Ledger, policy: Policy, wall_ms: int) -> None:
        """Another policy, or no index yet."""
        if ledger.ready is None or not ledger.ready.fits(policy):
            ledger.index(policy, wall_ms)
        assert ledger.ready is not None
        ledger.ready.policy = policy
        ledger.ready.come(wall_ms, COME_MAX)

    def _due_ms(self) -> int:
        """Asked several times for each command, so written straight."""
        messages, wall_ms, due_ms = self.messages, self._wall_ms, NEVER_MS
        if (next_ms := messages.expiries.next_ms(wall_ms)) is not None:
            due_ms = next_ms
        if (next_ms := messages.delays.next_ms(wall_ms)) is not None and next_ms < due_ms:
            due_ms = next_ms
        if messages.waiting.count and (next_ms := messages.common_delay.next_ms()) is not None and next_ms < due_ms:
            due_ms = next_ms
        if messages.duplicates and messages.duplicates_ms < due_ms:
            due_ms = messages.duplicates_ms
        if messages.overdue.count:
            due_ms = min(due_ms, wall_ms)
        for group, ledger in self.ledgers.items():
            if (ready := ledger.ready) is not None:
                if (next_ms := ready.leases.next_ms(wall_ms)) is not None and next_ms < due_ms:
                    due_ms = next_ms
                if ready.retries.size and (next_ms := ready.retries.next_ms(wall_ms)) is not None and next_ms < due_ms:
                    due_ms = next_ms
            ttl_ms = self._policy_of(group).ttl_ms
            if ttl_ms and (next_ms := lapsing.sweep_ms(ledger, messages, ttl_ms)) is not None and next_ms < due_ms:
                due_ms = next_ms
        return due_ms


def _no_such_group(command: commands.OfLedger) -> Reply:
    match command:
        case commands.Take():
            return Taken((), fault=Fault.NO_SUCH_GROUP)
        case commands.Settle():
            return Settled((), fault=Fault.NO_SUCH_GROUP)
        case commands.Exchange():
            return Exchanged((None,) * len(command.swaps))
        case _:
            return Done(fault=Fault.NO_SUCH_GROUP)
