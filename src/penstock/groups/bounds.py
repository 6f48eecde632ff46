"""What a coordinator may hold and how long it waits: the node's settings as this room needs them, and the bounds that nobody sets.

A changed setting takes effect by giving the coordinator another `GroupSettings`; time-outs that already run keep their end.
"""

from dataclasses import dataclass

from penstock.settings import MIB, MINUTE_MS, GroupConfig, NodeSettings

# How long the join of a new member may wait before it is told to come again. As Kafka's: below JoinGroup version 4 such a member doesn't
# know its id yet and cannot send heartbeats, so nothing else would tell that it is gone.
NEW_MEMBER_JOIN_MS = 5 * MINUTE_MS

# Member ids given away and not yet used, for each group. Past it the oldest is forgotten; its holder is told to begin anew.
PENDING_MEMBERS_MAX = 1_000

# Groups that somebody belongs to or is about to join, for each coordinator. Past it a group that isn't there yet must wait.
GROUPS_MAX = 20_000

# What one member may say about itself in all its protocols, what all members of a group may, and what the group may take as a record.
# A leader brings everybody's assignment in one request, and a node takes requests of 4 MiB: so whatever comes in fits into the record
# beside all that the members say. Kafka's bound is the largest batch of the topic, 1 MiB by default.
SUBSCRIPTION_BYTES_MAX = 1 * MIB
MEMBERS_BYTES_MAX = 4 * MIB
GROUP_BYTES_MAX = 2 * MEMBERS_BYTES_MAX

# Protocols that one member may offer. Clients offer one or two; every one of them is looked at in every rebalance.
PROTOCOLS_MAX = 100

# A decision to record that a group is empty which could not be appended is taken again after this.
EMPTY_AGAIN_MS = 5_000

# How many offsets of a deleted group or topic go in one decision: some milliseconds. While a large group goes in pieces nobody may
# join it or commit for it, but no longer than this after the last piece: whoever deletes it may have been cut off.
DELETED_AT_ONCE = 500
GOING_MS = 5_000

# How many offsets one decision turns into commits when a transaction ends. Only a transaction of more is ever seen in pieces.
ENDED_AT_ONCE = 1_000

# How much one call of `lapse` does before it lets others go on.
GROUPS_PER_LAPSE = 500
OFFSETS_PER_SLICE = 2_000
SLICE_PAUSE_MS = 10


@dataclass(frozen=True, slots=True)
class GroupSettings:
    initial_rebalance_delay_ms: int
    session_timeout_min_ms: int
    session_timeout_max_ms: int
    group_size_max: int
    offset_metadata_max: int
    offsets_retention_ms: int
    expiry_check_ms: int
    of_all_groups: GroupConfig  # What holds for those that were told nothing.
    consumer_group_size_max: int
    consumer_assignors: tuple[str, ...]  # The first is the default.
    consumer_assignment_interval_ms: int
    consumer_migration_policy: str
    share_group_size_max: int

    @classmethod
    def of(cls, node: NodeSettings) -> "GroupSettings":
        return cls(
            initial_rebalance_delay_ms=node.group_initial_rebalance_delay_ms,
            session_timeout_min_ms=node.group_min_session_timeout_ms,
            session_timeout_max_ms=node.group_max_session_timeout_ms,
            group_size_max=node.group_max_size,
            offset_metadata_max=node.offset_metadata_max_bytes,
            offsets_retention_ms=node.offsets_retention_minutes * MINUTE_MS,
            expiry_check_ms=node.offsets_retention_check_interval_ms,
            of_all_groups=GroupConfig.of(node, {}),
            consumer_group_size_max=node.group_consumer_max_size,
            consumer_assignors=tuple(node.group_consumer_assignors.split(",")),
            consumer_assignment_interval_ms=node.group_consumer_assignment_interval_ms,
            consumer_migration_policy=node.group_consumer_migration_policy,
            share_group_size_max=node.group_share_max_size,
        )
