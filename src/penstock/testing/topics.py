"""Making a topic, in the node's own process: there the client for it is loaded already, and the test's process need not load it."""

import asyncio
from collections.abc import Mapping

from penstock.peers.client import Client
from penstock.server.calling import CallerEnv

SECONDS_MAX = 100.0  # Less than the test waits for the answer (brokers.py), so that it is told what went wrong.


def create_topic(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str]) -> None:
    """Returns when every partition has a leader. For a thread that runs no loop."""

    async def whole() -> None:
        async with Client(CallerEnv(), bootstrap, client_id="penstock-testing") as client:
            await client.create_topic(topic, partitions=partitions, config=config, deadline_s=SECONDS_MAX)

    asyncio.run(whole())
