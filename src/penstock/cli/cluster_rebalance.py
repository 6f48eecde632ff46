"""`penstock cluster rebalance`: replicas and preferred leaders evened out over the brokers that are up.

It plans over where partitions will be when the moves under way have ended, and leaves those moves alone. So it can be interrupted and
begun again: what it has begun counts as done, and it goes on to watch it.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import click

from penstock.cli.cluster_checks import check
from penstock.cli.cluster_disks import ask_disks
from penstock.cli.cluster_moves import end_throttle, move, print_plan, watch
from penstock.cli.cluster_picture import Picture, take_picture
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.progress import size_text
from penstock.cli.reassignment_plans import Plan, node_numbers
from penstock.cli.rebalance_plans import rebalanced
from penstock.cli.tables import print_table
from penstock.cli.talking import talk
from penstock.cluster.topic_names import companion_name, is_companion
from penstock.peers.client import Client
from penstock.peers.cluster_changes import PREFERRED, elect_leaders
from penstock.vocabulary import TopicPartition


@click.command()
@click.option("--nodes", metavar="1,2,3", help="Only these nodes give and take.  [default: all that are up and not being drained]")
@click.option("--no-internal", is_flag=True, help="Leave the cluster's own topics where they are.")
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES", help="Bytes a second that each node takes in while it lasts.")
@click.option("--execute", is_flag=True, help="Do it. Without this the command only says what it would do.")
@cluster_options
def rebalance(
    *, nodes: str | None, no_internal: bool, throttle: int | None, execute: bool, directory: Path | None, bootstrap: str | None
) -> None:
    """Even out replicas and preferred leaders over the brokers, and move as little as possible.

    \b
      penstock cluster rebalance
      penstock cluster rebalance --throttle 20000000 --execute
      penstock cluster rebalance --nodes 1,2,3,4 --no-internal --execute

    Every partition keeps its number of replicas and spans no fewer racks. Nodes that are away or being drained get nothing. It may be
    interrupted and begun again: what it has begun counts as done.
    """
    named = None if nodes is None else node_numbers(nodes, "--nodes")
    talk(
        bootstrap_of(directory, bootstrap),
        lambda client: even_out(client, named, is_internal_fixed=no_internal, throttle=throttle, execute=execute),
    )


async def even_out(
    client: Client, named: Collection[int] | None, *, is_internal_fixed: bool, throttle: int | None, execute: bool
) -> None:  # fmt: skip
    picture = await take_picture(client)
    chosen = taking_part(picture, named)
    disks = await ask_disks(client, dict.fromkeys(picture.live()))
    for node, reason in disks.silent.items():
        click.echo(f"node {node} could not be asked how large its partitions are: {reason}", err=True)
    sizes = {each.where: disks.size(each.where, each.state.replicas) or 0 for each in picture.partitions()}
    racks = {node.node_id: node.rack or None for node in picture.cluster.nodes}
    moving = list(picture.moving)
    full = (await check(client, picture)).full()
    plan = rebalanced(picture.targets(), chosen, racks, sizes=sizes, fixed=frozenset(moving), is_internal_fixed=is_internal_fixed)
    held = {TopicPartition(topic.name, state.partition): state.replicas for topic in picture.targets() for state in topic.partitions}
    for node in full:
        if any(node in replicas and node not in held[where] for where, replicas in plan.items()):
            leave_out = ",".join(str(each) for each in chosen if each not in full)
            what = f"the disk of node {node} is nearly full, and evening out would give it more"
            raise Fault(what, f"make space there, drain it, or leave it out: penstock cluster rebalance --nodes {leave_out}")
    if plan:
        print_plan(plan, picture)
        print_loads(picture, plan, sizes)
    if moving:
        click.echo(f"{len(moving)} partitions are on their way already and count as moved")
    if not plan and not moving:
        return click.echo("replicas and preferred leaders are as even as they can be")
    if not execute:
        return click.echo(f"nothing was changed; add --execute to {'do it' if plan else 'wait for them'}")
    if plan:
        await move(client, plan, throttle=throttle, is_watched=True)
    if moving:
        await watch(client, moving)
        await end_throttle(client)
    led = [where for where in dict.fromkeys([*plan, *moving]) if not is_companion(where.topic)]
    await elect_leaders(client.router, PREFERRED, led, client.router.deadline(None))
    click.echo("done")


def taking_part(picture: Picture, named: Collection[int] | None) -> list[int]:
    """The brokers that give and take. One is being drained when moves take replicas from it and will leave it none."""
    kept = {node for topic in picture.targets() for state in topic.partitions for node in state.replicas}
    drained = {node for moving in picture.moving.values() for node in moving.removing} - kept
    able = [node for node in picture.live() if node not in drained]
    for node in named or ():
        if node not in picture.live():
            raise Fault(f"node {node} is not up, so it can take nothing", f"the nodes that are up: {', '.join(map(str, picture.live()))}")
        if node in drained:
            raise Fault(f"node {node} is being drained", "leave it out, or take its moves back: penstock cluster reassign --cancel")
    return able if named is None else [node for node in able if node in named]


def print_loads(picture: Picture, plan: Plan, sizes: Mapping[TopicPartition, int]) -> None:
    """What each node holds when the moves under way have ended, and what it would hold after the plan; ledgers of queues included."""
    before = {TopicPartition(topic.name, state.partition): state.replicas for topic in picture.targets() for state in topic.partitions}
    queue_of = {companion_name(topic.topic_id): topic.name for topic in picture.topics}
    after = {where: plan.get(where._replace(topic=queue_of.get(where.topic, where.topic)), replicas) for where, replicas in before.items()}
    taken = Counter[int]()
    for where, replicas in after.items():
        for node in set(replicas) - set(before[where]):
            taken[node] += sizes[where]
    now, then = _loads(before, sizes), _loads(after, sizes)
    rows = []
    for broker in picture.cluster.nodes:
        each = broker.node_id
        counts = [f"{earlier[each]} -> {later[each]}" for earlier, later in zip(now[:2], then[:2], strict=True)]
        size = f"{size_text(now.bytes[each])} -> {size_text(then.bytes[each])}"
        rows.append([each, broker.rack or None, "away" if broker.is_fenced else "up", *counts, size, size_text(taken[each])])
    print_table(["node", "rack", "state", "replicas", "preferred", "bytes", "to copy"], rows)
    click.echo(f"{size_text(sum(taken.values()))} to copy in all")


class _Loads(NamedTuple):
    """By node."""

    replicas: Counter[int]
    preferred: Counter[int]
    bytes: Counter[int]


def _loads(held: Mapping[TopicPartition, Sequence[int]], sizes: Mapping[TopicPartition, int]) -> _Loads:
    loads = _Loads(Counter(), Counter(), Counter())
    for where, nodes in held.items():
        loads.preferred[nodes[0]] += 1
        for node in nodes:
            loads.replicas[node] += 1
            loads.bytes[node] += sizes[where]
    return loads
