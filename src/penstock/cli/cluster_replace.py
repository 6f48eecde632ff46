"""`penstock cluster replace-node`: an empty disk for a node of a cluster on this machine, and its replicas copied to it anew.

The order matters. The old vote is taken away while the others are a majority without it; the new disk has an id of its own and joins
without a vote, so that it cannot vote a second time for what the lost disk had promised; only when it follows the metadata does it vote.
On machines of your own the steps are the same: stop the node, `remove-voter`, start it on an empty directory with --join, `add-voter`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import click

from penstock.cli.bar import Bar
from penstock.cli.cluster_picture import Picture, take_picture
from penstock.cli.cluster_places import local_option
from penstock.cli.cluster_processes import bring_up, take_down
from penstock.cli.cluster_voters import LOOK_SECONDS, give_vote, voter_of
from penstock.cli.faults import Fault
from penstock.cli.local_cluster import LocalCluster, replaced
from penstock.cli.talking import talk
from penstock.peers import cluster_changes
from penstock.peers.client import Client
from penstock.peers.cluster import QuorumReplica
from penstock.peers.failures import PeerFailure


@click.command("replace-node")
@click.argument("number", type=int, metavar="N")
@click.option("--force", is_flag=True, help="Also where records are lost by it that only this node has.")
@local_option
def replace_node(number: int, force: bool, directory: Path) -> None:
    """Give node N an empty disk, as after the loss of its own, and wait until it is in sync again. Its old directory is set aside."""
    cluster = LocalCluster.load(directory)
    node = cluster.node(number)
    others = cluster.bootstrap_without(number)
    if not others:
        raise Fault(f"node {number} is the only broker", "add another first: penstock cluster add-node")
    picture = talk(others, take_picture)
    refuse_loss(picture, number, is_voter=node.is_voter, force=force)
    take_down(cluster, [number])
    click.echo(f"node {number} is stopped", err=True)
    kept = _set_aside(cluster.data_of(number))
    old_vote = None if picture.quorum is None else voter_of(picture.quorum, number)
    if old_vote is not None:
        talk(others, _taking_vote(old_vote))
        click.echo(f"node {number} does not vote any more", err=True)
    cluster.nodes[number] = replaced(node)
    cluster.save()
    bring_up(cluster, [number])
    click.echo(f"node {number}  process {cluster.node(number).pid}  on an empty disk", err=True)
    if node.is_voter:
        talk(others, lambda client: give_vote(client, number))
        click.echo(f"node {number} votes again", err=True)
    if node.is_broker:
        talk(others, _watching(number))
    click.echo(f"node {number} is replaced; what it had is in {kept}" if kept is not None else f"node {number} is replaced")


def refuse_loss(picture: Picture, number: int, *, is_voter: bool, force: bool) -> None:
    alone = [each.where for each in picture.partitions() if number in each.state.replicas and not set(each.state.in_sync) - {number}]
    if alone and not force:
        raise Fault(
            f"only node {number} has everything of {len(alone)} partitions, {alone[0]} for one",
            "move or copy them first (penstock cluster reassign, or wait until others are in sync), or add --force and lose them",
        )
    if picture.quorum is None:
        if is_voter:
            what = f"node {number} votes on metadata, and nobody could tell whether the others are a majority without it"
            raise Fault(what, "try again when the quorum answers: penstock cluster status")
        return
    if voter_of(picture.quorum, number) is None:
        return
    left = [each for each in picture.answering_voters() if each != number]
    if len(left) < picture.quorum.majority:
        answering = ", ".join(map(str, left)) or "none"
        what = f"without node {number} the voters that answer ({answering}) are no majority of {len(picture.quorum.voters)}"
        raise Fault(what, "start the other voters first")


def _set_aside(data: Path) -> Path | None:
    if not data.exists():
        return None
    kept = data.with_name(f"data.replaced-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}")
    data.rename(kept)
    return kept


def _taking_vote(voter: QuorumReplica) -> Callable[[Client], Awaitable[None]]:
    async def conversation(client: Client) -> None:
        await cluster_changes.remove_voter(client.router, voter.node_id, voter.directory_id, client.router.deadline(None))

    return conversation


def _watching(number: int) -> Callable[[Client], Awaitable[None]]:
    async def conversation(client: Client) -> None:
        bar = Bar(f"node {number} in sync")
        while True:
            with suppress(PeerFailure):
                states = [each.state for each in (await take_picture(client)).partitions() if number in each.state.replicas]
                done = sum(number in state.in_sync for state in states)
                bar.show(done / len(states) if states else 1.0, f"{done} of {len(states)} partitions")
                if done == len(states):
                    return bar.end()
            await asyncio.sleep(LOOK_SECONDS)

    return conversation
