"""A ledger and the books beside it: everything is done to both, and they must agree.

The ledger's records go through their bytes. It may be killed at any time, and is loaded again from everything there ever was, or from the
last checkpoint and what came since; a decision may be lost before it is stored. Whatever is done, done again or lost, the books decide.
"""

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from queues.model import Book, Message

from penstock.queues import commands, lapsing, pages, records, timetable
from penstock.queues.commands import QUEUE_GROUP, Command, Settlement, Verb
from penstock.queues.decision import Decision
from penstock.queues.headers import PRIORITY_DEFAULT, Traits
from penstock.queues.pages import MemoryPages
from penstock.queues.policy import Backoff, Policy
from penstock.queues.replies import Done, Settled, Taken
from penstock.queues.state import LedgerState, Marked, Run
from penstock.queues.states import State
from penstock.simulator.knobs import replaced
from penstock.vocabulary import Instant

START_MS = 1_000_000_000_000
SHARE = "share"  # A second group.
GROUPS = (b"", b"a", b"b", b"c")
DEDUPS = (b"", b"", b"x", b"y")
COMMON_DELAYS_MS = (0, 1_000, 4_000, 800_000)
DELAYS_MS = (0, 0, 500, 3_000, 700_000, 90_000_000)
LEASES_MS = (None, 0, 1_000, 30_000)
WAITS_MS = (1, 100, 1_000, 5_000, 31_000, 700_000)
REASONS = ("", "boom", "né" * 200)
ATTEMPTS = ("", "", "x", "y")
NEVER = 1 << 60

POLICIES = {
    "plain": Policy(lease_ms=10_000),
    "strict": Policy(lease_ms=10_000, is_lenient=False, deliveries_max=2, in_flight_max=6),
    "retries": Policy(lease_ms=5_000, deliveries_max=3, dead_letter="dead", backoff=Backoff(1_000, 10_000, 3.0, 0.5), back_after=2),
    "fifo": Policy(lease_ms=5_000, is_fifo=True, deliveries_max=4, dead_letter="dead", dedup_by_group=True),
    "fifo with backoff": Policy(lease_ms=5_000, is_fifo=True, backoff=Backoff(2_000)),
    "guarded": Policy(lease_ms=5_000, starvation_every=3),
    "fifo with a delay": Policy(lease_ms=5_000, is_fifo=True, delay_ms=3_000),
    "short-lived": Policy(lease_ms=5_000, ttl_ms=20_000, deliveries_max=3, dead_letter="dead", backoff=Backoff(1_000)),
    "sqs": Policy(lease_ms=5_000, has_priorities=False, delay_ms=1_000),
}


TINY: list[tuple[Any, str, Any]] = [
    (timetable, "WIDTHS_MS", (400, 2_000, 40_000)), (timetable, "LEADS_MS", (200, 1_000, 20_000)), (timetable, "TAILS_BYTES", 20),
    (timetable, "AGAIN_MS", 0), (pages, "PAGE_BYTES", 50), (lapsing, "AGAIN_MS", 100),
]  # fmt: skip


class SlowPages(MemoryPages):
    """Every second time a page is asked for, it is not at hand."""

    def __init__(self) -> None:
        self.missed = self.got = 0
        self._is_at_hand = True

    def get(self, place: object) -> bytes | None:
        self._is_at_hand = not self._is_at_hand
        self.missed += not self._is_at_hand
        self.got += self._is_at_hand
        return super().get(place) if self._is_at_hand else None


class Play:
    def __init__(self, policy: str, *, seed: int = 0) -> None:
        self.policy = POLICIES[policy]
        self.has_delay = self.policy.delay_ms > 0
        self.pages = SlowPages()
        self.now = START_MS
        self.entries: list[Run | Marked] = []  # The data log.
        self.log_start = self.log_end = 0
        self.stored: list[tuple[bytes, bytes]] = []  # The companion log.
        self.checkpoint: tuple[list[bytes], int, int] | None = None  # Pieces, and where the companion and the data log were.
        self.messages: list[Message] = []
        self.books = {QUEUE_GROUP: Book(self.policy, self.messages)}
        self.dedups: dict[bytes, tuple[int, int]] = {}
        self.leases: list[tuple[str, int, int]] = []  # All that were ever given: group, offset, number.
        self.seen: Counter[str] = Counter()
        self.rng = Random(seed)
        self.state = self._new()
        self.state.begin(Instant(0), self.now)
        self.delay_ms = 0  # As the ledger was told.
        self.relearned_from = 0  # The lowest offset of which the ledger learned again since the checkpoint.
        self.change_delay(self.policy.delay_ms)

    # Sending

    def send(self, count: int) -> None:
        """Plain records."""
        self._append([Run(self.log_end, self.log_end + count, self.now)])

    def skip(self, count: int) -> None:
        """Offsets without a message: markers of transactions."""
        self.log_end += count
        self._learn([])

    def send_marked(self, *, priority: int, delay_ms: int, ttl_ms: int, group: bytes, dedup: bytes, is_by_log: bool) -> None:
        traits = Traits(
            priority,
            self.now + delay_ms if delay_ms else 0,
            self.now + ttl_ms if ttl_ms else 0,
            group,
            dedup,
            self.now,
            is_first=not is_by_log,
        )
        if dedup:
            key = self.state.dedup_key(dedup, group)
            first = self._first_with(key)
            assert self.state.dedup(key, self.now) == first, "the ledger knows another first message"
            if first is not None:
                self.seen["duplicates"] += 1
                if not is_by_log:
                    return
            elif not is_by_log:
                self.state.expect(key, self.log_end, self.now)
                assert self.state.dedup(key, self.now) == self.log_end, "an id counts from the append on"
        self._append([Marked(self.log_end, traits)])

    def _append(self, entries: list[Run | Marked]) -> None:
        self.entries += entries
        for entry in entries:
            if isinstance(entry, Run):
                due_ms, offsets = self._common_time(self.now), range(entry.start, entry.end)
                self.messages += [Message(offset, due_ms=due_ms, written_ms=self.now) for offset in offsets]
                self.log_end = entry.end
            else:
                self.messages.append(self._noted(entry))
                self.log_end = entry.offset + 1
        self._learn(entries)

    def _learn(self, entries: list[Run | Marked]) -> None:
        self.state.learn(entries, self.log_end)
        for book in self.books.values():
            book.end = self.log_end

    def _noted(self, entry: Marked) -> Message:
        traits = entry.traits
        has_own_time = traits.deliver_at > 0
        due_ms = traits.deliver_at if has_own_time else self._common_time(self.now)
        message = Message(entry.offset, traits.priority, due_ms, traits.expires_at, traits.group, written_ms=self.now)
        message.has_own_time = has_own_time
        if traits.dedup:
            key = traits.group + b"\0" + traits.dedup if self.policy.dedup_by_group else traits.dedup
            message.is_duplicate = self._first_with(key) is not None
            if not message.is_duplicate:
                self.dedups[key] = (entry.offset, self.now + self.policy.dedup_ms)
        return message

    def _common_time(self, written_ms: int) -> int:
        return written_ms + self.delay_ms if self.delay_ms else 0

    def change_delay(self, delay_ms: int, *, is_stored: bool = True) -> None:
        """The queue's own, for those who say nothing. In a FIFO queue those who wait are given the new one."""
        self.policy = replace(self.policy, delay_ms=delay_ms)
        for book in self.books.values():
            book.policy = self.policy
        is_news = delay_ms != self.delay_ms
        self.do(commands.NoteDelay("t", QUEUE_GROUP), is_stored=is_stored)
        if not is_stored or not is_news:
            return
        self.delay_ms = delay_ms
        self.seen["delays changed"] += 1
        if self.policy.is_fifo:
            still = [each for each in self.messages if self._waits_in_order(each)]
            for message in self.messages:
                if still and message.offset >= still[0].offset and not message.has_own_time:
                    message.due_ms = self._common_time(message.written_ms)
            self.seen["delays changed while somebody waits"] += bool(still)

    def _waits_in_order(self, message: Message) -> bool:
        is_waiting = message.due_ms > self.now and not message.has_own_time and not message.is_exempt
        return is_waiting and any(book.of(message.offset).state is not State.DONE for book in self.books.values())

    def _line_up(self) -> None:
        """A message waits for its own time; in a FIFO queue with a delay it comes after all before it that wait for the queue's."""
        last_ms = 0
        for message in self.messages:
            message.deliver_at = message.due_ms
            if self.policy.is_fifo and not message.has_own_time:
                last_ms = max(last_ms, message.due_ms if self._waits_in_order(message) else 0)
                message.deliver_at = 0 if message.is_exempt else last_ms

    def _learned_again(self, start: int) -> None:
        """Who was given to somebody by the time that the ledger learns of it has waited."""
        for message in self.messages:
            if message.offset >= start:
                standings = [book.of(message.offset) for book in self.books.values()]
                message.is_exempt = any(standing.lease and standing.state is not State.DONE for standing in standings)

    def _first_with(self, key: bytes) -> int | None:
        offset, until = self.dedups.get(key, (0, 0))
        return offset if until > self.now else None

    # Working

    def take(self, group: str, count: int, lease_ms: int | None, *, attempt: str = "", is_stored: bool = True) -> None:
        if group not in self.books:
            return
        reply = self.do(commands.Take("t", group, count, lease_ms, "worker", attempt.encode()), is_stored=is_stored)
        assert isinstance(reply, Taken)
        if not is_stored:
            return
        next_lease = self.books[group].next_lease
        wanted = self.books[group].take(count, lease_ms, "worker", self.now, attempt)
        assert [(each.offset, each.attempt) for each in reply.deliveries] == wanted, "other messages, or in another order"
        self.leases += [(group, each.offset, each.lease) for each in reply.deliveries]
        self.seen["taken"] += len(wanted)
        self.seen["taken again"] += sum(attempt > 1 for _, attempt in wanted)
        self.seen["the same attempt"] += bool(wanted) and self.books[group].next_lease == next_lease

    def settle(self, which: int, verb: Verb, delay_ms: int | None, reason: str, *, is_stored: bool = True) -> None:
        """Of one of the last leases, be it held, lapsed or settled."""
        if not self.leases:
            return
        group, offset, lease = self.leases[-1 - which % min(len(self.leases), 12)]
        if group not in self.books:
            return
        item = Settlement(offset, lease, verb, delay_ms, reason)
        reply = self.do(commands.Settle("t", group, (item,)), is_stored=is_stored)
        assert isinstance(reply, Settled)
        if is_stored:
            code = self.books[group].settle(item, self.now)
            assert reply.outcomes[0].code is code, f"{verb.name} of {offset}: {reply.outcomes[0].code.name} and not {code.name}"
            self.seen[f"{verb.name} {code.name}"] += 1

    def wait(self, ms: int, *, is_noticed: bool = True) -> None:
        self.now += ms
        if is_noticed:
            self.lapse()

    def lapse(self) -> None:
        for _ in range(50):
            due = self.state.due()
            if due is None or due > self.instant():
                break
            self._carry_out(self.state.lapse(self.instant(), self.now), is_stored=True)
        else:
            raise AssertionError("time never ends to be due")
        for book in self.books.values():
            book.lapse(self.now)

    def lose_a_lapse(self) -> None:
        """What time caused could not be stored: it is caused again, a second later."""
        self.state.lapse(self.instant(), self.now)
        self.wait(1_000)

    # Turning

    def cancel(self, group: str, offset: int) -> None:
        if group in self.books:
            reply = self.do(commands.Cancel("t", group, (offset,)))
            assert reply == Done(int(self.books[group].cancel(offset)))
            self.seen["cancelled"] += reply.count

    def bury(self) -> None:
        """All dead letters were moved."""
        for letter in list(self.state.owed()):
            reply = self.do(commands.Buried("t", letter.group, (letter.offset,)))
            assert reply == Done(int(self.books[letter.group].buried(letter.offset)))
            self.seen["buried"] += 1

    def purge(self, group: str) -> None:
        if group in self.books:
            self.do(commands.Purge("t", group))
            self.books[group].finish_below(self.log_end)
            if group == QUEUE_GROUP:
                self.dedups.clear()
                self._exempt(0)

    def pause(self, group: str, *, is_paused: bool) -> None:
        if group in self.books:
            self.do(commands.Pause("t", group) if is_paused else commands.Resume("t", group))
            self.books[group].is_paused = is_paused

    def rewind(self, group: str, back: int) -> None:
        if group in self.books:
            to = max(self.log_end - back, self.log_start)
            self.do(commands.Rewind("t", group, to))
            self._learn_again()
            self.books[group].rewind(to)
            self._began_again(to)

    def start(self, at: int) -> None:
        at = max(self.log_end - at, self.log_start)
        self.do(commands.Start("t", SHARE, at))
        self._learn_again()
        next_lease = self.books[SHARE].next_lease if SHARE in self.books else 1
        self.books[SHARE] = Book(self.policy, self.messages, at)
        self.books[SHARE].next_lease, self.books[SHARE].end = next_lease, self.log_end
        self._began_again(at)
        self.leases = [lease for lease in self.leases if lease[0] != SHARE]

    def _began_again(self, start: int) -> None:
        self._exempt(start)
        self._learned_again(start)
        self.relearned_from = min(self.relearned_from, start)

    def _exempt(self, start: int) -> None:
        """Who begins anew gets what lies in the log, duplicates included."""
        for message in self.messages:
            message.is_duplicate = message.is_duplicate and message.offset < start

    def forget(self) -> None:
        if SHARE in self.books:
            self.do(commands.Forget("t", SHARE))
            del self.books[SHARE]
            self.leases = [lease for lease in self.leases if lease[0] != SHARE]

    def trim(self, keep: int) -> None:
        """The data log loses its beginning, as far as nobody needs it."""
        to = max(min(self.log_end - keep, self.state.base_of_all), self.log_start)
        self.do(commands.Trimmed("t", to))
        self.log_start = to
        for book in self.books.values():
            book.finish_below(to)
            book.base = max(book.base, to)

    # Dying

    def note_checkpoint(self) -> None:
        drawn = self.state.checkpoint()
        self.checkpoint = ([piece for piece in drawn if piece is not None], len(self.stored), self.state.learned_end)
        self.relearned_from = self.log_end

    def die(self, *, from_scratch: bool = False) -> None:
        """Everything that is not in a log or a checkpoint is lost."""
        self.state = self.loaded(from_scratch=from_scratch)
        self._learned_again(0 if from_scratch else self.relearned_from)
        self.seen["loads"] += 1

    def loaded(self, *, from_scratch: bool) -> LedgerState:
        state, first = self._new(), 0
        if not from_scratch and self.checkpoint is not None:
            state.restore(self.checkpoint[0])
            first = self.checkpoint[1]
        for key, value in self.stored[first:]:
            state.replay_stored(key, value)
        state.learn(self._entries_from(state.learned_end), self.log_end)
        state.begin(self.instant(), self.now)
        return state

    # Checking

    def check(self) -> None:
        self._fetch()
        self._line_up()
        for group, book in self.books.items():
            tally: Counter[State] = Counter()
            for message in self.messages:
                view = self.state.find(group, message.offset, self.now)
                standing, state = book.of(message.offset), book.state(message, self.now)
                assert view is not None and view.state is state, f"{message.offset} is {view and view.state.name} and not {state.name}"
                tally[state] += 1
                if state is not State.DONE:
                    assert view.attempts == standing.attempts, f"{message.offset} was given {view.attempts} times, not {standing.attempts}"
                    failures = [(each.taken_ms, each.ended_ms, each.who, each.reason) for each in view.history]
                    assert failures == standing.failures[-16:], f"{message.offset} failed otherwise"
                if state is State.LEASED:
                    assert (view.lease, view.when_ms) == (standing.lease, standing.deadline), f"{message.offset} is leased otherwise"
            counts = self.state.counts(group, self.now)
            found = (counts.ready, counts.leased, counts.delayed, counts.burying, counts.is_paused)
            wanted = (tally[State.READY], tally[State.LEASED], tally[State.DELAYED], tally[State.BURYING], book.is_paused)
            assert found == wanted, f"counts {found} and not {wanted}"
            first_open = min((message.offset for message in book.open()), default=self.log_end)
            assert counts.base <= first_open, "the base is above an unfinished message"
        owed = {(letter.group, letter.offset) for letter in self.state.owed()}
        assert owed == {
            (group, message.offset)
            for group, book in self.books.items() for message in book.open() if book.of(message.offset).state is State.BURYING
        }  # fmt: skip

    def do(self, command: Command, *, is_stored: bool = True) -> object:
        self._fetch()
        self._line_up()
        decision = self.state.decide(command, self.instant(), self.now)
        self._carry_out(decision, is_stored=is_stored)
        assert [token for token, _ in decision.replies] == ["t"]
        return decision.replies[0][1]

    def _carry_out(self, decision: Decision, *, is_stored: bool) -> None:
        if is_stored:
            for record in decision.records:
                key, value = records.encode(record)
                assert records.decode(key, value) == record
                self.stored.append((key, value))
                self.state.replay(record)

    def _learn_again(self) -> None:
        self.state.learn(self._entries_from(self.state.learned_end), self.log_end)

    def _entries_from(self, offset: int) -> list[Run | Marked]:
        return [
            entry for entry in self.entries if (entry.end if isinstance(entry, Run) else entry.offset + 1) > max(offset, self.log_start)
        ]

    def _fetch(self) -> None:
        """Pages that were not at hand are, when they are asked for again; then the ledger is as it would be with all of them in memory."""
        missed = -1
        while missed != self.pages.missed:
            missed = self.pages.missed
            self.state.counts(QUEUE_GROUP, self.now)
        self.seen["pages"] = self.pages.got

    def _new(self) -> LedgerState:
        self.pages = SlowPages()
        return LedgerState(lambda _: self.policy, lambda: 0.5, self.pages, self.rng.choice((0, self.now)))

    def instant(self) -> Instant:
        return Instant((self.now - START_MS) / 1000)


def step(play: Play, rng: Random) -> None:
    """One thing that may happen, at random."""
    group = rng.choice((QUEUE_GROUP, QUEUE_GROUP, SHARE))
    match rng.choices(range(15), (8, 12, 26, 30, 10, 2, 3, 3, 0.4, 0.7, 0.8, 1, 1, 4, 2 if play.has_delay else 0))[0]:
        case 0:
            play.send(rng.randint(1, 4))
        case 1:
            several = rng.choice((1, 1, 4))
            message_group = rng.choice(GROUPS)
            for _ in range(several):
                play.send_marked(
                    priority=rng.choice((PRIORITY_DEFAULT, PRIORITY_DEFAULT, 0, 9)), delay_ms=0 if several > 1 else rng.choice(DELAYS_MS),
                    ttl_ms=rng.choice((0, 0, 2_000, 60_000)), group=message_group, dedup=rng.choice(DEDUPS),
                    is_by_log=rng.random() < 0.4,
                )  # fmt: skip
        case 2:
            attempt, is_stored = rng.choice(ATTEMPTS), rng.random() < 0.95
            play.take(group, rng.choice((1, 2, 5, 20)), rng.choice(LEASES_MS), attempt=attempt, is_stored=is_stored)
        case 3:
            delay_ms = rng.choice((None, 0, 0, 2_000, 50_000_000))
            play.settle(rng.randrange(12), rng.choice(list(Verb)), delay_ms, rng.choice(REASONS), is_stored=rng.random() < 0.95)
        case 4:
            play.wait(rng.choice(WAITS_MS), is_noticed=rng.random() < 0.6)
        case 5:
            play.lose_a_lapse()
        case 6:
            play.cancel(group, rng.randrange(play.log_end + 2))
        case 7:
            play.bury()
        case 8:
            play.purge(group)
        case 9:
            play.pause(group, is_paused=rng.random() < 0.3)
        case 10:
            play.rewind(group, rng.randrange(6))
        case 11:
            rng.choice((play.start, play.trim))(rng.randrange(8))
        case 12:
            rng.choice((lambda: play.skip(2), play.forget))()
        case 13:
            rng.choice((play.note_checkpoint, play.die, lambda: play.die(from_scratch=True)))()
        case 14:
            play.change_delay(rng.choice(COMMON_DELAYS_MS), is_stored=rng.random() < 0.9)


def walk(policy: str, seed: int, steps: int) -> Counter[str]:
    """Every second one with buckets of a second or less, and pages of three messages."""
    with replaced(TINY if seed % 2 else []):
        rng, play = Random(seed), Play(policy)
        for _ in range(steps):
            step(play, rng)
            play.check()
    return play.seen
