"""Judges transactions: all or nothing, once, never too early, never by a zombie, and in step with the input.

What counts is what readers of committed records can read at the end, and what they saw on the way. A transaction whose commit got no answer
may have become either, but only whole. Input offsets are part of the transaction, so at the end the effects that count are those of the
input below the committed offset: of each record once, and of none above.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from penstock.simulator.transaction_diary import Ending, Takeover, Transaction, TransactionDiary
from penstock.vocabulary import TopicPartition

Findings = Iterator[tuple[TopicPartition, str]]
Rule = Callable[[TransactionDiary], Findings]

_SHOWN_BYTES_MAX = 40


def all_or_nothing(diary: TransactionDiary) -> Findings:
    """Of a transaction everything counts or nothing, as its worker was told; where it was told nothing, either."""
    there = _counted(diary)
    for transaction in diary.transactions:
        effects = [effect for effect in transaction.effects if effect.partition in diary.finals]
        seen = [effect for effect in effects if there[effect.partition, effect.value]]
        missing = [effect for effect in effects if not there[effect.partition, effect.value]]
        name = _name(transaction)
        if transaction.ending is Ending.COMMITTED and missing:
            yield missing[0].partition, f"{_short(missing[0].value)} of {name} is gone, though its commit was acknowledged"
        elif transaction.ending is Ending.ABORTED and seen:
            yield seen[0].partition, f"{_short(seen[0].value)} of {name} counts, though it was never committed"
        elif seen and missing:
            yield missing[0].partition, f"{name} is torn: {_short(seen[0].value)} counts and {_short(missing[0].value)} does not"


def effects_are_once(diary: TransactionDiary) -> Findings:
    """No value stands twice, and none that nobody wrote."""
    written = {(effect.partition, effect.value) for transaction in diary.transactions for effect in transaction.effects}
    for (partition, value), times in _counted(diary).items():
        if times > 1:
            yield partition, f"{_short(value)} stands there {times} times"
        if (partition, value) not in written:
            yield partition, f"{_short(value)} counts, and no transaction wrote it"


def nothing_is_read_too_early(diary: TransactionDiary) -> Findings:
    """Readers of committed records see nothing of a transaction before its commit was even asked for."""
    owners = _owners(diary)
    for read in diary.reads:
        owner = owners.get((read.partition, read.value))
        if owner is None:
            yield read.partition, f"{read.reader} read {_short(read.value)}, which no transaction wrote"
        elif owner.commit_asked is None or owner.commit_asked > read.at:
            yield read.partition, f"{read.reader} read {_short(read.value)} of {_name(owner)} at {read.at:.6f}, before any commit of it"


def what_was_read_as_committed_stays(diary: TransactionDiary) -> Findings:
    """What any reader of committed records saw, and where, all of them see at the end."""
    places = {partition: dict(records) for partition, records in diary.finals.items()}
    for read in diary.reads:
        if read.partition in places and places[read.partition].get(read.offset) != read.value:
            now = _short(places[read.partition].get(read.offset))
            yield read.partition, f"{read.reader} read {_short(read.value)} as committed at offset {read.offset}, where at the end is {now}"


def committed_readers_go_on(diary: TransactionDiary) -> Findings:
    """Each life of a reader sees what counts in order, and leaves nothing out between the first and the last that it saw."""
    seen: dict[tuple[TopicPartition, str], list[int]] = defaultdict(list)
    for read in diary.reads:
        seen[read.partition, read.reader].append(read.offset)
    for (partition, reader), offsets in seen.items():
        if partition not in diary.finals:
            continue
        due = [offset for offset, _ in diary.finals[partition] if offsets[0] <= offset <= offsets[-1]]
        if offsets != due:
            wrong = next((found for found, wanted in zip(offsets, due, strict=False) if found != wanted), offsets[-1])
            yield partition, f"{reader} read {len(offsets)} records from {offsets[0]} to {offsets[-1]}, of {len(due)}; wrong at {wrong}"


def offsets_and_output_agree(diary: TransactionDiary) -> Findings:
    """Each input record below the committed offset has had its effect in one transaction; none above has."""
    there, by_source = _counted(diary), defaultdict[tuple[str, TopicPartition, int], list[Transaction]](list)
    for transaction in diary.transactions:
        sources = {effect.source: None for effect in transaction.effects if there[effect.partition, effect.value]}
        for partition, offset in sources:
            by_source[transaction.group, partition, offset].append(transaction)
    for (group, partition, offset), several in by_source.items():
        if len(several) > 1:
            yield partition, f"offset {offset} was processed by {_name(several[0])} and by {_name(several[1])}"
        if offset >= diary.committed.get((group, partition), 0):
            yield partition, f"offset {offset} has its effect in {_name(several[0])}, but {group} goes on before it"
    for (group, partition), end in diary.committed.items():
        missing = next((offset for offset in range(end) if not by_source.get((group, partition, offset))), None)
        if missing is not None:
            yield partition, f"{group} goes on at offset {end}, but offset {missing} has had no effect"


def zombies_are_fenced(diary: TransactionDiary) -> Findings:
    """Once another has taken over the transactional id, nothing that a worker begins counts, and no record of it is taken."""
    takers: dict[str, list[Takeover]] = defaultdict(list)
    for taken in diary.takeovers:
        takers[taken.transactional_id].append(taken)
    for transaction in diary.transactions:
        before = transaction.takeover
        heirs = [taken for taken in takers[before.transactional_id] if taken.began >= before.ended]
        if not heirs:
            continue
        heir = min(heirs, key=lambda taken: taken.ended)
        asked = transaction.commit_asked
        if transaction.ending is Ending.COMMITTED and asked is not None and asked > heir.ended:
            yield _where(transaction), f"{_name(transaction)} was committed after {heir.worker} had taken over"
        late = [effect for effect in transaction.effects if effect.stored is not None and effect.sent > heir.ended]
        if late:
            yield late[0].partition, f"{_short(late[0].value)} of {_name(transaction)} was taken after {heir.worker} had taken over"


def nothing_hangs(diary: TransactionDiary) -> Findings:
    """When all workers are gone and every time-out has passed, no transaction is open any more."""
    for partition, ends in diary.ends.items():
        if ends.stable != ends.all:
            yield partition, f"readers of committed records come to offset {ends.stable} and no further; the log ends at {ends.all}"


def _counted(diary: TransactionDiary) -> Counter[tuple[TopicPartition, bytes]]:
    return Counter((partition, value) for partition, records in diary.finals.items() for _, value in records)


def _owners(diary: TransactionDiary) -> dict[tuple[TopicPartition, bytes], Transaction]:
    return {(effect.partition, effect.value): transaction for transaction in diary.transactions for effect in transaction.effects}


def _name(transaction: Transaction) -> str:
    return f"the transaction that {transaction.takeover.worker} began at {transaction.began:.6f}"


def _where(transaction: Transaction) -> TopicPartition:
    return transaction.effects[0].partition if transaction.effects else TopicPartition("(none)", 0)


def _short(value: bytes | None) -> str:
    return "nothing" if value is None else repr(value if len(value) <= _SHOWN_BYTES_MAX else value[:_SHOWN_BYTES_MAX] + b"...")


TRANSACTION_RULES: dict[str, Rule] = {
    "a transaction is all or nothing": all_or_nothing,
    "effects are once": effects_are_once,
    "nothing is read before its commit": nothing_is_read_too_early,
    "what was read as committed stays": what_was_read_as_committed_stays,
    "readers of committed records go on": committed_readers_go_on,
    "offsets and output agree": offsets_and_output_agree,
    "zombies are fenced": zombies_are_fenced,
    "no transaction hangs": nothing_hangs,
}
