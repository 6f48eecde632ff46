"""`penstock groups`: list, describe with lag, members, reset offsets, delete."""

import sys
from collections.abc import Sequence
from typing import Any

import click

from penstock.cli.faults import Fault
from penstock.cli.group_lag import LagRow, lag_rows
from penstock.cli.names import group_names
from penstock.cli.reset_offsets import reset_offsets
from penstock.cli.share_groups import ShareRow, as_cells, row_as_json, share_rows, total
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import bootstrap_option, json_option, talk
from penstock.cli.times import spoken
from penstock.peers.client import Client
from penstock.peers.described_groups import DescribedGroup, ListedGroup, Member
from penstock.peers.share_groups import SHARE

PAST_END = "past the end"


@click.group()
def groups() -> None:
    """Look at consumer groups and share groups, and how far they are behind; set where they read on; delete them.

    \b
      penstock groups list
      penstock groups describe billing
      penstock groups reset-offsets billing --topic orders --to-earliest
      penstock groups delete billing --yes
    """


groups.add_command(reset_offsets)


@groups.command("list")
@bootstrap_option
@json_option
def list_groups(bootstrap: str, as_json: bool) -> None:
    """List the groups of the cluster."""

    async def conversation(client: Client) -> Sequence[ListedGroup]:
        return await client.list_groups()

    found = talk(bootstrap, conversation)
    if as_json:
        names = ("group", "state", "type", "protocol", "node")
        print_json([
            dict(zip(names, (each.group, each.state, each.protocol_type, each.protocol, each.coordinator), strict=True)) for each in found
        ])  # fmt: skip
    elif found:
        rows = [[each.group, each.state, each.protocol_type or None, each.protocol, each.coordinator] for each in found]
        print_table(["group", "state", "type", "protocol", "node"], rows)
    else:
        click.echo("there are no groups yet", err=True)


@groups.command()
@click.argument("group", shell_complete=group_names)
@bootstrap_option
@json_option
def describe(group: str, bootstrap: str, as_json: bool) -> None:
    """Show how far GROUP is behind in each partition.

    \b
      penstock groups describe billing
      penstock groups describe billing --json

    LAG counts records, TIME LAG is the age of the next one that the group will read, LOSS IN how long until retention may take it.
    The first line tells the protocol (classic, or consumer where the node shares partitions out), the assignor and the epoch; while
    partitions are still to be shared out anew for that epoch, also the one that they were shared out for.
    "past the end" stands where the group committed an offset that the partition does not reach.
    Of a share group START is the first record that is not done, and LAG how many are not, whoever has them.
    """

    async def conversation(client: Client) -> tuple[DescribedGroup, list[LagRow], list[ShareRow]]:
        described = await client.describe_group(group)
        if described.protocol == SHARE:
            return described, [], await share_rows(client, described)
        return described, await lag_rows(client, described), []

    described, rows, shared = talk(bootstrap, conversation)
    if described.protocol == SHARE:
        return _show_shared(described, shared, as_json=as_json)
    if as_json:
        return print_json(_summary(described) | {"lag": _total(rows), "partitions": [_row_as_json(row) for row in rows]})
    click.echo(_headline(described, _total(rows)))
    if rows:
        head = ["topic", "partition", "committed", "end", "lag", "time lag", "loss in", "member"]
        print_table(head, [_row_as_cells(row) for row in rows])
    _warn_of_losses(rows)
    _warn_of_the_end(rows)


@groups.command()
@click.argument("group", shell_complete=group_names)
@bootstrap_option
@json_option
def members(group: str, bootstrap: str, as_json: bool) -> None:
    """Show who is in GROUP, and which partitions each member has."""
    described = talk(bootstrap, lambda client: client.describe_group(group))
    if as_json:
        return print_json(_summary(described) | {"members": [_member_as_json(described, place) for place in range(len(described.members))]})
    if not described.members:
        return click.echo(f"group {group} has no members ({described.state})", err=True)
    head = ["member", "instance", "client", "host", *(["epoch", "is to have"] if described.epoch is not None else []), "partitions"]
    print_table(head, [_member_as_cells(described, each) for each in described.members])


@groups.command()
@click.argument("group", shell_complete=group_names)
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
@bootstrap_option
def delete(group: str, yes: bool, bootstrap: str) -> None:
    """Delete GROUP and its committed offsets. It must have no members."""
    if not yes and not sys.stdin.isatty():
        raise Fault(f"deleting group {group!r} destroys its committed offsets", "say so: add --yes")
    if not yes:
        click.confirm(f"Delete group {group!r} and its committed offsets?", abort=True, err=True)
    talk(bootstrap, lambda client: client.delete_group(group))
    click.echo(f"{group} is deleted")


def _summary(described: DescribedGroup) -> dict[str, Any]:
    return {
        "group": described.group,
        "state": described.state,
        "type": described.protocol_type,
        "protocol": described.protocol,
        "assignor": described.assignor,
        "epoch": described.epoch,
        "assignment_epoch": described.assignment_epoch,
        "node": described.coordinator,
        "members": len(described.members),
    }


def _show_shared(described: DescribedGroup, rows: Sequence[ShareRow], *, as_json: bool) -> None:
    if as_json:
        return print_json(_summary(described) | {"lag": total(rows), "partitions": [row_as_json(row) for row in rows]})
    click.echo(_headline(described, total(rows)))
    if rows:
        print_table(["topic", "partition", "start", "end", "lag", "members"], [as_cells(row) for row in rows])


def _headline(described: DescribedGroup, lag: int) -> str:
    count = len(described.members)
    words = [described.group, described.state, f"{count} member{'s' if count != 1 else ''}", described.protocol]
    return "  ".join([*words, *([described.assignor] if described.assignor else []), *_epochs(described), f"lag {lag}"])


def _epochs(described: DescribedGroup) -> list[str]:
    if described.epoch is None:
        return []
    is_behind = described.assignment_epoch != described.epoch
    return [f"epoch {described.epoch}" + (f" (assigned for {described.assignment_epoch})" if is_behind else "")]


def _total(rows: Sequence[LagRow]) -> int:
    return sum(row.lag.records for row in rows if row.lag is not None)


def _row_as_cells(row: LagRow) -> list[object]:
    lag = row.lag
    return [
        *row.where,
        row.committed,
        None if row.span is None else row.span.end_offset,
        None if lag is None or lag.past_end else lag.records,
        None if lag is None else PAST_END if lag.past_end else spoken(lag.time_ms),
        None if lag is None else "lost" if lag.lost else spoken(lag.loss_ms),
        row.member,
    ]


def _row_as_json(row: LagRow) -> dict[str, Any]:
    span, lag = row.span, row.lag
    return {
        "topic": row.where.topic,
        "partition": row.where.partition,
        "committed": row.committed,
        "start": None if span is None else span.start_offset,
        "end": None if span is None else span.end_offset,
        "lag": None if lag is None else lag.records,
        "lost": None if lag is None else lag.lost,
        "past_end": None if lag is None else lag.past_end,
        "time_lag_ms": None if lag is None else lag.time_ms,
        "retention_loss_ms": None if lag is None else lag.loss_ms,
        "member": row.member,
    }


def _warn_of_losses(rows: Sequence[LagRow]) -> None:
    lost = sum(row.lag.lost for row in rows if row.lag is not None)
    if lost:
        click.echo(f"{lost} records were dropped by retention before the group read them", err=True)


def _warn_of_the_end(rows: Sequence[LagRow]) -> None:
    past = [f"{row.where.topic}-{row.where.partition}" for row in rows if row.lag is not None and row.lag.past_end]
    if past:
        click.echo(f"committed past the end, where nothing can be read: {', '.join(past)}", err=True)
        click.echo("  set where to read on: penstock groups reset-offsets", err=True)


def _member_as_json(described: DescribedGroup, place: int) -> dict[str, Any]:
    member = described.members[place]
    return {
        "member": member.member_id,
        "instance": member.instance_id,
        "client": member.client_id,
        "host": member.client_host,
        "topics": member.topics,
        "topics_regex": member.topics_regex,
        "assignment": member.assignment,
        "epoch": member.epoch,
        "target": member.target,
    }


def _member_as_cells(described: DescribedGroup, member: Member) -> list[object]:
    epoch = [member.epoch, _partitions(member.target)] if described.epoch is not None else []
    return [member.member_id, member.instance_id, member.client_id, member.client_host, *epoch, _partitions(member.assignment)]


def _partitions(assignment: dict[str, list[int]] | None) -> list[str] | None:
    if assignment is None:
        return None
    return [f"{topic}-{partition}" for topic, partitions in sorted(assignment.items()) for partition in sorted(partitions)]
