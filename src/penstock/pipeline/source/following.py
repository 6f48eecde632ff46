"""What a stream sees of its topics as they change: records come, partitions are added, topics go and come back.

Where the next batch ends is asked of brokers; where it begins follows from where the last one ended. Whatever lies between the two and is
not there is reported as a loss. Without `failOnDataLoss` a topic that is gone is left out, and read from its beginning should it come back.
"""

from penstock.peers.failures import UnknownTopic
from penstock.pipeline.source.dead_letters import of_gap, write
from penstock.pipeline.source.lookup import Lookup, Positions
from penstock.pipeline.source.loss import AGED_OUT, CUT_OFF, DELETED, REPLACED, Gap, Losses
from penstock.pipeline.source.offsets import Offsets
from penstock.pipeline.source.options import SourceOptions
from penstock.pipeline.source.ranges import Range
from penstock.pipeline.source.subscription import Assigned, Named, Pattern, Subscribed, Subscription
from penstock.vocabulary import NO_TOPIC_ID, TopicPartition


class Following:
    def __init__(self, options: SourceOptions) -> None:
        self.lookup = Lookup(options)
        self._options = options
        self._losses = Losses(fails=options.fails_on_data_loss)
        self._beginnings: dict[tuple[TopicPartition, bytes], int] = {}  # Of partitions that came later; asked for once.

    def start(self) -> Offsets:
        """Where a new query begins, and one that was stopped in its first batch. Raises `UnknownTopic` where no topic is there."""
        subscribed = self.lookup.subscribed(leaves_out_missing=self._goes_on)
        missing = _missing(self._options.subscription, subscribed)
        if missing and not subscribed.partitions:
            raise UnknownTopic(missing[0].topic)
        for where in missing:
            self._losses.report(Gap(where, 0, 0, DELETED))
        self._record_losses()
        return Offsets(self.lookup.start(subscribed), subscribed.topic_ids)

    def latest_of_all(self) -> Offsets:
        """Where everything ends now; what is gone is told of when the next batch is made."""
        subscribed = self.lookup.subscribed(leaves_out_missing=self._goes_on)
        return Offsets(self.lookup.latest_left(subscribed.partitions), subscribed.topic_ids)

    def latest(self, begun: Offsets) -> Offsets:
        """Where everything ends now. What was begun and is gone is reported, and left out."""
        subscribed = self._subscribed(begun)
        now = Offsets({}, subscribed.topic_ids)
        known = {where: offset for where, offset in begun.next.items() if begun.is_same_topic(now, where.topic)}
        ends = self.lookup.latest_left(subscribed.partitions, known=known)
        for where, offset in known.items():
            if where not in ends and where in subscribed.partitions:  # Of others it is told already.
                self._losses.report(Gap(where, offset, offset, DELETED))
            elif where in ends and ends[where] < offset:
                self._losses.report(Gap(where, ends[where], offset, CUT_OFF))
        self._record_losses()
        return Offsets(ends, subscribed.topic_ids)

    def starts(self, begun: Offsets, ended: Offsets) -> Positions:
        """Where each partition of a batch begins: where the last one ended, or at the earliest offset of a partition that is new.

        One that is new and already gone has no beginning.
        """
        known = {where: offset for where, offset in begun.next.items() if where in ended.next and begun.is_same_topic(ended, where.topic)}
        new = [where for where in ended.next if where not in known]
        unasked = [where for where in new if self._place(where, ended) not in self._beginnings]
        for where, offset in self.lookup.earliest_left(unasked).items():
            self._beginnings[self._place(where, ended)] = offset
        return known | {where: self._beginnings[place] for where in new if (place := self._place(where, ended)) in self._beginnings}

    def ranges(self, begun: Offsets, ended: Offsets) -> list[Range]:
        """What a batch reads of each partition. Depends on nothing but the offsets, and on what is left of them by now."""
        starts = self.starts(begun, ended)
        ranges = [
            Range(where, ended.topic_ids.get(where.topic, NO_TOPIC_ID), start, end)
            for where, end in ended.next.items()
            if end > (start := starts.get(where, 0))
        ]
        firsts = self.lookup.earliest_left([each.where for each in ranges if each.where in starts])
        kept = []
        for each in ranges:
            if each.where not in firsts:
                self._losses.report(Gap(each.where, each.start, each.end, DELETED))
                continue
            start = min(max(each.start, firsts[each.where]), each.end)
            is_new = each.where not in begun.next
            if start > (0 if is_new else each.start):
                self._losses.report(Gap(each.where, 0 if is_new else each.start, start, AGED_OUT))
            kept.append(Range(each.where, each.topic_id, start, each.end))
        self._record_losses()
        return kept

    def _subscribed(self, begun: Offsets) -> Subscribed:
        """The partitions of today, and word of those that are gone."""
        try:
            subscribed = self.lookup.subscribed(leaves_out_missing=self._goes_on)
        except UnknownTopic as unknown:
            for where, offset in begun.next.items():
                if where.topic == unknown.topic:
                    self._losses.report(Gap(where, offset, offset, DELETED))
            raise
        now = Offsets({}, subscribed.topic_ids)
        for where, offset in begun.next.items():
            if where not in subscribed.partitions:
                self._losses.report(Gap(where, offset, offset, DELETED))
            elif not begun.is_same_topic(now, where.topic):
                self._losses.report(Gap(where, offset, offset, REPLACED))
        return subscribed

    @property
    def _goes_on(self) -> bool:
        """Whether the query goes on without what is gone."""
        return not self._options.fails_on_data_loss

    def _record_losses(self) -> None:
        gaps, topic = self._losses.take(), self._options.dead_letter_topic
        if gaps and topic is not None:
            self.lookup.broker.run(write(self.lookup.broker.client, topic, [of_gap(gap) for gap in gaps]))

    def _place(self, where: TopicPartition, ended: Offsets) -> tuple[TopicPartition, bytes]:
        return where, ended.topic_ids.get(where.topic, NO_TOPIC_ID)


def _missing(subscription: Subscription, found: Subscribed) -> list[TopicPartition]:
    """What was named and is not there; of a topic that is not there, its first partition."""
    match subscription:
        case Named(topics):
            return [TopicPartition(topic, 0) for topic in topics if topic not in found.topic_ids]
        case Pattern():
            return []
        case Assigned(partitions):
            return [where for where in partitions if where not in found.partitions]


def up_to(target: Offsets, latest: Offsets, begun: Offsets) -> Offsets:
    """Where a run ends that was to end at `target`: not after it, unless a batch that was written down before goes further."""
    ends = {}
    for where, end in latest.next.items():
        aim = target.next.get(where) if target.is_same_topic(latest, where.topic) else None
        done = begun.next.get(where) if begun.is_same_topic(latest, where.topic) else None
        bounds = [bound for bound in (aim, done) if bound is not None]
        if bounds:  # Otherwise it came after the run began.
            ends[where] = min(end, max(bounds))
    return Offsets(ends, latest.topic_ids)
