"""Nouns of queues ⇄ the fields and blobs of a call between nodes (links/queue_calls.py).

Rows are lists in the order of the noun's fields, shorter rows are an older node's. Bytes are never in a row: they follow as blobs, in the
order in which `Unpacking` asks for them. Whoever reads checks nothing twice: a row that does not fit raises ValueError or TypeError.
"""

from collections.abc import Iterable, Sequence
from dataclasses import astuple
from typing import Any

from penstock.broker.queues.calls import (
    Code,
    Counts,
    Draft,
    Lent,
    Order,
    Outcome,
    Peeked,
    QueueRefusal,
    Sent,
    State,
    Verb,
    Verdict,
)
from penstock.queues.views import Failure

Headers = tuple[tuple[str, bytes | None], ...]
Blobs = list[bytes | None]


class Unpacking:
    """Blobs, taken one after the other."""

    def __init__(self, blobs: Sequence[bytes | None]) -> None:
        self._blobs = iter(blobs)

    def take(self) -> bytes | None:
        try:
            return next(self._blobs)
        except StopIteration:
            raise ValueError("a blob is missing") from None

    def take_bytes(self) -> bytes:
        blob = self.take()
        if blob is None:
            raise ValueError("a blob is null")
        return blob

    def take_headers(self, names: Iterable[str]) -> Headers:
        return tuple((str(name), self.take()) for name in names)


# Sending


def pack_drafts(drafts: Iterable[Draft]) -> tuple[list[Any], Blobs]:
    rows: list[Any] = []
    blobs: Blobs = []
    for draft in drafts:
        rows.append(
            [
                [name for name, _ in draft.headers], draft.priority, draft.delay_ms, draft.deliver_at_ms, draft.ttl_ms,
                draft.group, draft.dedup, draft.kept_id, draft.moved,
            ]
        )  # fmt: skip
        blobs += (draft.body, draft.key, *(content for _, content in draft.headers))
    return rows, blobs


def unpack_drafts(rows: Iterable[Any], blobs: Sequence[bytes | None]) -> list[Draft]:
    unpacking, drafts = Unpacking(blobs), []
    for names, priority, delay_ms, deliver_at_ms, ttl_ms, group, dedup, kept_id, *rest in rows:
        body, key = unpacking.take_bytes(), unpacking.take()
        headers = unpacking.take_headers(names)
        names_of_it = str(group), str(dedup), str(kept_id), str(rest[0]) if rest else ""
        drafts.append(Draft(body, key, headers, priority, delay_ms, deliver_at_ms, ttl_ms, *names_of_it))
    return drafts


def pack_sent(results: Iterable[Sent | QueueRefusal]) -> list[Any]:
    return [[str(each.code), each.words] if isinstance(each, QueueRefusal) else list(each) for each in results]


def unpack_sent(rows: Iterable[Any]) -> list[Sent | QueueRefusal]:
    return [_refusal(*row[:2]) if len(row) == 2 else Sent(*row[:5]) for row in rows]


# Taking


def pack_lent(lent: Iterable[Lent]) -> tuple[list[Any], Blobs]:
    rows: list[Any] = []
    blobs: Blobs = []
    for each in lent:
        rows.append(
            [
                each.id, each.handle, each.partition, each.offset, each.attempt, each.deadline_ms, each.first_taken_ms, each.sent_ms,
                [name for name, _ in each.headers],
            ]
        )  # fmt: skip
        blobs += (each.body, each.key, *(content for _, content in each.headers))
    return rows, blobs


def unpack_lent(rows: Iterable[Any], blobs: Sequence[bytes | None]) -> list[Lent]:
    unpacking, lent = Unpacking(blobs), []
    for row in rows:
        body, key = unpacking.take_bytes(), unpacking.take()
        lent.append(Lent(*(*row[:8], key, body, unpacking.take_headers(row[8]))))
    return lent


# Settling


def pack_orders(orders: Iterable[Order]) -> list[Any]:
    return [[each.handle, str(each.verb), each.delay_ms, each.reason, each.who] for each in orders]


def unpack_orders(rows: Iterable[Any]) -> list[Order]:
    return [Order(str(handle), Verb(verb), delay_ms, str(reason), str(who)) for handle, verb, delay_ms, reason, who, *_ in rows]


def pack_verdicts(verdicts: Iterable[Verdict]) -> list[Any]:
    return [
        [str(each.outcome), each.deadline_ms, None if each.refusal is None else [str(each.refusal.code), each.refusal.words]]
        for each in verdicts
    ]


def unpack_verdicts(rows: Iterable[Any]) -> list[Verdict]:
    return [
        Verdict(Outcome(outcome), int(deadline_ms), None if refusal is None else _refusal(*refusal[:2]))
        for outcome, deadline_ms, refusal, *_ in rows
    ]


# Looking


def pack_peeked(peeked: Iterable[Peeked]) -> tuple[list[Any], Blobs]:
    rows: list[Any] = []
    blobs: Blobs = []
    for each in peeked:
        rows.append(
            [
                each.id, each.partition, each.offset, str(each.state), each.attempts, each.ready_at_ms, each.who, each.sent_ms,
                [name for name, _ in each.headers], [astuple(attempt) for attempt in each.history],
            ]
        )  # fmt: skip
        blobs += (each.body, each.key, *(content for _, content in each.headers))
    return rows, blobs


def unpack_peeked(rows: Iterable[Any], blobs: Sequence[bytes | None]) -> list[Peeked]:
    unpacking, peeked = Unpacking(blobs), []
    for message_id, partition, offset, state, attempts, ready_at_ms, who, sent_ms, names, history, *_ in rows:
        body, key = unpacking.take(), unpacking.take()
        peeked.append(
            Peeked(
                str(message_id), int(partition), int(offset), State(state), int(attempts), int(ready_at_ms), str(who), int(sent_ms),
                key, body, unpacking.take_headers(names), tuple(Failure(*attempt[:4]) for attempt in history),
            )
        )  # fmt: skip
    return peeked


def pack_counts(counts: Counts) -> list[Any]:
    return list(astuple(counts))


def unpack_counts(row: Sequence[Any]) -> Counts:
    return Counts(*row[:8])


def _refusal(code: str, words: str) -> QueueRefusal:
    return QueueRefusal(Code(code), str(words))
