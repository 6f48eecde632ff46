"""Where a message of a queue lies."""

from typing import NamedTuple

from penstock.vocabulary import TopicPartition


class Place(NamedTuple):
    queue: str
    partition: int
    offset: int

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.queue, self.partition)
