"""`penstock cluster add-voter` and `remove-voter`: who votes on the cluster's metadata, one at a time."""

import asyncio
from contextlib import suppress
from pathlib import Path

import click

from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.talking import talk
from penstock.peers import cluster_changes
from penstock.peers.client import Client
from penstock.peers.cluster import DescribedQuorum, QuorumReplica, describe_quorum
from penstock.peers.failures import PeerFailure

LOOK_SECONDS = 0.3
JOIN_SECONDS_MAX = 60.0
VOTERS_MAX = 5  # More cost every change of the metadata a longer wait and bear hardly more.


@click.command("add-voter")
@click.argument("number", type=int, metavar="N")
@click.option("--wait", "seconds", type=click.FloatRange(min=0.0), default=15.0, show_default=True, help="Seconds to hear of it.")
@cluster_options
def add_voter(number: int, seconds: float, directory: Path | None, bootstrap: str | None) -> None:
    """Let node N vote. It must run with the role controller, and follow the metadata already."""

    async def conversation(client: Client) -> None:
        quorum = await describe_quorum(client.router, client.router.deadline(None))
        if any(each.node_id == number for each in quorum.voters):
            raise Fault(f"node {number} votes already")
        follower = await follower_of_metadata(client, number, seconds)
        if follower is None:
            raise Fault(f"node {number} does not follow the metadata", "start it with --join, and with the role controller")
        await cluster_changes.add_voter(client.router, number, follower.directory_id, client.router.deadline(None))

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


async def give_vote(client: Client, number: int) -> int:
    """To a node that was started a moment ago, once it follows the metadata; how many vote then."""
    joined = await follower_of_metadata(client, number, JOIN_SECONDS_MAX)
    if joined is None:
        what = f"node {number} does not follow the metadata after {JOIN_SECONDS_MAX:.0f} s, and does not vote"
        raise Fault(what, f"look at its log; then: penstock cluster add-voter {number}")
    await cluster_changes.add_voter(client.router, number, joined.directory_id, client.router.deadline(JOIN_SECONDS_MAX))
    voters = (await describe_quorum(client.router, client.router.deadline(None))).voters
    return len({number, *[each.node_id for each in voters]})


def meaning_of(voters: int) -> str:
    """What it means that so many vote."""
    borne = (voters - 1) // 2
    said = f"{voters} nodes vote: the loss of {borne or 'none'} of them is borne"
    if voters % 2 == 0:
        said += f", as with {voters - 1}; an even number bears no more than the odd one below it, so add one more or remove one"
    elif voters > VOTERS_MAX:
        said += f"; more than {VOTERS_MAX} make every change of the metadata wait longer and bear hardly more"
    return said


def voter_of(quorum: DescribedQuorum, number: int) -> QuorumReplica | None:
    return next((each for each in quorum.voters if each.node_id == number), None)


async def follower_of_metadata(client: Client, number: int, seconds: float) -> QuorumReplica | None:
    """The node as the quorum's leader knows it while it does not vote.

    A leader that was elected a moment ago hears of a follower only when the follower misses it and knocks, so this may take some looks.
    Of several disks it is the one heard of last, for a disk that was replaced may still be listed.
    """
    deadline = client.router.deadline(seconds)
    while True:
        with suppress(PeerFailure):
            quorum = await describe_quorum(client.router, client.router.deadline(None))
            found = [each for each in quorum.observers if each.node_id == number and each.last_heard_ms >= 0]
            if found:
                return max(found, key=lambda each: each.last_heard_ms)
        if deadline.left_s() <= 0:
            return None
        await asyncio.sleep(LOOK_SECONDS)
