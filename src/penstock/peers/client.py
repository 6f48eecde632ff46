"""The client's face: single calls to a cluster, each with a deadline of its own.

A failure says whether the call may have been carried out all the same (`may_have_happened`), over all its tries.
Not here: whom to ask and when to ask again (routing), batching and sequences (producer), positions (reader).
"""

from collections.abc import Mapping, Sequence
from types import TracebackType

from penstock.peers import administration, appending, configs, groups, offsets
from penstock.peers.appending import ACKS_ALL, Produced, ProducerIdentity, TransactionPart
from penstock.peers.configs import Configured, SettingView
from penstock.peers.connection import Address
from penstock.peers.coordinators import Coordinates, Coordinator
from penstock.peers.described_groups import DescribedGroup, ListedGroup
from penstock.peers.failures import BadAnswer, PeerFailure, check_code
from penstock.peers.fetch_session import FetchSession, FetchWish
from penstock.peers.fetching import Fetched, FetchLimits, close_session, fetch_once
from penstock.peers.groups import Committed
from penstock.peers.offsets import FoundOffset
from penstock.peers.patience import ClientEnv, Deadline
from penstock.peers.routing import ClientSettings, Router
from penstock.peers.share_groups import ShareOffset, alter_share_offsets, share_offsets
from penstock.peers.stable_offsets import GroupIdentity, stable_offsets
from penstock.peers.switchboard import CALLS
from penstock.peers.topics import ClusterView, TopicView
from penstock.vocabulary import Buffer, TopicPartition


class Client:
    """Use as `async with Client(env, "host:port,host:port") as client`. Entering connects nowhere, leaving closes every connection."""

    def __init__(
        self,
        env: ClientEnv,
        bootstrap: str | Sequence[Address],
        *,
        client_id: str = "penstock",
        settings: ClientSettings | None = None,
    ) -> None:
        self.env = env
        addresses = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else bootstrap
        self.router = Router(env, addresses, client_id=client_id, settings=settings or ClientSettings())
        self._lane_count = 0

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, kind: type[BaseException] | None, failure: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        await self.router.switchboard.close()

    async def connect(self, *, deadline_s: float | None = None) -> None:
        """Tries every address once. Without this the first call connects, and keeps trying until its own deadline."""
        await self.router.any_node(self.router.deadline(deadline_s))

    async def metadata(self, topics: Sequence[str] | None = None, *, deadline_s: float | None = None) -> ClusterView:
        """The cluster as a node sees it now, with these topics or all. A topic that is not there comes back with its error code."""
        return await administration.describe_cluster(self.router, topics, self.router.deadline(deadline_s))

    async def describe(self, topic: str, *, deadline_s: float | None = None) -> TopicView:
        """One topic as it is now. Raises `UnknownTopic` at once."""
        return await administration.describe_topic(self.router, topic, self.router.deadline(deadline_s))

    async def partition_count(self, topic: str, *, deadline_s: float | None = None) -> int:
        """From memory where it is known. Asks in a way that lets the node create the topic, where it is set to do so."""
        known = self.router.known(topic)
        if known is not None:
            return len(known.partitions)
        deadline = self.router.deadline(deadline_s)
        view = await self.router.retry(f"find topic {topic!r}", deadline, lambda: self.router.topic(topic, deadline, may_create=True))
        return len(view.partitions)

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        config: Mapping[str, str] | None = None,
        assignments: Sequence[Sequence[int]] = (),
        deadline_s: float | None = None,
    ) -> TopicView:
        """Creates the topic and waits until each partition has a leader. -1 leaves a number to the node, as must be where the replicas of
        each partition are assigned."""
        return await administration.create_topic(
            self.router, topic, self.router.deadline(deadline_s), partitions=partitions, replication_factor=replication_factor,
            config=config or {}, assignments=assignments,
        )  # fmt: skip

    async def add_partitions(self, topic: str, partitions: int, *, is_trial: bool = False, deadline_s: float | None = None) -> TopicView:
        """Lets the topic grow to this many partitions in all. A trial only asks whether it could."""
        deadline = self.router.deadline(deadline_s)
        return await administration.add_partitions(self.router, topic, deadline, partitions=partitions, is_trial=is_trial)

    async def settings_of(self, configured: Configured, *, deadline_s: float | None = None) -> list[SettingView]:
        """What holds for a topic or a node, and where it comes from."""
        return await configs.describe(self.router, configured, self.router.deadline(deadline_s))

    async def change_settings(
        self, configured: Configured, changes: Mapping[str, str | None], *, is_trial: bool = False, deadline_s: float | None = None
    ) -> None:
        """Tells a topic or a node otherwise; None takes a word back. All of it or nothing."""
        await configs.change(self.router, configured, changes, self.router.deadline(deadline_s), is_trial=is_trial)

    async def delete_topic(self, topic: str, *, deadline_s: float | None = None) -> None:
        await administration.delete_topic(self.router, topic, self.router.deadline(deadline_s))

    async def list_offsets(
        self, wishes: Mapping[TopicPartition, int], *, is_committed_only: bool = False, deadline_s: float | None = None
    ) -> dict[TopicPartition, FoundOffset]:
        """For each partition the offset at EARLIEST, LATEST, MAX_TIMESTAMP, or of the first record not older than a timestamp.

        With `is_committed_only` nothing past the first open transaction is seen.
        """
        deadline = self.router.deadline(deadline_s)
        return await offsets.list_offsets(self.router, wishes, deadline, is_committed_only=is_committed_only)

    async def list_groups(self, *, deadline_s: float | None = None) -> list[ListedGroup]:
        return await groups.list_groups(self.router, self.router.deadline(deadline_s))

    async def describe_group(self, group: str, *, deadline_s: float | None = None) -> DescribedGroup:
        return await groups.describe_group(self.router, group, self.router.deadline(deadline_s))

    async def share_offsets(self, group: str, *, deadline_s: float | None = None) -> dict[TopicPartition, ShareOffset]:
        """How far a share group is, for each partition that it ever read."""
        return await share_offsets(self.router, group, self.router.deadline(deadline_s))

    async def alter_share_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, deadline_s: float | None = None) -> None:
        """Sets where a share group without members begins."""
        await alter_share_offsets(self.router, group, offsets, self.router.deadline(deadline_s))

    async def committed_offsets(self, group: str, *, deadline_s: float | None = None) -> dict[TopicPartition, Committed]:
        """Where the group reads on, for each partition that it ever committed. A group that nobody knows has none."""
        return await groups.committed_offsets(self.router, group, self.router.deadline(deadline_s))

    async def stable_offsets(
        self, group: str, partitions: Sequence[TopicPartition], *, deadline_s: float | None = None
    ) -> dict[TopicPartition, int]:
        """Where whoever takes over the group's work begins; waits while an open transaction may still change that."""
        coordinator = Coordinator(self.router, Coordinates.GROUP, group)
        return await stable_offsets(self.router, coordinator, GroupIdentity(group), partitions, self.router.deadline(deadline_s))

    async def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, int], *, deadline_s: float | None = None) -> None:
        """Sets where a group without members reads on."""
        await groups.commit_offsets(self.router, group, offsets, self.router.deadline(deadline_s))

    async def delete_group(self, group: str, *, deadline_s: float | None = None) -> None:
        await groups.delete_group(self.router, group, self.router.deadline(deadline_s))

    async def init_producer_id(self, *, deadline_s: float | None = None) -> ProducerIdentity:
        return await appending.init_producer_id(self.router, self.router.deadline(deadline_s))

    async def produce(
        self, topic: str, partition: int, batch: Buffer,
        *, acks: int = ACKS_ALL, part: TransactionPart | None = None, deadline_s: float | None = None,
    ) -> Produced:  # fmt: skip
        """Appends one encoded batch, exactly as it stands at every try. With acks 0 it is only sent."""
        where = TopicPartition(topic, partition)
        return await appending.produce(self.router, where, bytes(batch), self.router.deadline(deadline_s), acks=acks, part=part)

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        limits: FetchLimits | None = None,
        lane: str = CALLS,
        deadline_s: float | None = None,
    ) -> Fetched:
        """What the leader has from `offset` on, or after `limits.wait_ms` nothing. Whole batches: the first may begin below `offset`."""
        deadline = self.router.deadline(deadline_s)
        where, limits = TopicPartition(topic, partition), limits or FetchLimits()

        async def attempt() -> Fetched:
            try:
                return await self._fetch_one(where, offset, limits, lane, deadline)
            except PeerFailure:
                self.router.doubt(topic)
                raise

        return await self.router.retry(f"fetch {where}", deadline, attempt)

    async def fetch_from(
        self, node_id: int, wishes: Sequence[FetchWish], *, limits: FetchLimits, session: FetchSession | None = None, lane: str
    ) -> list[Fetched]:
        """One try at one node. Rows carry their own error codes; in a session only those partitions are answered that have news."""
        deadline = self.router.deadline(None)
        connection = await self.router.switchboard.to_node(node_id, deadline, lane=lane)
        return await fetch_once(connection, wishes, limits, session=session, timeout_s=self._fetch_timeout_s(limits, deadline))

    async def leave_session(self, node_id: int, session: FetchSession, *, lane: str, deadline_s: float) -> None:
        """Lets the node forget the session now rather than when it needs the room. Best effort: it will in the end."""
        deadline = self.router.deadline(deadline_s)
        try:
            connection = await self.router.switchboard.to_node(node_id, deadline, lane=lane)
            await close_session(connection, session, timeout_s=deadline.cut(deadline_s))
        except PeerFailure:
            return

    def new_lane(self, purpose: str) -> str:
        """A name for connections of one's own, for those whose requests wait at the node. Ended with `close_lane`."""
        self._lane_count += 1
        return f"{purpose}-{self._lane_count}"

    def close_lane(self, lane: str) -> None:
        self.router.switchboard.close_lane(lane)

    async def _fetch_one(self, where: TopicPartition, offset: int, limits: FetchLimits, lane: str, deadline: Deadline) -> Fetched:
        route = await self.router.leader(where, deadline, lane=lane)
        wish = FetchWish(where, route.topic.topic_id, offset, route.partition.leader_epoch, limits.bytes_max)
        rows = await fetch_once(route.connection, [wish], limits, timeout_s=self._fetch_timeout_s(limits, deadline))
        for row in rows:
            if row.partition == where:
                check_code(row.error_code, f"fetch {where} from offset {offset}")
                return row
        raise BadAnswer(f"{route.connection.address} left {where} out of its answer to a fetch")

    def _fetch_timeout_s(self, limits: FetchLimits, deadline: Deadline) -> float:
        return self.router.timeouts(deadline).whole_s + limits.wait_ms / 1_000


def parse_bootstrap(text: str) -> list[Address]:
    """Addresses from "host:port,host:port"; an IPv6 host stands in brackets."""
    addresses = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{part!r} is not an address: write host:port, for example 127.0.0.1:9092")
        addresses.append(Address(host.removeprefix("[").removesuffix("]"), int(port)))
    if not addresses:
        raise ValueError("no bootstrap address was given: write host:port, for example 127.0.0.1:9092")
    return addresses
