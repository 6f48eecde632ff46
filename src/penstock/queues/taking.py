"""Take: messages that are ready become somebody's until a deadline."""

from penstock.queues.commands import ATTEMPT_ID_BYTES_MAX, COUNT_MAX, WHO_BYTES_MAX, Take
from penstock.queues.draft import Draft
from penstock.queues.history import cut
from penstock.queues.picking import pick
from penstock.queues.policy import LEASE_MS_MAX
from penstock.queues.records import Leased, Record
from penstock.queues.replies import Delivery, Fault, Taken
from penstock.queues.rows import ATTEMPTS_MAX, ROW, read
from penstock.queues.states import State

_new_tuple = tuple.__new__  # Half the cost of calling a named tuple's class.


def take(draft: Draft, command: Take) -> tuple[list[Record], Taken]:
    ledger, policy, wall_ms = draft.ledger, draft.policy, draft.wall_ms
    lease_ms = policy.lease_ms if command.lease_ms is None else command.lease_ms
    if not (1 <= command.count <= COUNT_MAX and 0 <= lease_ms <= LEASE_MS_MAX and len(command.attempt_id) <= ATTEMPT_ID_BYTES_MAX):
        return [], Taken((), fault=Fault.INVALID)
    if command.attempt_id:
        again = _again(draft, command.attempt_id, wall_ms + lease_ms)
        if again:
            return [*draft.record()], Taken(again)
    if ledger.is_paused:
        return [], Taken((), is_paused=True)
    room = policy.in_flight_max - ledger.leased
    if room <= 0:
        return [], Taken((), is_over_limit=True)
    assert ledger.ready is not None
    count = min(command.count, room)
    offsets = pick(ledger.ready, draft.messages, count, next_lease=ledger.next_lease, in_flight=ledger.leased, wall_ms=wall_ms)
    if not offsets:
        return [], Taken(())
    record = Leased(
        ledger.group, wall_ms, wall_ms + lease_ms, ledger.next_lease, cut(command.who, WHO_BYTES_MAX), command.attempt_id, tuple(offsets)
    )
    return [record], Taken(tuple(_deliveries(draft, record)))


def _deliveries(draft: Draft, record: Leased) -> list[Delivery]:
    """As they will be when the record is replayed."""
    rows, deadline_ms, wall_ms, lease = draft.ledger.rows, record.deadline_ms, record.wall_ms, record.first_lease
    found = []
    for offset in record.offsets:
        row = rows.get(offset)
        if row is None:
            found.append(_new_tuple(Delivery, (offset, 1, lease, deadline_ms, wall_ms)))
        else:
            fields = ROW.unpack_from(row)
            attempt = min((fields[1] & ATTEMPTS_MAX) + 1, ATTEMPTS_MAX)
            found.append(Delivery(offset, attempt, lease, deadline_ms, fields[5] or wall_ms))
        lease += 1
    return found


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
