"""POST /groups/{group}/offsets: where a group without members will read on. A dry run unless told otherwise."""

from collections.abc import Mapping
from typing import Any

from penstock.broker.group_offsets import carry_out, plan_reset
from penstock.broker.group_views import committed
from penstock.broker.node import Node
from penstock.errors import ErrorCode, Refusal
from penstock.groups.resets import Reset, ShiftBy, ToEarliest, ToLatest, ToOffset, ToTime
from penstock.groups.views import NO_OFFSET
from penstock.http.answers import OK, Answer
from penstock.http.api.deciding import topic_called
from penstock.http.api.requests import ApiRequest
from penstock.http.api.schemas import flag, integer, listing, named, or_null, shape, text
from penstock.vocabulary import TopicPartition

OFFSET = shape(
    {
        "topic": text("The topic's name."),
        "partition": integer("The partition's number.", minimum=0),
        "offset": integer("Where to read on.", minimum=0),
    }
)
RESET = shape(
    {
        "to": text("To the start or the end of the log.", enum=["earliest", "latest"]),
        "to_time_ms": integer("To the first record not older: milliseconds since 1970.", minimum=0),
        "to_offset": integer("To this offset, or the nearest that is there.", minimum=0),
        "shift_by": integer("So many records on from what is committed; back where negative."),
        "offsets": listing(named("Offset"), "To an offset for each partition."),
        "topics": listing(text("A topic's name."), "Only these topics, all their partitions. Left out: all that the group has committed."),
        "dry_run": flag("Only say what would be set.", default=True),
    },
    optional=("to", "to_time_ms", "to_offset", "shift_by", "offsets", "topics", "dry_run"),
)
MOVE = shape(
    {
        "topic": text("The topic's name."),
        "partition": integer("The partition's number."),
        "committed": or_null(integer("What was committed before.")),
        "target": integer("Where the group will read on."),
        "note": text("Why it is not quite what was asked; empty where it is."),
    }
)
MOVES = shape(
    {"group": text("The group's name."), "is_done": flag("False for a dry run."), "offsets": listing(named("Move"))}
)


async def reset_offsets(node: Node, request: ApiRequest) -> Answer:
    group, body = request.parts["group"], request.body
    await node.groups.prepare()
    moves = await plan_reset(node, group, await _plan(node, group, body))
    is_done = not body.get("dry_run", True)
    if is_done:
        await carry_out(node, group, moves)
    rows = [
        {
            "topic": move.partition.topic,
            "partition": move.partition.partition,
            "committed": move.committed,
            "target": move.target,
            "note": move.note,
        }
        for move in moves
    ]
    return Answer(OK, {"group": group, "is_done": is_done, "offsets": rows})


async def _plan(node: Node, group: str, body: Mapping[str, Any]) -> dict[TopicPartition, Reset]:
    ways = [name for name in ("to", "to_time_ms", "to_offset", "shift_by", "offsets") if name in body]
    if len(ways) != 1:
        raise _no("say where to: one of to, to_time_ms, to_offset, shift_by, offsets")
    if ways == ["offsets"]:
        if "topics" in body:
            raise _no("offsets name their topics themselves: leave topics out")
        plan: dict[TopicPartition, Reset] = {
            TopicPartition(row["topic"], row["partition"]): ToOffset(row["offset"]) for row in body["offsets"]
        }
    elif "topics" in body:
        named_topics = [topic_called(node, name) for name in body["topics"]]
        wanted = [TopicPartition(topic.name, index) for topic in named_topics for index in range(len(topic.partitions))]
        plan = dict.fromkeys(wanted, _reset(body))
    else:
        held = await committed(node, group)
        plan = dict.fromkeys((TopicPartition(each.topic, each.partition) for each in held if each.offset != NO_OFFSET), _reset(body))
    if not plan:
        raise _no(f"group {group!r} has no committed offsets: name topics")
    return plan


def _reset(body: Mapping[str, Any]) -> Reset:
    if "to" in body:
        return ToEarliest() if body["to"] == "earliest" else ToLatest()
    if "to_time_ms" in body:
        return ToTime(body["to_time_ms"])
    return ToOffset(body["to_offset"]) if "to_offset" in body else ShiftBy(body["shift_by"])


def _no(reason: str) -> Refusal:
    return Refusal(ErrorCode.INVALID_REQUEST, reason)
