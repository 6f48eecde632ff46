"""Waiting for something new: a fetch that brokers hold until there is some.

With nothing to do, Spark asks a source a hundred times a second whether there is something new. A fetch from the end of every partition is
answered when something comes, so that one question at a time is enough and the answer is not late.
What it brings is thrown away, and what goes wrong is not told: whoever waited asks again.
"""

import asyncio
from collections.abc import Mapping

from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.fetch_session import FetchWish
from penstock.peers.fetching import FetchLimits
from penstock.vocabulary import TopicPartition

LANE = "spark-news"  # Questions that wait at the node stand in nobody's way.
WAIT_S = 0.1  # A query that is stopped waits as long at most.


async def until_news(client: Client, ends: Mapping[TopicPartition, int], *, is_committed_only: bool) -> None:
    limits = FetchLimits(wait_ms=int(WAIT_S * 1_000), bytes_min=1, bytes_max=1, is_committed_only=is_committed_only)
    fetches = []
    try:
        for node_id, wishes in (await _by_leader(client, ends)).items():
            fetches.append(asyncio.ensure_future(client.fetch_from(node_id, wishes, limits=limits, lane=LANE)))
    except PeerFailure:
        pass
    if not fetches:
        await asyncio.sleep(WAIT_S)
        return
    done, _ = await asyncio.wait(fetches, timeout=2 * WAIT_S, return_when=asyncio.FIRST_COMPLETED)
    is_failed = any(each.exception() is not None for each in done)
    for each in fetches:
        each.cancel()
    await asyncio.gather(*fetches, return_exceptions=True)
    if is_failed:
        await asyncio.sleep(WAIT_S)


async def _by_leader(client: Client, ends: Mapping[TopicPartition, int]) -> dict[int, list[FetchWish]]:
    deadline = client.router.deadline(WAIT_S)
    wishes: dict[int, list[FetchWish]] = {}
    for where, offset in ends.items():
        topic, partition = await client.router.find(where, deadline)
        wishes.setdefault(partition.leader, []).append(FetchWish(where, topic.topic_id, offset, partition.leader_epoch, bytes_max=1))
    return wishes
