"""`penstock transactions`: list, describe, abort; and those that hang, which no coordinator knows of any more."""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

import click

from penstock.cli.faults import Fault
from penstock.cli.names import topic_names, transactional_ids
from penstock.cli.tables import print_json, print_table
from penstock.cli.talking import bootstrap_option, json_option, talk
from penstock.cli.times import spoken
from penstock.errors import Refusal
from penstock.patterns import pattern_of
from penstock.peers.client import Client
from penstock.peers.failures import PeerFailure
from penstock.peers.hanging_transactions import Hanging, hanging
from penstock.peers.topics import NO_LEADER
from penstock.peers.transaction_admin import (
    ANY_DURATION,
    DescribedTransaction,
    ListedTransaction,
    PartitionProducer,
    Wanted,
    describe_producers,
    describe_transaction,
    fence,
    list_transactions,
    write_abort_marker,
)
from penstock.vocabulary import TopicPartition

# By Kafka's names. "Dead" and "PrepareEpochFence" are never seen for longer than a moment.
STATES = ["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence", "Dead"]
OPEN_STATES = ("Ongoing",)
ENDING_STATES = ("PrepareCommit", "PrepareAbort", "PrepareEpochFence")
QUESTIONS_AT_A_TIME = 8


@click.group()
def transactions() -> None:
    """Look at transactions, and end those whose producer does not come back.

    \b
      penstock transactions list
      penstock transactions list --hanging
      penstock transactions describe billing-1
      penstock transactions abort billing-1 --yes
    """


@transactions.command("list")
@click.option("--state", "states", type=click.Choice(STATES), multiple=True, help="Only in this state; may be repeated.")
@click.option("--longer-than", type=click.FloatRange(0), metavar="SECONDS", help="Only those that are open for longer.")
@click.option("--match", "pattern", metavar="REGEX", help="Only ids that this regular expression (RE2's) matches as a whole.")
@click.option("--hanging", "is_hanging", is_flag=True, help="Instead: what is open in a partition, and no coordinator will end.")
@click.option("--topic", "topics", shell_complete=topic_names, multiple=True, help="With --hanging: only in this topic; may be repeated.")
@bootstrap_option
@json_option
def list_(
    *, states: tuple[str, ...], longer_than: float | None, pattern: str | None, is_hanging: bool, topics: tuple[str, ...],
    bootstrap: str, as_json: bool,
) -> None:  # fmt: skip
    """List the transactional ids of the cluster, and the state of each one's last transaction.

    A transaction that hangs is open in a partition, and nothing will end it: readers of committed records wait before it for ever. A node
    asks the coordinator before it takes the first record of a transaction, so one comes to be only where the coordinators' log has lost
    records (disks that were lost, an unclean election). abort --topic ends it. Every coordinator is asked, twice; where one cannot be
    asked, nothing is listed, for that one may yet end it.
    """
    if is_hanging:
        if states or longer_than is not None or pattern is not None:
            raise click.UsageError(
                "--hanging looks into partitions, which know neither states nor ids: leave --state, --longer-than, --match out"
            )
        found_and_unled = talk(bootstrap, lambda client: _find_hanging(client, topics))
        return _print_hanging(*found_and_unled, as_json=as_json)
    if topics:
        raise click.UsageError("--topic goes with --hanging")
    _check_pattern(pattern)
    wanted = Wanted(states=states, running_longer_ms=ANY_DURATION if longer_than is None else int(longer_than * 1000), pattern=pattern)

    async def conversation(client: Client) -> Sequence[ListedTransaction]:
        return await list_transactions(client.router, wanted, client.router.deadline(None))

    found = talk(bootstrap, conversation)
    if as_json:
        return print_json([
            {"id": each.transactional_id, "state": each.state, "producer": each.producer_id, "node": each.coordinator} for each in found
        ])  # fmt: skip
    if not found:
        return click.echo("there are none", err=True)
    print_table(
        ["id", "state", "producer", "node"], [[each.transactional_id, each.state, each.producer_id, each.coordinator] for each in found]
    )


def _check_pattern(pattern: str | None) -> None:
    """A node would refuse it too, but its answer has no room for the reason."""
    try:
        if pattern is not None:
            pattern_of(pattern)
    except Refusal as refusal:
        raise click.UsageError(f"--match: {refusal.reason}") from None


@transactions.command()
@click.argument("transactional_id", metavar="ID", shell_complete=transactional_ids)
@bootstrap_option
@json_option
def describe(transactional_id: str, bootstrap: str, as_json: bool) -> None:
    """Show the last transaction of ID: its state, its producer, and the partitions that wait for its end.

    OPEN SINCE is the first offset of it in a partition, before which readers of committed records wait.
    """

    async def conversation(client: Client) -> tuple[DescribedTransaction, list[PartitionProducer | None], int]:
        described = await describe_transaction(client.router, transactional_id, client.router.deadline(None))
        return described, await _at_leaders(client, described), client.env.wall_ms()

    described, producers, now_ms = talk(bootstrap, conversation)
    if as_json:
        return print_json(_as_json(described, producers))
    is_open = described.state in (*OPEN_STATES, *ENDING_STATES) and described.started_ms is not None
    since = f"  open for {spoken(max(0, now_ms - (described.started_ms or 0)))}" if is_open else ""
    producer = f"producer {described.producer_id}  epoch {described.producer_epoch}"
    timeout = f"times out after {spoken(described.timeout_ms)}"
    click.echo(f"{described.transactional_id}  {described.state}{since}  {producer}  {timeout}  node {described.coordinator}")
    if described.partitions:
        rows = [[*where, None if each is None else each.open_since] for where, each in zip(described.partitions, producers, strict=True)]
        print_table(["topic", "partition", "open since"], rows)


@transactions.command()
@click.argument("transactional_id", metavar="[ID]", required=False, shell_complete=transactional_ids)
@click.option("--topic", shell_complete=topic_names, help="Instead of ID, for one that hangs: the topic,")
@click.option("--partition", type=click.IntRange(0), help="the partition,")
@click.option("--producer", "producer_id", type=click.IntRange(0), help="and the producer that has it open.")
@click.option("--yes", is_flag=True, help="Do not ask. Needed where nobody can be asked.")
@bootstrap_option
def abort(
    *, transactional_id: str | None, topic: str | None, partition: int | None, producer_id: int | None, yes: bool, bootstrap: str
) -> None:
    """Abort the open transaction of ID, and shut its producer out.

    \b
      penstock transactions abort billing-1
      penstock transactions abort --topic orders --partition 0 --producer 4711

    A producer that is shut out can write nothing more; started again, it begins anew. With --topic only one that hangs can be aborted, and
    only while every coordinator can be asked: others are their coordinator's to end.
    """
    where = _chosen(transactional_id, topic, partition, producer_id)
    if not yes and not sys.stdin.isatty():
        raise Fault("what the transaction has written will never be read", "say so: add --yes")
    if not yes:
        click.confirm(f"Abort the transaction of {transactional_id or f'producer {producer_id} in {where}'}?", abort=True, err=True)
    if where is None:
        assert transactional_id is not None
        state = talk(bootstrap, lambda client: _abort_by_id(client, transactional_id))
        return click.echo(f"{transactional_id} is aborted, and its producer shut out ({state})")
    assert producer_id is not None
    talk(bootstrap, lambda client: _abort_hanging(client, where, producer_id))
    click.echo(f"the transaction of producer {producer_id} in {where} is aborted")


def _chosen(transactional_id: str | None, topic: str | None, partition: int | None, producer_id: int | None) -> TopicPartition | None:
    by_place = [value for value in (topic, partition, producer_id) if value is not None]
    if transactional_id is not None and not by_place:
        return None
    if transactional_id is not None or topic is None or partition is None or producer_id is None:
        raise click.UsageError("name either an ID, or --topic, --partition and --producer")
    return TopicPartition(topic, partition)


async def _abort_by_id(client: Client, transactional_id: str) -> str:
    """The state in which it is afterwards."""
    deadline = client.router.deadline(None)
    described = await describe_transaction(client.router, transactional_id, deadline)
    if described.state in ENDING_STATES:
        raise Fault(
            f"the transaction of {transactional_id} is ending by itself ({described.state})", "look again: penstock transactions describe"
        )
    if described.state not in OPEN_STATES:
        raise Fault(f"{transactional_id} has no transaction open ({described.state})")
    await fence(client.router, transactional_id, deadline)
    return (await describe_transaction(client.router, transactional_id, deadline)).state


async def _abort_hanging(client: Client, where: TopicPartition, producer_id: int) -> None:
    deadline = client.router.deadline(None)
    count = len((await client.describe(where.topic)).partitions)
    if where.partition >= count:
        raise Fault(f"topic {where.topic!r} has no partition {where.partition}", f"it has {count}, counted from 0")
    producers = await describe_producers(client.router, where, deadline)
    producer = next((each for each in producers if each.producer_id == producer_id and each.open_since is not None), None)
    if producer is None:
        raise Fault(f"producer {producer_id} has no transaction open in {where}", "look: penstock transactions list --hanging")
    if not await hanging(client.router, [producer], deadline):
        raise Fault(
            f"the transaction of producer {producer_id} does not hang: its coordinator will end it",
            "penstock transactions list tells its id",
        )
    await write_abort_marker(client.router, producer, deadline)


async def _find_hanging(client: Client, topics: tuple[str, ...]) -> tuple[list[Hanging], list[TopicPartition]]:
    """Those that hang; and the partitions that nobody leads, so that nobody can say."""
    views = [await client.describe(topic) for topic in topics] if topics else (await client.metadata()).topics
    leaders = {TopicPartition(topic.name, each.partition): each.leader for topic in views for each in topic.partitions}
    turns, deadline = asyncio.Semaphore(QUESTIONS_AT_A_TIME), client.router.deadline(None)

    async def ask(where: TopicPartition) -> list[PartitionProducer]:
        async with turns:
            return await describe_producers(client.router, where, deadline)

    led = [where for where, leader in leaders.items() if leader != NO_LEADER]
    producers = [producer for found in await asyncio.gather(*map(ask, led)) for producer in found]
    found = await hanging(client.router, producers, deadline)
    return found, [where for where, leader in leaders.items() if leader == NO_LEADER]


async def _at_leaders(client: Client, described: DescribedTransaction) -> list[PartitionProducer | None]:
    """What the leader of each of its partitions knows of the producer; None where it knows nothing, or says nothing."""

    async def ask(where: TopicPartition) -> PartitionProducer | None:
        try:
            producers = await describe_producers(client.router, where, client.router.deadline(None))
        except PeerFailure:
            return None
        return next((each for each in producers if each.producer_id == described.producer_id), None)

    return list(await asyncio.gather(*map(ask, described.partitions)))


def _print_hanging(found: list[Hanging], unled: list[TopicPartition], as_json: bool) -> None:
    if unled:
        more = f" and {len(unled) - 3} more" if len(unled) > 3 else ""
        click.echo(f"not looked into, for nobody leads them: {', '.join(map(str, unled[:3]))}{more}", err=True)
    if as_json:
        return print_json([
            {
                "topic": each.producer.where.topic, "partition": each.producer.where.partition, "producer": each.producer.producer_id,
                "epoch": each.producer.producer_epoch, "open_since": each.producer.open_since,
                "last_written_ms": each.producer.last_written_ms, "id": each.transactional_id,
            }
            for each in found
        ])  # fmt: skip
    if not found:
        return click.echo("no transaction hangs", err=True)
    rows = [[*each.producer.where, each.producer.producer_id, each.producer.open_since, each.transactional_id] for each in found]
    print_table(["topic", "partition", "producer", "open since", "id"], rows)


def _as_json(described: DescribedTransaction, producers: Sequence[PartitionProducer | None]) -> dict[str, Any]:
    return {
        "id": described.transactional_id,
        "state": described.state,
        "producer": described.producer_id,
        "epoch": described.producer_epoch,
        "timeout_ms": described.timeout_ms,
        "started_ms": described.started_ms,
        "node": described.coordinator,
        "partitions": [
            {"topic": where.topic, "partition": where.partition, "open_since": None if each is None else each.open_since}
            for where, each in zip(described.partitions, producers, strict=True)
        ],
    }
