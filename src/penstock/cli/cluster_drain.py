"""`penstock cluster drain` and `forget-node`: a node emptied of its partitions, and told to the others as gone for good."""

import asyncio
from pathlib import Path

import click

from penstock.cli.cluster_checks import check
from penstock.cli.cluster_disks import ask_disks
from penstock.cli.cluster_moves import end_throttle, move, print_plan, watch
from penstock.cli.cluster_picture import Picture, take_picture
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.local_cluster import LocalCluster
from penstock.cli.reassignment_plans import without
from penstock.cli.talking import talk
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.cluster_changes import forget_node as forget
from penstock.peers.failures import Refused

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


def _may_have_stopped(local: LocalCluster | None, number: int) -> bool:
    return local is None or number not in local.nodes or not local.is_running(number)


async def _find_local(client: Client, picture: Picture) -> LocalCluster | None:
    """The cluster's own directory, if it was started on this machine: its nodes know where their data are."""
    disks = await ask_disks(client, dict.fromkeys(picture.live(), ()))
    paths = dict.fromkeys(path for disk in disks.told.values() for path in disk.well)
    found = (LocalCluster.of_node(Path(path), picture.cluster.cluster_id) for path in paths)
    return next((local for local in found if local is not None), None)


@click.command("forget-node")
@click.argument("number", type=int, metavar="N")
@cluster_options
def forget_node(number: int, directory: Path | None, bootstrap: str | None) -> None:
    """Forget node N, which is stopped and will not come back.

    Where the cluster was started on this machine with `penstock cluster start`, the node is taken out of DIR/cluster.json, too. Its files
    stay.
    """

    async def conversation(client: Client) -> LocalCluster | None:
        picture = await take_picture(client)
        held = [each.where for each in picture.partitions() if number in each.state.replicas]
        if held:
            what = f"node {number} still holds {len(held)} partitions, {held[0]} for one"
            raise Fault(what, f"move them first: penstock cluster drain {number} --execute")
        local = await _find_local(client, picture) if directory is None else LocalCluster.load(directory)
        if not await _is_gone(client, number, STOPPED_SECONDS if _may_have_stopped(local, number) else 0.0):
            raise Fault(f"node {number} is up", "stop it first")
        try:
            await forget(client.router, number, client.router.deadline(None))
        except Refused as refused:
            is_left_here = local is not None and number in local.nodes and not local.is_running(number)
            if refused.code != ErrorCode.BROKER_ID_NOT_REGISTERED or not is_left_here:
                raise  # Otherwise it was forgotten by an address, from where this file could not be reached.
        return local

    local = talk(bootstrap_of(directory, bootstrap), conversation)
    click.echo(f"node {number} is forgotten")
    if local is None:
        click.echo(
            "no file on this machine lists the nodes of this cluster; if it was started with `penstock cluster start`, its directory still "
            f"lists node {number}. There, as its owner: penstock cluster forget-node {number} --data-dir DIR"
        )
    elif number in local.nodes:
        local.drop(number)
        if directory is None:
            click.echo(f"it is taken out of {local.directory / 'cluster.json'}, too; its files stay in {local.data_of(number).parent}")
