"""A member of a consumer group under the new protocol (KIP-848): the group's coordinator assigns, the member follows step by step.

    member = ConsumerMember(client, "orders", topics=["in"])
    while True:
        change = await member.beat()          # Joins with the first.
        ...stop working on change.revoked, commit what was read of it, begin with change.added...
        await asyncio.sleep(member.interval_s)

Rules:
- One heartbeat at a time. Whoever calls `beat` again has let go of what the last one revoked: only then may the group give it to others.
- What is added is owned from the moment that `beat` returns it.
- A fenced member owns nothing from that moment on (`MemberFenced`); its next heartbeat joins anew.
- The subscription is said when joining and when it changes, what is owned when it changes or may not have been heard.
Not here: reading, and any timing: the caller beats, or does not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.connection import Connection
from penstock.peers.coordinators import Coordinates, Coordinator
from penstock.peers.failures import MemberFenced, PeerFailure, Refused, check_code
from penstock.peers.stable_offsets import GroupIdentity, stable_offsets
from penstock.vocabulary import NO_TOPIC_ID, TopicId, TopicPartition
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import milliseconds, topic_id_bytes

JOINS, LEAVES, LEAVES_FOR_A_WHILE = 0, -1, -2  # Member epochs that are none.

_FENCED = (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID)


@dataclass(frozen=True, slots=True)
class Subscription:
    topics: Sequence[str] = ()
    regex: str | None = None
    assignor: str | None = None
    instance_id: str | None = None
    rebalance_timeout_ms: int = 300_000


@dataclass(frozen=True, slots=True)
class Change:
    """What a heartbeat brought."""

    revoked: tuple[TopicPartition, ...] = ()
    added: tuple[TopicPartition, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.revoked or self.added)


@dataclass(slots=True)
class _Said:
    """What the coordinator has surely heard of this member in its present epoch."""

    subscription: Subscription | None = None
    owned: tuple[TopicPartition, ...] | None = None


@dataclass(slots=True)
class _Topics:
    """Topics by the ids that assignments name them by."""

    names: dict[TopicId, str] = field(default_factory=dict)
    ids: dict[str, TopicId] = field(default_factory=dict)

    def learn(self, name: str, topic_id: TopicId) -> None:
        self.names[topic_id] = name
        self.ids[name] = topic_id


class ConsumerMember:
    def __init__(self, client: Client, group: str, subscription: Subscription, *, deadline_s: float = 60.0) -> None:
        self.group = group
        self.subscription = subscription  # May be replaced at any time; the next heartbeat tells.
        self.member_id = _draw_id(client)
        self.epoch = JOINS
        self.owned: tuple[TopicPartition, ...] = ()  # In order.
        self.interval_s = 0.0  # How long to wait until the next heartbeat, as the coordinator wishes.
        self._client = client
        self._coordinator = Coordinator(client.router, Coordinates.GROUP, group)
        self._deadline_s = deadline_s
        self._said = _Said()
        self._topics = _Topics()

    @property
    def identity(self) -> GroupIdentity:
        return GroupIdentity(self.group, self.member_id, self.epoch, self.subscription.instance_id)

    async def beat(self) -> Change:
        """One heartbeat. Raises `MemberFenced`, after which nothing is owned and the next heartbeat joins anew."""
        owned, subscription = self.owned, self.subscription
        body, self._said = self._body(owned, subscription), _Said()  # Whatever fails from here on: everything is said again.
        try:
            answer = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, body, f"keep the membership in group {self.group!r}", _first_code)
        except PeerFailure as failure:
            if isinstance(failure, Refused) and failure.code in _FENCED:
                self._forget()
                raise MemberFenced(failure.problem, "join again with the next heartbeat") from failure
            raise
        self.epoch = int(answer.member_epoch)
        self.interval_s = milliseconds(answer.heartbeat_interval) / 1_000
        if answer.assignment is None:
            self._said = _Said(subscription, owned)
            return Change()
        target, is_complete = await self._read(answer.assignment)
        if is_complete:  # Otherwise a topic is not known yet: with everything said again, the assignment is told again.
            self._said = _Said(subscription, owned)
        return self._adopt(target)

    async def leave(self) -> None:
        """Gives everything back at once; a static member only for a while. Best effort: otherwise the session ends it."""
        if self.epoch == JOINS:
            return
        body = {
            "group_id": self.group, "member_id": self.member_id, "instance_id": self.subscription.instance_id,
            "member_epoch": LEAVES if self.subscription.instance_id is None else LEAVES_FOR_A_WHILE, "rebalance_timeout_ms": -1,
            "subscribed_topic_names": None, "topic_partitions": None,
        }  # fmt: skip
        self._forget()
        await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, body, f"leave group {self.group!r}", _first_code)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        """As this member in its present epoch: STALE_MEMBER_EPOCH says that it has moved on, and to beat first."""
        topics: dict[str, list[dict[str, Any]]] = {}
        for (topic, partition), offset in offsets.items():
            row = {"partition_index": partition, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
            topics.setdefault(topic, []).append(row)
        body = {
            "group_id": self.group, "member_id": self.member_id, "generation_id_or_member_epoch": self.epoch,
            "group_instance_id": self.subscription.instance_id,
            "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
        }  # fmt: skip
        await self._ask(ApiKey.OFFSET_COMMIT, body, f"commit offsets of group {self.group!r}", _row_codes)

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Where the group reads on, for those that it ever committed; waits while a transaction holds one of them."""
        deadline = self._client.router.deadline(self._deadline_s)
        return await stable_offsets(self._client.router, self._coordinator, self.identity, partitions, deadline)

    def _body(self, owned: tuple[TopicPartition, ...], subscription: Subscription) -> dict[str, Any]:
        is_known = self.epoch != JOINS and self._said.subscription == subscription
        is_owned_known = self.epoch != JOINS and self._said.owned == owned
        topic_ids: dict[TopicId, list[int]] = {}
        for topic, partition in owned:
            topic_ids.setdefault(self._topics.ids[topic], []).append(partition)
        return {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": subscription.instance_id,
            "rebalance_timeout_ms": -1 if is_known else subscription.rebalance_timeout_ms,
            "subscribed_topic_names": None if is_known else list(subscription.topics),
            "subscribed_topic_regex": None if is_known else subscription.regex,
            "server_assignor": None if is_known else subscription.assignor,
            "topic_partitions": None
            if is_owned_known
            else [{"topic_id": topic_id, "partitions": indexes} for topic_id, indexes in topic_ids.items()],
        }

    async def _read(self, assignment: Any) -> tuple[tuple[TopicPartition, ...], bool]:
        """What is assigned, and whether that is all of it."""
        told = [(topic_id_bytes(row.topic_id), [int(index) for index in row.partitions]) for row in assignment.topic_partitions]
        if any(topic_id not in self._topics.names for topic_id, _ in told):
            for view in (await self._client.metadata(deadline_s=self._deadline_s)).topics:
                if view.topic_id != NO_TOPIC_ID:
                    self._topics.learn(view.name, view.topic_id)
        named = [(self._topics.names[topic_id], indexes) for topic_id, indexes in told if topic_id in self._topics.names]
        found = tuple(sorted(TopicPartition(name, index) for name, indexes in named for index in indexes))
        return found, len(named) == len(told)

    def _adopt(self, target: tuple[TopicPartition, ...]) -> Change:
        before, self.owned = self.owned, target
        kept, wanted = set(before), set(target)
        return Change(
            tuple(where for where in before if where not in wanted),
            tuple(where for where in target if where not in kept),
        )

    def _forget(self) -> None:
        self.epoch, self.owned, self._said = JOINS, (), _Said()

    async def _ask(self, api: ApiKey, body: Mapping[str, Any], what: str, codes: Any) -> Any:
        deadline = self._client.router.deadline(self._deadline_s)

        async def ask(connection: Connection, coordinator: int) -> Any:
            answer = await connection.call(api, body, timeout_s=self._client.router.timeouts(deadline).whole_s)
            for code, reason in codes(answer):
                check_code(code, what, reason)
            return answer

        return await self._coordinator.ask(what, deadline, ask)


def _first_code(answer: Any) -> list[tuple[int, str | None]]:
    return [(int(answer.error_code), answer.error_message)]


def _row_codes(answer: Any) -> list[tuple[int, str | None]]:
    return [(int(row.error_code), None) for topic in answer.topics for row in topic.partitions]


def _draw_id(client: Client) -> str:
    """Sixteen bytes of chance: members name themselves (version 1 of the heartbeat)."""
    return bytes(client.env.rng.randrange(256) for _ in range(16)).hex()
