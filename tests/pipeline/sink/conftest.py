"""A topic of two partitions on the shared node, and queries that write to it without Spark."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

if TYPE_CHECKING:
    from pipeline.sink.small_spark import Query

    from penstock.testing.brokers import Broker

MakeQuery = Callable[..., "Query"]


@pytest.fixture
def topic(node: "Broker") -> str:
    name = f"sink-{uuid4().hex[:12]}"
    node.create_topic(name, partitions=2)
    return name


@pytest.fixture
def query(node: "Broker", topic: str, tmp_path: Path) -> MakeQuery:
    """Makes a query on a checkpoint; the same checkpoint each time unless another is named."""
    from pipeline.sink.small_spark import Query

    def make(checkpoint: str = "checkpoint", **options: object) -> "Query":
        return Query(node.bootstrap, topic, tmp_path / checkpoint, **options)

    return make


@pytest.fixture(autouse=True)
def _no_loop_of_our_own() -> None:
    """Processes are forked here: a running loop would come along."""
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
