"""`penstock topics`: create, list, describe, alter, delete."""

import sys
from collections.abc import Sequence

import click

from penstock.cli.faults import Fault
from penstock.cli.names import topic_names
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import bootstrap_option, json_option, pairs, talk
from penstock.cli.topic_describe import describe
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.configs import Configured
from penstock.peers.failures import Refused
from penstock.peers.topics import TopicView


@click.group()
def topics() -> None:
    """Create, list, describe, alter and delete topics.

    \b
      penstock topics create orders --partitions 3 --config retention.ms=86400000
      penstock topics list
      penstock topics describe orders
      penstock topics alter orders --partitions 6 --config flush=os
      penstock topics delete orders --yes
    """


@topics.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, 10_000), help="How many; the node's num.partitions if left out.")
@click.option("--replication-factor", type=click.IntRange(1, 100), help="How many copies; the node's choice if left out.")
@click.option("--replica-assignment", metavar="1:2,1:2,2:1", help="The nodes of each partition, the first to lead.")
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="A topic setting; may be repeated.")
@click.option("--if-not-exists", is_flag=True, help="Fine if it is there already.")
@bootstrap_option
@json_option
def create(
    *,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Create the topic NAME.

    \b
      penstock topics create orders --partitions 3
      penstock topics create clicks --partitions 12 --config flush=os --config retention.ms=3600000
      penstock topics create payments --replication-factor 3 --config min.insync.replicas=2
      penstock topics create orders --replica-assignment 1:2,1:2,2:1
    """
    config = dict(pairs(configs, "--config"))
    assignments = _assignments(replica_assignment)
    if assignments and (partitions is not None or replication_factor is not None):
        raise click.UsageError("--replica-assignment says both numbers itself: leave --partitions and --replication-factor out")

    async def conversation(client: Client) -> TopicView:
        try:
            return await client.create_topic(
                name, partitions=partitions or -1, replication_factor=replication_factor or -1, config=config, assignments=assignments
            )
        except Refused as refused:
            if refused.code == ErrorCode.TOPIC_ALREADY_EXISTS and if_not_exists:
                return await client.describe(name)
            raise

    view = talk(bootstrap, conversation)
    if as_json:
        print_json(_summary(view))
    else:
        click.echo(f"{view.name} has {len(view.partitions)} partition{'s' if len(view.partitions) != 1 else ''}")


@topics.command("list")
@click.option("--internal", is_flag=True, help="Also the cluster's own topics.")
@bootstrap_option
@json_option
def list_topics(internal: bool, bootstrap: str, as_json: bool) -> None:
    """List the topics of the cluster."""

    async def conversation(client: Client) -> Sequence[TopicView]:
        return (await client.metadata()).topics

    found = sorted((view for view in talk(bootstrap, conversation) if internal or not view.is_internal), key=lambda view: view.name)
    if as_json:
        print_json([_summary(view) for view in found])
    elif found:
        print_table(["topic", "partitions", "replicas"], [[view.name, len(view.partitions), _replicas(view)] for view in found])
    else:
        click.echo("there are no topics yet", err=True)


topics.add_command(describe)


@topics.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--partitions", type=click.IntRange(1, 10_000), help="How many it shall have in all; never fewer than it has.")
@click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="A topic setting; may be repeated.")
@click.option("--unset", metavar="NAME", multiple=True, help="Back to its default; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only ask whether it could be done.")
@bootstrap_option
@json_option
def alter(
    *,
    name: str,
    partitions: int | None,
    configs: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Change the settings of the topic NAME, or let it grow. It holds at once.

    \b
      penstock topics alter orders --config retention.ms=3600000 --unset flush
      penstock topics alter orders --partitions 6
    """
    changes: dict[str, str | None] = {**dict(pairs(configs, "--config")), **dict.fromkeys(unset)}
    if partitions is None and not changes:
        raise click.UsageError("say what to alter: --partitions, --config or --unset")

    async def conversation(client: Client) -> TopicView:
        if changes:
            await client.change_settings(Configured.topic(name), changes, is_trial=dry_run)
        if partitions is not None:
            return await client.add_partitions(name, partitions, is_trial=dry_run)
        return await client.describe(name)

    view = talk(bootstrap, conversation)
    if as_json:
        print_json(_summary(view) | {"is_trial": dry_run})
    else:
        click.echo(f"{name} could be altered so" if dry_run else f"{name} is altered")


@topics.command()
@click.argument("name", shell_complete=topic_names)
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
@click.option("--internal", "may_be_internal", is_flag=True, help="Also if NAME is one of the cluster's own topics.")
@bootstrap_option
def delete(*, name: str, yes: bool, may_be_internal: bool, bootstrap: str) -> None:
    """Delete the topic NAME and all its records.

    With the cluster's own topics go the committed offsets of all groups (__consumer_offsets), or what was decided of all transactions
    (__transaction_state): those that are open then hang. They are deleted only with --internal.
    """
    if not yes and not sys.stdin.isatty():
        raise Fault(f"deleting topic {name!r} destroys its records", "say so: add --yes")
    if not yes:
        click.confirm(f"Delete topic {name!r} and all its records?", abort=True, err=True)
    talk(bootstrap, lambda client: _delete(client, name, may_be_internal=may_be_internal))
    click.echo(f"{name} is deleted")


async def _delete(client: Client, name: str, *, may_be_internal: bool) -> None:
    if not may_be_internal and any(view.is_internal for view in (await client.metadata([name])).topics):
        raise Fault(
            f"topic {name!r} is the cluster's own: without it all groups lose their offsets, or all transactions their outcome",
            "say that you mean it: add --internal",
        )
    await client.delete_topic(name)


def _summary(view: TopicView) -> dict[str, object]:
    return {"topic": view.name, "id": view.topic_id.hex(), "partitions": len(view.partitions), "replicas": _replicas(view)}


def _assignments(text: str | None) -> list[list[int]]:
    """As kafka-topics takes it: partitions with commas between them, their nodes with colons."""
    if text is None:
        return []
    rows = [[node.strip() for node in partition.split(":")] for partition in text.split(",")]
    if not all(node.isdecimal() for row in rows for node in row):
        raise click.UsageError(f"--replica-assignment {text!r}: write node numbers, as in 1:2,1:2,2:1 for three partitions on two nodes")
    return [[int(node) for node in row] for row in rows]


def _replicas(view: TopicView) -> int:
    return max((len(each.replicas) for each in view.partitions), default=0)
