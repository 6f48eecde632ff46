"""Judges a diary: which promises of a log without transactions were broken.

Each checker is one rule, a function from a diary to what it finds, in O(n log n). The rules are what Jepsen's Kafka workload never
allows, for readers that choose their own partitions. Two kinds of partition get a weaker word. A weak one may lose a suffix to a power cut,
but shows no hole, no other order and no changed byte. Of a damaged one the node may refuse to serve records, but never serves others.
Of a compacted one only the last record of each key must stay, and its offsets may have gaps.

Not here: transactions; members of groups (group_rules.py).
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush

from penstock.simulator.diary import Attempt, Diary, Outcome, Read, Seek, Watermark
from penstock.simulator.group_rules import GROUP_RULES
from penstock.simulator.membership_rules import MEMBERSHIP_RULES
from penstock.simulator.queue_rules import QUEUE_RULES
from penstock.simulator.share_rules import SHARE_RULES
from penstock.simulator.transaction_rules import TRANSACTION_RULES
from penstock.vocabulary import TopicPartition

_SHOWN_BYTES_MAX = 40
VIOLATIONS_PER_RULE_MAX = 20  # A broken run is broken everywhere: more of the same helps nobody.


@dataclass(frozen=True, slots=True)
class Violation:
    rule: str
    partition: TopicPartition
    story: str

    def __str__(self) -> str:
        return f"{self.rule}, {self.partition}: {self.story}"


Findings = Iterator[tuple[TopicPartition, str]]
Checker = Callable[[Diary], Findings]


def check(diary: Diary) -> list[Violation]:
    """Every rule over the whole diary."""
    found: list[Violation] = []
    for rule, checker in RULES.items():
        for number, (partition, story) in enumerate(checker(diary)):
            if number == VIOLATIONS_PER_RULE_MAX:
                break
            found.append(Violation(rule, partition, story))
    return found


def one_offset_one_value(diary: Diary) -> Findings:
    """Whoever was told of an offset, by an acknowledgement or a read, was told of the same value."""
    held: dict[tuple[TopicPartition, int], bytes] = {}
    for partition, offset, value in _sightings(diary):
        if partition not in diary.weak and held.setdefault((partition, offset), value) != value:
            yield partition, f"offset {offset} held {_short(held[partition, offset])} and {_short(value)}"


def acknowledged_is_kept(diary: Diary) -> Findings:
    """At the end, what was acknowledged stands at its offset, unless retention has passed it."""
    finals = {partition: dict(final.records) for partition, final in diary.finals.items()}
    for attempt in _acknowledged(diary):
        final = diary.finals.get(attempt.partition)
        if attempt.partition in diary.weak or attempt.partition in diary.compacted or final is None or attempt.offset < final.start_offset:
            continue
        found = finals[attempt.partition].get(attempt.offset)
        is_refused = found is None and attempt.partition in diary.damaged
        if found != attempt.value and not is_refused:
            yield attempt.partition, f"{_short(attempt.value)} was acknowledged at offset {attempt.offset}, where now is {_short(found)}"


def weak_loses_a_suffix(diary: Diary) -> Findings:
    """In a weak partition a record that was acknowledged is where it was, or is gone; and if it is gone, so is what came after it."""
    groups: dict[tuple[TopicPartition, int], list[Attempt]] = defaultdict(list)
    cuts = sorted(diary.cuts)
    for attempt in _acknowledged(diary):
        era = bisect_right(cuts, attempt.began)
        if attempt.partition in diary.weak and attempt.partition not in diary.damaged and era == bisect_right(cuts, attempt.ended):
            groups[attempt.partition, era].append(attempt)
    for (partition, _), attempts in groups.items():
        final = diary.finals.get(partition)
        if final is None:
            continue
        kept, values = dict(final.records), {value for _, value in final.records}
        gone: Attempt | None = None
        for attempt in sorted(attempts, key=lambda attempt: attempt.offset):
            if attempt.offset < final.start_offset:
                continue
            if kept.get(attempt.offset) != attempt.value:
                gone = gone or attempt
                if attempt.value in values and attempt.is_idempotent:  # Of others an earlier try may be stored elsewhere.
                    yield partition, f"{_short(attempt.value)} was acknowledged at offset {attempt.offset} and ends somewhere else"
            elif gone is not None:
                yield partition, f"offset {attempt.offset} is kept, but {_short(gone.value)} before it at {gone.offset} is gone"


def offsets_are_dense(diary: Diary) -> Findings:
    """At the end every offset from the log's start to its end holds one record; in a compacted log, or with transactions, one at most."""
    for partition, final in diary.finals.items():
        if partition in diary.damaged:
            continue
        expected, may_have_gaps = final.start_offset, partition in diary.compacted or partition in diary.transactional
        for offset, _ in final.records:
            if offset < expected or (offset != expected and not may_have_gaps):
                yield partition, f"offset {offset} came where {expected} was due"
            expected = offset + 1
        if expected > final.end_offset or (expected != final.end_offset and not may_have_gaps):
            yield partition, f"the log was read to {expected}, but is said to end at {final.end_offset}"


def idempotent_is_once(diary: Diary) -> Findings:
    """A value of an idempotent producer stands at one offset, however often it was sent."""
    once = {(attempt.partition, attempt.value) for attempt in diary.attempts if attempt.is_idempotent}
    places: dict[tuple[TopicPartition, bytes], int] = {}
    for partition, offset, value in _sightings(diary):
        key = (partition, value)
        # There a lost one may be sent again and land elsewhere; only the end must be single.
        weak = partition in diary.weak or partition.topic in diary.forgetful
        if key in once and not weak and places.setdefault(key, offset) != offset:
            yield partition, f"{_short(value)} stands at offsets {places[key]} and {offset}"
    for partition, final in diary.finals.items():
        last: dict[bytes, int] = {}
        for offset, value in final.records:
            if (partition, value) in once and last.setdefault(value, offset) != offset:
                yield partition, f"{_short(value)} ends at offsets {last[value]} and {offset}"


def producer_order_is_kept(diary: Diary) -> Findings:
    """Values of one idempotent producer stand in the order in which it first sent them."""
    rank: dict[tuple[TopicPartition, bytes], tuple[str, int]] = {}
    for number, attempt in enumerate(diary.attempts):
        if attempt.is_idempotent:
            rank.setdefault((attempt.partition, attempt.value), (attempt.producer, number))
    for partition, final in diary.finals.items():
        last: dict[str, tuple[int, bytes]] = {}
        for _, value in final.records:
            producer, number = rank.get((partition, value), ("", -1))
            before = last.get(producer, (-1, b""))
            if producer and number < before[0]:
                yield partition, f"{producer} sent {_short(value)} before {_short(before[1])}, but it stands after it"
            last[producer] = max(before, (number, value))


def reads_go_on(diary: Diary) -> Findings:
    """A reader sees each offset once and in order, from where it last chose to be: nothing twice, nothing skipped."""
    due: dict[tuple[TopicPartition, str], int] = {}
    for move in diary.moves:
        key = (move.partition, move.reader)
        if isinstance(move, Seek):
            due[key] = move.offset
            continue
        expected = due.get(key, move.offset)
        may_skip = (move.partition in diary.compacted or move.partition in diary.transactional) and move.offset > expected
        if move.offset != expected and not may_skip and move.partition not in diary.damaged:
            word = "skipped to" if move.offset > expected else "went back to"
            yield move.partition, f"{move.reader} was due at offset {expected} and {word} {move.offset}"
        due[key] = move.offset + 1


def watermark_never_goes_back(diary: Diary) -> Findings:
    """An answer that was asked for after another was given is not lower; nor is it below what was read or acknowledged before."""
    told: dict[tuple[TopicPartition, str], Watermark] = {}
    for mark in diary.watermarks:
        before = told.get((mark.partition, mark.reader)) if mark.reader else None
        if before is not None and mark.end_offset < before.end_offset and mark.partition not in diary.weak:
            yield mark.partition, f"{mark.reader} was told {before.end_offset}, and {mark.end_offset} at {mark.ended:.6f}"
        told[mark.partition, mark.reader] = mark
    known: dict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
    for mark in diary.watermarks:
        known[mark.partition].append((mark.ended, mark.end_offset))
    for move in diary.moves:
        if isinstance(move, Read):
            known[move.partition].append((move.at, move.offset + 1))
    for attempt in _acknowledged(diary):
        known[attempt.partition].append((attempt.ended, attempt.offset + 1))
    for facts in known.values():
        facts.sort()
    floors = {partition: [0, 0] for partition in known}  # Facts taken, and the highest end among them.
    for mark in sorted(diary.watermarks, key=lambda mark: mark.began):
        facts, floor = known[mark.partition], floors[mark.partition]
        while floor[0] < len(facts) and facts[floor[0]][0] < mark.began:
            floor[1] = max(floor[1], facts[floor[0]][1])
            floor[0] += 1
        if mark.end_offset < floor[1] and not mark.reader and mark.partition not in diary.weak and mark.partition not in diary.damaged:
            yield mark.partition, f"asked at {mark.began:.6f} the log ended at {mark.end_offset}, but {floor[1]} was known before"


def nothing_comes_from_nowhere(diary: Diary) -> Findings:
    """What is read was attempted before, and was not refused."""
    written: dict[tuple[TopicPartition, bytes], float] = {}
    refused: dict[tuple[TopicPartition, bytes], bool] = {}
    for attempt in diary.attempts:
        key = (attempt.partition, attempt.value)
        written[key] = min(attempt.began, written.get(key, attempt.began))
        refused[key] = refused.get(key, True) and attempt.outcome is Outcome.FAILED
    for partition, offset, value, at in _seen(diary):
        began = written.get((partition, value))
        if began is None or began > at:
            yield partition, f"{_short(value)} at offset {offset} was read and nobody had written it"
        elif refused[partition, value]:
            yield partition, f"{_short(value)} at offset {offset} was read, though it was refused"


def acknowledged_in_order_of_time(diary: Diary) -> Findings:
    """A record that was sent after another was acknowledged stands after it."""
    waiting: dict[TopicPartition, list[tuple[float, int]]] = defaultdict(list)
    highest: dict[TopicPartition, int] = {}
    for attempt in sorted(_acknowledged(diary), key=lambda attempt: attempt.began):
        ended = waiting[attempt.partition]
        while ended and ended[0][0] < attempt.began:
            highest[attempt.partition] = max(highest.get(attempt.partition, -1), heappop(ended)[1])
        if attempt.offset <= highest.get(attempt.partition, -1) and attempt.partition not in diary.weak:
            before = f"{highest[attempt.partition]} was acknowledged before it was sent"
            yield attempt.partition, f"{_short(attempt.value)} got offset {attempt.offset}, though {before}"
        heappush(ended, (attempt.ended, attempt.offset))


def last_of_each_key_is_kept(diary: Diary) -> Findings:
    """In a compacted log the last acknowledged record of each key is there, or one that was written later; a deleted key may be gone."""
    for partition, attempts in _by_compacted_partition(diary).items():
        final = diary.finals.get(partition)
        if final is None or partition in diary.damaged:
            continue
        highest = _highest_of_each_key(final.records, attempts)
        may_be_deleted = {attempt.key for attempt in attempts if attempt.is_tombstone and attempt.outcome is Outcome.UNKNOWN}
        for key, last in _last_of_each_key(attempts).items():
            found = highest.get(key)
            if found is None and not last.is_tombstone and key not in may_be_deleted:
                yield partition, f"{_short(last.value)} at offset {last.offset} was the last of key {_short(key)}, which is gone"
            elif found is not None and found < last.offset:
                yield partition, f"of key {_short(key)} the last record was at offset {last.offset}, and what is left stands at {found}"


def tombstones_are_seen_in_time(diary: Diary) -> Findings:
    """Whoever reads a compacted log soon enough sees that a key was deleted. Only where all clocks agree can that be said."""
    if not diary.clocks_are_right:
        return
    for partition, attempts in _by_compacted_partition(diary).items():
        final = diary.finals.get(partition)
        if final is None or partition in diary.damaged:
            continue
        highest = _highest_of_each_key(final.records, attempts)
        for key, last in _last_of_each_key(attempts).items():
            kept_seconds = final.at - last.ended
            if last.is_tombstone and key not in highest and kept_seconds < diary.compacted[partition]:
                story = f"the tombstone of {_short(key)} at offset {last.offset} is gone after {kept_seconds:.3f} s"
                yield partition, f"{story}, and should stay for {diary.compacted[partition]:g} s"


def _by_compacted_partition(diary: Diary) -> dict[TopicPartition, list[Attempt]]:
    attempts: dict[TopicPartition, list[Attempt]] = defaultdict(list)
    for attempt in diary.attempts:
        if attempt.partition in diary.compacted:
            attempts[attempt.partition].append(attempt)
    return attempts


def _last_of_each_key(attempts: list[Attempt]) -> dict[bytes | None, Attempt]:
    last: dict[bytes | None, Attempt] = {}
    for attempt in attempts:
        known = last.get(attempt.key)
        if attempt.outcome is Outcome.ACKNOWLEDGED and (known is None or known.offset < attempt.offset):
            last[attempt.key] = attempt
    return last


def _highest_of_each_key(records: list[tuple[int, bytes]], attempts: list[Attempt]) -> dict[bytes | None, int]:
    keys = {attempt.value: attempt.key for attempt in attempts}
    return {keys[value]: offset for offset, value in sorted(records) if value in keys}


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else repr(value if len(value) <= _SHOWN_BYTES_MAX else value[:_SHOWN_BYTES_MAX] + b"...")


def _acknowledged(diary: Diary) -> Iterator[Attempt]:
    return (attempt for attempt in diary.attempts if attempt.outcome is Outcome.ACKNOWLEDGED)


def _sightings(diary: Diary) -> Iterator[tuple[TopicPartition, int, bytes]]:
    """Every time someone was told that a value stands at an offset."""
    for attempt in _acknowledged(diary):
        yield attempt.partition, attempt.offset, attempt.value
    for partition, offset, value, _ in _seen(diary):
        yield partition, offset, value


def _seen(diary: Diary) -> Iterator[tuple[TopicPartition, int, bytes, float]]:
    for move in diary.moves:
        if isinstance(move, Read):
            yield move.partition, move.offset, move.value, move.at
    for partition, final in diary.finals.items():
        for offset, value in final.records:
            yield partition, offset, value, float("inf")


RULES: dict[str, Checker] = {
    "one offset, one value": one_offset_one_value,
    "acknowledged is kept": acknowledged_is_kept,
    "weak loses a suffix": weak_loses_a_suffix,
    "offsets are dense": offsets_are_dense,
    "idempotent is once": idempotent_is_once,
    "a producer's order is kept": producer_order_is_kept,
    "reads go on": reads_go_on,
    "the watermark never goes back": watermark_never_goes_back,
    "nothing comes from nowhere": nothing_comes_from_nowhere,
    "acknowledged in order of time": acknowledged_in_order_of_time,
    "the last of each key is kept": last_of_each_key_is_kept,
    "tombstones are seen in time": tombstones_are_seen_in_time,
    **GROUP_RULES,
    **{rule: lambda diary, judge=judge: judge(diary.memberships) for rule, judge in MEMBERSHIP_RULES.items()},  # type: ignore[misc]
    **{rule: lambda diary, judge=judge: judge(diary.transactions) for rule, judge in TRANSACTION_RULES.items()},  # type: ignore[misc]
    **{rule: lambda diary, judge=judge: judge(diary.queues) for rule, judge in (QUEUE_RULES | SHARE_RULES).items()},  # type: ignore[misc]
}
