"""A ledger with a clock that stands still until it is told otherwise; every decision is stored and replayed at once."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from penstock.queues import commands, records
from penstock.queues.commands import QUEUE_GROUP, Settlement, Verb
from penstock.queues.headers import Traits
from penstock.queues.policy import Policy
from penstock.queues.records import Record
from penstock.queues.replies import Code, Delivery, Done, Outcome, Reply, Settled, Taken
from penstock.queues.state import LedgerState, Marked, Run
from penstock.queues.states import State
from penstock.queues.views import Counts, MessageView
from penstock.vocabulary import Instant

START_MS = 1_700_000_000_000


class Scene:
    def __init__(self, policy: Policy | None = None, *, chance: float = 0.0) -> None:
        self.policy = policy or Policy()
        self.chance = chance
        self.now = START_MS
        self.entries: list[Run | Marked] = []
        self.end = 0
        self.records: list[Record] = []
        self.state = self._new()
        self.state.begin(Instant(0), self.now)
        self.configure()

    def configure(self, **changes: Any) -> None:
        """Changes settings of the queue while it runs."""
        self.policy = replace(self.policy, **changes)
        self.do(commands.NoteDelay("t", QUEUE_GROUP))

    def send(self, count: int = 1, **options: Any) -> int:
        """The offset of the first. Options: those of `Traits`, with names of groups and ids as texts."""
        first = self.end
        if options:
            encoded = {name: value.encode() if isinstance(value, str) else value for name, value in options.items()}
            entries: Sequence[Run | Marked] = [Marked(first + at, Traits(written_ms=self.now, **encoded)) for at in range(count)]
        else:
            entries = [Run(first, first + count, self.now)]
        self.entries += entries
        self.end += count
        self.state.learn(entries, self.end)
        return first

    def take(
        self, count: int = 1, *, lease_ms: int | None = None, group: str = QUEUE_GROUP, who: str = "w", attempt: str = ""
    ) -> list[Delivery]:
        return list(self.taken(count, lease_ms=lease_ms, group=group, who=who, attempt=attempt).deliveries)

    def taken(self, count: int = 1, *, lease_ms: int | None = None, group: str = QUEUE_GROUP, who: str = "w", attempt: str = "") -> Taken:
        reply = self.do(commands.Take("t", group, count, lease_ms, who, attempt.encode()))
        assert isinstance(reply, Taken)
        return reply

    def offsets(self, count: int = 1, **given: Any) -> list[int]:
        return [each.offset for each in self.take(count, **given)]

    def settle(
        self, delivery: Delivery, verb: Verb, delay_ms: int | None = None, *, reason: str = "", group: str = QUEUE_GROUP
    ) -> Outcome:  # fmt: skip
        return self.settle_all(Settlement(delivery.offset, delivery.lease, verb, delay_ms, reason), group=group)[0]

    def settle_all(self, *items: Settlement, group: str = QUEUE_GROUP) -> tuple[Outcome, ...]:
        reply = self.do(commands.Settle("t", group, items))
        assert isinstance(reply, Settled)
        return reply.outcomes

    def done(self, delivery: Delivery, *, group: str = QUEUE_GROUP) -> Code:
        return self.settle(delivery, Verb.DONE, group=group).code

    def release(self, delivery: Delivery, delay_ms: int | None = None, *, reason: str = "") -> Outcome:
        return self.settle(delivery, Verb.RELEASE, delay_ms, reason=reason)

    def turn(self, command: commands.Command) -> Done:
        reply = self.do(command)
        assert isinstance(reply, Done)
        return reply

    def wait(self, ms: int) -> None:
        """Time passes, and what it causes happens."""
        self.now += ms
        for _ in range(1_000):
            due = self.state.due()
            if due is None or due > self.instant():
                return
            self._store(self.state.lapse(self.instant(), self.now).records)
        raise AssertionError("time never ends to be due")

    def view(self, offset: int, group: str = QUEUE_GROUP) -> MessageView:
        view = self.state.find(group, offset, self.now)
        assert view is not None
        return view

    def stands(self, offset: int, group: str = QUEUE_GROUP) -> State:
        return self.view(offset, group).state

    def counts(self, group: str = QUEUE_GROUP) -> Counts:
        return self.state.counts(group, self.now)

    def load(self, *, from_checkpoint: bool = False) -> None:
        """The node is lost, and another one takes over."""
        state = self._new()
        if from_checkpoint:
            state.restore(list(self.state.checkpoint()))
        else:
            for record in self.records:
                state.replay_stored(*records.encode(record))
        self.state = state
        self.learn_again()
        self.state.begin(self.instant(), self.now)

    def learn_again(self) -> None:
        first = self.state.learned_end
        self.state.learn([each for each in self.entries if (each.end if isinstance(each, Run) else each.offset + 1) > first], self.end)

    def do(self, command: commands.Command) -> Reply:
        decision = self.state.decide(command, self.instant(), self.now)
        self._store(decision.records)
        return decision.replies[0][1]

    def _store(self, made: list[Record]) -> None:
        for record in made:
            self.records.append(record)
            self.state.replay(record)

    def _new(self) -> LedgerState:
        return LedgerState(lambda _: self.policy, lambda: self.chance)

    def instant(self) -> Instant:
        return Instant((self.now - START_MS) / 1000)
