"""The pytest fixtures. pytest finds them by themselves wherever Penstock is installed.

One node serves a whole run (under pytest-xdist: one each worker), because tests keep apart by topics and groups more cheaply than by
nodes. A node starts when the first test asks for it: a run without such tests pays nothing but the import of this small file.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from penstock.testing.brokers import Broker

NAME_LENGTH_MAX = 200  # Of a topic's 249; the rest makes it unique.


@pytest.fixture(scope="session")
def penstock_settings() -> Mapping[str, object]:
    """What `penstock_broker` is started with. Override it in a conftest.py: `return {"num_partitions": 6, "flush": "os"}`."""
    return {}


@pytest.fixture(scope="session")
def penstock_broker(penstock_settings: Mapping[str, object]) -> Iterator["Broker"]:
    """A real Penstock node; `penstock_broker.bootstrap` is the address for Kafka clients."""
    from penstock.testing.brokers import broker

    with broker(**penstock_settings) as running:  # type: ignore[arg-type] # `flush` and `directory` may be among them.
        yield running


@pytest.fixture
def penstock_topic(penstock_broker: "Broker", request: pytest.FixtureRequest) -> str:
    """The name of a topic that nobody else uses, with one partition, named after the test."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", request.node.name)[:NAME_LENGTH_MAX]
    return penstock_broker.create_topic(f"{name}-{uuid4().hex[:8]}")
