"""`penstock topics describe`: as kafka-topics prints it, or a table with offsets, or JSON."""

from collections.abc import Sequence
from typing import Any

import click

from penstock.cli.cluster_picture import ASK_SECONDS, MIN_IN_SYNC
from penstock.cli.names import topic_names
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import bootstrap_option, json_option, talk
from penstock.cli.topic_lines import partition_line, topic_line
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.cluster import (
    Moving,
    PartitionDescription,
    TopicDescription,
    describe_nodes,
    describe_partitions,
    list_moving,
    topic_settings,
)
from penstock.peers.failures import UnknownTopic, check_code
from penstock.peers.offsets import EARLIEST, LATEST, FoundOffset
from penstock.peers.topics import NO_LEADER
from penstock.vocabulary import TopicPartition

Offsets = dict[TopicPartition, FoundOffset]


@click.command()
@click.argument("name", required=False, shell_complete=topic_names)
@click.option("--offsets", is_flag=True, help="A table with epochs, and the first and next offset of each partition.")
@click.option("--under-replicated-partitions", "only", flag_value="under", help="Only partitions that lack replicas in sync.")
@click.option("--under-min-isr-partitions", "only", flag_value="below", help="Only those below min.insync.replicas.")
@click.option("--at-min-isr-partitions", "only", flag_value="at", help="Only those that have just min.insync.replicas.")
@click.option("--unavailable-partitions", "only", flag_value="lost", help="Only those that nobody leads.")
@bootstrap_option
@json_option
def describe(*, name: str | None, offsets: bool, only: str | None, bootstrap: str, as_json: bool) -> None:
    """Show the topic NAME, or every topic, and each partition: who leads it, who holds it, who is in sync.

    \b
      penstock topics describe orders
      penstock topics describe --under-replicated-partitions
      penstock topics describe orders --offsets

    The lines are those of Kafka's kafka-topics: Isr are the replicas in sync, Elr those that may lead though they are not.
    """
    if as_json or offsets:
        if name is None or only is not None:
            raise click.UsageError("--offsets and --json show one topic: name it, and leave the filters out")
        return _show_offsets(talk(bootstrap, lambda client: _with_offsets(client, name)), as_json=as_json)
    for line in talk(bootstrap, lambda client: _lines(client, name, only)):
        click.echo(line)


async def _lines(client: Client, name: str | None, only: str | None) -> list[str]:
    router = client.router
    deadline = router.deadline(ASK_SECONDS)
    topics = await _topics(client, name)
    settings = await topic_settings(router, [topic.name for topic in topics], None, deadline) if topics else {}
    moving = await list_moving(router, deadline)
    live = [node.node_id for node in (await describe_nodes(router, deadline)).nodes if not node.is_fenced] if only == "lost" else []
    lines = []
    for topic in topics:
        of_topic = {where.partition: each for where, each in moving.items() if where.topic == topic.name}
        configs = settings.get(topic.name, {})
        if only is None:
            lines.append(topic_line(topic, of_topic, configs))
        least = int(configs[MIN_IN_SYNC].value) if MIN_IN_SYNC in configs else 1
        lines += [
            partition_line(topic.name, state, of_topic.get(state.partition))
            for state in topic.partitions
            if only is None or _is_meant(only, state, of_topic.get(state.partition), least, live)
        ]
    return lines


def _is_meant(only: str, state: PartitionDescription, moving: Moving | None, least: int, live: Sequence[int]) -> bool:
    """As kafka-topics reckons each."""
    match only:
        case "under":
            return len(state.in_sync) < len(state.replicas) - (len(moving.adding) if moving is not None else 0)
        case "below":
            return state.leader == NO_LEADER or len(state.in_sync) < least
        case "at":
            return len(state.in_sync) == least
        case _:
            return state.leader == NO_LEADER or state.leader not in live


async def _topics(client: Client, name: str | None) -> list[TopicDescription]:
    found = await describe_partitions(client.router, () if name is None else (name,), client.router.deadline(ASK_SECONDS))
    for topic in found if name is not None else ():
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise UnknownTopic(topic.name)
        check_code(topic.error_code, f"describe topic {topic.name!r}")
    return found


async def _with_offsets(client: Client, name: str) -> dict[str, Any]:
    (topic,) = await _topics(client, name)
    led = [TopicPartition(name, each.partition) for each in topic.partitions if each.leader != NO_LEADER]
    starts = await client.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(led, LATEST))
    return {
        "topic": topic.name,
        "id": topic.topic_id.hex(),
        "replicas": max((len(each.replicas) for each in topic.partitions), default=0),
        "partitions": [_row(name, each, starts, ends) for each in topic.partitions],
    }


def _row(name: str, each: PartitionDescription, starts: Offsets, ends: Offsets) -> dict[str, Any]:
    where = TopicPartition(name, each.partition)
    return {
        "partition": each.partition,
        "leader": None if each.leader == NO_LEADER else each.leader,
        "epoch": each.leader_epoch,
        "replicas": list(each.replicas),
        "in_sync": list(each.in_sync),
        "start": starts[where].offset if where in starts else None,
        "end": ends[where].offset if where in ends else None,
        "eligible": list(each.eligible),
    }


def _show_offsets(told: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        return print_json(told)
    click.echo(f"{told['topic']}  id {told['id']}")
    rows = [{column: value for column, value in row.items() if column != "eligible"} for row in told["partitions"]]
    print_table(list(rows[0]), [list(row.values()) for row in rows])
