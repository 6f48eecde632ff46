"""What the passing of time causes: leases lapse, messages grow too old, and duplicates that came by the log's door are finished.

Each call does a bounded piece. What could not be recorded is looked at again a second later.
A message whose own time is up leaves its line as soon as the clock says so, which is no decision: nobody who takes has to pass it by. That
it is finished is one, and follows piece by piece.
"""

from collections.abc import Sequence
from itertools import islice

from penstock.queues.draft import Draft
from penstock.queues.history import LAPSED
from penstock.queues.ledger import Ledger
from penstock.queues.messages import Messages
from penstock.queues.ready import Ready
from penstock.queues.rows import read
from penstock.queues.states import State

LAPSES_MAX = 500  # Of one call: some milliseconds, with what recording them costs.
RETIRED_MAX = 500  # Of one look at the clock: some milliseconds.
AGAIN_MS = 1_000


def lapse_leases(ready: Ready, draft: Draft) -> None:
    rows, last = draft.ledger.rows, None
    for _ in range(LAPSES_MAX):
        found = ready.leases.pop(draft.wall_ms)
        if found is None:
            return
        offset = found[1]
        packed = rows.get(offset)
        if found == last or packed is None or packed[0] != State.LEASED:
            continue
        last, row = found, read(packed)
        if row.when > draft.wall_ms:
            ready.leases.add(row.when, offset)  # It was extended.
        else:
            ready.leases.add(draft.wall_ms + AGAIN_MS, offset)
            if offset not in draft.settled:
                draft.give_back(offset, row, delay_ms=None, is_failure=True, reason=LAPSED, is_lapse=True)


def retire(messages: Messages, ledgers: Sequence[Ledger], wall_ms: int) -> bool:
    """Messages whose own time is up leave their lines, in all ledgers. Whether there were any."""
    for looked_at in range(RETIRED_MAX):
        found = messages.expiries.pop(wall_ms)
        if found is None:
            return looked_at > 0
        offset = found[1]
        if not messages.has_expired(offset, wall_ms):
            continue  # All are done with it.
        if any(_is_unheld(offset, ledger) for ledger in ledgers):  # Who has it may go on; it is finished when it comes back.
            messages.overdue.add(offset)
            messages.expiries.add(wall_ms + AGAIN_MS, offset)
        if messages.expired.add(offset):
            for ledger in ledgers:
                if ledger.ready is not None:
                    ledger.ready.expired(offset)
    return True


def expire(messages: Messages, drafts: list[Draft]) -> None:
    """Those that are retired are finished, unless somebody has them."""
    for offset in list(islice(messages.overdue.offsets(), LAPSES_MAX)):
        messages.overdue.discard(offset)
        if messages.has_expired(offset, drafts[0].wall_ms):
            for draft in drafts:
                finish_unheld(offset, draft)


def sweep(draft: Draft) -> None:
    """Messages that are older than the queue keeps them."""
    ledger, messages, policy = draft.ledger, draft.messages, draft.policy
    start = max(ledger.swept_to, ledger.done.base)
    if not policy.ttl_ms:
        return
    end = min(messages.written_before(draft.wall_ms - policy.ttl_ms + 1, start), messages.learned_end)
    first_open, count = end, 0
    for run_start, run_end in ledger.done.gaps(start, end):
        if not ledger.rows and len(messages.kept) <= LAPSES_MAX:  # Else some need a look each.
            draft.finish_run(run_start, run_end)
            first_open = min(first_open, run_start)
            continue
        for offset in range(run_start, min(run_end, run_start + LAPSES_MAX - count)):
            if finish_unheld(offset, draft):
                first_open = min(first_open, offset)
        count += run_end - run_start
        if count >= LAPSES_MAX:
            first_open = min(first_open, run_end - (count - LAPSES_MAX))
            break
    ledger.swept_to = first_open  # Only past those that are done or held: the others count when it is recorded.


def finish_duplicates(messages: Messages, draft: Draft) -> None:
    messages.duplicates_ms = draft.wall_ms + AGAIN_MS
    for offset in islice(messages.duplicates, LAPSES_MAX):
        finish_unheld(offset, draft)


def sweep_ms(ledger: Ledger, messages: Messages, ttl_ms: int) -> int | None:
    """When the next sweep finds something, at the earliest."""
    start = max(ledger.swept_to, ledger.done.base)
    if not ttl_ms or start >= messages.learned_end:
        return None
    written_ms = messages.written_ms(start)
    return written_ms + ttl_ms if written_ms else None


def finish_unheld(offset: int, draft: Draft) -> bool:
    """Finishes a message unless it is done, somebody has it, or it is being buried."""
    if offset in draft.settled or not _is_unheld(offset, draft.ledger):
        return False
    draft.finish(offset, State.READY)
    return True


def _is_unheld(offset: int, ledger: Ledger) -> bool:
    packed = ledger.rows.get(offset)
    return (packed is None or packed[0] == State.READY) and offset not in ledger.done
