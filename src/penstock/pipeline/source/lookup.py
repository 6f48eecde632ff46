"""What brokers say of the partitions that are read: which there are, where they begin and end, what a bound means today.

A topic that seems to be missing, and an end that seems to have gone back, are asked about again a few times before they are believed
(`fetchOffset.numRetries`): a broker that has just taken over may know less than the one before.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from penstock.peers.failures import PeerFailure, UnknownTopic
from penstock.peers.offsets import EARLIEST, LATEST
from penstock.pipeline.brokers import Broker, brokers
from penstock.pipeline.options import WrongOption
from penstock.pipeline.source.bounds import AtOffsets, AtTimestamp, AtTimestamps, Bound, Committed, Everywhere
from penstock.pipeline.source.options import SourceOptions
from penstock.pipeline.source.subscription import Assigned, Subscribed, resolve
from penstock.vocabulary import TopicPartition

Positions = dict[TopicPartition, int]

GONE_S = 5.0  # How long a topic may seem to be missing before it is looked for.


class Lookup:
    def __init__(self, options: SourceOptions) -> None:
        self.broker: Broker = brokers(options.contact)
        self._options = options
        self._subscribed: Subscribed | None = None
        self._asked_at = 0.0

    def subscribed(self, *, leaves_out_missing: bool = False) -> Subscribed:
        """The partitions of today, or of a moment ago with `partition.metadata.cache.ttl.ms`. Raises `UnknownTopic`."""
        is_fresh = time.monotonic() - self._asked_at < self._options.metadata_age_s
        if self._subscribed is None or not is_fresh:
            self._subscribed = self._ask_again(lambda: self._resolve(leaves_out_missing))
            self._asked_at = time.monotonic()
        return self._subscribed

    def earliest(self, partitions: Sequence[TopicPartition]) -> Positions:
        return self._list({where: EARLIEST for where in partitions})

    def earliest_left(self, partitions: Sequence[TopicPartition]) -> Positions:
        """As `earliest`, without those partitions that are not there any more."""
        return self._list_left({where: EARLIEST for where in partitions})

    def latest(self, partitions: Sequence[TopicPartition]) -> Positions:
        return self._list({where: LATEST for where in partitions})

    def latest_left(self, partitions: Sequence[TopicPartition], *, known: Mapping[TopicPartition, int] | None = None) -> Positions:
        """Where the partitions end for a reader, without those that are not there any more.

        Asked again while one ends before an offset that is known to have been there.
        """
        for tries_left in reversed(range(self._options.lookup_tries)):
            found = self._list_left({where: LATEST for where in partitions})
            short = {where: known[where] for where, end in found.items() if end < known.get(where, 0)} if known else {}
            found |= self._held_back(short)
            if tries_left == 0 or all(found[where] >= offset for where, offset in short.items()):
                break
            time.sleep(self._options.lookup_pause_s)
        if len(found) < len(partitions):
            self._subscribed = None  # However young it is.
        return found

    def _held_back(self, known: Mapping[TopicPartition, int]) -> Positions:
        """Those of the offsets that are there, but behind a transaction that is open: whoever came to them saw what is not committed.

        A query that read uncommitted records until now has come so far, and so has one of Spark's Kafka source: nothing was lost.
        """
        if not known or not self._options.fetching.is_committed_only:
            return {}
        ends = self._list_left({where: LATEST for where in known}, is_committed_only=False)
        return {where: offset for where, offset in known.items() if offset <= ends.get(where, -1)}

    def start(self, subscribed: Subscribed) -> Positions:
        """Where reading begins, as the options say."""
        return self._bound(self._options.start, subscribed, "starting")

    def end(self, subscribed: Subscribed) -> Positions:
        return self._bound(self._options.end, subscribed, "ending")

    def not_older(self, partitions: Sequence[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int | None]:
        """The first record not older than this, a time after 1970; None where there is none. Other numbers are words to brokers."""
        found = self._list({where: timestamp_ms for where in partitions})
        return {where: offset if offset >= 0 else None for where, offset in found.items()}

    def _list_left(self, wishes: Mapping[TopicPartition, int], *, is_committed_only: bool | None = None) -> Positions:
        """A topic may go between the question which there are and this one."""
        try:
            return self._list(wishes, is_committed_only=is_committed_only, deadline_s=GONE_S)
        except PeerFailure:  # Deleted, or away for a moment: that is waited for.
            left = self._left(list(wishes))
        return self._list({where: wishes[where] for where in left}, is_committed_only=is_committed_only)

    def _left(self, partitions: Sequence[TopicPartition]) -> Sequence[TopicPartition]:
        """Those that are there. Asked again while one seems to be missing."""
        for tries_left in reversed(range(self._options.lookup_tries)):
            left = self.broker.run(resolve(self.broker.client, Assigned(partitions), leaves_out_missing=True)).partitions
            if tries_left == 0 or len(left) == len(partitions):
                break
            time.sleep(self._options.lookup_pause_s)
        return left

    def _bound(self, bound: Bound, subscribed: Subscribed, side: str) -> Positions:
        partitions = subscribed.partitions
        match bound:
            case Everywhere(offset):
                return self._list({where: offset for where in partitions})
            case AtOffsets(offsets):
                _check_named(offsets, partitions, f"{side}Offsets")
                asked = self._list({where: offset for where, offset in offsets.items() if offset < 0})
                return {where: asked.get(where, offset) for where, offset in offsets.items()}
            case AtTimestamp(timestamp_ms):
                return self._at_times({where: timestamp_ms for where in partitions}, side)
            case AtTimestamps(timestamps_ms):
                _check_named(timestamps_ms, partitions, f"{side}OffsetsByTimestamp")
                return self._at_times(timestamps_ms, side)
            case Committed(group):
                return self._committed(group, partitions)

    def _at_times(self, wanted: Mapping[TopicPartition, int], side: str) -> Positions:
        found = self._list(wanted)
        missing = [where for where, offset in found.items() if offset < 0]
        if missing and side == "starting" and not self._options.begins_at_latest_without_match:
            where = missing[0]
            problem = f"no record of {where} is as young as {wanted[where]} (milliseconds since 1970), where reading should begin"
            raise WrongOption(problem, "begin earlier, or set startingOffsetsByTimestampStrategy to latest")
        return found | self._list({where: LATEST for where in missing})

    def _committed(self, group: str, partitions: Sequence[TopicPartition]) -> Positions:
        committed = self.broker.run(self.broker.client.committed_offsets(group))
        known = {where: committed[where].offset for where in partitions if where in committed}
        return known | self.earliest([where for where in partitions if where not in known])

    def _list(
        self, wishes: Mapping[TopicPartition, int], *, is_committed_only: bool | None = None, deadline_s: float | None = None
    ) -> Positions:
        """With the isolation that the options ask for, unless another is named."""
        if not wishes:
            return {}
        is_stable = self._options.fetching.is_committed_only if is_committed_only is None else is_committed_only
        found = self.broker.run(self.broker.client.list_offsets(wishes, is_committed_only=is_stable, deadline_s=deadline_s))
        return {where: each.offset for where, each in found.items()}

    def _resolve(self, leaves_out_missing: bool) -> Subscribed:
        subscription = self._options.subscription
        found = self.broker.run(resolve(self.broker.client, subscription, leaves_out_missing=leaves_out_missing))
        if isinstance(subscription, Assigned) and not leaves_out_missing:
            for where in subscription.partitions:
                if where not in found.partitions:
                    raise WrongOption(f"assign names {where}, and the topic has no such partition", "name partitions that are there")
        return found

    def _ask_again(self, ask: Callable[[], Subscribed]) -> Subscribed:
        for _ in range(self._options.lookup_tries - 1):
            try:
                return ask()
            except UnknownTopic:
                time.sleep(self._options.lookup_pause_s)
        return ask()


def _check_named(named: Mapping[TopicPartition, int], there: Sequence[TopicPartition], option: str) -> None:
    for where in sorted(named.keys() ^ set(there)):
        if where in named:
            raise WrongOption(f"{option} names {where}, which is not read", "name the partitions that are subscribed to, and no others")
        raise WrongOption(f"{option} does not name {where}", "name every partition, with -1 for the latest and -2 for the earliest")
