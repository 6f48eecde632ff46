"""`penstock queues`: create, list, describe, alter, pause, resume, purge, delete; with the commands for messages and dead letters."""

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any

import click

from penstock.cli.faults import Fault
from penstock.cli.queue_lines import shown_setting
from penstock.cli.queue_messages import cancel, find, peek, receive, send
from penstock.cli.queue_redrive import redrive, redrives
from penstock.cli.queue_talking import queue_names, talk_to_queue, talking, url_option
from penstock.cli.spans import span
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import json_option, pairs
from penstock.cli.times import parse_time, spoken
from penstock.client.queues import AsyncQueue, Counts, QueueView, async_list_queues

ASKED_AT_ONCE = 8


@click.group()
def queues() -> None:
    """Work queues: make and look after them, send and receive messages, send dead letters back.

    \b
      penstock queues create emails --deliveries 5 --dead-letters emails-dead --backoff 10s
      penstock queues send emails --body hello --delay 10min
      penstock queues receive emails --ack
      penstock queues describe emails
      penstock queues redrive emails-dead --reason timeout --dry-run

    A queue is a topic whose messages are lent to workers one by one. These commands speak to a node's HTTP port (--url); for one that wants
    signed requests, put the key into PENSTOCK_ACCESS_KEY and PENSTOCK_SECRET_KEY.
    """


for command in (send, receive, peek, find, cancel, redrive, redrives):
    queues.add_command(command)


def choices(command: Any) -> Any:
    """The options that say how a queue treats its messages."""
    for option in reversed([
        click.option("--lease", type=span, help="How long a message is lent for. [default: 30s]"),
        click.option("--deliveries", type=click.IntRange(0, 1000), help="Failed deliveries until a message is a dead letter; 0: never."),
        click.option("--dead-letters", metavar="QUEUE", help="Where those go; without it they are dropped."),
        click.option("--backoff", type=span, help="The wait after a first failure; it doubles with each one."),
        click.option("--backoff-max", type=span, help="The longest such wait."),
        click.option("--delay", type=span, help="Of messages that say nothing."),
        click.option("--ttl", type=span, help="After which a message that nobody took is dropped."),
        click.option("--keep/--no-keep", default=None, help="Keep what is done in the log, for rewind."),
        click.option("--limit", type=click.IntRange(0), help="Unfinished messages of one partition at most; 0: no limit."),
        click.option("--config", "configs", metavar="NAME=VALUE", multiple=True, help="Any setting of its topic; may be repeated."),
    ]):  # fmt: skip
        command = option(command)
    return command


def _chosen(given: dict[str, Any], configs: tuple[str, ...]) -> Any:
    chosen = {name: value for name, value in given.items() if value is not None}
    return chosen | ({"settings": dict(pairs(configs, "--config"))} if configs else {})


@queues.command()
@click.argument("name")
@click.option("--partitions", type=click.IntRange(1, 1_000), help="How many; more of them take more messages a second. [default: 1]")
@click.option("--replication-factor", "replicas", type=click.IntRange(1, 100), help="How many copies; the node's choice if left out.")
@click.option("--fifo", is_flag=True, default=None, help="Messages of a group in the order of sending, one at a time.")
@choices
@click.option("--if-not-exists", is_flag=True, help="Fine if it is there already with these settings.")
@url_option
@json_option
def create(*, name: str, configs: tuple[str, ...], if_not_exists: bool, url: str, as_json: bool, **given: Any) -> None:
    """Create the queue NAME.

    \b
      penstock queues create emails
      penstock queues create emails --deliveries 5 --dead-letters emails-dead --backoff 10s --lease 2min
      penstock queues create orders.fifo --fifo --partitions 4
      penstock queues create audit --keep --replication-factor 3

    The queue of dead letters is an ordinary queue: create it too.
    """

    async def conversation(queue: AsyncQueue) -> bool:
        chosen = _chosen(given, configs)
        if if_not_exists:
            return await queue.ensure(**chosen)
        await queue.create(**chosen)
        return True

    is_new = talk_to_queue(url, name, conversation)
    if as_json:
        print_json({"queue": name, "is_new": is_new})
    else:
        click.echo(f"{name} is made" if is_new else f"{name} is there")


@queues.command("list")
@url_option
@json_option
def list_queues(url: str, as_json: bool) -> None:
    """List the queues of the cluster, and what is in them."""

    async def whole() -> list[tuple[QueueView, Counts]]:
        at_once = asyncio.Semaphore(ASKED_AT_ONCE)

        async def looked_at(name: str) -> tuple[QueueView, Counts]:
            async with at_once, AsyncQueue(name, url=url, patience=0) as queue:
                return await queue.describe(), await queue.counts()

        return await asyncio.gather(*[looked_at(name) for name in await async_list_queues(url, patience=0)])

    found = talking(whole)
    if as_json:
        print_json([_summary(view, counts) for view, counts in found])
    elif found:
        head = ["queue", "partitions", "ready", "leased", "delayed", "oldest", "dead letters to"]
        print_table(head, [_row(view, counts) for view, counts in found])
    else:
        click.echo("there are no queues yet", err=True)


@queues.command()
@click.argument("name", shell_complete=queue_names)
@url_option
@json_option
def describe(name: str, url: str, as_json: bool) -> None:
    """Show what is in the queue NAME, and how it treats its messages."""

    async def conversation(queue: AsyncQueue) -> tuple[QueueView, Counts]:
        return await queue.describe(), await queue.counts()

    view, counts = talk_to_queue(url, name, conversation)
    if as_json:
        return print_json(_summary(view, counts) | {"settings": view.settings})
    words = [f"{counts.ready} ready", f"{counts.leased} leased", f"{counts.delayed} delayed", f"{counts.finished} finished"]
    words += [f"{counts.burying} on the way to the dead letters"] if counts.burying else []
    words += [f"{counts.dropped} lost unread"] if counts.dropped else []
    words += ["paused"] if counts.is_paused else []
    click.echo(f"{view.name}  {view.partitions} partition{'s' if view.partitions != 1 else ''}  {', '.join(words)}")
    if view.settings:
        print_table(["setting", "value"], [[setting, shown_setting(setting, value)] for setting, value in sorted(view.settings.items())])


@queues.command()
@click.argument("name", shell_complete=queue_names)
@choices
@url_option
def alter(*, name: str, configs: tuple[str, ...], url: str, **given: Any) -> None:
    """Change how the queue NAME treats its messages. It holds for what is decided from now on.

    \b
      penstock queues alter emails --lease 5min --deliveries 10
    """
    chosen = _chosen(given, configs)
    if not chosen:
        raise click.UsageError("say what to alter: --lease, --deliveries, --config, …")
    talk_to_queue(url, name, lambda queue: queue.configure(**chosen))
    click.echo(f"{name} is altered")


@queues.command()
@click.argument("name", shell_complete=queue_names)
@url_option
def pause(name: str, url: str) -> None:
    """Lend nothing of the queue NAME any more, until it is resumed. Sends go on, and what is lent may be settled."""
    talk_to_queue(url, name, AsyncQueue.pause)
    click.echo(f"{name} is paused")


@queues.command()
@click.argument("name", shell_complete=queue_names)
@url_option
def resume(name: str, url: str) -> None:
    """Lend messages of the queue NAME again."""
    talk_to_queue(url, name, AsyncQueue.resume)
    click.echo(f"{name} goes on")


@queues.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--to", "moment", metavar="TIME", help="ISO 8601 (UTC unless it says otherwise), or @ and milliseconds.")
@click.option("--to-id", "message_id", metavar="ID", help="A message's id: from there on, in its partition.")
@click.option("--to-offset", "offset", type=click.IntRange(0), help="An offset: from there on, in one partition.")
@click.option("--partition", type=click.IntRange(0), default=0, show_default=True, help="Which, with --to-offset.")
@url_option
def rewind(name: str, url: str, *, moment: str | None, message_id: str | None, offset: int | None, partition: int) -> None:
    """Make everything that was sent to the queue NAME since a time ready again, finished or not; or from a message on.

    \b
      penstock queues rewind audit --to 2026-01-31T12:00:00Z
      penstock queues rewind audit --to-offset 0

    Only of a queue that keeps what is done (create --keep).
    """
    if sum(each is not None for each in (moment, message_id, offset)) != 1:
        raise click.UsageError("say where to: by one of --to, --to-id and --to-offset")
    time_ms = None if moment is None else parse_time(moment)
    if moment is not None and time_ms is None:
        raise click.UsageError(f"--to {moment!r} is neither @milliseconds nor an ISO 8601 time")
    to = None if time_ms is None else time_ms / 1000
    count = talk_to_queue(url, name, lambda queue: queue.rewind(to, id=message_id, offset=offset, partition=partition))
    click.echo(f"{name} has {count} message{'s' if count != 1 else ''} from there on")


@queues.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
@url_option
def purge(name: str, yes: bool, url: str) -> None:
    """Finish everything that is in the queue NAME, whoever holds it."""
    _ask(f"purging queue {name!r} finishes all its messages unread", f"Finish all messages of queue {name!r} unread?", yes=yes)
    talk_to_queue(url, name, AsyncQueue.purge)
    click.echo(f"{name} is empty")


@queues.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
@url_option
def delete(name: str, yes: bool, url: str) -> None:
    """Delete the queue NAME, its topic, and all that is in it."""
    _ask(f"deleting queue {name!r} destroys its messages", f"Delete queue {name!r} and all its messages?", yes=yes)
    talk_to_queue(url, name, AsyncQueue.delete)
    click.echo(f"{name} is deleted")


def _ask(what: str, question: str, *, yes: bool) -> None:
    if not yes and not sys.stdin.isatty():
        raise Fault(what, "say so: add --yes")
    if not yes:
        click.confirm(question, abort=True, err=True)


def _row(view: QueueView, counts: Counts) -> list[object]:
    oldest = None if counts.oldest_at is None else spoken(max(0, round((datetime.now(UTC) - counts.oldest_at).total_seconds() * 1000)))
    name = f"{view.name} (paused)" if counts.is_paused else view.name
    return [name, view.partitions, counts.ready, counts.leased, counts.delayed, oldest, view.dead_letters or None]


def _summary(view: QueueView, counts: Counts) -> dict[str, Any]:
    return {
        "queue": view.name,
        "partitions": view.partitions,
        "ready": counts.ready,
        "leased": counts.leased,
        "delayed": counts.delayed,
        "burying": counts.burying,
        "finished": counts.finished,
        "dropped": counts.dropped,
        "oldest": None if counts.oldest_at is None else counts.oldest_at.isoformat(timespec="milliseconds"),
        "is_paused": counts.is_paused,
    }
