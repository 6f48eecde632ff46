"""`penstock log`: look at log files without a node.

Reads only, and takes no lock: on a running node's files the last batch may be half written, which is then told as a torn tail.
"""

from pathlib import Path

import click

from penstock.cli.faults import DID_NOT_WORK, Fault
from penstock.cli.segments import BatchRow, Damage, read_segment, segments_of
from penstock.cli.tables import print_json


@click.group()
def log() -> None:
    """Look at log files on the disk.

    \b
      penstock log dump ./data
      penstock log dump ./data/topics/5f0c.../0 --records
      penstock log dump 00000000000000000000.log --json
    """


@log.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--records", "with_records", is_flag=True, help="Also each record: offset, time, key, value, headers.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def dump(path: Path, with_records: bool, as_json: bool) -> int:
    """Print the batches under PATH: a segment file, a partition's directory, or a whole data directory.

    Every checksum is verified. Damage is told where it stands, and the exit code is then 1.
    """
    segments = segments_of(path)
    if not segments:
        raise Fault(f"there are no segment files under {path}", "name a .log file, a partition's directory or a node's data directory")
    damaged = 0
    for segment in segments:
        if not as_json:
            click.echo(f"{segment} ({segment.stat().st_size} bytes)")
        for row in read_segment(segment, with_records=with_records):
            damaged += isinstance(row, Damage)
            print_json(row.as_json(segment)) if as_json else _print_row(row)
    if damaged:
        click.echo(f"penstock: {damaged} place{'s are' if damaged > 1 else ' is'} damaged", err=True)
    return DID_NOT_WORK if damaged else 0


def _print_row(row: BatchRow | Damage) -> None:
    if isinstance(row, Damage):
        click.echo(f"  DAMAGE at {row.position}: {row.what} ({row.size} bytes)")
        return
    header = row.header
    marks = [row.codec, *(["append time"] if header.uses_log_append_time else []), *(["transactional"] if header.is_transactional else [])]
    marks += [row.shown_marker or "control"] if header.is_control else []
    producer = f" producer {header.producer_id}/{header.producer_epoch} from {header.base_sequence}" if header.producer_id >= 0 else ""
    span = f"{header.base_offset}..{header.last_offset}"
    click.echo(
        f"  at {row.position}: offsets {span}, {header.record_count} records, {header.size} bytes, epoch {header.leader_epoch}, "
        f"{', '.join(marks)}{producer}"
    )
    for record in row.records:
        headers = "".join(f" {name}={_shown(value)}" for name, value in record.headers)
        click.echo(f"    {record.offset} {record.timestamp_ms} {_shown(record.key)} {_shown(record.value)}{headers}")


def _shown(content: bytes | None) -> str:
    return "null" if content is None else repr(content)[1:]
