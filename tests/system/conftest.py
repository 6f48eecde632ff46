"""What the system tests share: one node or one cluster per file, and the node's own words beside a failure."""

import math
import os
from collections.abc import Generator, Iterator
from dataclasses import dataclass

import pytest
from system import harness
from system.clusters import Cluster


@dataclass(frozen=True, slots=True)
class Broker:
    """Where a broker listens, and the process behind it where it is ours."""

    bootstrap: str
    node: harness.Node | None

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.bootstrap.rpartition(":")
        return host, int(port)

    def fetches(self) -> float:
        """How many fetches have come to it so far. Of a foreign broker that is not known."""
        return self.node.metric('penstock_requests_total{api="FETCH"}') if self.node else math.nan

    def has_more_fetches(self, before: float) -> bool:
        return self.node is None or self.fetches() > before


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A file that names LOOPS is run on a node with the first of them, and in `make test-slow` with the others."""
    loops = getattr(metafunc.module, "LOOPS", ())
    if loops and "broker" in metafunc.fixturenames:
        later = pytest.mark.slow(stays=metafunc.definition.nodeid)
        kinds = [loops[0], *(pytest.param(loop, marks=later) for loop in loops[1:])]
        metafunc.parametrize("broker", kinds, indirect=True, scope="module")


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node of this file's own. With PENSTOCK_PEER=host:port the tests talk to that broker instead: Apache Kafka must pass them too."""
    peer = os.environ.get("PENSTOCK_PEER")
    if peer:
        yield Broker(peer, None)
        return
    loop = getattr(request, "param", "auto")
    with harness.Node(tmp_path_factory.mktemp("node") / "data", loop=loop) as node:
        yield Broker(node.bootstrap, node)
        assert node.is_alive(), f"the node ended with code {node.wait()}"
        assert node.complaints() == []


@pytest.fixture(scope="module")
def started(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of this file's own, with its SETTINGS."""
    with Cluster(tmp_path_factory.mktemp("cluster"), settings=request.module.SETTINGS) as cluster:
        yield cluster
        assert cluster.complaints() == []


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    """The same, all of it up again, whatever the test before did to it."""
    return started.bring_back()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for node in harness.running:
            report.sections.append((f"last words of the node on {node.data_directory}", node.last_words()))
    return report
