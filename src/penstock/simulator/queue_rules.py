"""Judges queues: no job is lost, none is held by two, order and counts hold, nothing comes early, and ids and dead letters are once.

Deliveries of a partition are put in order by their lease's number, which the ledger gives out in the order of its decisions; when each was
decided is told by the clock of whoever led. So most rules hold whatever the clocks do. Where a rule compares times of two decisions, or
counts on a window, it is asked only where all clocks were right. A rewind begins a message anew: what came before it is no measure.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

from penstock.broker.queues.calls import Outcome, Verb
from penstock.queues.headers import ATTEMPTS, DEDUP, DELIVER_AT, GROUP, PRIORITY, PRIORITY_DEFAULT, SOURCE
from penstock.simulator.places import Place
from penstock.simulator.queue_diary import FOREVER, Decree, DeliveryTold, QueueDiary, SendTold, SettleTold, Told, wall_ms
from penstock.vocabulary import TopicPartition

Findings = Iterator[tuple[TopicPartition, str]]
Rule = Callable[[QueueDiary], Findings]

_SHOWN_BYTES_MAX = 40


# Nothing is lost, nothing comes from nowhere.


def no_job_is_lost(diary: QueueDiary) -> Findings:
    """What was acknowledged is left at the end, or somebody may have finished it, wherever it was by then, or it was purged."""
    if diary.left is None:
        return
    by_place = diary.by_place()
    there = {each.id for each in diary.left}
    finished = {each.id for each in diary.deliveries if _may_have_said(each, _last_words(diary, each.place.queue))}
    for send, place in diary.acknowledged():
        deliveries = by_place.get(place, [])
        if send.id in there or send.id in finished:
            continue
        if any(send.began < (purge.ended or FOREVER) for purge in diary.of_kind("purge", place.queue)):
            continue
        had = f"it was delivered {len(deliveries)} times" if deliveries else "nobody ever got it"
        yield place.where, f"{_short(send.body)} was acknowledged at offset {place.offset} and is gone: {had}"


def what_is_done_stays_done(diary: QueueDiary) -> Findings:
    """Nobody who asks after a job was finished gets it."""
    for place, deliveries in diary.by_place().items():
        ends = [told for each in deliveries for told in each.settled if _finishes(told) and told.outcome is Outcome.OK]
        first = min(ends, key=lambda told: told.ended, default=None)
        late = next((each for each in deliveries if first is not None and each.asked > first.ended), None)
        if first is not None and late is not None and not diary.is_rewound(place.queue, first.asked, late.at):
            story = f"offset {place.offset} was finished at {first.ended:.6f}"
            yield place.where, f"{story} and lent to {late.taker}, who asked at {late.asked:.6f}"


def what_is_rewound_comes_again(diary: QueueDiary) -> Findings:
    """Whatever was sent since the time to which a queue is rewound is lent once more, unless somebody held it then, or it has moved."""
    if diary.left is None:
        return
    by_place, there, places = diary.by_place(), {each.id for each in diary.left}, defaultdict[str, dict[Place, None]](dict)
    for each in diary.deliveries:
        places[each.id][each.place] = None
    for send, place in diary.acknowledged():
        rewinds = [each for each in diary.of_kind("rewind", place.queue) if each.ended is not None and send.ended < each.asked]
        last = next((each for each in reversed(rewinds) if not each.to_ms or _is_since(diary, send, each.to_ms)), None)
        if last is None or send.is_duplicate or send.id in there or any(other != place for other in places[send.id]):
            continue
        deliveries = by_place.get(place, [])
        ends = [told for each in deliveries for told in each.settled if _finishes(told) and told.may_have_happened]
        if any(each.at > last.asked for each in deliveries) or any(told.ended < 0 or told.ended > last.asked for told in ends):
            continue
        if not any((purge.ended or FOREVER) > last.asked for purge in diary.of_kind("purge", place.queue)):
            yield place.where, f"offset {place.offset} was rewound at {last.asked:.6f}, and never lent again"


def what_is_lent_was_sent(diary: QueueDiary) -> Findings:
    """A body is one that somebody sent, was not refused for certain, and has the id that its sender was told."""
    sends = {send.body: send for send in diary.sends}
    ids = {place: (send.id, send.body) for send, place in diary.acknowledged() if not send.is_duplicate}
    held: dict[Place, bytes] = {}
    for each in diary.deliveries:
        send = sends.get(each.body)
        if send is None or send.outcome is Told.FAILED:
            what = "nobody sent" if send is None else "was refused"
            yield each.place.where, f"{each.taker} got {_short(each.body)}, which {what}"
        if held.setdefault(each.place, each.body) != each.body:
            yield each.place.where, f"offset {each.place.offset} was {_short(held[each.place])} and is {_short(each.body)}"
        told = ids.get(each.place)
        if told is not None and told != (each.id, each.body):
            yield each.place.where, f"offset {each.place.offset} was sent as {told[0]}, and lent as {each.id} with {_short(each.body)}"


def ids_keep(diary: QueueDiary) -> Findings:
    """A dead letter has the id that the message had, and so has one that was sent back."""
    ids = {send.body: send.id for send in diary.sends if send.outcome is Told.ACKNOWLEDGED and not send.is_duplicate}
    for each in diary.deliveries:
        if ids.get(each.body, each.id) != each.id:
            yield each.place.where, f"{_short(each.body)} was sent as {ids[each.body]} and is {each.id} now"


# Leases.


def a_lease_is_one_workers(diary: QueueDiary) -> Findings:
    """A message is lent again only when the lease before has ended, by its time or by whoever held it; or when it was finished, by one who
    had it earlier, too, and the queue was rewound."""
    for place, deliveries in diary.by_place().items():
        may_be_finished = False
        for first, second in pairwise(deliveries):
            may_be_finished = may_be_finished or _may_have_said(first, (Verb.DONE, Verb.REJECT))
            if first.lease == second.lease:
                yield place.where, f"offset {place.offset} was lent to {first.taker} and to {second.taker} under the lease {first.lease}"
            elif may_be_finished and diary.is_rewound(place.queue, first.asked, second.at):
                continue
            elif diary.clocks_are_right and second.decided_ms < (until := _held_until(first)):
                early = f"{until - second.decided_ms} ms before the lease of {first.taker} ended"
                yield place.where, f"offset {place.offset} was lent to {second.taker} {early}"


def lease_numbers_are_once(diary: QueueDiary) -> Findings:
    given: dict[tuple[TopicPartition, int], int] = {}
    for each in diary.deliveries:
        offset = given.setdefault((each.place.where, each.lease), each.place.offset)
        if offset != each.place.offset:
            yield each.place.where, f"the lease {each.lease} was given for offsets {offset} and {each.place.offset}"


def who_holds_may_settle(diary: QueueDiary) -> Findings:
    """While a lease runs, and nobody else could have finished the message, its holder is not told that it was lost."""
    for place, deliveries in diary.by_place().items():
        if any(decree.kind == "purge" and decree.queue == place.queue for decree in diary.decrees):
            continue
        others_finish = [each for each in deliveries if any(_finishes(told) for told in each.settled)]
        for each in deliveries:
            told = each.settled[0] if each.settled else None
            if told is None or not _is_denied(told) or [one for one in others_finish if one is not each]:
                continue
            deadline_ms = each.deadline_ms
            if told.verb is Verb.EXTEND and told.delay_ms is not None:  # It may have been carried out at once, and asked for again later.
                deadline_ms = min(deadline_ms, wall_ms(told.asked) + told.delay_ms)
            if diary.clocks_are_right and wall_ms(told.ended) < deadline_ms:
                left = deadline_ms - wall_ms(told.ended)
                yield place.where, f"{each.taker} settled offset {place.offset} {left} ms before its lease ended, and heard {told.outcome}"


def what_was_lent_is_known(diary: QueueDiary) -> Findings:
    for each in diary.deliveries:
        if any(told.outcome is Outcome.UNKNOWN for told in each.settled) and not diary.is_rewound(each.place.queue, each.asked):
            yield each.place.where, f"offset {each.place.offset} was lent to {each.taker}, and the ledger knows nothing of it"


def deliveries_are_counted(diary: QueueDiary) -> Findings:
    """Each delivery is the next one. Some may be missing: those of takes that got no answer, or whose lease was over before they did. One
    that was given back untouched does not count."""
    for place, deliveries in diary.by_place().items():
        unheard, before, asked = diary.unheard.get(place.queue, 0), 0, 0.0
        # A node that heard nothing of another, or of a log that failed, goes on without. A clock that is set ends leases that nobody has
        # heard of yet.
        is_bounded = not diary.answers_cross_nodes and not diary.logs_failed and diary.clocks_are_right
        for number, each in enumerate(deliveries, 1):
            before = 0 if before and diary.is_rewound(place.queue, asked, each.at) else before
            asked = each.asked
            if each.attempt <= before:
                yield place.where, f"offset {place.offset} was delivered for the {each.attempt}. time after the {before}."
            elif is_bounded and each.attempt > number + unheard:
                story = f"offset {place.offset} was delivered for the {each.attempt}. time"
                yield place.where, f"{story}; {number} are known, and {unheard} takes were unheard"
            before = each.attempt - _may_have_said(each, (Verb.RETURN,))
        most = diary.terms[place.queue].deliveries_max
        if most and before > most:
            yield place.where, f"offset {place.offset} was delivered {before} times, and {most} is the limit"


# Time and order.


def nothing_is_early(diary: QueueDiary) -> Findings:
    """Nothing is lent before the time that its sender, or whoever gave it back, has set; a clock that is set back may find it in line."""
    for place, deliveries in diary.by_place().items() if diary.clocks_are_right else ():
        for each, following in zip(deliveries, [*deliveries[1:], None], strict=True):
            at = int(each.headers.get(DELIVER_AT, b"0"))
            if each.decided_ms < at:
                yield place.where, f"offset {place.offset} was lent {at - each.decided_ms} ms before its time"
            back = next((told for told in each.settled if told.verb is Verb.RELEASE and told.outcome is Outcome.OK), None)
            if back is None or following is None or diary.is_rewound(place.queue, each.asked, following.at):
                continue
            if following.decided_ms < back.when_ms:
                early = back.when_ms - following.decided_ms
                yield place.where, f"offset {place.offset} was given back, and lent again {early} ms before that was over"


def delays_are_kept(diary: QueueDiary) -> Findings:
    """The time in the log is the one that the sender asked for."""
    wishes = {send.body: send.deliver_at_ms for send in diary.sends if send.deliver_at_ms}
    for each in diary.deliveries if diary.clocks_are_right else ():
        if SOURCE not in each.headers and each.decided_ms < wishes.get(each.body, 0):
            yield each.place.where, f"{_short(each.body)} was lent {wishes[each.body] - each.decided_ms} ms before its sender wanted"


def groups_go_in_order(diary: QueueDiary) -> Findings:
    """FIFO: when a message of a group is lent, all before it are finished, or lent in the same take."""
    groups: dict[tuple[str, int, bytes], list[DeliveryTold]] = defaultdict(list)
    for each in sorted(diary.deliveries, key=lambda each: each.lease):
        if diary.terms[each.place.queue].is_fifo and GROUP in each.headers and not diary.is_rewound(each.place.queue):
            groups[each.place.queue, each.place.partition, each.headers[GROUP]].append(each)
    for (_, _, name), deliveries in groups.items():
        takes: dict[int, set[int]] = {}  # The offsets that each of them brought, in their order.
        for each in deliveries:
            offset, own = each.place.offset, takes.setdefault(each.take, set())
            ahead = [max(others) for others in takes.values() if others and max(others) > offset and offset not in others]
            if ahead:
                yield each.place.where, f"offset {offset} of {name!r} was lent after offset {ahead[0]} of the same group"
                break
            own.add(offset)


def the_urgent_go_first(diary: QueueDiary) -> Findings:
    """Within one take, higher levels come first, and within a level the older."""
    takes: dict[int, list[DeliveryTold]] = defaultdict(list)
    for each in diary.deliveries:
        terms = diary.terms[each.place.queue]
        if terms.has_priorities and not terms.is_fifo:
            takes[each.take].append(each)
    for deliveries in takes.values():
        for first, second in pairwise(deliveries):
            if first.place.where == second.place.where and _rank(first) > _rank(second):
                story = f"offset {second.place.offset} came behind offset {first.place.offset}, and goes before it"
                yield first.place.where, story
                break


def a_pause_holds(diary: QueueDiary) -> Findings:
    """Who asks while a queue is paused gets nothing."""
    for pause in diary.decrees:
        if pause.kind != "pause" or pause.ended is None:
            continue
        resumes = [each for each in diary.of_kind("resume", pause.queue) if (each.ended or float("inf")) > pause.asked]
        over = min((each.asked for each in resumes), default=None)
        for each in diary.deliveries:
            if each.place.queue == pause.queue and each.asked > pause.ended and (over is None or each.at < over):
                yield each.place.where, f"{each.taker} got offset {each.place.offset} at {each.at:.6f}, while the queue was paused"


def what_is_purged_is_gone(diary: QueueDiary) -> Findings:
    sends = {place: send for send, place in diary.acknowledged()}
    purges: dict[str, list[Decree]] = defaultdict(list)
    for decree in diary.decrees:
        if decree.kind == "purge" and decree.ended is not None:
            purges[decree.queue].append(decree)
    for each in diary.deliveries:
        send = sends.get(each.place)
        if send is None or diary.is_rewound(each.place.queue):
            continue
        if any(send.ended < purge.asked and each.asked > (purge.ended or 0) for purge in purges[each.place.queue]):
            yield each.place.where, f"{each.taker} got offset {each.place.offset}, which had been purged"


# Once.


def an_id_is_sent_once(diary: QueueDiary) -> Findings:
    """Within the window, which is longer than any run, a dedup id has one message."""
    if not diary.clocks_are_right:
        return
    purged = {decree.queue for decree in diary.decrees if decree.kind in ("purge", "rewind")}  # Ids are forgotten with what had them.
    places: dict[tuple[str, str], Place] = {}
    for send, place in diary.acknowledged():
        if send.dedup and place.queue not in purged and (other := places.setdefault((send.queue, send.dedup), place)) != place:
            yield place.where, f"the id {send.dedup} has two messages, at offsets {other.offset} and {place.offset}"
    for each in diary.deliveries:
        name = each.headers.get(DEDUP, b"").decode()
        if name and each.place.queue not in purged and (other := places.setdefault((each.place.queue, name), each.place)) != each.place:
            yield each.place.where, f"the id {name} was lent twice, at offsets {other.offset} and {each.place.offset}"


def dead_letters_are_once(diary: QueueDiary) -> Findings:
    """Once more for each time that they may have been sent back."""
    there: dict[tuple[str, str], dict[Place, None]] = defaultdict(dict)
    for each in diary.deliveries if diary.clocks_are_right else ():
        if SOURCE in each.headers and not diary.is_rewound(each.headers[SOURCE].decode()):
            places = there[each.headers[SOURCE].decode(), each.id]
            places[each.place] = None
            if len(places) > 1 + len(diary.of_kind("redrive", each.place.queue)):
                yield each.place.where, f"{each.id} is a dead letter at offsets {sorted(place.offset for place in places)}"


def a_job_is_finished_once(diary: QueueDiary) -> Findings:
    """Whoever moves a message moves all of it: that it is done is told to nobody at two places."""
    where: dict[str, Place] = {}
    if any(diary.is_rewound(queue) for queue in diary.terms):
        return
    for each in diary.deliveries:
        is_done = any(told.verb is Verb.DONE and told.outcome is Outcome.OK for told in each.settled)
        if is_done and (other := where.setdefault(each.id, each.place)) != each.place:
            yield each.place.where, f"{each.id} was finished at {other.where} {other.offset}, and here at offset {each.place.offset}"


def only_the_failed_are_buried(diary: QueueDiary) -> Findings:
    """A dead letter was rejected, or has failed as often as its queue allows; and nobody was told that it is done."""
    sends: dict[bytes, SendTold] = {send.body: send for send in diary.sends}
    by_body: dict[bytes, list[DeliveryTold]] = defaultdict(list)
    for each in diary.deliveries:
        if SOURCE not in each.headers:
            by_body[each.body].append(each)
    for letter in diary.deliveries:
        if SOURCE not in letter.headers or letter.body not in sends:
            continue
        before, terms = by_body[letter.body], diary.terms[letter.headers[SOURCE].decode()]
        told = [one for each in before for one in each.settled]
        count = int(json.loads(letter.headers[ATTEMPTS])["count"])
        if not any(one.verb is Verb.REJECT and one.may_have_happened for one in told) and count != terms.deliveries_max:
            story = f"{_short(letter.body)} is a dead letter after {count} deliveries"
            yield letter.place.where, f"{story}, and {terms.deliveries_max} are the limit"
        if diary.of_kind("redrive", letter.place.queue):
            told = [one for one in told if 0 <= one.ended < letter.asked]  # It may have been sent back later.
        if any(one.verb is Verb.DONE and one.outcome is Outcome.OK for one in told) and not diary.is_rewound(terms.name):
            yield letter.place.where, f"{_short(letter.body)} is a dead letter, and a worker was told that it is done"


# What the rules have in common.


def _is_since(diary: QueueDiary, send: SendTold, time_ms: int) -> bool:
    """Whether a message was surely written at this time or later."""
    return diary.clocks_are_right and wall_ms(send.began) >= time_ms


def _last_words(diary: QueueDiary, queue: str) -> tuple[Verb, ...]:
    """After which a message is gone."""
    return (Verb.DONE,) if diary.terms[queue].dead_letter else (Verb.DONE, Verb.REJECT)


def _finishes(told: SettleTold) -> bool:
    return told.verb in (Verb.DONE, Verb.REJECT)


def _is_denied(told: SettleTold) -> bool:
    """Whoever had the lease is told that they have not; and not because they had asked before."""
    if told.verb is Verb.DONE:
        return told.outcome is Outcome.LOST
    return told.verb is Verb.EXTEND and bool(told.delay_ms) and told.outcome in (Outcome.LOST, Outcome.GONE)


def _may_have_said(delivery: DeliveryTold, verbs: tuple[Verb, ...]) -> bool:
    return any(told.verb in verbs and told.may_have_happened for told in delivery.settled)


def _held_until(delivery: DeliveryTold) -> int:
    """To where the lease surely ran; 0 where its holder may have given it back."""
    until = delivery.deadline_ms
    for told in delivery.settled:
        if told.gives_back and told.may_have_happened:
            return 0
        if told.verb is Verb.EXTEND and told.outcome is Outcome.OK:
            until = told.when_ms
        elif told.verb is Verb.EXTEND and told.outcome is None:
            until = min(until, wall_ms(told.asked) + (told.delay_ms or 0))
    return until


def _rank(delivery: DeliveryTold) -> tuple[int, int]:
    return -int(delivery.headers.get(PRIORITY, b"%d" % PRIORITY_DEFAULT)), delivery.place.offset


def _short(value: bytes) -> str:
    return repr(value if len(value) <= _SHOWN_BYTES_MAX else value[:_SHOWN_BYTES_MAX] + b"...")


QUEUE_RULES: dict[str, Rule] = {
    "no job is lost": no_job_is_lost,
    "what is done stays done": what_is_done_stays_done,
    "what is rewound comes again": what_is_rewound_comes_again,
    "what is lent was sent": what_is_lent_was_sent,
    "ids keep": ids_keep,
    "a lease is one worker's": a_lease_is_one_workers,
    "lease numbers are once": lease_numbers_are_once,
    "who holds may settle": who_holds_may_settle,
    "what was lent is known": what_was_lent_is_known,
    "deliveries are counted": deliveries_are_counted,
    "nothing is early": nothing_is_early,
    "delays are kept": delays_are_kept,
    "groups go in order": groups_go_in_order,
    "the urgent go first": the_urgent_go_first,
    "a pause holds": a_pause_holds,
    "what is purged is gone": what_is_purged_is_gone,
    "an id is sent once": an_id_is_sent_once,
    "dead letters are once": dead_letters_are_once,
    "a job is finished once": a_job_is_finished_once,
    "only the failed are buried": only_the_failed_are_buried,
}
