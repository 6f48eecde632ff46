"""What each player made of each feature: the table on the screen and the page in the docs are printed from the same rows."""

import platform
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import Enum

# In the order in which the tables show them. Programs print these names.
FEATURES = {
    "no codec": "produce and consume, not compressed",
    "gzip": "produce and consume with gzip; the stored batches are compressed so",
    "snappy": "the same with snappy",
    "lz4": "the same with lz4",
    "zstd": "the same with zstd",
    "keys, headers, times": "key, null value and headers come back as they were sent; the timestamp too, where the tool can choose one",
    "idempotent producer": "many batches with a producer id: each once, in order",
    "group of two": "two members share four partitions, read, commit; one leaves, the other takes over",
    "static member": "a static member stops, comes back and has its partitions again (franz-go, sarama: in the same generation)",
    "resume from commit": "the next member begins where the last one committed",
    "new group protocol": "the same as a group of two, with partitions that the node assigns (KIP-848)",
    "transactions": "what is committed is read, what is aborted only by those who read everything",
    "fenced producer": "a second producer with the same transactional id shuts the first one out, and what that had open is aborted",
    "exactly once": "records are moved from topic to topic with their offsets, some tries aborted, by two movers in turn: each once",
    "list and describe transactions": "an open transaction is listed and described, and seen in its partition",
    "create and describe topic": "a topic is made, listed and described",
    "change settings": "a topic's setting is changed and read back",
    "add partitions": "a topic gets more partitions",
    "delete records": "the log's start is moved",
    "offsets by time": "offsets are found by timestamp, earliest and latest",
    "list and describe groups": "a group with a member is listed and described",
    "reset group offsets": "committed offsets of an empty group are read and set back",
    "delete group": "an empty group is deleted",
    "log directories": "sizes on the disk are told",
    "delete topic": "a topic is deleted",
    "a proper no": "what cannot be done is refused with the right code",
    "load tools": "the tool's own load generators run through",
    "node stays clean": "the node logs no error and stops as asked afterwards",
}
# The feature, and how batches are stored then.
CODECS = {"no codec": "none", "gzip": "gzip", "snappy": "snappy", "lz4": "lz4", "zstd": "zstd"}


class Outcome(Enum):
    OK = "ok"
    FAILED = "failed"
    NOT_TO_BE_HAD = "not to be had"


@dataclass(frozen=True, slots=True)
class Row:
    tool: str
    version: str
    feature: str
    outcome: Outcome
    why: str = ""


def as_table(rows: list[Row]) -> str:
    widths = [max(len(cell) for cell in column) for column in zip(*(_cells(row)[:3] for row in rows), strict=True)]
    return "\n".join("  ".join([*map(str.ljust, _cells(row)[:3], widths), *_cells(row)[3:]]).rstrip() for row in rows)


def count_line(rows: list[Row]) -> str:
    """Closes the run in the manner of test runners."""
    counts = {outcome: sum(row.outcome is outcome for row in rows) for outcome in Outcome}
    return f"{counts[Outcome.OK]} passed, {counts[Outcome.FAILED]} failed, {counts[Outcome.NOT_TO_BE_HAD]} skipped"


def as_page(rows: list[Row], commit: str) -> str:
    """The reference page of one run."""
    tools = list(dict.fromkeys((row.tool, row.version) for row in rows if row.outcome is not Outcome.NOT_TO_BE_HAD))
    outcomes = {(row.tool, row.feature): row for row in rows}
    lines = [*_opening(commit), "", _markdown(["feature", *(tool for tool, _ in tools)]), _markdown(["---"] * (len(tools) + 1))]
    for feature in FEATURES:
        cells = [outcomes.get((tool, feature)) for tool, _ in tools]
        if any(cells):
            lines.append(_markdown([feature, *("–" if cell is None else cell.outcome.value for cell in cells)]))
    lines += ["", "– means that the tool has no such feature, or that it is not played.", "", "| tool | version |", "|---|---|"]
    lines += [_markdown([tool, version]) for tool, version in tools]
    lines += ["", "What the features mean:", ""]
    lines += [f"- *{feature}*: {meaning}." for feature, meaning in FEATURES.items()]
    lines += _troubles(rows)
    return "\n".join(lines) + "\n"


def _opening(commit: str) -> list[str]:
    return [
        "# Clients and tools that were run against a node",
        "",
        *textwrap.wrap(
            f"Written by `make conformance RECORD=1` on {date.today().isoformat()} at commit {commit}, Python {platform.python_version()}, "
            "one node with the settings it ships with. Each tool came from a public package registry. confluent-kafka, aiokafka, the "
            "newest kafka-python and Java's client library are not listed here: the test suite plays them on every change "
            "(`tests/compatibility/`, `tests/system/`).",
            width=140,
            break_on_hyphens=False,
        ),
    ]


def _troubles(rows: Iterable[Row]) -> list[str]:
    lines = [f"- {row.tool}, {row.feature}: {row.outcome.value}: {row.why}" for row in rows if row.outcome is not Outcome.OK]
    return ["", "What failed or could not be had:", "", *lines] if lines else []


def _cells(row: Row) -> list[str]:
    return [row.tool, row.version, row.feature, row.outcome.value + (f": {row.why}" if row.why else "")]


def _markdown(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"
