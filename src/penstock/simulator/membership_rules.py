"""Judges groups under the new protocol: one owner at a time, epochs that grow, and everything owned when the group is at rest.

A partition may change hands only when its owner has given it back, or was silent for so long that the group could give up on it: for its
session, or, asked to give something back, for its rebalance time-out. Before that, nobody else may be told that it is theirs.
"""

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator

from penstock.simulator.membership_diary import Membership, MembershipDiary, Tenure
from penstock.vocabulary import TopicPartition

Findings = Iterator[tuple[TopicPartition, str]]
Rule = Callable[[MembershipDiary], Findings]

_FOR_EVER = float("inf")


def one_owner_at_a_time(diary: MembershipDiary) -> Findings:
    tenures: dict[tuple[str, TopicPartition], list[tuple[float, int, Membership, Tenure]]] = defaultdict(list)
    for number, member in enumerate(diary.members):
        for tenure in member.tenures:
            tenures[member.group, tenure.partition].append((tenure.began, number, member, tenure))
    for (group, partition), several in tenures.items():
        several.sort(key=lambda one: one[:2])
        for place, (_, _, owner, held) in enumerate(several):
            for began, _, other, _ in several[place + 1 :]:
                if began >= (_FOR_EVER if held.ended is None else held.ended):
                    break
                if other is not owner and began < _given_up_from(owner, began) and not _is_late(other, began):
                    yield partition, f"{group} gave it to {other.member} at {began:.6f}, but {owner.member} had it and was not given up"


def _given_up_from(owner: Membership, at: float) -> float:
    """The earliest instant from which on the group could have given up on a member, by what it was told before `at`."""
    heard = bisect_right(owner.beats, at, key=lambda beat: beat.ended)
    return owner.beats[heard - 1].since + min(owner.session_ms, owner.rebalance_ms) / 1_000 if heard else _FOR_EVER


def _is_late(member: Membership, at: float) -> bool:
    """Whether what it heard then was so long on its way that the group could have given up on it meanwhile: its next beat tells it."""
    asked = [beat.since for beat in member.beats if beat.ended == at]
    return bool(asked) and at - asked[0] >= min(member.session_ms, member.rebalance_ms) / 1_000


def epochs_never_go_back(diary: MembershipDiary) -> Findings:
    for member in diary.members:
        for before, after in zip(member.beats, member.beats[1:], strict=False):
            if after.epoch < before.epoch:
                yield _nowhere(member), f"{member.member} was in epoch {before.epoch}, and in {after.epoch} at {after.ended:.6f}"


def only_what_is_wanted_is_owned(diary: MembershipDiary) -> Findings:
    for member in diary.members:
        for tenure in member.tenures:
            if tenure.partition.topic not in member.topics:
                yield tenure.partition, f"{member.member} of {member.group} got it, and never subscribed to its topic"


def everything_is_owned_at_rest(diary: MembershipDiary) -> Findings:
    for group, rest in diary.rests.items():
        owners = Counter(partition for owned in rest.owned.values() for partition in owned)
        for partition in rest.wanted:
            if owners[partition] != 1:
                yield partition, f"{group} is at rest, and it has {owners[partition]} owners"


def _nowhere(member: Membership) -> TopicPartition:
    return TopicPartition(f"(group {member.group})", 0)


MEMBERSHIP_RULES: dict[str, Rule] = {
    "one owner at a time": one_owner_at_a_time,
    "a member's epoch never goes back": epochs_never_go_back,
    "only what is wanted is owned": only_what_is_wanted_is_owned,
    "everything is owned at rest": everything_is_owned_at_rest,
}
