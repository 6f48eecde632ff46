"""`penstock queues send|receive|peek|find|cancel`: messages by hand.

What `receive` takes it gives back when it has printed it, unless it is told to finish it: looking must not lose a message.
"""

import sys
from collections.abc import Iterator
from typing import Any

import click

from penstock.cli.faults import Fault
from penstock.cli.queue_lines import found_as_json, print_found, print_history, received_as_json
from penstock.cli.queue_talking import queue_names, talk_to_queue, url_option
from penstock.cli.spans import span
from penstock.cli.tables import print_json
from penstock.cli.talking import json_option, pairs
from penstock.cli.times import parse_time
from penstock.client.queues import AsyncQueue, AsyncQueueMessage, Draft, Found

STATES = ["ready", "leased", "delayed", "blocked", "burying", "finished"]
SENT_AT_ONCE = 1_000


@click.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--body", "bodies", multiple=True, help="A message; may be repeated. Without it, each line of standard input is one.")
@click.option("--key", help="The key of every message: those of one key share a partition.")
@click.option("--priority", type=click.IntRange(0, 9), help="More is more urgent. [default: 4]")
@click.option("--delay", type=span, help="Deliver it so long from now.")
@click.option("--at", "moment", metavar="TIME", help="Deliver it then: ISO 8601, or @ and milliseconds.")
@click.option("--ttl", type=span, help="Drop it when nobody took it by then.")
@click.option("--group", default="", help="FIFO queues: whose order counts.")
@click.option("--dedup", default="", help="A second message with this id, within the queue's window, is not stored.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every message; may be repeated.")
@url_option
@json_option
def send(
    *, name: str, bodies: tuple[str, ...], moment: str | None, headers: tuple[str, ...], url: str, as_json: bool, **given: Any
) -> None:
    """Send messages to the queue NAME, and print their ids.

    \b
      penstock queues send emails --body hello
      penstock queues send reminders --body 'call back' --delay 2h
      penstock queues send emails --body urgent --priority 9 --ttl 1d
      cat jobs.txt | penstock queues send jobs
    """
    if moment is not None and given["delay"] is not None:
        raise click.UsageError("--delay and --at exclude each other: say one of them")
    if moment is not None and parse_time(moment) is None:
        raise click.UsageError(f"--at {moment!r} is neither @milliseconds nor an ISO 8601 time")
    at = None if moment is None else (parse_time(moment) or 0) / 1000
    drafts = [Draft(body, at=at, headers=dict(pairs(headers, "--header")), **given) for body in bodies or _lines()]

    async def conversation(queue: AsyncQueue) -> None:
        for start in range(0, len(drafts), SENT_AT_ONCE):
            for id in await queue.send_many(drafts[start : start + SENT_AT_ONCE]):
                print_json({"id": id}) if as_json else click.echo(id)

    talk_to_queue(url, name, conversation)


@click.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--max", "count", type=click.IntRange(1, 1_000), default=1, show_default=True, help="So many at most.")
@click.option("--wait", type=span, default="0", show_default=True, help="Wait for the first one so long.")
@click.option("--lease", type=span, help="How long they are yours; the queue's own if left out.")
@click.option("--ack", is_flag=True, help="Finish them once they are printed.")
@click.option("--hold", is_flag=True, help="Leave them leased: nobody else gets them until the lease ends.")
@url_option
@json_option
def receive(*, name: str, count: int, wait: float, lease: float | None, ack: bool, hold: bool, url: str, as_json: bool) -> None:
    """Take messages of the queue NAME and print their bodies.

    \b
      penstock queues receive emails
      penstock queues receive emails --max 100 --ack --json
      penstock queues receive emails --wait 20s --hold --lease 10min

    They are given back at once, as if nobody had taken them, unless --ack or --hold is said. To look without taking: peek.
    """
    if ack and hold:
        raise click.UsageError("--ack finishes the messages and --hold keeps them: say one of them")

    async def conversation(queue: AsyncQueue) -> None:
        messages = await queue.receive(count, lease=lease, wait=wait)
        for message in messages:
            _print(message, as_json=as_json)
        sys.stdout.flush()  # Before they are finished: what cannot be printed is not done.
        if ack:
            await queue.ack_many(messages)
        elif not hold:
            for message in messages:
                await message.release()
        if not messages:
            click.echo(f"nothing is ready in {name}", err=True)

    talk_to_queue(url, name, conversation)


@click.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--max", "count", type=click.IntRange(1, 1_000), default=10, show_default=True, help="So many at most.")
@click.option(
    "--state", "states", type=click.Choice(STATES), multiple=True, help="Only those; may be repeated. All unfinished if left out."
)
@click.option("--after", default="", metavar="ID", help="Go on behind this one.")
@url_option
@json_option
def peek(*, name: str, count: int, states: tuple[str, ...], after: str, url: str, as_json: bool) -> None:
    """Look at messages of the queue NAME without taking them, in the order they were sent.

    \b
      penstock queues peek emails
      penstock queues peek emails --state leased --state delayed
      penstock queues peek emails-dead --max 100 --json
    """
    found = talk_to_queue(url, name, lambda queue: queue.peek(count, states=states, after=after))
    if as_json:
        for each in found:
            print_json(found_as_json(each))
    elif found:
        print_found(found)
    else:
        click.echo(f"there are no such messages in {name}", err=True)


@click.command()
@click.argument("name", shell_complete=queue_names)
@click.argument("id")
@url_option
@json_option
def find(name: str, id: str, url: str, as_json: bool) -> None:
    """Show what became of the message ID of the queue NAME: its state, who has it, and each attempt that failed."""
    found: Found | None = talk_to_queue(url, name, lambda queue: queue.find(id))
    if found is None:
        raise Fault(f"queue {name!r} has no message {id}", "check the id and the queue: a dead letter is in the queue of dead letters")
    if as_json:
        print_json(found_as_json(found))
    else:
        print_history(found)


@click.command()
@click.argument("name", shell_complete=queue_names)
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
@url_option
def cancel(name: str, ids: tuple[str, ...], url: str) -> None:
    """Take messages back that nobody holds, as if they had never been sent."""

    async def conversation(queue: AsyncQueue) -> list[bool]:
        return [await queue.cancel(id) for id in ids]

    done = talk_to_queue(url, name, conversation)
    for id, is_cancelled in zip(ids, done, strict=True):
        click.echo(f"{id} is cancelled" if is_cancelled else f"{id} is finished already, or somebody works on it")
    if not all(done):
        raise Fault(f"{done.count(False)} of {len(done)} messages could not be cancelled", f"look: penstock queues find {name} ID")


def _print(message: AsyncQueueMessage, *, as_json: bool) -> None:
    if as_json:
        return print_json(received_as_json(message))
    sys.stdout.buffer.write(message.body + b"\n")


def _lines() -> Iterator[str]:
    if sys.stdin.isatty():
        click.echo("one message a line, Ctrl-D ends", err=True)
    return (line.rstrip("\n") for line in sys.stdin)
