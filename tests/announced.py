"""What a broker says that it speaks, asked of itself.

A foreign broker (PENSTOCK_PEER, PENSTOCK_PEER_CLUSTER) may lack a feature: its tests are skipped, and say so. A node of ours that lacks
one fails them: what was there must not go away unseen.
"""

import os
from collections.abc import Mapping
from functools import cache

import pytest
from system.raw import Line

from penstock.wire.api_keys import ApiKey

FEATURES: Mapping[str, tuple[ApiKey, ...]] = {
    "transactions": (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT),
    "the admin APIs of transactions": (ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.WRITE_TXN_MARKERS),
    "share groups": (ApiKey.SHARE_GROUP_HEARTBEAT, ApiKey.SHARE_GROUP_DESCRIBE, ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE),
    "the new consumer protocol": (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
}


def needs_announced(bootstrap: str, *features: str) -> None:
    """Ends the test where the node at this address does not announce one of them."""
    for feature in features:
        if not is_announced(bootstrap, feature):
            if is_foreign(bootstrap):
                pytest.skip(f"only with a broker that announces {feature}, unlike the one at {bootstrap}")
            pytest.fail(f"the node at {bootstrap} does not announce {feature}")


def is_announced(bootstrap: str, *features: str) -> bool:
    return all(apis_at(bootstrap).issuperset(FEATURES[feature]) for feature in features)


def is_foreign(bootstrap: str) -> bool:
    return bootstrap == os.environ.get("PENSTOCK_PEER") or "PENSTOCK_PEER_CLUSTER" in os.environ


@cache
def apis_at(bootstrap: str) -> frozenset[int]:
    host, _, port = bootstrap.rpartition(":")
    with Line((host, int(port))) as line:
        return frozenset(int(row.api_key) for row in line.ask(ApiKey.API_VERSIONS, 0).api_keys)
