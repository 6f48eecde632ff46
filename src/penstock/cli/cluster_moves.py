"""Carrying a plan out: shown first, begun, throttled while it lasts, and watched until every partition is where it shall be."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import click

from penstock.cli.bar import Bar
from penstock.cli.cluster_disks import Disks, ask_disks
from penstock.cli.cluster_picture import THROTTLE, Picture, throttle_of
from penstock.cli.faults import Fault
from penstock.cli.move_progress import measured
from penstock.cli.reassignment_plans import Plan
from penstock.cli.tables import print_table
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.cluster import Moving, describe_partitions, list_moving
from penstock.peers.cluster_changes import reassign
from penstock.peers.configs import Configured
from penstock.peers.failures import PeerFailure, code_name
from penstock.vocabulary import TopicPartition

LOOK_SECONDS = 0.5
TOLD_SECONDS, TOLD_LOOK_SECONDS = 30.0, 0.1
SHOWN_MAX = 50

_Claim = Callable[[Mapping[TopicPartition, Moving], Plan], bool]  # About what is on its way, and the replicas of each partition.


def print_plan(plan: Plan, picture: Picture) -> None:
    held = {each.where: each.state.replicas for each in picture.partitions()}
    rows = [[where.topic, where.partition, list(held.get(where, ())), list(replicas)] for where, replicas in plan.items()]
    print_table(["topic", "partition", "replicas", "new replicas"], rows[:SHOWN_MAX])
    if len(rows) > SHOWN_MAX:
        click.echo(f"... and {len(rows) - SHOWN_MAX} more")


async def move(client: Client, plan: Plan, *, throttle: int | None, is_watched: bool) -> None:
    """A throttle that is given is set back if the move is refused, and taken back when no move goes on any more; it stays with one that
    goes on without this command. One that stands already, whoever set it, is left alone and named."""
    before = await throttle_of(client)
    if throttle is not None:
        await _set_throttle(client, str(throttle))
    elif before is not None:
        click.echo(f"{THROTTLE} is {before}: it holds for this move, too", err=True)
    try:
        await begin(client, plan)
    except Fault:
        await _set_throttle(client, before)
        raise
    if is_watched:
        await _until_told(client, lambda moving, held: all(where in moving or held.get(where) == plan[where] for where in plan), plan)
        await watch(client, list(plan))
        if throttle is not None:
            await end_throttle(client)


async def take_back(client: Client, partitions: Sequence[TopicPartition]) -> None:
    """The throttle of the moves ends with the last of them."""
    await begin(client, dict.fromkeys(partitions))
    await _until_told(client, lambda moving, held: not any(where in moving for where in partitions), partitions)
    await end_throttle(client)


async def end_throttle(client: Client) -> None:
    """Takes it back if nothing is moving any more."""
    rate = await throttle_of(client)
    if rate is not None and not await list_moving(client.router, client.router.deadline(None)):
        await _set_throttle(client, None)
        click.echo(f"{THROTTLE} was {rate}, and is taken back", err=True)


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
    while partitions:
        with suppress(PeerFailure):
            found = await list_moving(client.router, client.router.deadline(None))
            moving = {where: found[where] for where in partitions if where in found}
            done = len(partitions) - len(moving)
            disks = await ask_sizes(client, moving)
            measures = [measured(each, where, disks) for where, each in moving.items()]
            copied, whole = (sum(each or 0 for each in column) for column in zip(*measures, strict=True)) if measures else (0, 0)
            share = (done + (copied / whole if whole else 0) * len(moving)) / len(partitions)
            note = f"{done} of {len(partitions)} partitions" + (f", {copied:,} of {whole:,} bytes of the others" if moving else "")
            bar.show(min(share, 0.99) if moving else 1.0, note)  # With every byte there, a replica has still to be found in sync.
            if not moving:
                return bar.end()
        await asyncio.sleep(LOOK_SECONDS)


async def _until_told(client: Client, is_told: _Claim, partitions: Iterable[TopicPartition]) -> None:
    """Until the node that is asked knows of a change: it may lag behind the controller, and a move that it has not heard of is not over.
    Not for longer than TOLD_SECONDS, since somebody else may have changed the same partitions again."""
    router, topics = client.router, list(dict.fromkeys(where.topic for where in partitions))
    deadline = router.deadline(TOLD_SECONDS)
    while deadline.left_s() > 0:
        with suppress(PeerFailure):
            moving = await list_moving(router, deadline)
            described = await describe_partitions(router, topics, deadline)
            held = {TopicPartition(topic.name, state.partition): state.replicas for topic in described for state in topic.partitions}
            if is_told(moving, held):
                return
        await asyncio.sleep(TOLD_LOOK_SECONDS)


async def ask_sizes(client: Client, moving: Mapping[TopicPartition, Moving]) -> Disks:
    """Of what moves, on the nodes that have it or get it."""
    wanted: dict[int, list[TopicPartition]] = {}
    for where, each in moving.items():
        for node in each.replicas:
            wanted.setdefault(node, []).append(where)
    return await ask_disks(client, wanted)


async def _set_throttle(client: Client, rate: str | None) -> None:
    """For every node; None: no bound."""
    if rate != await throttle_of(client):
        await client.change_settings(Configured.every_node(), {THROTTLE: rate})
