"""Carrying a plan out: shown first, begun, throttled while it lasts, and watched until every partition is where it shall be."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress

import click

from penstock.cli.bar import Bar
from penstock.cli.cluster_picture import Picture
from penstock.cli.faults import Fault
from penstock.cli.reassignment_plans import Plan
from penstock.cli.tables import print_table
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.cluster import Moving, list_moving, sizes_on
from penstock.peers.cluster_changes import reassign
from penstock.peers.configs import Configured
from penstock.peers.failures import PeerFailure, code_name
from penstock.vocabulary import TopicPartition

THROTTLE = "replication.throttled.rate"
LOOK_SECONDS = 0.5
SHOWN_MAX = 50


def print_plan(plan: Plan, picture: Picture) -> None:
    held = {each.where: each.state.replicas for each in picture.partitions()}
    rows = [[where.topic, where.partition, list(held.get(where, ())), list(replicas)] for where, replicas in plan.items()]
    print_table(["topic", "partition", "replicas", "new replicas"], rows[:SHOWN_MAX])
    if len(rows) > SHOWN_MAX:
        click.echo(f"... and {len(rows) - SHOWN_MAX} more")


async def move(client: Client, plan: Plan, *, throttle: int | None, is_watched: bool) -> None:
    """A throttle is taken back when the move is done or refused; it stays with one that goes on without this command."""
    before = await _throttle(client, throttle) if throttle is not None else None
    try:
        await begin(client, plan)
    except Fault:
        await _take_back(client, throttle, before)
        raise
    if is_watched:
        await watch(client, list(plan))
        await _take_back(client, throttle, before)


async def begin(client: Client, wishes: Mapping[TopicPartition, Sequence[int] | None]) -> None:
    """Raises Fault where the controller refuses one; the others have begun."""
    outcomes = await reassign(client.router, wishes, client.router.deadline(None))
    refused = {where: outcome for where, outcome in outcomes.items() if outcome.code != ErrorCode.NONE}
    if refused:
        lines = [f"{where}: {code_name(outcome.code)} {outcome.message or ''}".rstrip() for where, outcome in refused.items()]
        raise Fault(f"{len(refused)} of {len(wishes)} partitions were refused", "\n".join(lines[:SHOWN_MAX]))


async def watch(client: Client, partitions: Sequence[TopicPartition]) -> None:
    """Until none of these is on its way any more. A cluster that cannot be asked for a moment is asked again."""
    bar = Bar("moving")
    while True:
        with suppress(PeerFailure):
            found = await list_moving(client.router, client.router.deadline(None))
            moving = {where: found[where] for where in partitions if where in found}
            done = len(partitions) - len(moving)
            copied, whole = await _bytes(client, moving)
            share = (done + (copied / whole if whole else 0) * len(moving)) / len(partitions)
            note = f"{done} of {len(partitions)} partitions" + (f", {copied:,} of {whole:,} bytes of the others" if moving else "")
            bar.show(min(share, 0.99) if moving else 1.0, note)  # With every byte there, a replica has still to be found in sync.
            if not moving:
                return bar.end()
        await asyncio.sleep(LOOK_SECONDS)


async def _bytes(client: Client, moving: Mapping[TopicPartition, Moving]) -> tuple[int, int]:
    """How much the new replicas have, and how much they will: what an old replica of each has."""
    nodes = sorted({node for each in moving.values() for node in each.replicas})
    sizes: dict[int, dict[TopicPartition, int]] = {}
    for node in nodes:
        wanted = [where for where, each in moving.items() if node in each.replicas]
        with suppress(PeerFailure):
            sizes[node] = await sizes_on(client.router, node, wanted, client.router.deadline(5.0))
    copied = whole = 0
    for where, each in moving.items():
        full = max((sizes.get(node, {}).get(where, 0) for node in each.replicas if node not in each.adding), default=0)
        for node in each.adding:
            copied += min(full, sizes.get(node, {}).get(where, 0))
            whole += full
    return copied, whole


async def _take_back(client: Client, throttle: int | None, before: str | None) -> None:
    if throttle is not None:
        await client.change_settings(Configured.every_node(), {THROTTLE: before})


async def _throttle(client: Client, rate: int) -> str | None:
    """Sets the rate for every node; what every node was told before."""
    told = {view.name: view.value for view in await client.settings_of(Configured.every_node())}
    await client.change_settings(Configured.every_node(), {THROTTLE: str(rate)})
    return told.get(THROTTLE)
