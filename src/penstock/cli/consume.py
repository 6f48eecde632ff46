"""`penstock consume`: records of a topic's partitions, from a place to the end or for ever.

Reads by partition, without a consumer group. Values are written as the bytes they are.
"""

import re
import sys
from collections.abc import Callable
from datetime import UTC, datetime

import click

from penstock.cli.faults import Fault
from penstock.cli.names import topic_names
from penstock.cli.progress import Progress
from penstock.cli.tables import print_json, record_as_json
from penstock.cli.talking import bootstrap_option, talk
from penstock.cli.times import parse_time
from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure, UnreadablePlace
from penstock.peers.fetching import FetchLimits
from penstock.peers.positions import FROM_EARLIEST, FROM_LATEST, ReadRecord, Start, at_offset, at_timestamp
from penstock.peers.reader import Reader, ReaderSettings
from penstock.vocabulary import TopicPartition

CORRUPT_SECONDS = 10.0  # Another node leads by then, if one can.
SAID_AFTER_SECONDS = 3.0

Show = Callable[[ReadRecord], None]

PLACES: dict[str, Callable[[ReadRecord], bytes]] = {
    "topic": lambda record: record.topic.encode(),
    "partition": lambda record: b"%d" % record.partition,
    "offset": lambda record: b"%d" % record.offset,
    "timestamp": lambda record: b"%d" % record.timestamp_ms,
    "time": lambda record: datetime.fromtimestamp(record.timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").encode(),
    "key": lambda record: record.key if record.key is not None else b"null",
    "value": lambda record: record.value if record.value is not None else b"null",
    "headers": lambda record: b",".join(name.encode() + b"=" + (value or b"") for name, value in record.headers),
}


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--from", "start", default="earliest", show_default=True, metavar="PLACE", help="earliest, latest, an offset, or a time.")
@click.option("--partition", "partitions", type=click.IntRange(0), multiple=True, help="Only this one; may be repeated.")
@click.option("--max", "records_max", type=click.IntRange(1), help="Stop after so many records.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more instead of stopping at the end.")
@click.option("--committed", "is_committed_only", is_flag=True, help="Nothing of transactions that are open or were aborted.")
@click.option("--format", "pattern", metavar="TEXT", help="How to print a record, for example '{partition} {offset} {key} {value}'.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a record.")
@bootstrap_option
def consume(
    *,
    topic: str,
    start: str,
    partitions: tuple[int, ...],
    records_max: int | None,
    follow: bool,
    is_committed_only: bool,
    pattern: str | None,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Read records of TOPIC and print their values.

    \b
      penstock consume orders
      penstock consume orders --from latest --follow --format '{time} {key}: {value}'
      penstock consume orders --from 2026-01-31T12:00:00Z --max 10 --json
      penstock consume orders --from 42 --partition 0

    A time is ISO 8601 (UTC unless it says otherwise) or @ and milliseconds since 1970. The names that --format knows:
    topic, partition, offset, timestamp, time, key, value, headers; \\n and \\t are a new line and a tab. Without --follow it
    stops at what was the end when it began.
    """
    if as_json and pattern is not None:
        raise click.UsageError("--json and --format exclude each other")
    show = _show_json if as_json else _show_by(pattern if pattern is not None else "{value}")
    place = _start(start)

    async def conversation(client: Client) -> None:
        starts = await _starts(client, topic, partitions, place)
        settings = reader_settings(is_following=follow, is_committed_only=is_committed_only)
        async with Reader(client, starts, settings) as reader:
            await _print(reader, records_max, show)

    talk(bootstrap, conversation)


def reader_settings(*, is_following: bool, is_committed_only: bool) -> ReaderSettings:
    return ReaderSettings(
        is_following=is_following,
        fetch=FetchLimits(is_committed_only=is_committed_only),
        corrupt_patience_s=CORRUPT_SECONDS,
        on_trouble=Troubles().note,
    )


class Troubles:
    """Says once on standard error why nothing comes: at once where bytes are damaged for good, otherwise when it lasts."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def note(self, failure: PeerFailure, failing_s: float) -> None:
        is_damage = isinstance(failure, UnreadablePlace) and failure.code == ErrorCode.CORRUPT_MESSAGE
        if (is_damage or failing_s >= SAID_AFTER_SECONDS) and failure.problem not in self._said:
            self._said.add(failure.problem)
            click.echo(f"penstock: still trying: {failure.problem}", err=True)


async def _starts(client: Client, topic: str, partitions: tuple[int, ...], start: Start) -> dict[TopicPartition, Start]:
    count = len((await client.describe(topic)).partitions)
    for wanted in partitions:
        if wanted >= count:
            raise Fault(f"topic {topic!r} has no partition {wanted}", f"its partitions are 0 to {count - 1}")
    return {TopicPartition(topic, partition): start for partition in partitions or range(count)}


async def _print(reader: Reader, records_max: int | None, show: Show) -> None:
    left = records_max if records_max is not None else sys.maxsize
    progress = Progress(is_shown=sys.stderr.isatty() and not sys.stdout.isatty())
    try:
        while left and (records := await reader.read()):
            for record in records[:left]:
                show(record)
            progress.add(min(left, len(records)), sum(len(record.key or b"") + len(record.value or b"") for record in records[:left]))
            left -= min(left, len(records))
            sys.stdout.buffer.flush()  # Whoever follows wants to see it now.
    finally:
        progress.end()


def _start(text: str) -> Start:
    if text in ("earliest", "latest"):
        return FROM_EARLIEST if text == "earliest" else FROM_LATEST
    if text.isascii() and text.isdigit():
        return at_offset(int(text))
    time_ms = parse_time(text)
    if time_ms is None:
        raise click.UsageError(f"--from {text!r} is neither earliest, latest, an offset, @milliseconds nor an ISO 8601 time")
    return at_timestamp(time_ms)


def _show_json(record: ReadRecord) -> None:
    print_json({"topic": record.topic, "partition": record.partition} | record_as_json(record))


def _show_by(pattern: str) -> Show:
    pieces = re.split(r"\{(\w+)\}", pattern.replace("\\n", "\n").replace("\\t", "\t"))
    unknown = [name for name in pieces[1::2] if name not in PLACES]
    if unknown:
        raise click.UsageError(f"--format knows no {{{unknown[0]}}}, only {', '.join(PLACES)}")
    texts, names = [text.encode() for text in pieces[::2]], pieces[1::2]

    def show(record: ReadRecord) -> None:
        line = texts[0] + b"".join(PLACES[name](record) + text for name, text in zip(names, texts[1:], strict=True))
        sys.stdout.buffer.write(line + b"\n")

    return show
