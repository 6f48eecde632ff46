"""Output for people and for programs: a plain table, or JSON. Numbers stand to the right."""

import json
from collections.abc import Sequence

import click

from penstock.peers.positions import ReadRecord
from penstock.wire.batches import Record


def print_table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(len(row[place]) for row in [list(head), *texts]) for place in range(len(head))]
    is_number = [_is_number_column([row[place] for row in rows]) for place in range(len(head))]
    for row in [[name.upper() for name in head], *texts]:
        cells = [cell.rjust(width) if right else cell.ljust(width) for cell, width, right in zip(row, widths, is_number, strict=True)]
        click.echo("  ".join(cells).rstrip())


def print_json(value: object) -> None:
    click.echo(json.dumps(value, ensure_ascii=False))


def record_as_json(record: Record | ReadRecord) -> dict[str, object]:
    """Bytes that are not UTF-8 are written as {"hex": "…"}, so that nothing is lost."""
    return {
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": bytes_as_json(record.key),
        "value": bytes_as_json(record.value),
        "headers": [[name, bytes_as_json(value)] for name, value in record.headers],
    }


def bytes_as_json(content: bytes | None) -> object:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"hex": content.hex()}


def _is_number_column(cells: Sequence[object]) -> bool:
    return any(isinstance(cell, int) for cell in cells) and all(cell is None or isinstance(cell, int) for cell in cells)


def _text(cell: object) -> str:
    if isinstance(cell, list | tuple):
        return ",".join(str(each) for each in cell) or "-"
    return "-" if cell is None else str(cell)
