"""Which queues were deleted of late: AWS lets nobody use the name of one again for a minute.

Every node sees deletions in the metadata, whichever was asked for them, and remembers them by its own clock; so all of them give the same
answer, but for one that was started within that minute. It counts for queues that were made through the SQS door, by whatever door they
were deleted; whoever makes a queue or a topic through another door may use the name at once.
"""

from collections.abc import Iterable

from penstock.cluster.image import Topic
from penstock.env import Env
from penstock.vocabulary import TopicId

RECENT_SECONDS = 60.0  # As AWS.
RECENT_MAX = 10_000

_SQS = "queue.sqs"  # The setting that queues made through the SQS door have.


class Deletions:
    def __init__(self, env: Env) -> None:
        self._env = env
        self._names: dict[TopicId, str] = {}  # Of those queues that are there.
        self._until: dict[str, float] = {}  # The oldest first.

    def is_recent(self, queue: str) -> bool:
        return self._until.get(queue, 0.0) > self._env.now()

    def all_seen(self, topics: Iterable[Topic]) -> None:
        """These are there, and no others. What is gone meanwhile is gone since now, as far as this node can tell."""
        self._names = {topic.topic_id: topic.name for topic in topics if _SQS in topic.overrides}

    def seen(self, topic: Topic) -> None:
        """It is new, or has other settings."""
        if _SQS in topic.overrides:
            self._names[topic.topic_id] = topic.name
        else:
            self._names.pop(topic.topic_id, None)

    def deleted(self, topic_id: TopicId) -> None:
        name, now = self._names.pop(topic_id, None), self._env.now()
        if name is None:
            return
        self._until.pop(name, None)
        while self._until and (len(self._until) >= RECENT_MAX or next(iter(self._until.values())) <= now):
            del self._until[next(iter(self._until))]
        self._until[name] = now + RECENT_SECONDS
