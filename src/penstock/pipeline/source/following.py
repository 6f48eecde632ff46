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
from penstock.pipeline.source.subscription import Subscribed
from penstock.vocabulary import NO_TOPIC_ID, TopicPartition


class Following:
    def __init__(self, options: SourceOptions) -> None:
        self.lookup = Lookup(options)
        self._options = options
        self._losses = Losses(fails=options.fails_on_data_loss)
        self._beginnings: dict[tuple[TopicPartition, bytes], int] = {}  # Of partitions that came later; asked for once.

    def start(self) -> Offsets:
        subscribed = self.lookup.subscribed()
        return Offsets(self.lookup.start(subscribed), subscribed.topic_ids)

    def latest_of_all(self) -> Offsets:
        subscribed = self.lookup.subscribed()
        return Offsets(self.lookup.latest(subscribed.partitions), subscribed.topic_ids)

    def latest(self, begun: Offsets) -> Offsets:
        """Where everything ends now. What was begun and is gone is reported, and left out."""
        subscribed = self._subscribed(begun)
        now = Offsets({}, subscribed.topic_ids)
        known = {where: offset for where, offset in begun.next.items() if begun.is_same_topic(now, where.topic)}
        ends = self.lookup.latest(subscribed.partitions, known=known)
        for where, offset in known.items():
            if where in ends and ends[where] < offset:
                self._losses.report(Gap(where, ends[where], offset, CUT_OFF))
        self._record_losses()
        return Offsets(ends, subscribed.topic_ids)

    def starts(self, begun: Offsets, ended: Offsets) -> Positions:
        """Where each partition of a batch begins: where the last one ended, or at the earliest offset of a partition that is new."""
        known = {where: offset for where, offset in begun.next.items() if where in ended.next and begun.is_same_topic(ended, where.topic)}
        new = [where for where in ended.next if where not in known]
        unasked = [where for where in new if self._place(where, ended) not in self._beginnings]
        for where, offset in self.lookup.earliest(unasked).items():
            self._beginnings[self._place(where, ended)] = offset
        return known | {where: self._beginnings[self._place(where, ended)] for where in new}

    def ranges(self, begun: Offsets, ended: Offsets) -> list[Range]:
        """What a batch reads of each partition. Depends on nothing but the offsets, and on what retention has left of them."""
        starts = self.starts(begun, ended)
        ranges = [
            Range(where, ended.topic_ids.get(where.topic, NO_TOPIC_ID), starts[where], end)
            for where, end in ended.next.items()
            if end > starts[where]
        ]
        firsts = self.lookup.earliest([each.where for each in ranges])
        kept = []
        for each in ranges:
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
            subscribed = self.lookup.subscribed(leaves_out_missing=not self._options.fails_on_data_loss)
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

    def _record_losses(self) -> None:
        gaps, topic = self._losses.take(), self._options.dead_letter_topic
        if gaps and topic is not None:
            self.lookup.broker.run(write(self.lookup.broker.client, topic, [of_gap(gap) for gap in gaps]))

    def _place(self, where: TopicPartition, ended: Offsets) -> tuple[TopicPartition, bytes]:
        return where, ended.topic_ids.get(where.topic, NO_TOPIC_ID)


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
