"""`penstock queues redrive`: dead letters back to where they came from, the right ones, and not faster than workers can take them.

`penstock queues redrives` tells of those that run and ran, and ends one whose beginner is gone.
"""

import sys
from dataclasses import asdict
from typing import IO

import click

from penstock.cli.bar import Bar
from penstock.cli.queue_talking import queue_names, talk_to_queue, url_option
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import json_option
from penstock.cli.times import parse_time
from penstock.client.queues import AsyncQueue
from penstock.client.queues.actions import IDS_MAX
from penstock.client.queues.redriving import Progress


@click.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--to", default="", metavar="QUEUE", help="All to this queue, instead of each to where it came from.")
@click.option("--reason", default="", metavar="TEXT", help="Only those whose last failure has TEXT in it.")
@click.option("--source", default="", metavar="QUEUE", help="Only those that came from QUEUE.")
@click.option("--failed-after", metavar="TIME", help="Only those that failed at that time or later: ISO 8601, or @ and milliseconds.")
@click.option("--failed-before", metavar="TIME", help="Only those that failed before.")
@click.option("--id", "ids", multiple=True, metavar="ID", help="Only this message; may be repeated.")
@click.option(
    "--ids-from", "file", type=click.File("r"), metavar="FILE", help="Only those whose ids stand in FILE, one a line; - is standard input."
)
@click.option("--limit", type=click.IntRange(1), help="So many at most.")
@click.option("--rate", type=click.IntRange(1), help="So many a second at most.")
@click.option("--dry-run", is_flag=True, help="Count them, and move nothing.")
@url_option
@json_option
def redrive(
    *,
    name: str,
    to: str,
    reason: str,
    source: str,
    failed_after: str | None,
    failed_before: str | None,
    ids: tuple[str, ...],
    file: IO[str] | None,
    limit: int | None,
    rate: int | None,
    dry_run: bool,
    url: str,
    as_json: bool,
) -> None:
    """Send dead letters of the queue NAME back.

    \b
      penstock queues redrive emails-dead --dry-run
      penstock queues redrive emails-dead --reason timeout --failed-after 2026-01-31T12:00:00Z --rate 50
      penstock queues redrive emails-dead --ids-from redrive.txt
      penstock queues redrive emails-dead --id 0192... --to emails-again

    Each goes to the queue it came from, with a fresh count of attempts and its history in a header. What does not fit every filter stays.
    In FILE a line is an id, or begins with one and a comma or blank; lines with # are skipped. Interrupted, it stops; what was moved stays.
    """
    wanted = [*ids, *(_ids(file) if file is not None else ())]
    if file is not None and not wanted:
        raise click.UsageError("--ids-from: there is no id in it")
    if len(set(wanted)) > IDS_MAX:
        raise click.UsageError(f"--ids-from: {IDS_MAX} ids can be redriven at a time, not {len(set(wanted))}; split the file")
    bar = Bar("counting" if dry_run else "moving")

    async def conversation(queue: AsyncQueue) -> Progress:
        begun = await queue.redrive(
            to=to, reason=reason, source=source, failed_after=_time(failed_after, "--failed-after"),
            failed_before=_time(failed_before, "--failed-before"), ids=wanted, limit=limit or 0, rate=rate or 0, dry_run=dry_run,
        )  # fmt: skip
        try:
            return await begun.wait(lambda progress: None if as_json else _show(bar, progress))
        finally:
            if begun.progress.is_running:
                await begun.cancel()

    _tell(talk_to_queue(url, name, conversation), name, dry_run=dry_run, as_json=as_json)


@click.command()
@click.argument("name", shell_complete=queue_names)
@click.option("--cancel", is_flag=True, help="End the one that runs. What was moved stays moved.")
@url_option
@json_option
def redrives(name: str, cancel: bool, url: str, as_json: bool) -> None:
    """Show redrives of the queue NAME: the one that runs, and the last few.

    A redrive goes on in the cluster when the command that began it is gone.
    """

    async def conversation(queue: AsyncQueue) -> list[Progress]:
        for begun in await queue.redrives() if cancel else ():
            if begun.progress.status == "running":
                await begun.cancel()
        return [begun.progress for begun in await queue.redrives()]

    found = talk_to_queue(url, name, conversation)
    if as_json:
        return print_json({"queue": name, "redrives": [asdict(progress) for progress in found]})
    cells = [[each.status, each.moved, each.to_move, ", ".join(sorted(each.by_target)), each.failure] for each in found]
    print_table(["status", "moved", "to move", "to", "failure"], cells) if cells else click.echo(f"{name} was never redriven")


def _tell(progress: Progress, name: str, *, dry_run: bool, as_json: bool) -> None:
    if as_json:
        words = {"queue": name, "status": progress.status, "moved": progress.moved, "to_move": progress.to_move}
        return print_json(words | {"by_target": progress.by_target, "dry_run": dry_run})
    count = progress.to_move if dry_run else progress.moved
    click.echo(f"{count} dead letter{'s' if count != 1 else ''} {'would be moved' if dry_run else 'moved'}")
    for target, moved in sorted(progress.by_target.items()):
        click.echo(f"  {moved} to {target}")


def _show(bar: Bar, progress: Progress) -> None:
    if not sys.stderr.isatty() and (not progress.is_running or not progress.moved):
        return  # Nothing is to be told yet, or what comes on standard output says it all.
    bar.show(progress.moved / progress.to_move if progress.to_move else 1.0, f"{progress.moved} of {progress.to_move}")
    if not progress.is_running:
        bar.end()


def _ids(file: IO[str]) -> list[str]:
    words = (line.replace(",", " ").split() for line in file)
    return [first[0].strip('"') for first in words if first and not first[0].startswith("#")]


def _time(text: str | None, option: str) -> float | None:
    if text is None:
        return None
    time_ms = parse_time(text)
    if time_ms is None:
        raise click.UsageError(f"{option} {text!r} is neither @milliseconds nor an ISO 8601 time")
    return time_ms / 1000
