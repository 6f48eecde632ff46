"""`penstock cluster add-voter` and `remove-voter`: who votes on the cluster's metadata, one at a time."""

from pathlib import Path

import click

from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.talking import talk
from penstock.peers import cluster_changes
from penstock.peers.client import Client
from penstock.peers.cluster import DescribedQuorum, QuorumReplica, describe_quorum


@click.command("add-voter")
@click.argument("number", type=int, metavar="N")
@cluster_options
def add_voter(number: int, directory: Path | None, bootstrap: str | None) -> None:
    """Let node N vote. It must run with the role controller, and follow the metadata already."""

    async def conversation(client: Client) -> None:
        quorum = await describe_quorum(client.router, client.router.deadline(None))
        if any(each.node_id == number for each in quorum.voters):
            raise Fault(f"node {number} votes already")
        found = [each for each in quorum.observers if each.node_id == number]
        if not found:
            raise Fault(f"node {number} does not follow the metadata", "start it with --join, and with the role controller")
        await cluster_changes.add_voter(client.router, number, found[-1].directory_id, client.router.deadline(None))

    talk(bootstrap_of(directory, bootstrap), conversation)
    click.echo(f"node {number} votes")


@click.command("remove-voter")
@click.argument("number", type=int, metavar="N")
@cluster_options
def remove_voter(number: int, directory: Path | None, bootstrap: str | None) -> None:
    """Take the vote of node N, whether it runs or not."""

    async def conversation(client: Client) -> None:
        quorum = await describe_quorum(client.router, client.router.deadline(None))
        voter = voter_of(quorum, number)
        if voter is None:
            raise Fault(f"node {number} does not vote", f"those who do: {', '.join(str(each.node_id) for each in quorum.voters)}")
        if len(quorum.voters) == 1:
            raise Fault(f"node {number} is the only voter", "add another first")
        await cluster_changes.remove_voter(client.router, number, voter.directory_id, client.router.deadline(None))

    talk(bootstrap_of(directory, bootstrap), conversation)
    click.echo(f"node {number} does not vote any more")


def voter_of(quorum: DescribedQuorum, number: int) -> QuorumReplica | None:
    return next((each for each in quorum.voters if each.node_id == number), None)
