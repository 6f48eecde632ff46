"""`penstock groups reset-offsets`: where a group without members will read on.

Always a dry run first: without --execute the command prints what it would set. Its output can be kept and given back with --from-file.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from penstock.cli.faults import Fault
from penstock.cli.group_lag import spans_of
from penstock.cli.names import group_names
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import bootstrap_option, json_option, talk
from penstock.cli.times import parse_time
from penstock.errors import ErrorCode, Refusal
from penstock.groups.resets import Move, Reset, ShiftBy, Standing, ToEarliest, ToLatest, ToOffset, ToTime, plan_move
from penstock.peers.client import Client
from penstock.peers.failures import Refused
from penstock.peers.share_groups import SHARE
from penstock.vocabulary import TopicPartition

EMPTY = "Empty"

Plan = Mapping[TopicPartition, Reset]


@click.command("reset-offsets")
@click.argument("group", shell_complete=group_names)
@click.option("--topic", "topics", metavar="TOPIC[:0,1,...]", multiple=True, help="All its partitions, or only these; may be repeated.")
@click.option("--all-topics", is_flag=True, help="Every partition that the group has committed.")
@click.option("--to-earliest", is_flag=True, help="To the first record that is there.")
@click.option("--to-latest", is_flag=True, help="Past the last record.")
@click.option("--to-time", metavar="TIME", help="To the first record not older: ISO 8601, or @ and milliseconds since 1970.")
@click.option("--to-offset", type=click.IntRange(0), help="To this offset, or the nearest that is there.")
@click.option("--shift-by", type=int, metavar="N", help="N records on from what is committed, or back where N is negative.")
@click.option("--from-file", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="To the offsets in a file.")
@click.option("--execute", is_flag=True, help="Do it. Without this the command only says what it would do.")
@bootstrap_option
@json_option
def reset_offsets(
    *, group: str, topics: tuple[str, ...], all_topics: bool, bootstrap: str, as_json: bool, execute: bool, **to: Any
) -> None:
    """Set where GROUP reads on. The group must have no members.

    \b
      penstock groups reset-offsets billing --topic orders --to-earliest
      penstock groups reset-offsets billing --topic orders:0,3 --to-time 2026-01-31T12:00:00Z --execute
      penstock groups reset-offsets billing --all-topics --shift-by -100 --execute
      penstock groups reset-offsets billing --all-topics --to-latest --json > plan.json
      penstock groups reset-offsets billing --from-file plan.json --execute

    A file is what --json prints, or lines of topic,partition,offset. An offset outside the log is moved to the log's nearest end.
    Of a share group everything below the offset is done then, and everything from there on is not, whatever was before.
    """
    reset = _reset(**to)
    if isinstance(reset, Path):
        if topics or all_topics:
            raise click.UsageError("--from-file names the partitions itself: leave --topic and --all-topics out")
    elif bool(topics) == all_topics:
        raise click.UsageError("say what to reset: --topic TOPIC, or --all-topics")
    given = _read_file(reset) if isinstance(reset, Path) else reset

    async def conversation(client: Client) -> list[Move]:
        shares = await _check_group(client, group)
        moves = await _moves(client, group, given, topics, await _starts(client, group) if shares else await _committed(client, group))
        if execute:
            targets = {move.partition: move.target for move in moves}
            await (client.alter_share_offsets(group, targets) if shares else client.commit_offsets(group, targets))
        return moves

    _show(group, talk(bootstrap, conversation), is_done=execute, as_json=as_json)


def _reset(
    *, to_earliest: bool, to_latest: bool, to_time: str | None, to_offset: int | None, shift_by: int | None, from_file: Path | None
) -> Reset | Path:
    chosen: list[Reset | Path] = []
    if to_earliest:
        chosen.append(ToEarliest())
    if to_latest:
        chosen.append(ToLatest())
    if to_time is not None:
        time_ms = parse_time(to_time)
        if time_ms is None:
            raise click.UsageError(f"--to-time {to_time!r} is neither an ISO 8601 time nor @milliseconds")
        chosen.append(ToTime(time_ms))
    if to_offset is not None:
        chosen.append(ToOffset(to_offset))
    if shift_by is not None:
        chosen.append(ShiftBy(shift_by))
    if from_file is not None:
        chosen.append(from_file)
    if len(chosen) != 1:
        raise click.UsageError("say where to: one of --to-earliest, --to-latest, --to-time, --to-offset, --shift-by, --from-file")
    return chosen[0]


async def _check_group(client: Client, group: str) -> bool:
    """Whether it is a share group. A group that isn't there is fine: its first offsets are set then."""
    try:
        described = await client.describe_group(group)
    except Refused as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return False
    if described.state != EMPTY:
        count = len(described.members)
        what = f"group {group!r} is {described.state} with {count} member{'s' if count != 1 else ''}, who commit for themselves"
        raise Fault(what, "stop its consumers first, or wait until their sessions have lapsed")
    return described.protocol == SHARE


async def _committed(client: Client, group: str) -> dict[TopicPartition, int]:
    return {where: each.offset for where, each in (await client.committed_offsets(group)).items()}


async def _starts(client: Client, group: str) -> dict[TopicPartition, int]:
    """Where a share group begins: everything below is done."""
    found = (await client.share_offsets(group)).items()
    return {where: each.start_offset for where, each in found if each.start_offset is not None}


async def _moves(
    client: Client, group: str, given: Reset | Plan, topics: tuple[str, ...], committed: Mapping[TopicPartition, int]
) -> list[Move]:
    if isinstance(given, Mapping):
        plan: Plan = given
    else:
        wanted = await _named(client, topics) if topics else list(committed)
        plan = dict.fromkeys(wanted, given)
    if not plan:
        raise Fault(f"group {group!r} has no committed offsets", "name a topic: --topic TOPIC")
    spans = await spans_of(client, plan)
    missing = [where for where in plan if where not in spans]
    if missing:
        raise Fault(f"there is no partition {missing[0]}, or nobody leads it", "check the name: penstock topics list")
    at_times = await client.list_offsets({where: reset.timestamp_ms for where, reset in plan.items() if isinstance(reset, ToTime)})
    moves = []
    for where, reset in sorted(plan.items()):
        found = at_times[where].offset if where in at_times and at_times[where].offset >= 0 else None
        try:
            moves.append(plan_move(reset, Standing(where, committed.get(where), *spans[where], offset_at_time=found)))
        except Refusal as refusal:
            raise Fault(refusal.reason, "give it an offset: --to-earliest, --to-latest, --to-time or --to-offset") from None
    return moves


async def _named(client: Client, texts: tuple[str, ...]) -> list[TopicPartition]:
    wanted: dict[TopicPartition, None] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        if colon and not all(number.isascii() and number.isdigit() for number in numbers.split(",")):
            raise click.UsageError(f"--topic {text!r} must be TOPIC or TOPIC:0,1,...")
        count = len((await client.describe(topic)).partitions)
        partitions = map(int, numbers.split(",")) if colon else range(count)
        wanted |= {TopicPartition(topic, partition): None for partition in partitions}
    return list(wanted)


def _read_file(path: Path) -> Plan:
    content = path.read_text(encoding="utf-8")
    try:
        if content.lstrip().startswith("{"):
            rows = [(row["topic"], row["partition"], row["target"]) for row in json.loads(content)["offsets"]]
        else:
            lines = [line.strip() for line in content.splitlines()]
            rows = [_three(line) for line in lines if line and not line.startswith("#")]
        plan: dict[TopicPartition, Reset] = {
            TopicPartition(topic, int(partition)): ToOffset(int(offset)) for topic, partition, offset in rows
        }
    except (ValueError, KeyError, TypeError):
        raise Fault(f"{path} does not say where to", "each line must be topic,partition,offset; or give what --json printed") from None
    if not plan:
        raise Fault(f"{path} names no partition", "each line must be topic,partition,offset")
    return plan


def _three(line: str) -> tuple[str, str, str]:
    topic, partition, offset = line.rsplit(",", 2)
    return topic.strip(), partition, offset


def _show(group: str, moves: list[Move], *, is_done: bool, as_json: bool) -> None:
    if as_json:
        rows = [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "committed": each.committed,
                "target": each.target,
                "note": each.note,
            }
            for each in moves
        ]
        return print_json({"group": group, "is_done": is_done, "offsets": rows})
    cells = [[*each.partition, each.committed, each.target, each.note] for each in moves]
    print_table(["topic", "partition", "committed", "target", "note"], cells)
    count = f"{len(moves)} offset{'s' if len(moves) != 1 else ''}"
    click.echo(f"{count} of group {group} set" if is_done else f"nothing was changed: add --execute to set {count}", err=not is_done)
