"""`penstock produce`: records from lines or options, each acknowledged before the command ends."""

import asyncio
import os
import sys
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

import click

from penstock.cli.faults import Fault
from penstock.cli.names import topic_names
from penstock.cli.progress import Progress
from penstock.cli.tables import print_json
from penstock.cli.talking import bootstrap_option, json_option, pairs, talk
from penstock.peers.appending import ACKS_ALL
from penstock.peers.batching import Delivered
from penstock.peers.producer import Producer, ProducerSettings
from penstock.wire.compression import Codec

CODECS = [codec.name.lower() for codec in Codec]
UNTOLD_MAX = 10_000  # Records whose fate is not yet told; the producer bounds their bytes.
READ_BYTES = 1 << 16
WORD_AFTER_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Shape:
    """How a line becomes a record."""

    key: bytes | None
    separator: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    partition: int | None
    timestamp_ms: int | None

    def split(self, line: bytes) -> tuple[bytes | None, bytes]:
        if self.separator is None:
            return self.key, line
        key, found, value = line.partition(self.separator)
        if not found:
            shown = line[:60].decode(errors="replace")
            raise Fault(f"the line {shown!r} has no {self.separator.decode()!r}", "each line must be a key, the separator and a value")
        return key, value


@click.command()
@click.argument("topic", shell_complete=topic_names)
@click.option("--value", "values", multiple=True, help="A record's value; may be repeated. Without it, each line of standard input is one.")
@click.option("--key", help="The key of every record.")
@click.option("--key-separator", metavar="TEXT", help="Split each line at the first TEXT into key and value.")
@click.option("--header", "headers", metavar="NAME=VALUE", multiple=True, help="A header of every record; may be repeated.")
@click.option("--partition", type=click.IntRange(0), help="Write there. Otherwise the key decides, or chance.")
@click.option("--timestamp", "timestamp_ms", type=int, metavar="MS", help="Milliseconds since 1970; now if left out.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True, help="What to wait for.")
@click.option("--compression", type=click.Choice(CODECS), default="none", show_default=True)
@click.option("--timeout", "timeout_s", type=click.FloatRange(1), default=30.0, show_default=True, help="Seconds to try each record.")
@bootstrap_option
@json_option
def produce(
    *,
    topic: str,
    values: tuple[str, ...],
    key: str | None,
    key_separator: str | None,
    headers: tuple[str, ...],
    partition: int | None,
    timestamp_ms: int | None,
    acks: str,
    compression: str,
    timeout_s: float,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Write records to TOPIC: one per --value, or one per line of standard input.

    \b
      penstock produce orders --value hello --key k1
      cat orders.txt | penstock produce orders --key-separator : --compression zstd
      penstock produce orders --value '' --header source=web --json

    With acks=all the producer is idempotent: a retry never stores a record twice. --json prints where each record went.
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other")
    named = tuple((name, value.encode()) for name, value in pairs(headers, "--header"))
    shape = Shape(_bytes(key), _bytes(key_separator), named, partition, timestamp_ms)
    is_all = acks == "all"
    acks_number = ACKS_ALL if is_all else int(acks)
    settings = ProducerSettings(acks=acks_number, is_idempotent=is_all, codec=Codec[compression.upper()], delivery_s=timeout_s)
    lines = _given(values) if values else _standard_input()
    counts = talk(bootstrap, lambda client: _write(Producer(client, settings), topic, lines, shape, as_json=as_json))
    if not as_json:
        click.echo(_summary(topic, counts))


async def _write(producing: Producer, topic: str, lines: AsyncIterator[bytes], shape: Shape, *, as_json: bool) -> Counter[int]:
    counts: Counter[int] = Counter()
    untold: deque[tuple[asyncio.Future[Delivered], int]] = deque()
    progress = Progress(is_shown=sys.stderr.isatty() and not sys.stdin.isatty() and not (as_json and sys.stdout.isatty()))

    async def tell_oldest() -> None:
        record, size = untold.popleft()
        delivered = await _told_while_waiting(record)
        counts[delivered.partition] += 1
        progress.add(1, size)
        if as_json:
            print_json({"partition": delivered.partition, "offset": delivered.offset})

    async with producing as producer:
        async for line in lines:
            key, value = shape.split(line)
            sent = await producer.send(
                topic, value, key=key, partition=shape.partition, headers=shape.headers, timestamp_ms=shape.timestamp_ms
            )
            untold.append((sent, len(line)))
            while untold and (untold[0][0].done() or len(untold) > UNTOLD_MAX):
                await tell_oldest()
        while untold:
            await tell_oldest()
    progress.end()
    return counts


async def _told_while_waiting(record: asyncio.Future[Delivered]) -> Delivered:
    """Nobody should wonder whether anything happens."""
    try:
        async with asyncio.timeout(WORD_AFTER_SECONDS):
            return await asyncio.shield(record)
    except TimeoutError:
        if record.done():
            return record.result()
    click.echo("the node has not taken the records yet: trying on", err=True)
    return await record


async def _given(values: Iterable[str]) -> AsyncIterator[bytes]:
    for value in values:
        yield value.encode()


async def _standard_input() -> AsyncIterator[bytes]:
    """Lines as they come: a person who types sees each one sent, a file is read in large pieces."""
    if sys.stdin.isatty():
        click.echo("one record a line, Ctrl-D ends", err=True)
    descriptor, rest = sys.stdin.fileno(), b""
    while True:
        await _until_readable(descriptor)
        piece = os.read(descriptor, READ_BYTES)
        if not piece:
            break
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
    if rest:
        yield rest


async def _until_readable(descriptor: int) -> None:
    """Not in a thread: one that waits for a person's next line would keep the command from ending at Ctrl-C."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(descriptor, readable.set)
    except PermissionError:  # A plain file, which is always readable and which the selector does not take.
        return
    try:
        await readable.wait()
    finally:
        loop.remove_reader(descriptor)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _summary(topic: str, counts: Counter[int]) -> str:
    where = ", ".join(f"{count} to partition {partition}" for partition, count in sorted(counts.items()))
    return f"{counts.total()} record{'s' if counts.total() != 1 else ''} written to {topic}" + (f": {where}" if where else "")
