"""The `range` assignor: of each topic every reader gets a run of neighbouring partitions, in the order of the readers.

Topics with the same number of partitions and the same readers are cut alike, so that one reader has the same partitions of all of them:
that is what joins need. A newcomer moves most of the runs; `uniform` moves less.
"""

from collections.abc import Mapping, Sequence

from penstock.groups.consumer.assignors import Reader, in_order
from penstock.groups.consumer.partitions import Partitions
from penstock.vocabulary import TopicId


def assign_ranges(readers: Sequence[Reader], partition_counts: Mapping[TopicId, int]) -> dict[str, Partitions]:
    given: dict[str, dict[TopicId, tuple[int, ...]]] = {reader.member_id: {} for reader in readers}
    ordered = in_order(readers)
    for topic_id in sorted(partition_counts):
        takers = [reader.member_id for reader in ordered if topic_id in reader.topics]
        if not takers:
            continue
        share, extra = divmod(partition_counts[topic_id], len(takers))
        start = 0
        for position, member_id in enumerate(takers):
            end = start + share + (position < extra)
            if end > start:
                given[member_id][topic_id] = tuple(range(start, end))
            start = end
    return dict(given)
