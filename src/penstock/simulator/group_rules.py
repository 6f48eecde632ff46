"""Judges what the members of consumer groups were told: who owned what, and what became of committed offsets.

Members read each record at least once, so a record may be read by several, also of one generation after the other. What must hold is that
within a generation nobody shares, that what was acknowledged as committed is never taken back, and that nothing below it was skipped.
"""

from collections import defaultdict
from collections.abc import Iterator

from penstock.simulator.diary import Committed, Committing, Diary, Outcome, Read
from penstock.vocabulary import TopicPartition

Findings = Iterator[tuple[TopicPartition, str]]


def one_owner_in_a_generation(diary: Diary) -> Findings:
    owners: dict[tuple[str, int, TopicPartition], str] = {}
    for told in diary.assignments:
        for where in told.partitions:
            other = owners.setdefault((told.group, told.generation, where), told.member)
            if other != told.member:
                yield where, f"generation {told.generation} of {told.group} gave it to {other} and to {told.member}"


def committed_is_kept(diary: Diary) -> Findings:
    """Whoever asks after a commit was acknowledged hears of it, or of a later one; and never of one that nobody made."""
    commits: dict[tuple[str, TopicPartition], list[Committing]] = defaultdict(list)
    for commit in diary.commits:
        commits[commit.group, commit.partition].append(commit)
    for found in diary.committed:
        made = commits[found.group, found.partition]
        promised = max((one.offset for one in made if one.outcome is Outcome.ACKNOWLEDGED and one.ended <= found.began), default=-1)
        if found.offset < promised:
            yield found.partition, f"{found.group} had committed {promised}, and was told {found.offset} later"
        if found.offset >= 0 and not any(one.offset == found.offset and one.began <= found.ended for one in made):
            yield found.partition, f"{found.group} was told {found.offset}, which nobody had committed"


def committed_never_goes_back(diary: Diary) -> Findings:
    reached: dict[tuple[str, TopicPartition], Committing] = {}
    for commit in sorted(diary.commits, key=lambda one: one.ended):
        if commit.outcome is not Outcome.ACKNOWLEDGED:
            continue
        before = reached.get((commit.group, commit.partition))
        if before is not None and commit.offset < before.offset and before.ended <= commit.began:
            yield commit.partition, f"{commit.group} had committed {before.offset}, and {commit.offset} was taken after it"
        if before is None or commit.offset > before.offset:
            reached[commit.group, commit.partition] = commit


def what_was_told_stays(diary: Diary) -> Findings:
    """Whoever was told of a committed offset could have read on from there: nobody hears of an earlier one afterwards."""
    told: dict[tuple[str, TopicPartition], list[Committed]] = defaultdict(list)
    for found in sorted(diary.committed, key=lambda one: one.ended):
        earlier = [one for one in told[found.group, found.partition] if one.ended <= found.began and one.offset > found.offset]
        if earlier:
            yield found.partition, f"{found.group} was told {earlier[0].offset}, and {found.offset} later"
        told[found.group, found.partition].append(found)


def nothing_committed_was_skipped(diary: Diary) -> Findings:
    """Every record below a committed offset was read by some member of the group."""
    read: dict[tuple[str, TopicPartition], set[int]] = defaultdict(set)
    groups = {reader: group for group, readers in diary.group_readers.items() for reader in readers}
    for move in diary.moves:
        if isinstance(move, Read) and move.reader in groups:
            read[groups[move.reader], move.partition].add(move.offset)
    reached: dict[tuple[str, TopicPartition], int] = {}
    for commit in diary.commits:
        if commit.outcome is Outcome.ACKNOWLEDGED:
            reached[commit.group, commit.partition] = max(commit.offset, reached.get((commit.group, commit.partition), 0))
    for (group, where), offset in reached.items():
        final = diary.finals.get(where)
        if final is None or where in diary.damaged or where in diary.weak:
            continue
        missed = [at for at, _ in final.records if at < offset and at not in read[group, where]]
        if missed:
            yield where, f"{group} has committed {offset} and never read offset {missed[0]}"


GROUP_RULES = {
    "one owner in a generation": one_owner_in_a_generation,
    "a committed offset is kept": committed_is_kept,
    "committed offsets never go back": committed_never_goes_back,
    "what was told of commits stays": what_was_told_stays,
    "nothing that was committed was skipped": nothing_committed_was_skipped,
}
