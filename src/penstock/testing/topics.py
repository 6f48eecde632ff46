"""Making a topic from any thread, whether or not that thread runs an event loop.

The nodes' own client is asyncio; here it runs on a loop of its own in a thread of its own, so that no test's loop is touched.
"""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
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
    """Returns when every partition has a leader."""

    async def whole() -> None:
        async with Client(CallerEnv(), bootstrap, client_id="penstock-testing") as client:
            await client.create_topic(topic, partitions=partitions, config=config, deadline_s=SECONDS_MAX)

    with ThreadPoolExecutor(1, "penstock-testing") as thread:
        thread.submit(lambda: asyncio.run(whole())).result()
