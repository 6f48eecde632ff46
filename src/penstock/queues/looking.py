"""What is told about messages to those who only look."""

from collections.abc import Iterable, Iterator
from heapq import merge, nsmallest
from itertools import islice
from typing import TYPE_CHECKING

from penstock.queues import history
from penstock.queues.lanes import entry_of
from penstock.queues.ledger import PLACE, Ledger
from penstock.queues.messages import Messages
from penstock.queues.rows import read
from penstock.queues.states import State
from penstock.queues.views import Counts, LetterOwed, MessageView

if TYPE_CHECKING:
    from penstock.queues.state import LedgerState

LOOKED_AT_MAX = 20_000  # Messages that one peek passes over.

# Bytes of memory that one of each takes, about, as benchmarks/ledger.py measures them.
_ROW, _KEPT, _DEDUP, _CHUNK = 260, 240, 260, 260


def letter(ledger: Ledger, offset: int) -> LetterOwed:
    row, failures = read(ledger.rows[offset]), history.failures(ledger.failures.get(offset, b""))
    topic_id, partition, is_sent_off = PLACE.unpack(ledger.bound[offset]) if offset in ledger.bound else (b"", 0, False)
    return LetterOwed(
        ledger.group, offset, row.attempts, row.when, failures[-1].reason if failures else "", failures, row.lease,
        topic_id, partition, is_sent_off,
    )  # fmt: skip


def counts(ledger: Ledger, messages: Messages) -> Counts:
    assert ledger.ready is not None
    done, end = ledger.done, messages.learned_end
    duplicates = [offset for offset in messages.duplicates if offset not in done]  # As good as done.
    unfinished = max(end - done.base - done.bits.count - len(duplicates), 0)
    delayed = messages.waiting.count_without(done) + ledger.ready.retrying.count - sum(each in messages.waiting for each in duplicates)
    burying = len(ledger.burying)
    return Counts(
        ready=max(unfinished - ledger.leased - delayed - burying, 0), leased=ledger.leased, delayed=delayed, burying=burying,
        oldest_ms=messages.written_ms(done.base) if unfinished else 0, finished=ledger.finished, dropped=ledger.dropped,
        is_paused=ledger.is_paused, base=done.base, end=end,
    )  # fmt: skip


def find(ledger: Ledger, messages: Messages, offset: int, wall_ms: int) -> MessageView | None:
    if not 0 <= offset < max(messages.learned_end, ledger.done.base):
        return None
    if offset in ledger.done or offset in messages.duplicates:
        return MessageView(offset, State.DONE)
    packed = ledger.rows.get(offset)
    if packed is None:
        if offset in messages.waiting:
            return MessageView(offset, State.DELAYED)
        return MessageView(offset, State.READY, is_blocked=_is_blocked(ledger, offset, offset))
    row = read(packed)
    state = State(row.state)
    if state is State.READY and row.when > wall_ms:
        state = State.DELAYED
    is_blocked = state is State.READY and _is_blocked(ledger, offset, row.place)
    return MessageView(
        offset, state, row.attempts, row.lease, row.when, row.first_ms, row.who.decode(errors="replace"), is_blocked,
        history.failures(ledger.failures.get(offset, b"")),
    )  # fmt: skip


def peek(ledger: Ledger, messages: Messages, states: tuple[State, ...], first: int, wall_ms: int) -> Iterator[MessageView]:
    for offset in islice(_unfinished(ledger, first, messages.learned_end), LOOKED_AT_MAX):
        view = find(ledger, messages, offset, wall_ms)
        if view is not None and view.state in states:
            yield view


def page(
    ledger: Ledger, messages: Messages, states: tuple[State, ...], first: int, *, count: int, looked_at_max: int, wall_ms: int
) -> tuple[list[MessageView], int]:
    """As `peek`, for who goes on where this one ended: up to so many, of so many that are looked at, and the offset to go on from.

    Where no ready ones are wanted, only those are looked at that somebody has or had, or that wait for their time. Those that are done are
    all offsets that are: whether a record is there, the log knows.
    """
    end, found = max(first, messages.learned_end), list[MessageView]()
    chosen: Iterable[int]
    if State.DONE in states:
        chosen = range(first, end)
    elif State.READY in states:
        chosen = _unfinished(ledger, first, end)
    else:
        chosen = _exceptional(ledger, messages, states, first, looked_at_max)
    offsets = islice(chosen, looked_at_max + 1)
    for looked_at, offset in enumerate(offsets):
        if looked_at == looked_at_max or len(found) == count:
            return found, offset
        view = find(ledger, messages, offset, wall_ms)
        if view is not None and view.state in states:
            found.append(view)
    return found, end


def held_bytes(state: "LedgerState") -> int:
    messages = state.messages
    shared = len(messages.kept) * _KEPT + _timed_bytes(messages) + len(state.window) * _DEDUP
    return shared + sum(
        len(ledger.rows) * _ROW + ledger.failures_bytes + len(ledger.done.bits.chunks) * _CHUNK for ledger in state.ledgers.values()
    )


def _timed_bytes(messages: Messages) -> int:
    return messages.delays.held_bytes + messages.expiries.held_bytes + messages.common_delay.held_bytes


def _unfinished(ledger: Ledger, first: int, end: int) -> Iterator[int]:
    for start, stop in ledger.done.gaps(first, end):
        yield from range(start, stop)


def _exceptional(ledger: Ledger, messages: Messages, states: tuple[State, ...], first: int, count: int) -> Iterator[int]:
    """Those that may be leased, delayed or buried, in order. A row that is ready may wait for its time."""
    wanted = {State.READY if state is State.DELAYED else state for state in states}
    rows = nsmallest(count + 1, (offset for offset, row in ledger.rows.items() if row[0] in wanted and offset >= first))
    waiting = messages.waiting.offsets_from(first) if State.DELAYED in states else iter(())
    return merge(rows, (offset for offset in waiting if offset not in ledger.rows and offset not in ledger.done))


def _is_blocked(ledger: Ledger, offset: int, place: int) -> bool:
    if ledger.ready is None or not ledger.ready.policy.is_fifo:
        return False
    group = ledger.ready.group_of(offset)
    return group is not None and ledger.ready.head(group) != entry_of(place, offset)
