"""Nodes come, are heard no more, are back, run out of room, stop, and are taken off the list; and what that means for their partitions.

A node registers fenced: it leads nothing new and joins no in-sync set before it has caught up with the metadata and says so (UnfenceNode).
Each registration is a new life with a higher node epoch; what an older life asks for is refused (STALE_BROKER_EPOCH). It names the epoch
that it follows, and is taken only while that is the node's last: one that comes twice, or late from an earlier process, changes nothing.
All that one of these means for partitions is in the same decision: nobody ever reads of a fenced node that still leads where another could.
"""

from collections.abc import Iterator

from penstock.cluster import records
from penstock.cluster.commands import FenceNode, RegisterNode, ReportDisk, StopNode, UnfenceNode, UnregisterNode
from penstock.cluster.deciding import Decision, agreed, refused
from penstock.cluster.drafting import Draft
from penstock.cluster.image import ClusterImage, NodeState, PartitionState, Topic
from penstock.cluster.moving import AS_IT_IS, Wish
from penstock.cluster.promises import may_have_acknowledged_early
from penstock.cluster.records import BROKER, CONTROLLER
from penstock.cluster.replies import RegistrationOutdated
from penstock.errors import ErrorCode, Refusal
from penstock.vocabulary import NO_NODE, NodeId

ROLES = ((BROKER,), (CONTROLLER,), (BROKER, CONTROLLER), (CONTROLLER, BROKER))


def register(draft: Draft, command: RegisterNode) -> Decision:
    image, known = draft.image, draft.image.nodes.get(command.node_id)
    if (refusal := _why_not_registered(image, known, command)) is not None:
        return Decision((), (refusal,))
    last_epoch = _last_epoch(image, command.node_id)
    if command.previous_epoch not in (None, last_epoch):
        return agreed((), RegistrationOutdated(last_epoch))
    made: list[records.Record] = [] if image.cluster_id else [records.ClusterFormed(command.cluster_id)]
    has_other_disk = known is not None and known.directory_id != command.directory_id
    registered = records.NodeRegistered(
        command.node_id, last_epoch + 1, command.directory_id, command.host, command.port, command.rack,
        command.peer_host, command.peer_port, command.roles, is_fenced=True,
        has_new_disk=has_other_disk or (known is not None and known.has_new_disk), flush_defaults=command.flush_defaults,
    )  # fmt: skip
    made.append(registered)
    if known is not None:
        draft.change_node(command.node_id, is_fenced=True, is_stopping=False, has_new_disk=registered.has_new_disk)
        _come_back(draft, command, has_other_disk=has_other_disk)
    return agreed([*made, *draft.records()], registered)


def _why_not_registered(image: ClusterImage, known: NodeState | None, command: RegisterNode) -> Refusal | None:
    if image.cluster_id and command.cluster_id != image.cluster_id:
        reason = f"node {command.node_id} belongs to cluster {command.cluster_id!r}, and this is {image.cluster_id!r}"
        return Refusal(ErrorCode.INCONSISTENT_CLUSTER_ID, reason)
    if command.roles not in ROLES:
        return Refusal(ErrorCode.INVALID_REQUEST, f"a node is a broker, a controller, or both, not {', '.join(command.roles) or 'nothing'}")
    if known is not None and known.directory_id != command.directory_id and not known.is_fenced:
        reason = (
            f"node {command.node_id} is up with another data directory; stop that process, or give this one a number of its own "
            "(after a change of disk: it is let in as soon as the old one is known to be gone)"
        )
        return Refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION, reason)
    return None


def _last_epoch(image: ClusterImage, node_id: NodeId) -> int:
    known = image.nodes.get(node_id)
    return known.node_epoch if known is not None else image.retired.get(node_id, 0)


def _come_back(draft: Draft, command: RegisterNode, *, has_other_disk: bool) -> None:
    """Others lead and are in sync instead of it, where there are others; where there are none, it goes on.

    What it had acknowledged after a flush it still has, however it was stopped; what it acknowledged before one may be gone after an
    unclean stop, so that others who have everything come before it. Of a disk that was put in since nothing is expected.
    Others that may be down although the image has them as up don't count as being there: after a power cut of all nodes, the first to
    register would otherwise give its place to those that may never come back, or come back damaged.
    """
    node_id, before = command.node_id, draft.image.nodes[command.node_id]
    for topic, index in _held_by(draft.image, node_id):
        state, together = draft.state(topic, index), draft.image.together(topic)
        is_lossy = not command.was_stopped_cleanly and any(may_have_acknowledged_early(draft, each, before) for each in together)
        is_only_one = draft.have_everything(topic, index) == (node_id,)
        is_distrusted = has_other_disk or (is_lossy and not is_only_one)
        leaders = draft.in_sync(topic, index)
        is_leading = state.leader == node_id and not command.was_stopped_cleanly
        for place, each in enumerate(together):
            in_sync = draft.state(each, index).in_sync
            others = tuple(node for node in (leaders if node_id in leaders else in_sync) if node != node_id)
            stays = not is_distrusted and all(draft.doubts(node) for node in others)
            wish = Wish(
                in_sync if stays else tuple(node for node in in_sync if node != node_id),
                distrusted=node_id if is_distrusted else None,
                begins_epoch=stays and is_leading and place == 0,  # Of all of them.
                begins_version=stays and len(in_sync) > 1,  # The leader, if there is one, must know this life of it.
            )
            draft.move(each, index, wish)


def _has_live(draft: Draft, nodes: tuple[NodeId, ...]) -> bool:
    return any((node := draft.nodes.get(node_id)) is not None and node.is_live for node_id in nodes)


def fence(draft: Draft, command: FenceNode) -> Decision:
    if (refusal := _why_stale(draft.image, command.node_id, command.node_epoch)) is not None:
        return refusal
    fenced = records.NodeFenced(command.node_id, command.node_epoch)
    if draft.image.nodes[command.node_id].is_fenced:
        return agreed((), fenced)
    draft.change_node(command.node_id, is_fenced=True)
    _leave_in_sync_sets(draft, command.node_id, even_if_last=True)
    return agreed([fenced, *draft.records()], fenced)


def unfence(draft: Draft, command: UnfenceNode) -> Decision:
    if (refusal := _why_stale(draft.image, command.node_id, command.node_epoch)) is not None:
        return refusal
    node, unfenced = draft.image.nodes[command.node_id], records.NodeUnfenced(command.node_id, command.node_epoch)
    if node.is_stopping:
        return refused(ErrorCode.INVALID_REQUEST, f"node {command.node_id} asked to stop; it must register again to take part again")
    if not node.is_fenced:
        return agreed((), unfenced)
    draft.change_node(command.node_id, is_fenced=False)
    for topic_id, index in draft.image.unsettled:
        topic = draft.image.topics_by_id[topic_id]
        state = topic.partitions[index]
        if command.node_id in state.replicas and not _has_live(draft, (state.leader,)):
            draft.move(topic, index, AS_IT_IS)
    _relieve_full_leaders(draft, command.node_id)
    return agreed([unfenced, *draft.records()], unfenced)


def stop(draft: Draft, command: StopNode) -> Decision:
    """Others lead and are waited for instead of it, wherever there are others. What only it can lead stays until it is gone."""
    if (refusal := _why_stale(draft.image, command.node_id, command.node_epoch)) is not None:
        return refusal
    stopping = records.NodeStopping(command.node_id, command.node_epoch)
    is_news = not draft.image.nodes[command.node_id].is_stopping
    draft.change_node(command.node_id, is_stopping=True)
    _leave_in_sync_sets(draft, command.node_id, even_if_last=False)
    return agreed([*([stopping] if is_news else []), *draft.records()], stopping)


def report_disk(draft: Draft, command: ReportDisk) -> Decision:
    """Leaders with a full disk are replaced wherever another replica is in sync and has room, be it the one that reports."""
    if (refusal := _why_stale(draft.image, command.node_id, command.node_epoch)) is not None:
        return refusal
    reported = records.NodeDiskReported(command.node_id, command.node_epoch, command.is_full)
    if draft.image.nodes[command.node_id].is_disk_full == command.is_full:
        return agreed((), reported)
    draft.change_node(command.node_id, is_disk_full=command.is_full)
    _relieve_full_leaders(draft, command.node_id)
    return agreed([reported, *draft.records()], reported)


def _relieve_full_leaders(draft: Draft, node_id: NodeId) -> None:
    """Of what this node holds: another leads in place of a node whose disk is full, where there is one with room."""
    full = [node.node_id for node in draft.nodes.values() if node.is_disk_full]
    if not full:
        return
    for topic, index in _held_by(draft.image, node_id):
        if draft.state(topic, index).leader in full:
            draft.move(topic, index, AS_IT_IS)


def unregister(image: ClusterImage, command: UnregisterNode) -> Decision:
    node = image.nodes.get(command.node_id)
    if node is None:
        return refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {command.node_id}")
    if not node.is_fenced:
        return refused(ErrorCode.INVALID_REQUEST, f"node {command.node_id} is up: stop it first")
    if (load := image.loads.get(command.node_id)) is not None:
        reason = f"node {command.node_id} is a replica of {load.replicas} partitions: reassign them first, also if it is lost"
        return refused(ErrorCode.INVALID_REQUEST, reason)
    gone = records.NodeUnregistered(command.node_id, node.node_epoch)
    return agreed((gone,), gone)


def _leave_in_sync_sets(draft: Draft, node_id: NodeId, *, even_if_last: bool) -> None:
    for topic, index in _held_by(draft.image, node_id):
        if not even_if_last and all(node == node_id for node in draft.in_sync(topic, index)):
            continue
        for each in draft.image.together(topic):
            in_sync = draft.state(each, index).in_sync
            if node_id in in_sync:
                draft.move(each, index, Wish(in_sync=tuple(node for node in in_sync if node != node_id)))


def _held_by(image: ClusterImage, node_id: NodeId) -> Iterator[tuple[Topic, int]]:
    """Where the node's coming or going may change anything. Where two move together, the data stand for both."""
    for topic in image.topics.values():
        if image.data_of(topic.topic_id) is not None:
            continue
        companion = image.companion_of(topic.topic_id)
        for index, state in enumerate(topic.partitions):
            if _counts_in(state, node_id) or (companion is not None and _counts_in(companion.partitions[index], node_id)):
                yield topic, index


def _counts_in(state: PartitionState, node_id: NodeId) -> bool:
    return node_id in state.in_sync or node_id in state.eligible or node_id == state.last_leader != NO_NODE


def _why_stale(image: ClusterImage, node_id: NodeId, node_epoch: int) -> Decision | None:
    node = image.nodes.get(node_id)
    if node is None:
        return refused(ErrorCode.BROKER_ID_NOT_REGISTERED, f"there is no node {node_id}: it must register")
    if node.node_epoch != node_epoch:
        reason = f"node {node_id} has registered in epoch {node.node_epoch}, not {node_epoch}: another life of it"
        return refused(ErrorCode.STALE_BROKER_EPOCH, reason)
    return None
