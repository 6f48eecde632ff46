"""What all clients of a run share, for a cluster: any node may be asked first, and only what all in-sync replicas have is a promise."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from penstock.peers.client import Client
from penstock.peers.connection import Address, Limits
from penstock.peers.failures import PeerFailure
from penstock.peers.routing import ClientSettings
from penstock.simulator.clusters.data_watch import DataWatch
from penstock.simulator.clusters.machines import Machines
from penstock.simulator.clusters.operations import Operations
from penstock.simulator.clusters.told_settings import ToldSettings
from penstock.simulator.clusters.wishes import Wishes
from penstock.simulator.env import SimEnv
from penstock.simulator.workloads.line import TIMEOUT_SECONDS, Line, LineLost
from penstock.simulator.workloads.stage import Stage
from penstock.vocabulary import TopicPartition

PATIENCE = ClientSettings(request_timeout_s=2.0, deadline_s=30.0, backoff_first_s=0.02, backoff_longest_s=0.5, limits=Limits(connect_s=1.0))
_ASKED_SECONDS = 3.0
ACKS_ALL = -1
Findings = Iterator[tuple[str, TopicPartition, str]]  # Rule, place, story.


@dataclass(slots=True)
class ClusterStage(Stage):
    addresses: list[Address] = field(default_factory=list)  # Of the brokers.
    operations: Operations = field(default_factory=Operations)
    delay_metadata: Callable[[str], None] = lambda topic: None  # It would hurt now if whoever leads this topic learned late.
    watch: DataWatch | None = None
    told_settings: ToldSettings = field(default_factory=ToldSettings)
    last_checks: list[Callable[[], Findings]] = field(default_factory=list)  # Of workloads, when everything has been read back.
    machines: Machines | None = None  # What the operators of nodes and voters use.
    wishes: Wishes = field(default_factory=Wishes)
    asked_partitions: dict[str, int] = field(default_factory=dict)  # How many an operator has asked for, of topics that grow.
    is_calm: bool = False  # No more trouble is made; operators leave the cluster so that it can recover.

    @property
    def data(self) -> DataWatch:
        assert self.watch is not None, "this world is not looked at from outside"
        return self.watch

    @property
    def patience(self) -> ClientSettings:
        return PATIENCE

    def bootstrap(self, name: str) -> list[Address]:
        shuffled = list(self.addresses)
        Random(name).shuffle(shuffled)
        return shuffled

    def grown(self, topic: str, partitions: int) -> None:
        """The topic is known to have so many partitions: clients use them, and the end of the run reads them back."""
        plan = replace(self.topics[topic], partitions=max(partitions, self.topics[topic].partitions))
        self.topics[topic] = self.notebook.lives[self.topic_ids[topic]].plan = plan

    def is_promise(self, acks: int) -> bool:
        """What only the leader has goes with it."""
        return acks == ACKS_ALL

    async def line_to_leader(self, client: Client, name: str, where: TopicPartition) -> Line:
        """A line to the node that is said to lead. Raises `LineLost`."""
        try:
            view = await client.metadata([where.topic], deadline_s=_ASKED_SECONDS)
        except PeerFailure as failure:
            raise LineLost(failure.problem) from None
        for topic in view.topics:
            if topic.name == where.topic and where.partition < len(topic.partitions):
                leader = topic.partitions[where.partition].leader
                for node in view.nodes:
                    if node.node_id == leader:
                        return await Line.open(self.notebook, name, address=node.address)
        raise LineLost(f"{where} has no leader")

    async def line_to_anybody(self, env: SimEnv, name: str, *, timeout_seconds: float = TIMEOUT_SECONDS) -> Line:
        return await Line.open(self.notebook, name, timeout_seconds=timeout_seconds, address=env.rng.choice(self.addresses))
