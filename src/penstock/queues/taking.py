"""Take: messages that are ready become somebody's until a deadline."""

from penstock.queues import many
from penstock.queues.commands import ATTEMPT_ID_BYTES_MAX, COUNT_MAX, WHO_BYTES_MAX, Take
from penstock.queues.draft import Draft
from penstock.queues.history import cut
from penstock.queues.picking import pick
from penstock.queues.policy import LEASE_MS_MAX
from penstock.queues.records import Leased, Record
from penstock.queues.replies import Delivery, Fault, Taken
from penstock.queues.rows import read
from penstock.queues.states import State

_NOTHING, _OVER_LIMIT = Taken(()), Taken((), is_over_limit=True)


def take(draft: Draft, command: Take) -> tuple[list[Record], Taken]:
    ledger, policy, wall_ms = draft.ledger, draft.policy, draft.wall_ms
    lease_ms = policy.lease_ms if command.lease_ms is None else command.lease_ms
    if not (1 <= command.count <= COUNT_MAX and 0 <= lease_ms <= LEASE_MS_MAX and len(command.attempt_id) <= ATTEMPT_ID_BYTES_MAX):
        return [], Taken((), fault=Fault.INVALID)
    if command.attempt_id:
        again = _again(draft, command.attempt_id, wall_ms + lease_ms)
        if again or command.only_again:
            return [*draft.record()], Taken(again)
    offsets, nothing = choose(draft, command.count)
    if not offsets:
        return [], nothing
    record = Leased(
        ledger.group, wall_ms, wall_ms + lease_ms, ledger.next_lease, cut(command.who, WHO_BYTES_MAX), command.attempt_id, tuple(offsets)
    )
    return [record], Taken(deliveries(draft, record))


def choose(draft: Draft, count: int, *, freed: int = 0) -> tuple[list[int], Taken]:
    """Offsets, as many at most, in the order in which they are given; and what is told to whoever gets none of them. `freed`: so many that
    are in flight are done by the same decision."""
    ledger = draft.ledger
    if ledger.is_paused:
        return [], Taken((), is_paused=True)
    room = draft.policy.in_flight_max - ledger.leased + freed
    if room <= 0:
        return [], _OVER_LIMIT
    assert ledger.ready is not None
    in_flight, count = ledger.leased, min(count, room)
    offsets = pick(ledger.ready, draft.messages, count, next_lease=ledger.next_lease, in_flight=in_flight, wall_ms=draft.wall_ms)
    return offsets, _NOTHING if len(offsets) < room else _OVER_LIMIT


def deliveries(draft: Draft, record: Leased) -> tuple[Delivery, ...]:
    """As they will be when the record is replayed."""
    return many.deliveries(draft.ledger.rows, record)


def _again(draft: Draft, attempt_id: bytes, deadline_ms: int) -> tuple[Delivery, ...]:
    """Of the batch of the same attempt what is still held by the same leases; their time begins anew. From now on nobody undoes them: who
    was to have the first answer may have had it, and whoever gives that one back knows nothing of this one."""
    found = []
    for offset, lease in draft.ledger.repeats.batch(attempt_id, draft.wall_ms):
        packed = draft.ledger.rows.get(offset)
        row = None if packed is None else read(packed)
        if row is None or row.state != State.LEASED or row.lease != lease or row.when <= draft.wall_ms:
            continue  # Settled, lapsed, or never given: it did not fit into the first answer.
        found.append(Delivery(offset, row.attempts, lease, deadline_ms, row.first_ms))
    for delivery in found:
        draft.extend(delivery.offset, State.LEASED, deadline_ms)
    return tuple(found)
