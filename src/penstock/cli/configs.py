"""`penstock configs`: describe and alter the settings of a topic, of a node, or of every node, while they run."""

from collections.abc import Callable
from typing import Any

import click

from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import bootstrap_option, json_option, pairs, talk
from penstock.peers.client import Client
from penstock.peers.configs import Configured, SettingView
from penstock.wire.configs import Source

# As people say it, by Kafka's numbers.
SOURCES = {
    Source.TOPIC: "topic",
    Source.THIS_NODE: "told this node",
    Source.EVERY_NODE: "told every node",
    Source.STARTED_WITH: "started with",
    Source.DEFAULT: "default",
}


def whose(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.argument("name", required=False)(command)
    return click.argument("kind", type=click.Choice(["topic", "node", "nodes"]))(command)


@click.group()
def configs() -> None:
    """Show and change settings while nodes run.

    \b
      penstock configs describe topic orders
      penstock configs describe node 1 --all
      penstock configs alter nodes --set num.partitions=3 --set topic.retention.ms=86400000
      penstock configs alter topic orders --unset retention.ms
    """


@configs.command()
@whose
@click.option("--all", "wants_all", is_flag=True, help="Also what stands at its default.")
@bootstrap_option
@json_option
def describe(kind: str, name: str | None, wants_all: bool, bootstrap: str, as_json: bool) -> None:
    """Show the settings of `topic NAME`, of `node ID`, or what all `nodes` were told while they ran.

    \b
      penstock configs describe topic orders
      penstock configs describe node 1 --all
    """
    configured = _configured(kind, name)
    found = talk(bootstrap, lambda client: client.settings_of(configured))
    shown = sorted((view for view in found if wants_all or not view.is_default), key=lambda view: view.name)
    if as_json:
        print_json([_as_json(view) for view in shown])
    elif shown:
        rows = [[view.name, view.value, _source(view), "no" if view.is_read_only else "yes"] for view in shown]
        print_table(["name", "value", "from", "changes while running"], rows)
    else:
        click.echo(f"{configured}: everything stands at its default", err=True)


@configs.command()
@whose
@click.option("--set", "settings", metavar="NAME=VALUE", multiple=True, help="May be repeated.")
@click.option("--unset", metavar="NAME", multiple=True, help="Back to what holds without it; may be repeated.")
@click.option("--dry-run", is_flag=True, help="Only ask whether it could be done.")
@bootstrap_option
@json_option
def alter(
    *, kind: str, name: str | None, settings: tuple[str, ...], unset: tuple[str, ...], dry_run: bool, bootstrap: str, as_json: bool
) -> None:
    """Change the settings of `topic NAME`, of `node ID`, or of all `nodes`. All that is named changes, or nothing; it holds at once.

    \b
      penstock configs alter topic orders --set retention.ms=3600000 --unset flush
      penstock configs alter nodes --set auto.create.topics.enable=false
    """
    configured = _configured(kind, name)
    changes: dict[str, str | None] = {**dict(pairs(settings, "--set")), **dict.fromkeys(unset)}
    if not changes:
        raise click.UsageError("say what to alter: --set or --unset")

    async def conversation(client: Client) -> list[SettingView]:
        await client.change_settings(configured, changes, is_trial=dry_run)
        return await client.settings_of(configured)

    found = talk(bootstrap, conversation)
    if as_json:
        print_json([_as_json(view) for view in found if view.name in changes])
    else:
        click.echo(f"{configured} could be altered so" if dry_run else f"{configured} is altered")


def _configured(kind: str, name: str | None) -> Configured:
    if kind == "nodes":
        if name is not None:
            raise click.UsageError("`nodes` stands for all of them and takes no name; for one of them write `node ID`")
        return Configured.every_node()
    if name is None:
        raise click.UsageError(f"say which {kind}: `{kind} {'NAME' if kind == 'topic' else 'ID'}`")
    if kind == "topic":
        return Configured.topic(name)
    if not name.isascii() or not name.isdigit():
        raise click.UsageError(f"a node is named by its number, not {name!r}")
    return Configured.node(int(name))


def _as_json(view: SettingView) -> dict[str, object]:
    return {"name": view.name, "value": view.value, "from": _source(view), "read_only": view.is_read_only}


def _source(view: SettingView) -> str:
    return SOURCES[Source(view.source)] if view.source in SOURCES else f"source {view.source}"
