"""`penstock cluster scrub`: every copy read from its disk, so that what has changed there is found, and mended from another copy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from penstock.cli.bar import Bar
from penstock.cli.cluster_disks import ask_disks
from penstock.cli.cluster_picture import Picture, take_picture
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.faults import Fault
from penstock.cli.names import topic_names
from penstock.cli.progress import size_text
from penstock.cli.scrubbing import Copy, Damaged, Findings, Unread, scrub
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import json_option, talk
from penstock.cluster.topic_names import companion_name
from penstock.peers.client import Client

NOT_WELL = 4
NO_RACK = "any"  # Of a node without one.


@click.command("scrub")
@click.option("--topic", shell_complete=topic_names, help="Only this topic, with its ledger if it is a queue.")
@click.option("--node", type=int, metavar="N", help="Only the copies on this node.")
@click.option("--throttle", type=click.IntRange(1), metavar="BYTES", help="Bytes a second to read from each node.")
@click.option("--patience", "patience_s", type=click.FloatRange(1), default=120.0, show_default=True, help="Seconds for mending one place.")
@cluster_options
@json_option
def scrub_copies(
    *, topic: str | None, node: int | None, throttle: int | None, patience_s: float, directory: Path | None, bootstrap: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Read every copy of every partition, and have what is damaged mended from an in-sync replica.

    \b
      penstock cluster scrub
      penstock cluster scrub --topic orders --throttle 50000000
      penstock cluster scrub --node 2 --json

    A node that finds damaged bytes mends them by itself; the command waits for that and reads on.
    Exit codes: 0 every copy was read and is whole now, 4 something could not be mended or read, 1 the cluster could not be asked.
    """

    async def conversation(client: Client) -> Findings:
        picture = await take_picture(client)
        copies, left_out = chosen_copies(picture, topic, node)
        wanted = {each: [copy.where for copy in copies if copy.node == each] for each in dict.fromkeys(copy.node for copy in copies)}
        disks = await ask_disks(client, wanted)
        whole = sum(disks.told[copy.node].sizes.get(copy.where, 0) for copy in copies if copy.node in disks.told)
        bar = Bar("reading")

        def show(findings: Findings) -> None:
            bar.show(min(findings.bytes / whole if whole else 0.0, 0.99), _note(findings, len(copies), whole))

        findings = await scrub(client, copies, rate=throttle, patience_s=patience_s, show=show)
        bar.show(1.0, _note(findings, len(copies), whole))
        bar.end()
        findings.unread += left_out
        return findings

    findings = talk(bootstrap_of(directory, bootstrap), conversation)
    if as_json:
        print_json(as_plain(findings))
    else:
        _print(findings)
    return NOT_WELL if findings.damaged or findings.unread else 0


def chosen_copies(picture: Picture, topic: str | None, node: int | None) -> tuple[list[Copy], list[Unread]]:
    """Those to be read, and those that cannot be: on a node that is away, or not in sync."""
    racks = {each.node_id: each.rack or NO_RACK for each in picture.cluster.nodes}
    if node is not None and node not in racks:
        raise Fault(f"there is no node {node}", f"the nodes are {', '.join(map(str, racks))}")
    copies, left_out = [], []
    for copy, is_in_sync in _copies(picture, topic, racks):
        if node not in (None, copy.node):
            continue
        if copy.node not in picture.live():
            left_out.append(Unread(copy, 0, "its node is away"))
        elif not is_in_sync:
            left_out.append(Unread(copy, 0, "it is not in sync"))
        else:
            copies.append(copy)
    return copies, left_out


def _copies(picture: Picture, name: str | None, racks: dict[int, str]) -> Iterator[tuple[Copy, bool]]:
    names = None
    if name is not None:
        found = next((topic for topic in picture.topics if topic.name == name), None)
        if found is None:
            raise Fault(f"there is no topic {name!r}", "penstock topics list tells which there are")
        names = (name, companion_name(found.topic_id))
    ids = {topic.name: topic.topic_id for topic in picture.topics}
    for where, state in picture.partitions():
        if names is None or where.topic in names:
            for node in state.replicas:
                yield Copy(where, ids[where.topic], node, racks.get(node, NO_RACK)), node in state.in_sync


def as_plain(findings: Findings) -> dict[str, Any]:
    def place(copy: Copy, offset: int) -> dict[str, Any]:
        return {"topic": copy.where.topic, "partition": copy.where.partition, "node": copy.node, "offset": offset}

    return {
        "is_well": not findings.damaged and not findings.unread,
        "copies": findings.copies,
        "bytes": findings.bytes,
        "mended": [place(each.copy, each.offset) for each in findings.mended],
        "damaged": [
            place(each.copy, each.offset) | {"next_offset": each.next_offset, "reason": each.reason} for each in findings.damaged
        ],
        "unread": [place(each.copy, each.offset) | {"reason": each.reason} for each in findings.unread],
    }  # fmt: skip


def _note(findings: Findings, copies: int, whole: int) -> str:
    parts = [f"{findings.copies} of {copies} copies", f"{size_text(findings.bytes)} of {size_text(whole)}"]
    counts = {"mended": len(findings.mended), "damaged": len(findings.damaged), "not read": len(findings.unread)}
    return ", ".join([*parts, *[f"{count} {what}" for what, count in counts.items() if count]])


def _print(findings: Findings) -> None:
    rows: list[tuple[Copy, str, str, str | None]] = [(each.copy, str(each.offset), "mended", None) for each in findings.mended]
    rows += [(each.copy, _offsets(each), "DAMAGED", each.reason) for each in findings.damaged]
    rows += [(each.copy, str(each.offset), "NOT READ", each.reason) for each in findings.unread]
    if rows:
        table = [[copy.where.topic, copy.where.partition, copy.node, offsets, what, why] for copy, offsets, what, why in rows]
        print_table(["topic", "partition", "node", "offset", "result", "why"], table)
    if findings.gone:
        click.echo(f"{len(findings.gone)} copies were deleted or moved away meanwhile")
    click.echo(f"{findings.copies} copies were read, {size_text(findings.bytes)}; {len(findings.mended)} damaged places were mended")
    if findings.damaged:
        click.echo("where no other replica is in sync nothing can mend a place: bring one back, or copy what can be read to another topic")
    if not findings.damaged and not findings.unread:
        click.echo("every copy that was read is whole")


def _offsets(damaged: Damaged) -> str:
    if damaged.next_offset is None:
        return f"{damaged.offset}-"
    last = damaged.next_offset - 1
    return str(last) if last == damaged.offset else f"{damaged.offset}-{last}"
