"""Whom to ask: any node, the controller, or the leader of a partition; and asking again while that can help.

Rules:
- A call ends by its deadline, whatever happens: with an answer, with a refusal that asking again cannot change, or with `GaveUp`.
- Between two tries there is a jittered pause that doubles. What was known of a topic is asked for again before the next try.
- Callers who need the same topic at the same time share one question about it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from penstock.errors import ErrorCode
from penstock.peers.connection import Address, Connection, Limits
from penstock.peers.failures import GaveUp, PeerFailure, Refused, Unreachable
from penstock.peers.patience import Backoff, ClientEnv, Deadline
from penstock.peers.switchboard import CALLS, Switchboard
from penstock.peers.topics import NO_LEADER, ClusterView, PartitionView, TopicCache, TopicView, read_cluster
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    request_timeout_s: float = 30.0  # For one question; its connection is given up after it.
    deadline_s: float = 60.0  # For a call with all its tries, where the caller names none.
    backoff_first_s: float = 0.05
    backoff_longest_s: float = 1.0
    metadata_age_max_s: float = 300.0  # New partitions are noticed after this long at the latest.
    limits: Limits = field(default_factory=Limits)


class Route(NamedTuple):
    topic: TopicView
    partition: PartitionView
    connection: Connection


class Timeouts(NamedTuple):
    whole_s: float  # For the question, the work at the node, and the answer.
    at_node_ms: int  # What the node may use of it to wait for others.


AT_NODE_SHARE = 0.7


class Router:
    def __init__(self, env: ClientEnv, bootstrap: Sequence[Address], *, client_id: str, settings: ClientSettings) -> None:
        self._env = env
        self._settings = settings
        self.switchboard = Switchboard(env, bootstrap, client_id=client_id, limits=settings.limits)
        self._topics = TopicCache(settings.metadata_age_max_s)
        self._controller_id = NO_LEADER
        self._told_by: Address | None = None  # Who told what is known.
        self._proved_wrong: Address | None = None  # Whose word was doubted: it may be cut off from the others, and not know it.
        self._asking = asyncio.Lock()  # Held by whoever asks about a topic that is not known.
        self._rounds = 0  # Questions about topics that were begun.

    def deadline(self, span_s: float | None) -> Deadline:
        return Deadline(self._env, self._settings.deadline_s if span_s is None else span_s)

    def timeouts(self, deadline: Deadline) -> Timeouts:
        whole_s = deadline.cut(self._settings.request_timeout_s)
        return Timeouts(whole_s, max(1, int(whole_s * AT_NODE_SHARE * 1_000)))

    async def retry(self, what: str, deadline: Deadline, attempt: Callable[[], Awaitable[T]]) -> T:
        backoff = Backoff(self._env, first_s=self._settings.backoff_first_s, longest_s=self._settings.backoff_longest_s)
        may_have_happened, refused = False, None
        while True:
            try:
                return await attempt()
            except PeerFailure as failure:
                refused = failure if isinstance(failure, Refused) else refused
                may_have_happened = may_have_happened or failure.may_have_happened
                if not failure.is_retriable:
                    failure.may_have_happened = may_have_happened
                    raise
                pause_s = backoff.pause_s()
                if deadline.left_s() <= pause_s:
                    told = refused or failure  # A refusal says why; that the last try was cut short says less.
                    raise GaveUp(what, deadline.span_s, told, may_have_happened=may_have_happened) from failure
            await asyncio.sleep(pause_s)

    async def any_node(self, deadline: Deadline) -> Connection:
        return await self.switchboard.to_any(deadline)

    async def controller(self, deadline: Deadline) -> Connection:
        """The node that the others name as controller; any node where none is named."""
        if self._controller_id == NO_LEADER:
            await self.refresh((), deadline)
        if self._controller_id == NO_LEADER:
            return await self.any_node(deadline)
        return await self.switchboard.to_node(self._controller_id, deadline)

    async def leader(self, wanted: TopicPartition, deadline: Deadline, *, lane: str = CALLS, may_create: bool = False) -> Route:
        topic, partition = await self.find(wanted, deadline, may_create=may_create)
        return Route(topic, partition, await self.switchboard.to_node(partition.leader, deadline, lane=lane))

    async def find(self, wanted: TopicPartition, deadline: Deadline, *, may_create: bool = False) -> tuple[TopicView, PartitionView]:
        """The partition, with a leader. One try."""
        topic = await self.topic(wanted.topic, deadline, may_create=may_create)
        if not 0 <= wanted.partition < len(topic.partitions):
            self.doubt(wanted.topic)
            has = f"the topic has {len(topic.partitions)} partitions, counted from 0"
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{wanted} was not found", has)
        partition = topic.partitions[wanted.partition]
        if partition.leader == NO_LEADER:
            self.doubt(wanted.topic)
            raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, f"{wanted} has no leader")
        return topic, partition

    async def topic(self, name: str, deadline: Deadline, *, may_create: bool = False) -> TopicView:
        """From memory where that is fresh enough. One try: raises `Refused` for a topic that is not there."""
        known = self.known(name)
        if known is not None:
            return known
        await self._take_turn(deadline)
        try:
            known = self.known(name)  # Whoever asked before may have asked for the same.
            if known is not None:
                return known
            cluster = await self.refresh((name,), deadline, may_create=may_create)
        finally:
            self._asking.release()
        code = next((view.error_code for view in cluster.topics if view.name == name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        known = self.known(name)
        if known is None or code != ErrorCode.NONE:
            raise Refused(code or ErrorCode.LEADER_NOT_AVAILABLE, f"topic {name!r} was not found")
        return known

    def known(self, name: str) -> TopicView | None:
        """What is remembered of the topic, unless it is doubted or too old."""
        return self._topics.get(name, self._env.now())

    async def _take_turn(self, deadline: Deadline) -> None:
        try:
            async with asyncio.timeout(deadline.cut(self._settings.request_timeout_s)):
                await self._asking.acquire()
        except TimeoutError:
            raise Unreachable("no node told in time where the topics are") from None

    def doubt(self, topic: str) -> None:
        """What is known of the topic proved wrong, or its leader did not answer: the next to be asked is another node."""
        self._proved_wrong = self._told_by
        self._topics.doubt(topic, self._rounds)

    def doubt_controller(self) -> None:
        self._controller_id, self._proved_wrong = NO_LEADER, self._told_by

    async def refresh(self, names: Sequence[str] | None, deadline: Deadline, *, may_create: bool = False) -> ClusterView:
        """Asks a node about these topics, or about all, and remembers what it says. One try."""
        self._rounds += 1
        asked_in = self._rounds
        connection = await self.switchboard.to_any(deadline, rather_not=self._proved_wrong)
        body = {"topics": None if names is None else [{"name": name} for name in names], "allow_auto_topic_creation": may_create}
        answer = await connection.call(ApiKey.METADATA, body, timeout_s=self.timeouts(deadline).whole_s)
        cluster = read_cluster(answer)
        self.switchboard.learn(cluster.nodes)
        self._controller_id, self._told_by = cluster.controller_id, connection.address
        self._topics.learn(cluster.topics, self._env.now(), asked_in)
        return cluster
