"""`penstock cluster elect`: leadership back to where it is preferred, or, where nothing else helps, to a replica that may lack records."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from penstock.cli.cluster_picture import Ill, take_picture
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.names import topic_names
from penstock.cli.tables import print_table
from penstock.cli.talking import talk
from penstock.cluster.topic_names import is_companion
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.cluster import PartitionDescription
from penstock.peers.cluster_changes import PREFERRED, UNCLEAN, Outcome, elect_leaders
from penstock.peers.failures import code_name
from penstock.peers.topics import NO_LEADER
from penstock.vocabulary import TopicPartition

DID_NOT_WORK = 1


@click.command()
@click.argument("kind", type=click.Choice(["preferred", "unclean"]))
@click.option("--topic", shell_complete=topic_names, help="Only of this topic.")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one of the topic; may be repeated.")
@click.option("--yes", is_flag=True, help="For unclean: yes, acknowledged records may be lost.")
@cluster_options
def elect(*, kind: str, topic: str | None, partitions: tuple[int, ...], yes: bool, directory: Path | None, bootstrap: str | None) -> int:
    """Elect leaders.

    \b
      penstock cluster elect preferred
      penstock cluster elect preferred --topic orders --partition 0
      penstock cluster elect unclean --topic orders --yes

    preferred: the first replica of each partition leads again, where it is in sync. unclean: a partition without a leader, of which no
    replica that is up has every acknowledged record, is led by one that may lack some. What only the others had is lost for good, so start
    those nodes instead where you can.
    """
    if partitions and topic is None:
        raise click.UsageError("--partition needs --topic")

    async def conversation(client: Client) -> tuple[dict[TopicPartition, Outcome], Mapping[TopicPartition, PartitionDescription]]:
        before = await take_picture(client, () if topic is None else (topic,))
        chosen = _chosen(before.partitions(), kind, topic, partitions)
        if kind == "unclean" and chosen and not yes:
            names = ", ".join(str(where) for where in chosen)
            raise Fault(f"an unclean election may lose acknowledged records of {names}", "say that you know: add --yes")
        outcomes = await elect_leaders(client.router, UNCLEAN if kind == "unclean" else PREFERRED, chosen, client.router.deadline(None))
        after = await take_picture(client, tuple(dict.fromkeys(where.topic for where in outcomes))) if outcomes else before
        return outcomes, dict(after.partitions())

    return _print(*talk(bootstrap_of(directory, bootstrap), conversation))


def _chosen(
    found: Iterator[Ill], kind: str, topic: str | None, partitions: tuple[int, ...]
) -> list[TopicPartition] | None:
    """None for all. An unclean election is held only where nobody leads, and only of what is named here."""
    if kind == "preferred" and topic is None:
        return None
    states = dict(found)
    if topic is not None and not states:
        raise Fault(f"there is no topic {topic!r}")
    named = [TopicPartition(topic, index) for index in partitions] if topic is not None and partitions else _by_themselves(states)
    if kind == "preferred":
        return named
    leaderless = [where for where in named if where in states and states[where].leader == NO_LEADER]
    if not leaderless:
        raise Fault("each of these partitions has a leader", "an unclean election is for those that have none")
    return leaderless


def _by_themselves(found: Mapping[TopicPartition, PartitionDescription]) -> list[TopicPartition]:
    """Ledgers of queues go with their queues."""
    return [where for where in found if not is_companion(where.topic)]


def _print(outcomes: Mapping[TopicPartition, Outcome], states: Mapping[TopicPartition, PartitionDescription]) -> int:
    if not outcomes:
        click.echo("every preferred leader leads already")
        return 0
    rows = []
    for where, outcome in outcomes.items():
        leader = states[where].leader if where in states else NO_LEADER
        is_fine = outcome.code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)
        said = outcome.message or "" if outcome.code == ErrorCode.NONE else f"{code_name(outcome.code)} {outcome.message or ''}".rstrip()
        rows.append([where.topic, where.partition, None if leader == NO_LEADER else leader, "yes" if is_fine else "no", said])
    print_table(["topic", "partition", "leader", "fine", "said"], rows)
    return 0 if all(row[3] == "yes" for row in rows) else DID_NOT_WORK
