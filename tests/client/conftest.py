"""For the tests of transactions: a broker that has them, and names that are nobody else's. For those of queues: an empty one.

For those that only need a producer: one for each file. librdkafka takes half a second until it may send its first record.

With PENSTOCK_PEER=host:port they talk to that broker instead: Apache Kafka must pass them too.
"""

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from announced import needs_announced
from client.client_side import SHORT_SESSIONS, writers
from client.transaction_side import new_topic
from waiting import NEVER_S

from penstock.client import Producer, Queue
from penstock.testing import Broker, broker


@pytest.fixture(scope="module", autouse=True)
def no_writer_is_left() -> Iterator[None]:
    """They would go on looking for brokers that are gone."""
    yield
    while writers:
        writers.popitem()[1].close()


@pytest.fixture(scope="module")
def short_session_broker() -> Iterator[Broker]:
    with broker(**SHORT_SESSIONS) as node:
        yield node
        if node.bootstrap in writers:
            writers.pop(node.bootstrap).close()


@pytest.fixture(scope="module")
def producer(penstock_broker: Broker) -> Iterator[Producer]:
    with Producer(penstock_broker.bootstrap) as producer:
        yield producer


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> Iterator[str]:
    peer = os.environ.get("PENSTOCK_PEER")
    address = peer or request.getfixturevalue("penstock_broker").bootstrap
    needs_announced(address, "transactions")
    yield address


@pytest.fixture
def name() -> str:
    """Of a transactional id, and of whatever else must be nobody else's."""
    return f"name-{uuid4().hex[:8]}"


@pytest.fixture
def topic(bootstrap: str) -> str:
    return new_topic(bootstrap)


@pytest.fixture
def jobs(penstock_broker: Broker) -> Queue:
    """A queue whose leases do not lapse while a test waits, unless it asks for shorter ones."""
    return penstock_broker.queue(backoff=0, lease=NEVER_S)
