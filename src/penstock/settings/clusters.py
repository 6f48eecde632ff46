"""What a node is told about its cluster: who votes, who is taken for dead, how replicas follow."""

from dataclasses import dataclass

from penstock.settings.setting import GIB, HOUR_MS, INT_MAX, LONG_MAX, MIB, MINUTE_MS, SECOND_MS, setting


@dataclass(frozen=True)
class ClusterSettings:
    cluster_id: str = setting(
        "cluster.id",
        "",
        reason="The cluster that this node belongs to. It never changes for a data directory; a node alone draws one at its first start.",
    )
    quorum_voters: str = setting(
        "controller.quorum.voters",
        "",
        reason="The nodes that vote on the cluster's metadata, as 1@host:port,2@host:port,3@host:port: their numbers and the addresses of the nodes' own "
        "listeners. Three bear the loss of one, five of two. Empty: this node is a cluster of its own.",
    )
    joins_cluster: bool = setting(
        "cluster.join",
        False,
        reason="This node's disk is new in a cluster that is there already: it votes only once it has been made a voter. Without it, voters that find "
        "their disks empty found a cluster together; a voter that has lost its disk must not.",
    )
    process_roles: str = setting(
        "process.roles",
        "broker,controller",
        choices=("broker,controller", "controller,broker", "broker", "controller"),
        reason="broker: holds partitions and serves clients. controller: votes on the cluster's metadata, and must be one of the voters.",
    )
    rack: str = setting(
        "broker.rack", "", reason="Where this node stands. Replicas of a partition are spread over as many racks as there are."
    )
    heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        300,
        bounds=(10, 60_000),
        reason="How often a broker tells the controller that it is there.",
    )
    session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        2 * SECOND_MS,
        bounds=(50, 10 * MINUTE_MS),
        reason="The controller moves leadership away from a broker that it has not heard of for this long. Shorter fails over sooner; longer rides out "
        "pauses. A broker whose process ends is noticed sooner, by its connection.",
    )
    election_timeout_ms: int = setting(
        "controller.quorum.election.timeout.ms",
        800,
        bounds=(20, 10 * MINUTE_MS),
        reason="A voter that hears from no controller for this long, or up to three quarters longer, stands for election. It must be several flushes long.",
    )
    quorum_heartbeat_ms: int = setting(
        "controller.quorum.heartbeat.interval.ms",
        150,
        bounds=(5, 60_000),
        reason="How often the controller tells the other nodes that it leads.",
    )
    replica_lag_ms: int = setting(
        "replica.lag.time.max.ms",
        10 * SECOND_MS,
        bounds=(100, HOUR_MS),
        dynamic=True,
        reason="A follower that has not caught up for this long leaves the in-sync set. Shorter frees producers from a slow disk sooner; longer rides out "
        "pauses without shrinking the set.",
    )
    replica_fetch_bytes: int = setting(
        "replica.fetch.max.bytes",
        1 * MIB,
        bounds=(1, GIB),
        dynamic=True,
        reason="What a follower asks for of one partition at a time; a larger batch comes whole.",
    )
    replica_response_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        8 * MIB,
        bounds=(1, GIB),
        dynamic=True,
        reason="What a follower asks for of one leader at a time.",
    )
    replica_wait_ms: int = setting(
        "replica.fetch.wait.max.ms",
        500,
        bounds=(1, MINUTE_MS),
        dynamic=True,
        reason="How long a leader keeps a follower's question while there is nothing new.",
    )
    replication_throttle: int = setting(
        "replication.throttled.rate",
        0,
        bounds=(0, LONG_MAX),
        dynamic=True,
        reason="Bytes a second that a node takes in for replicas that a move adds; those that only catch up are not held back. 0: no bound.",
    )
    follower_throttle: int = setting(
        "follower.replication.throttled.rate",
        0,
        bounds=(0, LONG_MAX),
        dynamic=True,
        reason="The same under Kafka's name, which kafka-reassign-partitions --throttle sets and takes back. The smaller of the two holds. 0: no bound.",
    )
    leader_throttle: int = setting(
        "leader.replication.throttled.rate",
        0,
        bounds=(0, LONG_MAX),
        dynamic=True,
        reason="Set by the same tool, and without effect here: who is held back at the follower asks its leader for less.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        1,
        bounds=(1, 32_767),
        dynamic=True,
        reason="Replicas of a topic that is made without saying how many.",
    )
    auto_leader_rebalance: bool = setting(
        "auto.leader.rebalance.enable",
        True,
        dynamic=True,
        reason="Give leadership back to the first replica of each partition when it is in sync again.",
    )
    leader_imbalance_seconds: int = setting(
        "leader.imbalance.check.interval.seconds",
        30,
        bounds=(1, INT_MAX),
        dynamic=True,
        reason="How often leadership is looked at for being given back.",
    )
    replica_selector: str = setting(
        "replica.selector",
        "",
        choices=("", "rack"),
        dynamic=True,
        reason="rack: a consumer that says where it stands reads from an in-sync replica in its own rack (KIP-392), a little later than from the leader. Empty: always from the leader.",
    )

    @property
    def catch_up_rate(self) -> int:
        """Bytes a second for replicas that are catching up; 0: no bound."""
        return min((rate for rate in (self.replication_throttle, self.follower_throttle) if rate), default=0)
