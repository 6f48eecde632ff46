"""`penstock cluster moves`: what is on its way to other nodes, how far it has come, and what stands still."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from penstock.cli.bar import Bar
from penstock.cli.cluster_moves import ask_sizes
from penstock.cli.cluster_picture import ASK_SECONDS
from penstock.cli.cluster_places import bootstrap_of, cluster_options
from penstock.cli.move_progress import MoveProgress, MoveTracker
from penstock.cli.progress import size_text
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import json_option, talk
from penstock.cli.times import spoken
from penstock.peers.client import Client
from penstock.peers.cluster import describe_nodes, list_moving
from penstock.peers.configs import Configured
from penstock.peers.failures import PeerFailure
from penstock.vocabulary import TopicPartition

APART_SECONDS = 3.0
WATCH_SECONDS = 1.0
RATES = ("replication.throttled.rate", "follower.replication.throttled.rate")  # The smaller one that is set holds, on each node.


@dataclass(frozen=True, slots=True)
class Moves:
    """One look at what moves."""

    progress: Sequence[MoveProgress]
    away: Sequence[int]
    throttles: Mapping[int, int]  # Bytes a second, of the nodes where a rate is set.
    silent: Mapping[int, str]  # Nodes that could not be asked, and why.
    now: float
    wall_ms: int

    def still_since(self, each: MoveProgress) -> datetime | None:
        if each.still_since is None:
            return None
        return datetime.fromtimestamp((self.wall_ms - 1000 * (self.now - each.still_since)) / 1000, UTC)

    def throttle(self, each: MoveProgress) -> int | None:
        return min((self.throttles[node] for node in each.new if node not in each.old and node in self.throttles), default=None)

    def state(self, each: MoveProgress) -> str:
        joining = [node for node in each.new if node not in each.old]
        if away := [node for node in joining if node in self.away]:
            return f"waits: node {', '.join(map(str, away))} is away"
        if each.copied_bytes is None:
            return "unknown: its new replicas cannot be asked"
        if each.is_copied:
            return "is copied, waits to be in sync"
        if (since := self.still_since(each)) is not None:
            return f"stands still since {since:%H:%M:%S} UTC"
        return "is copied now" if each.bytes_per_second else "was looked at once"


@click.command()
@click.option("--watch", "is_watched", is_flag=True, help="Look again every second, until nothing moves any more.")
@click.option("--apart", "apart_s", type=click.FloatRange(0.1), default=APART_SECONDS, show_default=True, help="Seconds between the looks.")
@cluster_options
@json_option
def moves(is_watched: bool, apart_s: float, directory: Path | None, bootstrap: str | None, as_json: bool) -> None:
    """List the partitions that are on their way to other nodes, how far each has come, and whether it stands still.

    \b
      penstock cluster moves
      penstock cluster moves --watch
      penstock cluster moves --json

    It looks twice, some seconds apart, for the speed. A move whose new replica got nothing in between stands still; a node that is away or
    cannot be asked is named.
    """
    if is_watched and as_json:
        raise click.UsageError("--watch and --json exclude each other: call the command again for another look")
    if is_watched:
        return talk(bootstrap_of(directory, bootstrap), watch_all)
    found = talk(bootstrap_of(directory, bootstrap), lambda client: look_twice(client, apart_s))
    if as_json:
        return print_json(as_plain(found))
    if not found.progress:
        return click.echo("nothing is on its way")
    rows = [_row(found, each) for each in found.progress]
    print_table(list(rows[0]), [list(row.values()) for row in rows])
    for line in silent_lines(found):
        click.echo(line)


async def look_twice(client: Client, apart_s: float) -> Moves:
    tracker = MoveTracker()
    found = await look(client, tracker)
    if found.progress:
        await asyncio.sleep(apart_s)
        found = await look(client, tracker)
    return found


async def look(client: Client, tracker: MoveTracker) -> Moves:
    router = client.router
    deadline = router.deadline(ASK_SECONDS)
    moving = await list_moving(router, deadline)
    away = [node.node_id for node in (await describe_nodes(router, deadline)).nodes if node.is_fenced] if moving else []
    disks = await ask_sizes(client, moving)
    throttles = await _throttles(client, sorted({node for each in moving.values() for node in each.adding if node in disks.told}))
    now = client.env.now()
    return Moves(tracker.look(moving, disks, now), away, throttles, disks.silent, now, client.env.wall_ms())


async def watch_all(client: Client) -> None:
    """Until nothing moves. A cluster that cannot be asked for a moment is asked again."""
    bar, tracker, seen = Bar("moving"), MoveTracker(APART_SECONDS), set[TopicPartition]()
    while True:
        with suppress(PeerFailure):
            found = await look(client, tracker)
            seen |= {each.where for each in found.progress}
            if not found.progress:
                bar.show(1.0, "nothing is on its way")
                return bar.end()
            bar.show(*_summary(found, len(seen)))
        await asyncio.sleep(WATCH_SECONDS)


def as_plain(found: Moves) -> dict[str, Any]:
    return {
        "moves": [
            {
                "topic": each.where.topic, "partition": each.where.partition, "from": list(each.old), "to": list(each.new),
                "copied_bytes": each.copied_bytes, "whole_bytes": each.whole_bytes, "bytes_per_second": each.bytes_per_second,
                "seconds_left": each.seconds_left, "throttle": found.throttle(each), "stands_still": each.still_since is not None,
                "still_since": None if (since := found.still_since(each)) is None else since.isoformat(timespec="seconds"),
                "state": found.state(each),
            }
            for each in found.progress
        ],
        "away": list(found.away),
        "not_asked": [{"node": node, "reason": reason} for node, reason in found.silent.items()],
    }  # fmt: skip


def silent_lines(found: Moves) -> list[str]:
    return [f"node {node} could not be asked: {reason}" for node, reason in found.silent.items()]


def _row(found: Moves, each: MoveProgress) -> dict[str, object]:
    throttle, left = found.throttle(each), each.seconds_left
    return {
        "topic": each.where.topic,
        "partition": each.where.partition,
        "from": each.old,
        "to": each.new,
        "copied": None if each.copied_bytes is None else size_text(each.copied_bytes),
        "of": None if each.whole_bytes is None else size_text(each.whole_bytes),
        "rate": None if each.bytes_per_second is None else f"{size_text(each.bytes_per_second)}/s",
        "left": None if left is None else spoken(round(1000 * left)),
        "throttle": None if throttle is None else f"{size_text(throttle)}/s",
        "state": found.state(each),
    }


def _summary(found: Moves, seen: int) -> tuple[float, str]:
    """The share of the moves seen so far that is done, for a bar, and what is worth saying beside it."""
    copied = sum(each.copied_bytes or 0 for each in found.progress)
    whole = sum(each.whole_bytes or 0 for each in found.progress)
    rate = sum(each.bytes_per_second or 0 for each in found.progress)
    done = seen - len(found.progress)
    notes = [f"{done} of {seen} partitions", f"{size_text(copied)} of {size_text(whole)} of the others"]
    if rate:
        notes.append(f"{size_text(rate)}/s, {spoken(round(1000 * max(0, whole - copied) / rate))} left")
    still = [each for each in found.progress if each.still_since is not None and not each.is_copied]
    if still:
        notes.append(f"{len(still)} stand still, {still[0].where} for one: {found.state(still[0])}")
    share = (done + len(found.progress) * (copied / whole if whole else 0)) / seen
    return min(share, 0.99), ", ".join([*notes, *silent_lines(found)])


async def _throttles(client: Client, nodes: Sequence[int]) -> dict[int, int]:
    """One look each; a node that does not tell is taken for one without a rate."""
    answers = await asyncio.gather(*[_throttle(client, node) for node in nodes])
    return {node: rate for node, rate in zip(nodes, answers, strict=True) if rate}


async def _throttle(client: Client, node: int) -> int:
    with suppress(PeerFailure):
        told = {view.name: view.value for view in await client.settings_of(Configured.node(node), deadline_s=5.0)}
        return min((int(told[name] or 0) for name in RATES if int(told.get(name) or 0)), default=0)
    return 0
