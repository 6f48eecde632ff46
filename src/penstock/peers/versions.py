"""Which version of each API to speak with a peer: the highest that both know, asked once per connection.

A peer that does not know our version of the question itself answers in the oldest form with UNSUPPORTED_VERSION and what it does know
(KIP-511); then it is asked again in its own highest version.
"""

from collections.abc import Mapping

from penstock.errors import ErrorCode
from penstock.peers.failures import NotSpoken
from penstock.wire.api_keys import ApiKey

Versions = tuple[int, int]  # Lowest and highest, both included.

# What this client can write and read. The floors are those of Kafka 4 (KIP-896), the ceilings those of Kafka 4.3 where we use what they
# brought. Metadata from 4 on can ask without creating the topic that it asks for; offsets from 2 on can be asked for all at once, and from
# 10 on are asked for by topic id, which offsets of a deleted topic no longer have.
OWN_VERSIONS: Mapping[ApiKey, Versions] = {
    ApiKey.PRODUCE: (3, 13),
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 10),
    ApiKey.METADATA: (4, 12),
    ApiKey.OFFSET_COMMIT: (2, 9),
    ApiKey.OFFSET_FETCH: (2, 9),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.CREATE_TOPICS: (2, 7),
    ApiKey.DELETE_TOPICS: (1, 6),
    ApiKey.INIT_PRODUCER_ID: (0, 5),
    ApiKey.ADD_PARTITIONS_TO_TXN: (0, 3),
    ApiKey.ADD_OFFSETS_TO_TXN: (0, 4),
    ApiKey.END_TXN: (0, 5),
    ApiKey.WRITE_TXN_MARKERS: (1, 1),
    ApiKey.TXN_OFFSET_COMMIT: (0, 5),
    ApiKey.DESCRIBE_CONFIGS: (1, 4),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.ELECT_LEADERS: (0, 2),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.DESCRIBE_QUORUM: (0, 2),
    ApiKey.DESCRIBE_CLUSTER: (0, 2),
    ApiKey.UNREGISTER_BROKER: (0, 0),
    ApiKey.DESCRIBE_PRODUCERS: (0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: (0, 0),
    ApiKey.LIST_TRANSACTIONS: (0, 2),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (1, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: (1, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    ApiKey.ADD_RAFT_VOTER: (0, 1),
    ApiKey.REMOVE_RAFT_VOTER: (0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: (0, 0),
}

# From the next version on these name a topic by its id alone, so a topic without an id needs an older one (KIP-516).
HIGHEST_WITH_TOPIC_NAMES: Mapping[ApiKey, int] = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12}

# From the next version on these belong to transactions whose partitions need not be announced, and whose end raises the epoch (KIP-890).
HIGHEST_WITHOUT_V2: Mapping[ApiKey, int] = {ApiKey.PRODUCE: 11, ApiKey.END_TXN: 4, ApiKey.TXN_OFFSET_COMMIT: 4}

_UNSUPPORTED = ErrorCode.UNSUPPORTED_VERSION.to_bytes(2, "big")


def is_fallback_answer(frame: bytes) -> bool:
    """True for the oldest-form answer to an ApiVersions question that the peer did not understand. The code follows the correlation id."""
    return frame[4:6] == _UNSUPPORTED


def choose_version(api: ApiKey, theirs: Mapping[int, Versions], peer: str, *, version_max: int | None = None) -> int:
    own_lowest, own_highest = OWN_VERSIONS[api]
    if version_max is not None:
        own_highest = min(own_highest, version_max)
    if api not in theirs:
        raise NotSpoken(f"{peer} does not offer {api.name}", "upgrade that node, or talk to another")
    lowest, highest = theirs[api]
    version = min(own_highest, highest)
    if version < max(own_lowest, lowest):
        raise NotSpoken(
            f"{peer} speaks {api.name} {lowest} to {highest}, this client {own_lowest} to {own_highest}",
            "upgrade the older of the two",
        )
    return version
