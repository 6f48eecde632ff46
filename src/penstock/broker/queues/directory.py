"""Which queues there are, and their settings: topics with `queue.enabled`, made, changed and deleted as topics are."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.broker.queues.calls import Code, QueueRefusal, QueueView
from penstock.broker.queues.policies import keeps_nothing
from penstock.cluster.commands import Command, CreateTopics, DeleteTopic, NewTopic
from penstock.cluster.companions import wants_companion
from penstock.cluster.configuring import Change, ConfigureTopic
from penstock.cluster.image import Topic
from penstock.errors import ErrorCode, Refusal
from penstock.settings import MIB, TopicConfig
from penstock.wire.configs import Operation

if TYPE_CHECKING:
    from penstock.broker.node import Node

ENABLED = "queue.enabled"
READ_MAX = 10_000  # Queues whose settings are remembered as they read.

# Of a queue that loses what is done: nothing else may take its messages, and files are small enough to go soon.
DEFAULTS = {"retention.ms": "-1", "retention.bytes": "-1", "segment.bytes": str(64 * MIB)}

# Of a FIFO queue with several partitions, unless somebody says otherwise, and hears that it cannot be.
BY_GROUP = {"queue.dedup.scope": "group"}

_CODES = {
    ErrorCode.INVALID_CONFIG: Code.INVALID, ErrorCode.INVALID_REQUEST: Code.INVALID, ErrorCode.INVALID_TOPIC_EXCEPTION: Code.INVALID,
    ErrorCode.INVALID_PARTITIONS: Code.INVALID, ErrorCode.INVALID_REPLICATION_FACTOR: Code.INVALID,
    ErrorCode.POLICY_VIOLATION: Code.INVALID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Code.NO_SUCH_QUEUE,
    ErrorCode.UNKNOWN_TOPIC_ID: Code.NO_SUCH_QUEUE, ErrorCode.INVALID_UPDATE_VERSION: Code.CHANGED,
}  # fmt: skip


class Directory:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._configs: dict[str, tuple[dict[str, str], TopicConfig, TopicConfig]] = {}  # The same, and the defaults under them.
        self._read: dict[str, tuple[dict[str, str], QueueView]] = {}  # By name: the overrides that were read, and how they read.

    def names(self) -> list[str]:
        return sorted(name for name, topic in self._node.image.topics.items() if _is_queue(topic))

    def find(self, queue: str) -> Topic:
        topic = self._node.image.topics.get(queue)
        if topic is not None and (read := self._read.get(queue)) is not None and read[0] is topic.overrides:
            return topic  # It was a queue when this was read.
        if topic is None:
            raise QueueRefusal(Code.NO_SUCH_QUEUE, f"there is no queue called {queue!r}")
        if not _is_queue(topic):
            raise QueueRefusal(Code.NOT_A_QUEUE, f"the topic {queue!r} is no queue: set {ENABLED}=true to make it one")
        return topic

    def describe(self, queue: str) -> QueueView:
        """The same object as long as nothing has changed. Nobody changes what it holds."""
        there, read = self._node.image.topics.get(queue), self._read.get(queue)
        if there is not None and read is not None:
            overrides, view = read  # The image puts new overrides in the place of old ones, and changes none.
            if overrides is there.overrides and view.topic_id == there.topic_id and view.partitions == len(there.partitions):
                return view
        topic = self.find(queue)
        view = QueueView(topic.name, topic.topic_id, len(topic.partitions), dict(topic.overrides))
        if len(self._read) >= READ_MAX:
            self._read.clear()
        self._read[queue] = (topic.overrides, view)
        return view

    def config_of(self, topic: Topic) -> TopicConfig:
        """Read once for as long as nothing has changed: senders ask for it."""
        defaults = self._node.partitions.defaults
        overrides, under, config = self._configs.get(topic.name, (None, None, None))
        if config is None or overrides is not topic.overrides or under is not defaults:
            config = self._node.partitions.config_of(topic)
            if len(self._configs) >= READ_MAX:
                self._configs.clear()
            self._configs[topic.name] = (topic.overrides, defaults, config)
        return config

    def check_keeps(self, topic: Topic) -> None:
        if keeps_nothing(self.config_of(topic)):
            words = f"the queue {topic.name!r} keeps nothing that is done (queue.retention), so nothing of it can be done again"
            raise QueueRefusal(Code.INVALID, words)

    async def create(self, queue: str, settings: Mapping[str, str], *, partitions: int, replicas: int | None) -> bool:
        wanted = {**settings, ENABLED: "true"}
        there = self._node.image.topics.get(queue)
        if there is None:
            overrides = wanted if wanted.get("queue.retention") == "keep" else DEFAULTS | wanted
            if partitions > 1 and wanted.get("queue.fifo") == "true":
                overrides = BY_GROUP | overrides
            fresh = NewTopic(queue, self._node.new_topic_id(), partitions, -1 if replicas is None else replicas, overrides)
            try:
                await self._submit(CreateTopics((fresh,)))
                return True
            except Refusal as refusal:
                if refusal.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise _refused(refusal) from None
            there = self.find(queue)  # Somebody else was quicker.
        config = self._node.partitions.config_of(there)
        try:
            is_same = config == config.with_overrides(wanted)
        except Refusal as refusal:
            raise _refused(refusal) from None
        if not is_same:
            words = f"the queue {queue!r} is there with other settings; change those, or take another name"
            raise QueueRefusal(Code.EXISTS_WITH_OTHER_SETTINGS, words)
        return False

    async def configure(self, queue: str, settings: Mapping[str, str | None], expected: Mapping[str, str | None]) -> None:
        self.find(queue)
        changes = [
            Change(name, Operation.DELETE, "") if value is None else Change(name, Operation.SET, value) for name, value in settings.items()
        ]
        try:
            await self._submit(ConfigureTopic(queue, tuple(changes), expected=tuple(expected.items())))
        except Refusal as refusal:
            raise _refused(refusal) from None

    async def delete(self, queue: str) -> None:
        try:
            await self._submit(DeleteTopic(self.find(queue).topic_id))
        except Refusal as refusal:
            raise _refused(refusal) from None

    async def _submit(self, command: Command | ConfigureTopic) -> None:
        for reply in await self._node.submit(command):
            if isinstance(reply, Refusal):
                raise reply


def _is_queue(topic: Topic) -> bool:
    return wants_companion(topic.overrides)


def _refused(refusal: Refusal) -> QueueRefusal:
    return QueueRefusal(_CODES.get(refusal.code, Code.NOT_AVAILABLE), refusal.reason)
