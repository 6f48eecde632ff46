"""What a broker says that it speaks, asked of itself: tests of a feature that it does not announce are skipped, and say so."""

from collections.abc import Mapping
from functools import cache

import pytest
from system.raw import Line

from penstock.wire.api_keys import ApiKey

FEATURES: Mapping[str, tuple[ApiKey, ...]] = {
    "transactions": (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.TXN_OFFSET_COMMIT),
    "the admin APIs of transactions": (ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.WRITE_TXN_MARKERS),
    "the new consumer protocol": (ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE),
}


def needs_announced(bootstrap: str, *features: str) -> None:
    """Skips the test where the node at this address does not announce one of them."""
    announced = apis_at(bootstrap)
    for feature in features:
        if not announced.issuperset(FEATURES[feature]):
            pytest.skip(f"the node does not announce {feature} yet")


@cache
def apis_at(bootstrap: str) -> frozenset[int]:
    host, _, port = bootstrap.rpartition(":")
    with Line((host, int(port))) as line:
        return frozenset(int(row.api_key) for row in line.ask(ApiKey.API_VERSIONS, 0).api_keys)
