"""A cluster at one moment, as far as its nodes can tell, and what is wrong with it: what several commands look at.

A voter answers if the quorum's leader heard from it lately; both times are the leader's own, so that no clocks are compared.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from penstock.peers.client import Client
from penstock.peers.cluster import (
    DescribedCluster,
    DescribedQuorum,
    Moving,
    PartitionDescription,
    QuorumReplica,
    TopicDescription,
    describe_nodes,
    describe_partitions,
    describe_quorum,
    list_moving,
    topic_settings,
)
from penstock.peers.configs import Configured
from penstock.peers.failures import PeerFailure
from penstock.peers.topics import NO_LEADER
from penstock.vocabulary import TopicPartition

SILENT_MS_MAX = 1_500  # The longest election time-out, as nodes are set up: a voter that was not heard of for so long is away.
ASK_SECONDS = 30.0
QUORUM_SECONDS = 5.0  # A node needs three at most to ask the controller, and then tells what it knows itself.
MIN_IN_SYNC = "min.insync.replicas"
THROTTLE = "replication.throttled.rate"


class Ill(NamedTuple):
    where: TopicPartition
    state: PartitionDescription


@dataclass(frozen=True, slots=True)
class Picture:
    cluster: DescribedCluster
    quorum: DescribedQuorum | None  # None where nobody could tell.
    topics: tuple[TopicDescription, ...]
    min_in_sync: dict[str, int]
    moving: dict[TopicPartition, Moving]
    throttle: str | None = None  # Bytes a second, where an operator has set a rate.

    def partitions(self) -> Iterator[Ill]:
        for topic in self.topics:
            for state in topic.partitions:
                yield Ill(TopicPartition(topic.name, state.partition), state)

    def targets(self) -> tuple[TopicDescription, ...]:
        """The topics with the replicas that they will have when every move that is under way has ended."""
        return tuple(
            [replace(topic, partitions=tuple([self._at_last(topic.name, state) for state in topic.partitions])) for topic in self.topics]
        )

    def under_replicated(self) -> list[Ill]:
        """As Kafka's tools reckon it: replicas that are only being added are not missed yet."""
        return [each for each in self.partitions() if len(each.state.in_sync) < len(each.state.replicas) - len(self._adding(each.where))]

    def below_min_in_sync(self) -> list[Ill]:
        """Producers with acks=all are refused there."""
        return [each for each in self.partitions() if self._is_below(each)]

    def leaderless(self) -> list[Ill]:
        return [each for each in self.partitions() if each.state.leader == NO_LEADER]

    def fenced(self) -> list[int]:
        return [node.node_id for node in self.cluster.nodes if node.is_fenced]

    def live(self) -> list[int]:
        return [node.node_id for node in self.cluster.nodes if not node.is_fenced]

    def answers(self, replica: QuorumReplica) -> bool:
        if self.quorum is None or self.quorum.leader == NO_LEADER:
            return False
        now_ms = next((each.last_heard_ms for each in self.quorum.voters if each.node_id == self.quorum.leader), -1)
        return replica.node_id == self.quorum.leader or 0 <= now_ms - replica.last_heard_ms <= SILENT_MS_MAX

    def answering_voters(self) -> list[int]:
        return [] if self.quorum is None else [each.node_id for each in self.quorum.voters if self.answers(each)]

    def voters_to_spare(self) -> int:
        """How many more voters may be lost before elections stop; below 0: they have stopped."""
        return -1 if self.quorum is None else len(self.answering_voters()) - self.quorum.majority

    def troubles(self) -> list[str]:
        """Sentences; none when all is well."""
        found = []
        if self.fenced():
            found.append(f"nodes that are away: {', '.join(map(str, self.fenced()))}")
        if lost := self.leaderless():
            found.append(f"{_partitions(len(lost))} without a leader: nothing can be written or read there")
        if below := self.below_min_in_sync():
            found.append(f"{_partitions(len(below))} below {MIN_IN_SYNC}: acks=all is refused there")
        if under := self.under_replicated():
            found.append(f"{_partitions(len(under))} under-replicated")
        return found + self._quorum_troubles()

    def _quorum_troubles(self) -> list[str]:
        quorum, answering = self.quorum, self.answering_voters()
        if quorum is None or quorum.leader == NO_LEADER:
            return ["there is no controller: nothing about the cluster can be changed, and a leader that dies is not replaced"]
        missing = [str(each.node_id) for each in quorum.voters if each.node_id not in answering]
        said = [f"voters that do not answer: {', '.join(missing)}"] if missing else []
        if self.voters_to_spare() <= 0 and missing:
            said.append(f"the loss of one more voter would stop elections ({len(answering)} of {len(quorum.voters)} answer)")
        return said

    def notes(self) -> list[str]:
        """What is as it was set up to be, and still worth knowing."""
        return [*self._throttle_notes(), *self._quorum_notes()]

    def _throttle_notes(self) -> list[str]:
        if self.throttle is None:
            return []
        if self.moving:
            return [f"moves take {self.throttle} bytes a second on each node at most ({THROTTLE})"]
        return [f"{THROTTLE} is {self.throttle} though nothing is moving: the next move would be held back by it"]

    def _quorum_notes(self) -> list[str]:
        quorum = self.quorum
        if quorum is None or quorum.leader == NO_LEADER or len(self.answering_voters()) < len(quorum.voters) or self.voters_to_spare() > 0:
            return []
        have = "there is one" if len(quorum.voters) == 1 else f"there are {len(quorum.voters)}"
        return [f"the loss of one more voter would stop elections: {have}, and three bear the loss of one"]

    def _is_below(self, each: Ill) -> bool:
        least = min(self.min_in_sync.get(each.where.topic, 1), len(each.state.replicas))
        return each.state.leader == NO_LEADER or len(each.state.in_sync) < least

    def _at_last(self, topic: str, state: PartitionDescription) -> PartitionDescription:
        moving = self.moving.get(TopicPartition(topic, state.partition))
        if moving is None:
            return state
        return replace(state, replicas=tuple([node for node in moving.replicas if node not in moving.removing]))

    def _adding(self, where: TopicPartition) -> tuple[int, ...]:
        return self.moving[where].adding if where in self.moving else ()


async def take_picture(client: Client, topics: tuple[str, ...] = ()) -> Picture:
    router = client.router
    deadline = router.deadline(ASK_SECONDS)
    cluster = await describe_nodes(router, deadline)
    found = await describe_partitions(router, topics, deadline)
    settings = await topic_settings(router, [topic.name for topic in found], [MIN_IN_SYNC], deadline) if found else {}
    least = {topic: int(rows[MIN_IN_SYNC].value) for topic, rows in settings.items() if MIN_IN_SYNC in rows}
    try:
        quorum = await describe_quorum(router, router.deadline(QUORUM_SECONDS))
    except PeerFailure:
        quorum = None
    return Picture(cluster, quorum, tuple(found), least, await list_moving(router, deadline), await throttle_of(client))


async def throttle_of(client: Client) -> str | None:
    told = {view.name: view.value for view in await client.settings_of(Configured.every_node())}
    return told.get(THROTTLE)


def _partitions(count: int) -> str:
    return f"{count} partition{'s' if count != 1 else ''}"
