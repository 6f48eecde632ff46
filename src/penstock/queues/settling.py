"""Settle, and what else ends a delivery: who holds a message says what is to become of it.

Whether a lease still counts is told by its number and its deadline, whoever has noticed so far that the time is up. Where the policy is
lenient, a lease that has lapsed may still finish its message, also when somebody else has it by now: work that is done is done. And it may
be extended as long as nobody else has had the message since, as SQS does it: it counts again from then on, as the same delivery. One that
its holder has given back may not.
A delivery is undone only while nobody can have the message: not once its lease was extended, or its batch given again to the same attempt.
Who has it returns it instead: that one knows that nothing was done with it. Neither counts: a message has as many deliveries as may have
been worked on, and the next one has the number of the one that was given back. SQS counts each receive, so what it calls a visibility
timeout of 0 is an extension by nothing.
A range is settled whole or not at all; what is finished already in it, and offsets without a message, are passed over, and so are ranges
before everything that is not done.
"""

from itertools import islice

from penstock.queues import many
from penstock.queues.commands import ANY_LEASE, COUNT_MAX, RANGE_MAX, REASON_BYTES_MAX, WHO_BYTES_MAX, ReleaseAll, Settle, Settlement, Verb
from penstock.queues.draft import Draft
from penstock.queues.finishing import finish_runs
from penstock.queues.headers import TIME_MS_MAX
from penstock.queues.history import cut
from penstock.queues.policy import LEASE_MS_MAX
from penstock.queues.records import Changed
from penstock.queues.replies import Code, Done, Fault, Outcome, Settled
from penstock.queues.rows import HEARD, LET_GO, Row, read
from penstock.queues.states import State

_LEASED = State.LEASED.value
OK, GONE, LOST, UNKNOWN = (Outcome(code) for code in (Code.OK, Code.GONE, Code.LOST, Code.UNKNOWN))


def settle(draft: Draft, command: Settle) -> Settled:
    if _finish_held(draft, command.items) or finish_runs(draft, command.items):
        return Settled((OK,) * len(command.items))
    spans = sum(max(item.end_offset - item.offset, 1) if item.end_offset else 1 for item in command.items)
    if not 1 <= len(command.items) <= COUNT_MAX or spans > RANGE_MAX:
        return Settled((), Fault.INVALID)
    delay_ms_max = TIME_MS_MAX - draft.wall_ms
    if any(item.delay_ms is not None and not 0 <= item.delay_ms <= delay_ms_max for item in command.items):
        return Settled((), Fault.INVALID)
    outcomes = tuple(_settle_range(draft, item) if item.end_offset else _settle_one(draft, item) for item in command.items)
    if command.is_whole and any(outcome.code is not Code.OK for outcome in outcomes):
        draft.drop()
    return Settled(outcomes)


def proof(draft: Draft, reply: Settled) -> list[Changed]:
    """A record that says nothing, where somebody is told that a lease is not, or no longer, theirs. Another node may lead by now, and have
    given or extended that lease, and this one may have yet to hear of it. So the word waits until the record is committed, which it
    never is then, and the asker hears from the other. What is gone stays gone, whoever says so."""
    is_denied = any([outcome.code is not Code.OK and outcome.code is not Code.GONE for outcome in reply.outcomes])
    return [Changed(draft.ledger.group, draft.wall_ms)] if is_denied else []


def _finish_held(draft: Draft, items: tuple[Settlement, ...]) -> bool:
    """What nearly all are: every message is done, by whoever holds it. False: it is not so, and nothing was decided."""
    if not 1 <= len(items) <= COUNT_MAX:
        return False
    offsets = many.held_offsets(draft.ledger.rows, items, draft.wall_ms)
    if offsets is None or len(set(offsets)) < len(offsets):
        return False
    draft.finish_held(offsets)
    return True


def release_all(draft: Draft, command: ReleaseAll) -> Done:
    """What a member has that is gone. It may have worked on all of it, and died of one: each delivery counts, or a message that kills
    whoever has it would come for ever. Looks at all rows, of which there are at most about as many as may be in flight: at their bytes,
    for few are meant."""
    who, leased, wall_ms = cut(command.who, WHO_BYTES_MAX), State.LEASED.value, draft.wall_ms
    ending = [(offset, packed) for offset, packed in draft.ledger.rows.items() if packed.endswith(who) and packed[0] == leased]
    held = ((offset, row) for offset, row in ((offset, read(packed)) for offset, packed in ending) if row.who == who and row.when > wall_ms)
    chosen = list(islice(held, COUNT_MAX))
    for offset, row in chosen:
        draft.give_back(offset, row, delay_ms=0, is_failure=False)
    return Done(len(chosen))


def _settle_one(draft: Draft, item: Settlement) -> Outcome:
    row = _row(draft, item.offset)
    if isinstance(row, Outcome):
        return row
    if row.state == State.LEASED:
        if _holds(item, row) and row.when > draft.wall_ms:
            return _carry_out(draft, item, item.offset, row)
        is_held = row.when > draft.wall_ms
        refusal = Outcome(Code.LOST, row.when) if is_held and not _holds(item, row) else LOST
    else:
        refusal = LOST
    if not draft.policy.forgives_lapses or item.lease == ANY_LEASE or row.state == State.BURYING:
        return refusal
    if item.verb is Verb.DONE and item.lease <= row.lease:
        draft.finish(item.offset, State(row.state))
        return OK
    if item.verb is Verb.EXTEND and item.lease == row.lease and not draft.is_expired(item.offset):
        return _take_up_again(draft, item, row)
    return refusal


def _settle_range(draft: Draft, item: Settlement) -> Outcome:
    held: list[tuple[int, Row]] = []
    who, wall_ms, base = cut(item.who, WHO_BYTES_MAX) if item.lease == ANY_LEASE else None, draft.wall_ms, draft.ledger.done.base
    if item.end_offset <= base:
        return OK  # All of it is over, or was deleted under its holder, whose word on other ranges counts all the same.
    for offset in range(max(item.offset, base), item.end_offset):
        row = _row(draft, offset)
        if isinstance(row, Row):
            is_holder = item.lease == row.lease if who is None else row.who == who
            if row.state != State.LEASED or not is_holder or row.when <= wall_ms:
                return LOST
            held.append((offset, row))
        elif row.code is not Code.GONE:
            return row
    if item.verb is Verb.DONE:  # What nearly all are, and needs no look at each.
        for offset, _ in held:
            draft.finish(offset, State.LEASED)
        return OK if held else GONE
    late = next((row for _, row in held if _is_too_long(draft, item, row)), None)
    if late is not None:
        return Outcome(Code.TOO_LONG, late.when)
    outcomes = [_carry_out(draft, item, offset, row) for offset, row in held]
    return outcomes[-1] if outcomes else GONE


def _row(draft: Draft, offset: int) -> Row | Outcome:
    """The message's row, as far as it can be settled."""
    decided = draft.settled.get(offset)
    if decided is State.DONE:
        return GONE
    if decided is not None and decided is not State.LEASED:
        return LOST
    packed = draft.ledger.rows.get(offset)  # What is done has none. After a rewind, it may be there before the message is known again.
    if packed is not None:
        return read(packed)
    return GONE if offset in draft.ledger.done and 0 <= offset < draft.messages.end else UNKNOWN


def _holds(item: Settlement, row: Row) -> bool:
    if item.lease == ANY_LEASE:
        return row.who == cut(item.who, WHO_BYTES_MAX)
    return item.lease == row.lease


def _carry_out(draft: Draft, item: Settlement, offset: int, row: Row) -> Outcome:
    who, reason = cut(item.who, WHO_BYTES_MAX), cut(item.reason, REASON_BYTES_MAX)
    who = b"" if who == row.who else who  # Said once is enough.
    match item.verb:
        case Verb.DONE:
            draft.finish(offset, State.LEASED)
            return OK
        case Verb.RELEASE:
            state, when_ms = draft.give_back(offset, row, delay_ms=item.delay_ms, is_failure=True, who=who, reason=reason)
            return Outcome(Code.OK, when_ms, is_buried=state is State.BURYING)
        case Verb.REJECT:
            return Outcome(Code.OK, is_buried=draft.bury(offset, who=who, reason=reason) is State.BURYING)
        case Verb.EXTEND:
            return _extend(draft, item, offset, row)
        case Verb.UNDO | Verb.RETURN:
            if item.verb is Verb.UNDO and row.flags & HEARD:
                return LOST
            draft.undo(offset, row)
            return OK


def _extend(draft: Draft, item: Settlement, offset: int, row: Row) -> Outcome:
    delay_ms = draft.policy.lease_ms if item.delay_ms is None else item.delay_ms
    if delay_ms == 0:
        state, when_ms = draft.give_back(offset, row, delay_ms=0, is_failure=False)
        return Outcome(Code.OK, when_ms, is_buried=state is State.BURYING)
    if _is_too_long(draft, item, row):
        return Outcome(Code.TOO_LONG, row.when)
    draft.extend(offset, State(row.state), draft.wall_ms + delay_ms)
    return Outcome(Code.OK, draft.wall_ms + delay_ms)


def _take_up_again(draft: Draft, item: Settlement, row: Row) -> Outcome:
    """Extends a lease that has lapsed, whether that was noticed or not. Nobody has had the message since."""
    if row.state == State.LEASED:
        return _extend(draft, item, item.offset, row)
    if item.delay_ms == 0:
        return OK  # It is given back already.
    if row.flags & LET_GO or draft.ledger.leased >= draft.policy.in_flight_max:
        return LOST
    return _extend(draft, item, item.offset, row)


def _is_too_long(draft: Draft, item: Settlement, row: Row) -> bool:
    delay_ms = draft.policy.lease_ms if item.delay_ms is None else item.delay_ms
    return item.verb is Verb.EXTEND and draft.wall_ms + delay_ms > row.taken_ms + LEASE_MS_MAX
