"""`penstock cluster lead`: one replica made the leader of a partition, and its preferred leader from then on."""

from collections.abc import Sequence
from pathlib import Path

import click

from penstock.cli.cluster_moves import begin
from penstock.cli.cluster_picture import Ill, Picture, take_picture
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.names import topic_names
from penstock.cli.talking import talk
from penstock.cluster.topic_names import COMPANION_PREFIX, companion_name, is_companion
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.cluster_changes import PREFERRED, elect_leaders
from penstock.peers.failures import code_name
from penstock.vocabulary import TopicPartition


@click.command()
@click.argument("number", type=int, metavar="NODE")
@click.option("--topic", required=True, shell_complete=topic_names, help="The topic; the ledger of a queue goes along.")
@click.option("--partition", type=click.IntRange(0), required=True, help="The partition.")
@cluster_options
def lead(number: int, topic: str, partition: int, directory: Path | None, bootstrap: str | None) -> None:
    """Make the replica on NODE lead a partition. Nothing is copied: it must be in sync.

    \b
      penstock cluster lead 3 --topic orders --partition 0

    The replica becomes the first in the list, so that it leads again after an outage, too.
    """
    where = TopicPartition(topic, partition)
    talk(bootstrap_of(directory, bootstrap), lambda client: make_leader(client, number, where))


async def make_leader(client: Client, number: int, where: TopicPartition) -> None:
    picture = await take_picture(client)
    held = _held(picture, where)
    check_able(picture, number, held)
    (topic,) = [topic for topic in picture.targets() if topic.name == where.topic]
    (target,) = [state.replicas for state in topic.partitions if state.partition == where.partition]
    if held[0].state.leader == number and target[0] == number:
        return click.echo(f"node {number} leads {where} already")
    if target[0] != number:
        await begin(client, {where: (number, *[node for node in target if node != number])})
    outcomes = await elect_leaders(client.router, PREFERRED, [where], client.router.deadline(None))
    outcome = outcomes[where]
    if outcome.code not in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
        if target[0] != number:
            await begin(client, {where: target})
        why = outcome.message or code_name(outcome.code)
        raise Fault(f"{where} could not be given to node {number}: {why}", "the order of its replicas is as it was; try again")
    click.echo(f"node {number} leads {where}")


def _held(picture: Picture, where: TopicPartition) -> list[Ill]:
    """The partition, and the one that has its ledger where there is one."""
    if is_companion(where.topic):
        queue = next((topic.name for topic in picture.topics if companion_name(topic.topic_id) == where.topic), None)
        named = f"name the queue's topic: --topic {queue}" if queue is not None else "name the queue's topic"
        raise Fault(f"{COMPANION_PREFIX}... topics have the ledgers of queues, and are led where their queue is", named)
    topic = next((topic for topic in picture.topics if topic.name == where.topic), None)
    if topic is None:
        raise Fault(f"there is no topic {where.topic!r}", "penstock topics list tells which there are")
    names = (where.topic, companion_name(topic.topic_id))
    held = [each for each in picture.partitions() if each.where.topic in names and each.where.partition == where.partition]
    if not held:
        raise Fault(f"topic {where.topic!r} has no partition {where.partition}", f"its partitions are 0 to {len(topic.partitions) - 1}")
    return sorted(held, key=lambda each: names.index(each.where.topic))


def check_able(picture: Picture, number: int, held: Sequence[Ill]) -> None:
    """Raises Fault unless the node could lead all of these."""
    where, state = held[0]
    leaving = picture.moving[where].removing if where in picture.moving else ()
    if number not in state.replicas:
        replicas = ", ".join(map(str, state.replicas))
        advice = "choose one of these, or move the partition first: penstock cluster reassign"
        raise Fault(f"node {number} is no replica of {where}: those are {replicas}", advice)
    if number in leaving:
        raise Fault(f"{where} is being moved away from node {number}", "take that back first: penstock cluster reassign --cancel")
    if number not in picture.live():
        raise Fault(f"node {number} is not up", "start it, and try again when it is in sync")
    for each in held:
        if number not in each.state.in_sync:
            what = f"{where} on node {number}" if each is held[0] else f"the ledger of {where} on node {number}"
            in_sync = ", ".join(map(str, each.state.in_sync)) or "none"
            raise Fault(f"{what} is not in sync: in sync are {in_sync}", "wait until it has caught up: penstock cluster status")
