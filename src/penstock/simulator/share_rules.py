"""Judges share groups: a record is one member's at a time, what is over stays over, counts hold, and nothing is lost.

Two deliveries are compared only where one was surely decided after the other was told: nodes decide between a question and its answer.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

from penstock.simulator.queue_diary import QueueDiary
from penstock.simulator.share_diary import ACCEPT, DELIVERIES_MAX, REJECT
from penstock.vocabulary import TopicPartition

Findings = Iterator[tuple[TopicPartition, str]]


def a_record_is_one_members(diary: QueueDiary) -> Findings:
    """Nobody is given a record that another member surely holds."""
    for place, deliveries in diary.shares.by_place().items() if diary.clocks_are_right else ():
        for first, second in pairwise(deliveries):
            if second.asked > first.at and second.at < first.held_until:
                story = f"offset {place.offset} was given to {second.session.member} at {second.at:.6f}"
                yield place.where, f"{story}, and {first.session.member} held it until {first.held_until:.6f}"


def what_is_over_stays_over(diary: QueueDiary) -> Findings:
    """What was accepted or rejected is given to nobody who asks later."""
    for place, deliveries in diary.shares.by_place().items():
        ends = [each.ended for each in deliveries if each.word in (ACCEPT, REJECT) and each.is_believed]
        late = next((each for each in deliveries if ends and each.asked > min(ends)), None)
        if late is not None:
            story = f"offset {place.offset} was over at {min(ends):.6f}"
            yield place.where, f"{story} and given to {late.session.member}, who asked at {late.asked:.6f}"


def share_deliveries_are_counted(diary: QueueDiary) -> Findings:
    """Each counts, also one whose member left, as at Kafka. None counts twice, and there is a limit."""
    for place, deliveries in diary.shares.by_place().items():
        for number, each in enumerate(deliveries, 1):
            if not 1 <= each.count <= min(number + diary.shares.unheard, DELIVERIES_MAX):
                yield place.where, f"offset {place.offset} was given for the {each.count}. time; {number} are known"
        for first, second in pairwise(deliveries):
            if second.asked > first.at and second.count <= first.count:
                yield place.where, f"offset {place.offset} was given for the {second.count}. time after the {first.count}."


def no_shared_record_is_lost(diary: QueueDiary) -> Findings:
    """A group that has nothing left has had every record: somebody may have finished it, or it was given as often as it may be, the last
    times by answers that nobody heard."""
    by_place, last_heard = diary.shares.by_place(), DELIVERIES_MAX - diary.shares.unheard
    for send, place in diary.acknowledged():
        deliveries = by_place.get(place, [])
        if diary.shares.emptied.get(place.queue) and not any(each.may_be_over or each.count >= last_heard for each in deliveries):
            yield place.where, f"offset {place.offset} is done for the group, which was given it {len(deliveries)} times: {send.id}"


SHARE_RULES: dict[str, Callable[[QueueDiary], Findings]] = {
    "a record is one member's": a_record_is_one_members,
    "what is over stays over": what_is_over_stays_over,
    "share deliveries are counted": share_deliveries_are_counted,
    "no shared record is lost": no_shared_record_is_lost,
}
