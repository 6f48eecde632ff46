"""Nodes whose queues are broken on purpose (see variants.py): each neglects one thing, and the rules of queues must notice."""

from collections.abc import Callable, Container, Sequence
from dataclasses import replace
from typing import Any

from penstock.broker.coordinator import Coordinator
from penstock.broker.node import Node
from penstock.broker.queues import burying, carrying, ledgers
from penstock.broker.queues.bodies import Message
from penstock.broker.queues.calls import Code, Draft, Lent, QueueRefusal
from penstock.broker.queues.carrying import Carried
from penstock.broker.queues.finishers import Finishers
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.policies import policy_of
from penstock.broker.queues.rounds import Rounds
from penstock.broker.queues.senders import Batch
from penstock.broker.queues.takers import Takers
from penstock.queues import settling, taking
from penstock.queues.commands import Settlement, Verb
from penstock.queues.headers import ID
from penstock.queues.ledger import Ledger
from penstock.queues.messages import Messages
from penstock.queues.policy import Policy
from penstock.queues.records import Leased, Turn, Turned
from penstock.queues.replies import Delivery, Settled
from penstock.queues.rows import Row
from penstock.queues.state import LedgerState
from penstock.queues.states import State
from penstock.queues.timetable import Timetable
from penstock.queues.views import LetterOwed
from penstock.settings import TopicConfig
from penstock.simulator.defects import breaks
from penstock.vocabulary import Instant

Patches = list[tuple[Any, str, Any]]  # Whose, which attribute, what instead.

_TOO_EARLY_MS = 400


# What a ledger promises, and forgets.


@breaks("queues.lease-durable-first")
def answers_before_the_ledger_is_durable() -> Patches:
    return [(Coordinator, "_answer_when_durable", lambda self, replies, _: self.tell(replies))]


@breaks("queues.state-survives-failover")
def forgets_leases_at_a_load() -> Patches:
    begin = LedgerState.begin

    def begin_anew(self: LedgerState, now: Instant, wall_ms: int) -> None:
        for ledger in self.ledgers.values():
            ledger._drop_rows(lambda _: True)
        begin(self, now, wall_ms)

    return [(LedgerState, "begin", begin_anew)]


@breaks("queues.state-survives-failover", "queues.dedup-window")
def forgets_ids_at_a_load() -> Patches:
    begin = LedgerState.begin

    def begin_without_ids(self: LedgerState, now: Instant, wall_ms: int) -> None:
        self.window.clear()
        begin(self, now, wall_ms)

    return [(LedgerState, "begin", begin_without_ids)]


@breaks("queues.lease-numbers-unique")
def gives_lease_numbers_anew_at_a_load() -> Patches:
    begin = LedgerState.begin

    def begin_at_one(self: LedgerState, now: Instant, wall_ms: int) -> None:
        begin(self, now, wall_ms)
        for ledger in self.ledgers.values():
            ledger.next_lease = 1

    return [(LedgerState, "begin", begin_at_one)]


@breaks("queues.no-message-lost", "queues.only-holder-settles")
def trims_what_is_unfinished() -> Patches:
    return [(LedgerState, "base_of_all", property(lambda self: self.learned_end))]


# Leases.


@breaks("queues.lease-expires", "queues.one-holder")
def ends_leases_too_early() -> Patches:
    lapse, due = LedgerState.lapse, LedgerState.due

    def due_early(self: LedgerState) -> Instant | None:
        at = due(self)
        return None if at is None else Instant(max(self._now, at - _TOO_EARLY_MS / 1_000))

    return [(LedgerState, "lapse", lambda self, now, wall_ms: lapse(self, now, wall_ms + _TOO_EARLY_MS)), (LedgerState, "due", due_early)]


@breaks("queues.only-holder-settles")
def lets_anybody_settle() -> Patches:
    def settle_one(draft: Any, item: Settlement) -> Any:
        row = settling._row(draft, item.offset)
        is_others = isinstance(row, Row) and row.state == State.LEASED and item.verb is not Verb.DONE
        return settling._carry_out(draft, item, item.offset, row) if is_others and isinstance(row, Row) else original(draft, item)

    original = settling._settle_one
    return [(settling, "_settle_one", settle_one)]


@breaks("queues.undo-only-undelivered")
def undoes_what_somebody_has() -> Patches:
    """Who gives back an answer that got lost takes the messages from whoever has asked again."""
    return [(settling, "HEARD", 0)]


@breaks("queues.deliveries-counted")
def counts_no_deliveries() -> Patches:
    deliveries = taking.deliveries

    def first_ones(draft: Any, record: Leased) -> list[Delivery]:
        return [each._replace(attempt=1) for each in deliveries(draft, record)]

    return [(taking, "deliveries", first_ones)]


@breaks("queues.body-matches-send")
def lends_one_message_for_another() -> Patches:
    """The bodies of a take that brings several are mixed up."""
    lent_of = QueuePartition.lent

    def lent_mixed(self: QueuePartition, *arguments: Any) -> list[Lent]:
        lent = lent_of(self, *arguments)
        return [each._replace(body=other.body) for each, other in zip(lent, reversed(lent), strict=True)]

    return [(QueuePartition, "lent", lent_mixed)]


# Time and order.


@breaks("queues.batched-callers-isolated", "queues.one-holder")
def lends_a_part_to_two() -> Patches:
    """Takers who share a batch get the first part of it, all of them."""
    divide = Takers._divide

    def divide_one_part(self: Takers, deliveries: Sequence[Delivery]) -> None:
        for waiter in self._waiters:
            divide(Takers(self._queue, [waiter]), deliveries)

    return [(Takers, "_divide", divide_one_part)]


@breaks("queues.batched-callers-isolated")
def tells_senders_of_each_others_messages() -> Patches:
    """Those whose messages are one batch hear of the parts of others."""

    def set_mixed(self: Batch, _: None) -> None:
        sent = self.sent[::-1]
        for heard, drafts, _size in self._callers:
            if not heard.done():
                heard.set_result([sent.pop(0) for _ in drafts])

    return [(Batch, "set_result", set_mixed)]


@breaks("queues.batched-callers-isolated", "queues.done-stays-done")
def finishes_for_others() -> Patches:
    """Of those who finish messages together, only the first one's are done, and all hear the same."""
    submit = Rounds._submit

    def submit_first(self: Rounds, some: Finishers) -> None:
        del some.items[some._callers[0][1] :]
        submit(self, some)

    def answered_alike(self: Finishers, reply: Settled) -> None:
        at = 0
        for heard, end in self._callers:
            if not heard.done():
                heard.set_result(reply.outcomes[:1] * (end - at))
            at = end

    return [(Rounds, "_submit", submit_first), (Finishers, "answered", answered_alike)]


@breaks("queues.no-early-delivery")
def lets_delayed_messages_out_early() -> Patches:
    delay = Messages.delay
    return [(Messages, "delay", lambda self, offset, until_ms, *options: delay(self, offset, until_ms - _TOO_EARLY_MS, *options))]


@breaks("queues.no-message-lost")
def forgets_a_bucket_of_delays() -> Patches:
    """What is opened when its time comes near goes nowhere."""
    return [(Timetable, "_scatter", lambda self, pairs, options, cut: len(pairs) // 2)]


@breaks("queues.fifo-order")
def keeps_no_order_in_groups() -> Patches:
    return _with_policy(lambda policy: replace(policy, is_fifo=False))


@breaks("queues.priority-order")
def knows_no_priorities() -> Patches:
    return _with_policy(lambda policy: replace(policy, has_priorities=False))


@breaks("queues.pause-purge-rewind")
def does_not_pause() -> Patches:
    return _deaf_to(Turn.PAUSED)


@breaks("queues.pause-purge-rewind")
def does_not_purge() -> Patches:
    return _deaf_to(Turn.PURGED)


@breaks("queues.pause-purge-rewind")
def does_not_rewind() -> Patches:
    return _deaf_to(Turn.REWOUND)


def _deaf_to(what: Turn) -> Patches:
    replay_turned = Ledger.replay_turned

    def replay_others(self: Ledger, record: Turned) -> None:
        if record.what is not what:
            replay_turned(self, record)

    return [(Ledger, "replay_turned", replay_others)]


def _with_policy(change: Callable[[Policy], Policy]) -> Patches:
    def changed(config: TopicConfig) -> Policy:
        return change(policy_of(config))

    return [(ledgers, "policy_of", changed)]


# Dead letters.


@breaks("queues.dead-letter-after-limit")
def buries_too_early() -> Patches:
    return _with_policy(lambda policy: replace(policy, deliveries_max=max(policy.deliveries_max - 1, min(policy.deliveries_max, 1))))


@breaks("queues.no-message-lost", "queues.dead-letter-owed")
def drops_dead_letters() -> Patches:
    async def carry_nothing(node: Node, queue: QueuePartition, letters: Sequence[LetterOwed], *_: object) -> Carried:
        return Carried([letter.offset for letter in letters], {}, {}, {})

    return [(burying, "carry", carry_nothing)]


@breaks("queues.no-message-lost", "queues.message-moved-once")
def drops_what_it_sends_back() -> Patches:
    """Dead letters that are redriven."""
    right = carrying.carry

    async def carry(node: Node, queue: QueuePartition, letters: Sequence[LetterOwed], target: str, untried: Container[int]) -> Carried:
        carried = await right(node, queue, [letter for letter in letters if not letter.is_sent_off], target, untried)
        carried.done.extend(letter.offset for letter in letters if letter.is_sent_off)
        return carried

    return [(burying, "carry", carry)]


@breaks("queues.message-moved-once", "queues.done-stays-done")
def keeps_what_it_sends_back() -> Patches:
    """It is there and here."""
    right = carrying.carry

    async def carry(node: Node, queue: QueuePartition, letters: Sequence[LetterOwed], target: str, untried: Container[int]) -> Carried:
        carried = await right(node, queue, letters, target, untried)
        for offset in [letter.offset for letter in letters if letter.is_sent_off and letter.offset in carried.done]:
            carried.done.remove(offset)
            carried.refused[offset] = QueueRefusal(Code.FULL, "it is said to be full")
        return carried

    return [(burying, "carry", carry)]


@breaks("queues.dead-letter-once")
def sends_dead_letters_again() -> Patches:
    """They do not name their move: what was moved by a node that died before it could say so is moved once more."""
    return _letters(lambda draft: draft._replace(moved=""))


@breaks("queues.body-matches-send")
def gives_dead_letters_other_ids() -> Patches:
    return _letters(lambda draft: draft._replace(kept_id="", headers=tuple(each for each in draft.headers if each[0] != ID)))


def _letters(change: Callable[[Draft], Draft]) -> Patches:
    dead_letter = carrying.dead_letter

    def changed(queue: QueuePartition, letter: LetterOwed, message: Message) -> Draft:
        return change(dead_letter(queue, letter, message))

    return [(carrying, "dead_letter", changed)]


QUEUE_VARIANTS: dict[str, Callable[[], Patches]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        answers_before_the_ledger_is_durable,
        forgets_leases_at_a_load,
        forgets_ids_at_a_load,
        gives_lease_numbers_anew_at_a_load,
        trims_what_is_unfinished,
        ends_leases_too_early,
        lets_anybody_settle,
        undoes_what_somebody_has,
        counts_no_deliveries,
        lends_one_message_for_another,
        lends_a_part_to_two,
        tells_senders_of_each_others_messages,
        finishes_for_others,
        lets_delayed_messages_out_early,
        forgets_a_bucket_of_delays,
        keeps_no_order_in_groups,
        knows_no_priorities,
        does_not_pause,
        does_not_purge,
        does_not_rewind,
        buries_too_early,
        drops_dead_letters,
        drops_what_it_sends_back,
        keeps_what_it_sends_back,
        sends_dead_letters_again,
        gives_dead_letters_other_ids,
    )
}
