"""Messages become known: the data log's watermark has passed them.

Plain ones come as runs, and cost the same whatever their number. What is finished already (after a load or a rewind) is not put into line.
An id that another message has is a duplicate; sends through a queue's own doors are told before they append, so this one came as a plain
record, or by a sender that did not hear the first answer: it is finished, and nobody gets it. What a door has let in is never judged again:
the settings may have changed before a new leader reads it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.queues.headers import Traits
from penstock.queues.policy import Policy

if TYPE_CHECKING:
    from penstock.queues.state import LedgerState


class Run(NamedTuple):
    """Plain messages with offsets side by side."""

    start: int
    end: int
    written_ms: int  # The latest of them.


class Marked(NamedTuple):
    """A message with options."""

    offset: int
    traits: Traits


def learn(state: "LedgerState", entries: Sequence[Run | Marked], end_offset: int, policy: Policy, wall_ms: int) -> None:
    for entry in entries:
        if isinstance(entry, Run):
            start, end = max(entry.start, state.learned_end), entry.end
            if start < end:
                _skip(state, start)
                _learn_run(state, Run(start, end, entry.written_ms), policy, wall_ms)
        elif entry.offset >= state.learned_end:
            _skip(state, entry.offset)
            _learn_marked(state, entry.offset, entry.traits, policy, wall_ms)
    _skip(state, end_offset)


def come(state: "LedgerState", wall_ms: int, count_max: int) -> None:
    """Messages that their senders have delayed get into line when their time has come."""
    messages = state.messages
    for _ in range(count_max):
        found = messages.delays.pop(wall_ms)
        if found is None:
            return
        offset = found[1]
        if messages.waiting.discard(offset) and offset not in messages.duplicates:
            _into_line(state, offset, found[0])


def dedup_key(policy: Policy, dedup: bytes, group: bytes) -> bytes:
    return group + b"\0" + dedup if policy.dedup_by_group else dedup


def _learn_run(state: "LedgerState", run: Run, policy: Policy, wall_ms: int) -> None:
    messages = state.messages
    messages.mark(run.end, min(run.written_ms, wall_ms))
    messages.learned_end = run.end
    if policy.delay_ms:
        for offset in range(run.start, run.end):
            if not _is_done_by_all(state, offset):
                messages.delay(offset, run.written_ms + policy.delay_ms)
        return
    for ledger in state.ledgers.values():
        if ledger.ready is not None and ledger.done.base < run.end:
            ledger.ready.add_run(max(run.start, ledger.done.base), run.end)


def _learn_marked(state: "LedgerState", offset: int, traits: Traits, policy: Policy, wall_ms: int) -> None:
    messages = state.messages
    messages.mark(offset + 1, min(traits.written_ms, wall_ms))
    messages.learned_end = offset + 1
    if traits.moved:
        state.moves.note(traits.moved, offset, traits.written_ms)
    is_duplicate = bool(traits.dedup) and offset >= state.dedup_from and _is_duplicate(state, offset, traits, policy)
    if _is_done_by_all(state, offset):
        return
    deliver_at = traits.deliver_at or (traits.written_ms + policy.delay_ms if policy.delay_ms else 0)
    messages.keep(offset, traits, deliver_at=deliver_at, is_held=any(offset in each.rows for each in state.ledgers.values()))
    if is_duplicate:
        messages.duplicates[offset] = None
        messages.duplicates_ms = 0
    elif deliver_at:
        return
    elif offset in messages.kept:
        _into_line(state, offset, traits.written_ms)
    else:
        for ledger in state.ledgers.values():
            if ledger.ready is not None and offset >= ledger.done.base:
                ledger.ready.add_run(offset, offset + 1)


def _is_duplicate(state: "LedgerState", offset: int, traits: Traits, policy: Policy) -> bool:
    state.dedup_from = offset + 1
    key = dedup_key(policy, traits.dedup, traits.group)
    first = state.window.find(key, traits.written_ms)
    if first is not None and first < offset and not traits.is_first:
        return offset not in state.messages.exempt
    state.window.note(key, offset, traits.written_ms + policy.dedup_ms)
    return False


def _into_line(state: "LedgerState", offset: int, sent_ms: int) -> None:
    for ledger in state.ledgers.values():
        if ledger.ready is not None and offset not in ledger.done and offset not in ledger.rows:
            ledger.ready.add(offset, offset, sent_ms)


def _skip(state: "LedgerState", end: int) -> None:
    """There are no messages up to here."""
    start = state.learned_end
    if end <= start:
        return
    for ledger in state.ledgers.values():
        ledger.skip(start, end)
    state.messages.learned_end = end


def _is_done_by_all(state: "LedgerState", offset: int) -> bool:
    return all(offset in ledger.done for ledger in state.ledgers.values())
