"""`penstock cluster drain` and `forget-node`: a node emptied of its partitions, and told to the others as gone for good."""

import asyncio
from pathlib import Path

import click

from penstock.cli.cluster_checks import check
from penstock.cli.cluster_moves import end_throttle, move, print_plan, watch
from penstock.cli.cluster_picture import take_picture
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.local_cluster import LocalCluster
from penstock.cli.reassignment_plans import without
from penstock.cli.talking import talk
from penstock.peers.client import Client
from penstock.peers.cluster_changes import forget_node as forget

STOPPED_SECONDS = 30.0
LOOK_SECONDS = 0.3


@click.command()
@click.argument("number", type=int, metavar="N")
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES", help="Bytes a second that each node takes in while it lasts.")
@click.option("--execute", is_flag=True, help="Do it. Without this the command only says what it would do.")
@cluster_options
def drain(number: int, throttle: int | None, execute: bool, directory: Path | None, bootstrap: str | None) -> None:
    """Move everything that node N holds to other nodes, so that it can go.

    \b
      penstock cluster drain 3
      penstock cluster drain 3 --throttle 10000000 --execute

    Nodes whose disks are nearly full get something only where no other node can take it.
    """

    async def conversation(client: Client) -> None:
        picture = await take_picture(client)
        if number not in {node.node_id for node in picture.cluster.nodes}:
            raise Fault(f"there is no node {number}")
        full = (await check(client, picture)).full()
        plan = without(number, picture.targets(), picture.live(), {node.node_id: node.rack for node in picture.cluster.nodes}, full)
        if plan:
            print_plan(plan, picture)
            if not execute:
                return click.echo("nothing was changed; add --execute to do it")
            await move(client, plan, throttle=throttle, is_watched=True)
        leaving = [where for where, each in picture.moving.items() if number in each.removing]
        if leaving and not execute:
            return click.echo(f"{len(leaving)} partitions are on their way off node {number}; add --execute to wait for them")
        if leaving:
            await watch(client, leaving)
            await end_throttle(client)
        click.echo(f"node {number} holds nothing; stop it, and then: penstock cluster forget-node {number}")
        if picture.quorum is not None and number in [each.node_id for each in picture.quorum.voters]:
            click.echo(f"it votes; before that: penstock cluster remove-voter {number}")

    talk(bootstrap_of(directory, bootstrap), conversation)


async def _is_gone(client: Client, number: int, seconds: float) -> bool:
    """The others miss a node that was stopped a moment ago only after its session."""
    deadline = client.router.deadline(seconds)
    while number in (await take_picture(client)).live():
        if deadline.left_s() <= 0:
            return False
        await asyncio.sleep(LOOK_SECONDS)
    return True


def _may_have_stopped(directory: Path | None, number: int) -> bool:
    local = None if directory is None else LocalCluster.load(directory)
    return local is None or number not in local.nodes or not local.is_running(number)


@click.command("forget-node")
@click.argument("number", type=int, metavar="N")
@cluster_options
def forget_node(number: int, directory: Path | None, bootstrap: str | None) -> None:
    """Forget node N, which is stopped and will not come back."""

    async def conversation(client: Client) -> None:
        picture = await take_picture(client)
        held = [each.where for each in picture.partitions() if number in each.state.replicas]
        if held:
            what = f"node {number} still holds {len(held)} partitions, {held[0]} for one"
            raise Fault(what, f"move them first: penstock cluster drain {number} --execute")
        if not await _is_gone(client, number, STOPPED_SECONDS if _may_have_stopped(directory, number) else 0.0):
            raise Fault(f"node {number} is up", "stop it first")
        await forget(client.router, number, client.router.deadline(None))

    talk(bootstrap_of(directory, bootstrap), conversation)
    if directory is not None:
        LocalCluster.load(directory).drop(number)
    click.echo(f"node {number} is forgotten")
    if directory is None:
        click.echo(f"if it was started on this machine, say so with --data-dir, too: penstock cluster forget-node {number} --data-dir DIR")
