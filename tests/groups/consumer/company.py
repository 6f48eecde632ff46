"""A coordinator with topics, and members of the new protocol that behave as clients do: they say what they have, and give up what they are
told to give up when they are let."""

from typing import Any

from groups.scene import Scene

from penstock.errors import ErrorCode
from penstock.groups.commands import ConsumerHeartbeat
from penstock.groups.consumer.matches import Matches
from penstock.groups.consumer.partitions import NOTHING, Partitions, each
from penstock.groups.consumer.topics import TopicShape
from penstock.groups.consumer.views import ConsumerGroupView
from penstock.groups.coordinator import GroupCoordinator
from penstock.groups.replies import ConsumerHeartbeatReply
from penstock.vocabulary import TopicId

NONE = ErrorCode.NONE
Place = tuple[str, int]


def id_of(topic: str, life: int = 0) -> TopicId:
    return TopicId(f"{topic}/{life}".encode().ljust(16, b"."))


class GrowingTopics:
    def __init__(self) -> None:
        self.shapes: dict[str, TopicShape] = {}

    def find(self, name: str) -> TopicShape | None:
        return self.shapes.get(name)

    def name_of(self, topic_id: TopicId) -> str | None:
        return next((shape.name for shape in self.shapes.values() if shape.topic_id == topic_id), None)

    def matching(self, regex: str) -> tuple[str, ...]:
        return Matches(self.shapes).found(regex)


class Company(Scene):
    def __init__(self, topics: dict[str, int] | None = None, **settings: Any) -> None:
        self.topics = GrowingTopics()
        self.topics.shapes = {name: TopicShape(name, id_of(name), count) for name, count in (topics or {}).items()}
        settings.setdefault("group_consumer_assignment_interval_ms", 0)
        super().__init__(**settings)

    def _started(self) -> GroupCoordinator:
        coordinator = GroupCoordinator(self.settings, lambda: self.bytes_max - coordinator.held_bytes, self.topics)
        for key, value in self.log.items():
            coordinator.replay_stored(key, value)
        coordinator.begin(self.now)
        return coordinator

    def make(self, topic: str, partitions: int, life: int = 0) -> None:
        """Makes a topic, or lets it grow."""
        self.topics.shapes[topic] = TopicShape(topic, id_of(topic, life), partitions)
        self.coordinator.topics_changed()

    def delete(self, topic: str) -> None:
        del self.topics.shapes[topic]
        self.coordinator.topics_changed()

    def say(self, member_id: str, epoch: int, *, group: str = "g", **said: Any) -> ConsumerHeartbeatReply:
        token = next(self._tokens)
        names = {"group": group, "member_id": member_id, "fresh_member_id": f"fresh{token}"}
        self.ask(ConsumerHeartbeat(token=token, member_epoch=epoch, **names, **said))
        return self.read(token, ConsumerHeartbeatReply)

    def say_join(self, member_id: str, *topics: str, group: str = "g", **said: Any) -> ConsumerHeartbeatReply:
        details = {"topics": topics or ("t",), "rebalance_timeout_ms": 60_000, "owned": NOTHING} | said
        return self.say(member_id, 0, group=group, **details)

    def member(self, member_id: str, *topics: str, **said: Any) -> "Client":
        """A member that has joined."""
        client = Client(self, member_id, topics or ("t",), **said)
        assert client.join() is NONE
        return client

    def view(self, group: str = "g") -> ConsumerGroupView:
        view = self.coordinator.describe_consumer(group)
        assert view is not None
        return view

    def named(self, partitions: Partitions) -> list[Place]:
        return sorted((self.topics.name_of(topic_id) or "?", number) for topic_id, number in each(partitions))


class Client:
    def __init__(
        self, company: Company, member_id: str, topics: tuple[str, ...], *, group: str = "g", instance: str | None = None, **said: Any
    ) -> None:
        self.company = company
        self.member_id = member_id
        self.group = group
        self.instance = instance
        self.said = {"topics": topics, "rebalance_timeout_ms": 60_000} | said
        self.epoch = 0
        self.owned: Partitions = NOTHING  # What it works on.
        self.told: Partitions = NOTHING  # What it was last told to have.
        self.lost: list[Place] = []  # What it had to give up, in order.

    def join(self) -> ErrorCode:
        reply = self.company.say(self.member_id, 0, group=self.group, instance_id=self.instance, owned=NOTHING, **self.said)
        self.owned = NOTHING
        return self._hear(reply)

    def beat(self, *, obeys: bool = True) -> ErrorCode:
        """One heartbeat, with what it has; then it does what it is told, if it obeys."""
        reply = self.company.say(self.member_id, self.epoch, group=self.group, instance_id=self.instance, owned=self.owned)
        return self._hear(reply, obeys=obeys)

    def leave(self, epoch: int = -1) -> ErrorCode:
        self.owned = self.told = NOTHING
        return self.company.say(self.member_id, epoch, group=self.group, instance_id=self.instance).error

    @property
    def has(self) -> list[Place]:
        return self.company.named(self.owned)

    def _hear(self, reply: ConsumerHeartbeatReply, *, obeys: bool = True) -> ErrorCode:
        if reply.error is NONE:
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.told = reply.assignment
            if obeys:
                self.obey()
        return reply.error

    def obey(self) -> None:
        kept = {(topic_id, number) for topic_id, number in each(self.told)}
        self.lost += [place for place in each(self.owned) if place not in kept]
        self.owned = self.told


def settle(*clients: Client, rounds: int = 20) -> None:
    """Everybody sends heartbeats until nothing changes any more."""
    for _ in range(rounds):
        before = [(client.epoch, client.owned) for client in clients]
        for client in clients:
            assert client.beat() is NONE, client.member_id
        if before == [(client.epoch, client.owned) for client in clients]:
            return
    raise AssertionError("they don't settle")
