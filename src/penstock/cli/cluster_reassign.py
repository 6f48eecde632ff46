"""`penstock cluster reassign`: other replicas for partitions, shown first and done when asked for."""

from pathlib import Path

import click

from penstock.cli.cluster_moves import move, print_plan, take_back
from penstock.cli.cluster_picture import Picture, take_picture
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.names import topic_names
from penstock.cli.reassignment_plans import Plan, changed, node_numbers, read_plan, spell_plan, spread
from penstock.cli.talking import talk
from penstock.cluster.topic_names import is_companion
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.cluster import TopicDescription
from penstock.vocabulary import TopicPartition

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option("--plan", "file", type=FILE, help="Which replicas for which partition, in Kafka's JSON.")
@click.option("--topic", "topics", multiple=True, shell_complete=topic_names, help="A topic to spread; may be repeated.")
@click.option("--to", "nodes", metavar="1,2,3", help="With --topic: the nodes to spread it over.")
@click.option("--replication-factor", "factor", type=click.IntRange(1, 100), help="With --topic: how many replicas shall be.")
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES", help="Bytes a second that each node takes in while it lasts.")
@click.option("--cancel", is_flag=True, help="Take moves back that are under way: those of the plan or topics, or all.")
@click.option("--execute", is_flag=True, help="Do it. Without this the command only says what it would do.")
@click.option("--no-wait", is_flag=True, help="Do not watch until it is done. A throttle then stays.")
@click.option("--print-plan", "wants_json", is_flag=True, help="Print the plan in Kafka's JSON, to keep and change.")
@cluster_options
def reassign(
    *, file: Path | None, topics: tuple[str, ...], nodes: str | None, factor: int | None, throttle: int | None, cancel: bool,
    execute: bool, no_wait: bool, wants_json: bool, directory: Path | None, bootstrap: str | None,
) -> None:  # fmt: skip
    """Move partitions to other nodes. Producers and consumers go on meanwhile.

    \b
      penstock cluster reassign --topic orders --to 2,3,4
      penstock cluster reassign --topic orders --to 2,3,4 --throttle 10000000 --execute
      penstock cluster reassign --plan plan.json --execute
      penstock cluster reassign --cancel --execute

    A partition has moved when its new replicas are all in sync; until then the old ones stay.
    """
    if not cancel and (file is None) == (not topics):
        raise click.UsageError("say what to move: --plan FILE, or --topic NAME with --to")
    if topics and not cancel and nodes is None and factor is None:
        raise click.UsageError("--topic needs to know where to: --to 1,2,3")
    given = None if file is None else read_plan(file.read_text(encoding="utf-8", errors="replace"), str(file))

    async def conversation(client: Client) -> None:
        picture = await take_picture(client)
        if cancel:
            return await _cancel(client, picture, given, topics, execute=execute)
        plan = changed(given if given is not None else _spread(picture, topics, nodes, factor), picture.targets())
        if wants_json:
            return click.echo(spell_plan(plan))
        if not plan:
            return click.echo("everything is there already" if not picture.moving else "everything is there already, or on its way")
        print_plan(plan, picture)
        if not execute:
            return click.echo("nothing was changed; add --execute to do it")
        await move(client, plan, throttle=throttle, is_watched=not no_wait)
        click.echo("begun" if no_wait else "done")

    talk(bootstrap_of(directory, bootstrap), conversation)


def _spread(picture: Picture, names: tuple[str, ...], nodes: str | None, factor: int | None) -> Plan:
    targets = picture.live() if nodes is None else node_numbers(nodes, "--to")
    known = {node.node_id: node.rack for node in picture.cluster.nodes}
    for node in targets:
        if node not in known:
            raise Fault(f"there is no node {node}", f"the nodes are {', '.join(map(str, known))}")
    plan: Plan = {}
    for name in names:
        plan |= spread(_topic(picture, name), targets, known, factor)
    return plan


def _topic(picture: Picture, name: str) -> TopicDescription:
    for topic in picture.targets():
        if topic.name == name and topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return topic
    raise Fault(f"there is no topic {name!r}", "penstock topics list tells which there are")


async def _cancel(client: Client, picture: Picture, given: Plan | None, topics: tuple[str, ...], *, execute: bool) -> None:
    def is_meant(where: TopicPartition) -> bool:
        if is_companion(where.topic):
            return False  # It goes with its queue.
        return where in given if given is not None else not topics or where.topic in topics

    moving = {where: each for where, each in picture.moving.items() if is_meant(where)}
    if not moving:
        return click.echo("nothing is on its way")
    print_plan({where: tuple(node for node in each.replicas if node not in each.adding) for where, each in moving.items()}, picture)
    if not execute:
        return click.echo("nothing was changed; add --execute to take these moves back")
    await take_back(client, list(moving))
    click.echo("taken back")
