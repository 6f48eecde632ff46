"""The groups of this node, as the admin doors see them.

Single groups are read the way that clients read them: once everything that the answer rests on is durable. What is looked over in bulk
(lists, metrics) is read as it stands, without waiting for the disk: it is a picture, not a promise. Coordinators that are still loading
have no groups yet in such a picture.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING

from penstock.broker.group_lag import CommittedOffset
from penstock.broker.patience import Patience
from penstock.errors import ErrorCode, Refusal
from penstock.groups.states import GroupState
from penstock.groups.views import GroupListed, GroupView, OffsetView
from penstock.vocabulary import TopicPartition

if TYPE_CHECKING:
    from penstock.broker.node import Node


async def groups_now(node: "Node") -> list[GroupListed]:
    """By name, as they stand."""
    patience = Patience(node.env)
    found: list[GroupListed] = []
    for coordinator in list(node.groups):
        if coordinator.state is not None:
            found += coordinator.state.groups()
        await patience.pause_if_over()
    return sorted(found, key=lambda listed: listed.group)


def group_now(node: "Node", group: str) -> GroupView | None:
    """As it stands; None where there is none, or its coordinator is loading."""
    try:
        state = node.groups.find(group).state
    except Refusal:
        return None
    view = None if state is None else state.describe(group)
    return None if view is None or view.state is GroupState.DEAD else view


async def offsets_now(node: "Node", groups: list[str]) -> AsyncIterator[CommittedOffset]:
    """What these groups have committed, in order of group, topic and partition, as it stands."""
    patience = Patience(node.env)
    for group in groups:
        await patience.pause_if_over()
        try:
            state = node.groups.find(group).state
        except Refusal:
            return
        if state is not None:
            for view in sorted(_of_topics(node, state.offsets(group, None))):
                yield CommittedOffset(group, TopicPartition(view.topic, view.partition), view.offset)
                await patience.pause_if_over()


async def described(node: "Node", group: str) -> GroupView:
    """Raises Refusal where there is no such group."""
    try:
        view = await node.groups.find(group).read(lambda state: state.describe(group))
    except Refusal as refusal:
        if refusal.code is ErrorCode.NOT_COORDINATOR and not list(node.groups):
            raise no_such(group) from None  # Nobody has made a group yet.
        raise
    if view.state is GroupState.DEAD:
        raise no_such(group)
    return view


async def committed(node: "Node", group: str) -> list[OffsetView]:
    """By topic and partition."""
    found = await node.groups.find(group).read(lambda state: list(state.offsets(group, None)))
    return sorted(_of_topics(node, found))


def _of_topics(node: "Node", views: Iterable[OffsetView]) -> Iterator[OffsetView]:
    """Without what was committed for topics that were deleted."""
    return (view for view in views if not node.groups.is_deleted(view.topic_id))


def no_such(group: str) -> Refusal:
    return Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
