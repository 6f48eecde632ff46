"""What the compatibility tests share: one node for each file, quick to rebalance, and its own words beside a failure.

With PENSTOCK_PEER=host:port the tests talk to that broker instead: Apache Kafka must pass them too.
"""

import os
from collections.abc import Generator, Iterator

import pytest
from compatibility.group_log import PARTITIONS
from system import harness
from system.conftest import Broker

# Fifty logs take longer to make than most tests run.
FEW = {"offsets.topic.num.partitions": PARTITIONS, "transaction.state.log.num.partitions": PARTITIONS}
# Most groups have one member, which need not wait for others; who takes too long is noticed soon.
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A module that needs other settings says so in NODE_SETTINGS."""
    peer = os.environ.get("PENSTOCK_PEER")
    if peer:
        yield Broker(peer, None)
        return
    settings = FEW | getattr(request.module, "NODE_SETTINGS", SETTINGS)
    with harness.Node(tmp_path_factory.mktemp("node") / "data", settings=settings) as node:
        yield Broker(node.bootstrap, node)
        assert node.is_alive(), f"the node ended with code {node.wait()}"
        assert node.complaints() == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for node in harness.running:
            report.sections.append((f"last words of the node on {node.data_directory}", node.last_words()))
    return report
