"""One node for the tests of a file that only talk to it. They keep apart by topics, groups and queues."""

from collections.abc import Iterator

import pytest
from system import harness

# A new group would wait three seconds for more members, and fifty logs take longer to make than most tests run.
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 4, "transaction.state.log.num.partitions": 4}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[harness.Node]:
    with harness.Node(tmp_path_factory.mktemp("node") / "data", settings=SETTINGS) as node:
        yield node
        assert node.complaints() == []
        assert node.stop() == 0
