"""OffsetFetch, versions 1 to 10 (KIP-447 stable offsets from 7, KIP-709 several groups from 8, KIP-848 from 9, KIP-516 topic ids in 10).

Without a list of topics all of a group's offsets are told. A group or partition that nothing was committed for has offset -1 and no error.
An offset is told only of the topic that it was committed for: one that was made again under the name begins without.
What is told is durable: the reply waits for commits that are still on their way to the disk. With `require_stable` a partition whose offset
an open transaction may still change is UNSTABLE_OFFSET_COMMIT: the client comes again. Without, it is as if the transaction weren't there.
Errors of the whole group stand with the group, in versions 2 to 7 at the top, and in version 1 with each partition.
Unavailable coordinators are told as NOT_COORDINATOR: consumers before Kafka 3.9 don't come again on COORDINATOR_NOT_AVAILABLE.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.broker.calls import Call
from penstock.broker.long_answers import written
from penstock.broker.patience import Patience
from penstock.broker.together import together
from penstock.errors import ErrorCode, Refusal
from penstock.groups.commands import NO_GENERATION
from penstock.groups.image import Committed
from penstock.groups.views import OffsetView
from penstock.vocabulary import Buffer
from penstock.wire import schemas

if TYPE_CHECKING:
    from penstock.broker.node import Node

_ERRORS_FROM = 2
_STABLE_FROM = 7
_MANY_FROM = 8
_TOPIC_IDS_FROM = 10


class _Wish(NamedTuple):
    named: dict[str, Any]  # As the request names the topic: by name or by id.
    topic: str | None  # None: nobody knows the id.
    partitions: Sequence[int]


class _Found(NamedTuple):
    code: ErrorCode
    topics: list[dict[str, Any]]

    @property
    def rows(self) -> int:
        return sum(len(topic["partitions"]) for topic in self.topics)


async def offset_fetch(node: "Node", call: Call) -> list[Buffer]:
    request = schemas.read_request(call.api_key, call.version, call.frame, call.body_at)
    is_stable = call.version >= _STABLE_FROM and request.require_stable
    if call.version < _MANY_FROM:
        found = await _fetch(node, call.version, request.group_id, request.topics, is_stable=is_stable)
        return await written(node, call, {"topics": found.topics, "error_code": found.code}, found.rows)
    groups = await together(partial(_fetch_as, node, call.version, wish, is_stable=is_stable) for wish in request.groups)
    rows = [
        {"group_id": wish.group_id, "topics": found.topics, "error_code": found.code}
        for wish, found in zip(request.groups, groups, strict=True)
    ]
    return await written(node, call, {"groups": rows}, sum(1 + found.rows for found in groups))


async def _fetch_as(node: "Node", version: int, wish: Any, *, is_stable: bool) -> _Found:
    """From version 9 on a member may say who it is; in a group of the new protocol it must be right then."""
    member_id, member_epoch = getattr(wish, "member_id", None), getattr(wish, "member_epoch", NO_GENERATION)
    if member_id is not None or member_epoch >= 0:
        try:
            coordinator = node.groups.find(wish.group_id)
            code = await coordinator.read(lambda state: state.fault_of_reader(wish.group_id, member_id or "", member_epoch))
        except Refusal:
            code = ErrorCode.NONE  # Told below, in this API's own words.
        if code is not ErrorCode.NONE:
            return _Found(code, [])
    return await _fetch(node, version, wish.group_id, wish.topics, is_stable=is_stable)


async def _fetch(node: "Node", version: int, group: str, topics: Sequence[Any] | None, *, is_stable: bool) -> _Found:
    wishes = None if topics is None else [_wish(node, version, topic) for topic in topics]
    wanted = None if wishes is None else [(wish.topic, index) for wish in wishes if wish.topic is not None for index in wish.partitions]
    try:
        coordinator = node.groups.find(group)
        if wishes is None:
            held, unstable = await coordinator.read(lambda state: (state.all_offsets(group), state.unstable(group)))
            return _Found(ErrorCode.NONE, await _all(node, version, held, unstable if is_stable else ()))
        views = await coordinator.read(lambda state: state.offsets(group, wanted, require_stable=is_stable))
    except Refusal as refusal:
        code = ErrorCode.NOT_COORDINATOR if refusal.code is ErrorCode.COORDINATOR_NOT_AVAILABLE else refusal.code
        return _Found(code, _refused(wishes, code) if version < _ERRORS_FROM else [])
    return _Found(ErrorCode.NONE, _asked(node, wishes or (), views))


def _wish(node: "Node", version: int, topic: Any) -> _Wish:
    if version < _TOPIC_IDS_FROM:
        return _Wish({"name": topic.name}, topic.name, topic.partition_indexes)
    topic_id = schemas.topic_id_bytes(topic.topic_id)
    known = node.image.topics_by_id.get(topic_id)
    return _Wish({"topic_id": topic_id}, None if known is None else known.name, topic.partition_indexes)


def _asked(node: "Node", wishes: Sequence[_Wish], views: Iterable[OffsetView]) -> list[dict[str, Any]]:
    told = iter(views)

    def row(wish: _Wish, index: int) -> dict[str, Any]:
        if wish.topic is None:
            return _nothing(index, ErrorCode.UNKNOWN_TOPIC_ID)
        view = next(told)
        return _nothing(index, ErrorCode.NONE) if node.groups.is_deleted(view.topic_id) else _row(view)

    return [{**wish.named, "partitions": [row(wish, index) for index in wish.partitions]} for wish in wishes]


async def _all(
    node: "Node", version: int, held: Sequence[tuple[str, Mapping[int, Committed]]], unstable: Container[tuple[str, int]] = ()
) -> list[dict[str, Any]]:
    """In slices: a group may have committed for everything that there is."""
    topics, patience, known = [], Patience(node.env), node.image.topics
    for name, partitions in held:
        if version >= _TOPIC_IDS_FROM and name not in known:
            continue
        named = {"name": name} if version < _TOPIC_IDS_FROM else {"topic_id": known[name].topic_id}
        rows = []
        for partition, committed in partitions.items():
            if patience.is_over():
                await patience.pause_if_over()
            view = OffsetView.of(name, partition, committed, unstable)
            if not node.groups.is_deleted(view.topic_id):
                rows.append(_row(view))
        if rows:
            topics.append({**named, "partitions": rows})
    return topics


def _refused(wishes: Sequence[_Wish] | None, code: ErrorCode) -> list[dict[str, Any]]:
    return [{**wish.named, "partitions": [_nothing(index, code) for index in wish.partitions]} for wish in wishes or ()]


def _row(view: OffsetView) -> dict[str, Any]:
    if view.is_unstable:
        return _nothing(view.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return {
        "partition_index": view.partition,
        "committed_offset": view.offset,
        "committed_leader_epoch": view.leader_epoch,
        "metadata": view.metadata,
        "error_code": ErrorCode.NONE,
    }


def _nothing(index: int, code: ErrorCode) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": "", "error_code": code}
