"""Making a topic, in the node's own process: there the client for it is loaded already, and the test's process need not load it."""

import asyncio
import time
from collections.abc import Mapping
from random import Random

from penstock.peers.client import Client
from penstock.vocabulary import Instant

SECONDS_MAX = 10.0


class CallerEnv:
    """Clock and chance for the client. It has no data directory."""

    def __init__(self) -> None:
        self.rng = Random()

    def now(self) -> Instant:
        return Instant(time.monotonic())

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def create_topic(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """Returns when every partition has a leader. For a thread that runs no loop."""

    async def whole() -> None:
        async with Client(CallerEnv(), bootstrap, client_id="penstock-testing") as client:
            await client.create_topic(topic, partitions=partitions, config=config, deadline_s=SECONDS_MAX)

    asyncio.run(whole())
