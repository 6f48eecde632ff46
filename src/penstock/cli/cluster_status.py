"""`penstock cluster status`: nodes, controller, quorum, and what is wrong, for people and for scripts."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from penstock.cli.cluster_checks import Checks, DamagedCopy, check
from penstock.cli.cluster_picture import Ill, Picture, take_picture
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.progress import size_text
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import json_option, talk
from penstock.peers.client import Client
from penstock.peers.topics import NO_LEADER

NOT_WELL = 4
ILL_SHOWN_MAX = 20
LOOK_SECONDS = 0.3


@click.command()
@click.option("--wait", "wait_s", type=click.FloatRange(0), default=0.0, metavar="SECONDS", help="Look again until all is well, so long.")
@cluster_options
@json_option
def status(wait_s: float, directory: Path | None, bootstrap: str | None, as_json: bool) -> int:
    """Show the nodes, the controller, the quorum and what is wrong.

    \b
      penstock cluster status --data-dir ./cluster
      penstock cluster status --bootstrap host:9092 --json
      penstock cluster status --data-dir ./cluster --wait 30

    Exit codes: 0 all is well, 4 something is not (a node is away or its disk is full, a partition lacks replicas or a leader, a copy is
    damaged, the quorum lacks voters), 1 the cluster could not be asked.
    """

    async def conversation(client: Client) -> Checks:
        deadline = time.monotonic() + wait_s
        while True:
            picture = await take_picture(client)
            is_last = time.monotonic() >= deadline
            if is_last or not picture.troubles():
                checks = await check(client, picture)
                if is_last or not checks.troubles():
                    return checks
            await asyncio.sleep(LOOK_SECONDS)

    checks = talk(bootstrap_of(directory, bootstrap), conversation)
    if as_json:
        print_json(as_plain(checks))
    else:
        _print(checks)
    return NOT_WELL if _troubles(checks) else 0


def _troubles(checks: Checks) -> list[str]:
    return [*checks.picture.troubles(), *checks.troubles()]


def _notes(checks: Checks) -> list[str]:
    return [*checks.picture.notes(), *checks.notes()]


def as_plain(checks: Checks) -> dict[str, Any]:
    picture = checks.picture
    quorum = picture.quorum
    return {
        "cluster_id": picture.cluster.cluster_id,
        "is_well": not _troubles(checks),
        "troubles": _troubles(checks),
        "notes": _notes(checks),
        "controller": _leader(picture),
        "nodes": [row | _disk_row(checks, row["node"]) for row in _node_rows(picture)],
        "quorum": None if quorum is None else {
            "epoch": quorum.epoch, "committed_end": quorum.committed_end, "majority": quorum.majority,
            "voters": [each.node_id for each in quorum.voters], "voters_answering": picture.answering_voters(),
            "voters_to_spare": picture.voters_to_spare(), "observers": [each.node_id for each in quorum.observers],
        },
        "partitions": {
            "count": sum(len(topic.partitions) for topic in picture.topics),
            "under_replicated": list(map(_ill_row, picture.under_replicated())),
            "below_min_in_sync": list(map(_ill_row, picture.below_min_in_sync())),
            "leaderless": list(map(_ill_row, picture.leaderless())),
            "moving": [f"{where}" for where in picture.moving],
            "unusual_factor": [{**odd.where._asdict(), "replicas": odd.replicas, "usual": odd.usual} for odd in checks.odd_partitions()],
            "damaged": [_damaged_row(each) for each in checks.damaged()],
        },
    }  # fmt: skip


def _print(checks: Checks) -> None:
    picture = checks.picture
    leader, quorum = _leader(picture), picture.quorum
    office = "no controller" if leader is None else f"controller node {leader}"
    epoch = "" if quorum is None or leader is None else f"  epoch {quorum.epoch}"
    click.echo(f"cluster {picture.cluster.cluster_id}  {office}{epoch}")
    rows = [row | {"free": _free_text(checks, row["node"])} for row in _node_rows(picture)]
    print_table(list(rows[0]), [list(row.values()) for row in rows])
    if quorum is not None and leader is None:
        click.echo(f"quorum: nobody leads it; {quorum.majority} of {len(quorum.voters)} voters must answer each other")
    elif quorum is not None:
        click.echo(f"quorum: {len(picture.answering_voters())} of {len(quorum.voters)} voters answer, {quorum.majority} are needed")
    counts = {
        "under-replicated": len(picture.under_replicated()),
        "below min.insync.replicas": len(picture.below_min_in_sync()),
        "without a leader": len(picture.leaderless()),
        "moving": len(picture.moving),
    }
    total = sum(len(topic.partitions) for topic in picture.topics)
    click.echo(f"partitions: {total}, " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    _print_ill(picture)
    for trouble in _troubles(checks):
        click.echo(f"NOT WELL: {trouble}")
    for note in _notes(checks):
        click.echo(f"note: {note}")
    if not _troubles(checks):
        click.echo("all is well")


def _print_ill(picture: Picture) -> None:
    ill = {each.where: each for each in [*picture.leaderless(), *picture.below_min_in_sync(), *picture.under_replicated()]}
    if ill:
        shown = list(ill.values())[:ILL_SHOWN_MAX]
        rows: Sequence[dict[str, Any]] = list(map(_ill_row, shown))
        print_table(list(rows[0]), [list(row.values()) for row in rows])
    if len(ill) > ILL_SHOWN_MAX:
        click.echo(f"... and {len(ill) - ILL_SHOWN_MAX} more")


def _leader(picture: Picture) -> int | None:
    return None if picture.quorum is None or picture.quorum.leader == NO_LEADER else picture.quorum.leader


def _node_rows(picture: Picture) -> list[dict[str, Any]]:
    brokers = {node.node_id: node for node in picture.cluster.nodes}
    voters = [] if picture.quorum is None else [each.node_id for each in picture.quorum.voters]
    rows = []
    for node_id in sorted({*brokers, *voters}):
        broker = brokers.get(node_id)
        vote = _vote(picture, node_id)
        is_away = broker.is_fenced if broker is not None else vote == "silent"
        held = [each.state for each in picture.partitions() if node_id in each.state.replicas]
        rows.append({
            "node": node_id,
            "state": "away" if is_away else "up",
            "address": None if broker is None else str(broker.address),
            "rack": None if broker is None else broker.rack or None,
            "votes": vote,
            "leads": sum(state.leader == node_id for state in held),
            "replicas": len(held),
            "in_sync": sum(node_id in state.in_sync for state in held),
        })  # fmt: skip
    return rows


def _disk_row(checks: Checks, node: int) -> dict[str, int | None]:
    disk = checks.disks.told.get(node)
    return {"free_bytes": checks.free(node), "total_bytes": None if disk is None or disk.total_bytes < 0 else disk.total_bytes}


def _free_text(checks: Checks, node: int) -> str | None:
    free = checks.free(node)
    return None if free is None else size_text(free)


def _damaged_row(copy: DamagedCopy) -> dict[str, Any]:
    topic, partition = copy.where if copy.where is not None else (None, None)
    return {"topic": topic, "partition": partition, "node": copy.node, "directory": copy.directory}


def _vote(picture: Picture, node_id: int) -> str:
    """Without a leader nobody hears from voters, so nobody knows."""
    if picture.quorum is None or picture.quorum.leader == NO_LEADER:
        return "unknown"
    voter = next((each for each in picture.quorum.voters if each.node_id == node_id), None)
    if voter is None:
        return "no"
    return "leads" if node_id == picture.quorum.leader else "yes" if picture.answers(voter) else "silent"


def _ill_row(ill: Ill) -> dict[str, Any]:
    state = ill.state
    return {
        "topic": ill.where.topic,
        "partition": ill.where.partition,
        "leader": None if state.leader == NO_LEADER else state.leader,
        "replicas": list(state.replicas),
        "in_sync": list(state.in_sync),
        "eligible": list(state.eligible),
    }
