"""The topics that there are, as far as assigning them needs: their names, ids and how many partitions they have.

The runtime hands a view to the coordinator and says when it shows something else (`topics_changed`). A pattern stands for the topics whose
whole name it matches; never for the cluster's own, which at Kafka it would, and nobody wants them. Racks are not in it: assignors here do
not look at them, as Kafka's own don't.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple, Protocol

from penstock.groups.consumer.matches import Matches
from penstock.vocabulary import TopicId


class TopicShape(NamedTuple):
    name: str
    topic_id: TopicId
    partition_count: int


class Topics(Protocol):
    def find(self, name: str) -> TopicShape | None: ...

    def name_of(self, topic_id: TopicId) -> str | None: ...

    def matching(self, regex: str) -> tuple[str, ...]:
        """What a pattern stands for, sorted: not those that the cluster keeps for itself. It is asked for often."""


class FixedTopics:
    """Topics that stay as they are."""

    def __init__(self, shapes: Iterable[TopicShape] = ()) -> None:
        self._shapes = {shape.name: shape for shape in shapes}
        self._names = {shape.topic_id: shape.name for shape in self._shapes.values()}
        self._matches = Matches(self._shapes)

    def find(self, name: str) -> TopicShape | None:
        return self._shapes.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        return self._names.get(topic_id)

    def matching(self, regex: str) -> tuple[str, ...]:
        return self._matches.found(regex)


class KnownTopics:
    """The topics as a coordinator knows them now."""

    def __init__(self) -> None:
        self.view: Topics = FixedTopics()
        self.version = 0  # Grows whenever the view may show something else.

    def changed(self) -> None:
        self.version += 1

    def read_by(self, names: Iterable[str], regexes: Iterable[str]) -> dict[str, TopicShape]:
        """Those of the named and the matched topics that there are."""
        wanted = dict.fromkeys(names)
        for regex in regexes:
            wanted.update(dict.fromkeys(self.view.matching(regex)))
        found = ((name, self.view.find(name)) for name in wanted)
        return {name: shape for name, shape in found if shape is not None}


def hash_of(shapes: Iterable[TopicShape]) -> int:
    """The same on every node and at every time for the same topics; another, but for one case in 2**64, when any of them differs."""
    digest = blake2b(digest_size=8)
    for name, topic_id, partition_count in sorted(shapes):
        encoded = name.encode()
        digest.update(len(encoded).to_bytes(4, "big") + encoded + topic_id + partition_count.to_bytes(4, "big"))
    return int.from_bytes(digest.digest(), "big", signed=True)
