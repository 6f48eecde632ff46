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
    messages = state.messages
    for entry in entries:
        known_end = messages.learned_end
        if isinstance(entry, Run):
            run = entry if entry.start >= known_end else Run(known_end, entry.end, entry.written_ms)
            if run.start < run.end:
                if run.start > known_end:
                    _skip(state, run.start)
                _learn_run(state, run, policy, wall_ms)
        elif entry.offset >= known_end:
            _skip(state, entry.offset)
            _learn_marked(state, entry.offset, entry.traits, policy, wall_ms)
    if end_offset > messages.learned_end:
        _skip(state, end_offset)


def come(state: "LedgerState", wall_ms: int, count_max: int) -> None:
    """Messages that are delayed get into line when their time has come."""
    messages = state.messages
    if messages.waiting.count and messages.common_delay.has_line:
        _come_in_order(state, wall_ms, count_max)
    for _ in range(count_max):
        found = messages.delays.pop(wall_ms)
        if found is None:
            return
        offset = found[1]
        if messages.waiting.discard(offset) and offset not in messages.duplicates:
            _into_line(state, offset, found[0])


def _come_in_order(state: "LedgerState", wall_ms: int, count_max: int) -> None:
    for _ in range(count_max):
        found = state.messages.common_delay.pop(wall_ms)
        if found is None:
            return
        if found[0] not in state.messages.duplicates:
            _into_line(state, *found)


def dedup_key(policy: Policy, dedup: bytes, group: bytes) -> bytes:
    return group + b"\0" + dedup if policy.dedup_by_group else dedup


def _learn_run(state: "LedgerState", run: Run, policy: Policy, wall_ms: int) -> None:
    messages, end, written_ms = state.messages, run.end, run.written_ms
    messages.mark(end, written_ms if written_ms < wall_ms else wall_ms)
    messages.learned_end = end
    if messages.common_delay.starts:
        for start, end, delay_ms in messages.common_delay.over(run.start, run.end):
            _learn_piece(state, Run(start, end, run.written_ms), delay_ms, policy, wall_ms)
    else:
        _add_run(state, run)


def _learn_piece(state: "LedgerState", run: Run, delay_ms: int, policy: Policy, wall_ms: int) -> None:
    messages = state.messages
    if not delay_ms and not (policy.is_fifo and messages.common_delay.has_line):
        _add_run(state, run)
        return
    for offset in range(run.start, run.end):
        if _is_done_by_all(state, offset):
            continue
        if _is_held(state, offset):  # It was given to somebody: it has waited.
            _add_run(state, Run(offset, offset + 1, run.written_ms))
        elif policy.is_fifo:
            messages.common_delay.add(offset, min(run.written_ms, wall_ms))
        else:
            messages.delay(offset, run.written_ms + delay_ms)


def _is_held(state: "LedgerState", offset: int) -> bool:
    return any(offset in each.rows for each in state.ledgers.values())


def _add_run(state: "LedgerState", run: Run) -> None:
    for ledger in state.ledgers.values():
        if (ready := ledger.ready) is not None and (base := ledger.done.base) < run.end:
            ready.add_run(max(run.start, base), run.end)


def _learn_marked(state: "LedgerState", offset: int, traits: Traits, policy: Policy, wall_ms: int) -> None:
    messages = state.messages
    messages.mark(offset + 1, min(traits.written_ms, wall_ms))
    messages.learned_end = offset + 1
    if traits.moved:
        state.moves.note(traits.moved, offset, traits.written_ms)
    is_duplicate = bool(traits.dedup) and offset >= state.dedup_from and _is_duplicate(state, offset, traits, policy)
    if _is_done_by_all(state, offset):
        return
    deliver_at, common = traits.deliver_at, messages.common_delay
    delay_ms = common.of(offset) if common.starts and not deliver_at else 0
    is_held = _is_held(state, offset)
    waits_in_order = policy.is_fifo and not deliver_at and not is_held and (delay_ms > 0 or common.has_line)
    if delay_ms and not policy.is_fifo:
        deliver_at = traits.written_ms + delay_ms
    messages.keep(offset, traits, deliver_at=deliver_at, is_held=is_held)
    if waits_in_order:
        common.add(offset, min(traits.written_ms, wall_ms))
    if is_duplicate:
        messages.duplicates[offset] = None
        messages.duplicates_ms = 0
    elif deliver_at or waits_in_order:
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
