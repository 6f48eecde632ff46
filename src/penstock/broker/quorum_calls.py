"""What only the quorum's leader knows or may change, asked at any node: how far each replica is, who votes, and what is committed now.

Elsewhere it is carried to the leader over a link, as JSON: it is seldom asked. A node that cannot reach the leader describes the quorum by
what it knows itself, which is names.
"""

import asyncio
import json
from typing import TYPE_CHECKING, Any

from penstock.broker.quorum import CommitUnknown, NotLeading, OrderRefused
from penstock.broker.quorum_views import QuorumView, ReplicaView
from penstock.consensus.effects import Reason
from penstock.consensus.nouns import DirectoryId, Replica, Term
from penstock.errors import DiskFailed, ErrorCode, MalformedInput, Refusal
from penstock.links.door import Asked
from penstock.links.failures import LinkFailure
from penstock.links.kinds import Kind
from penstock.vocabulary import NodeId, Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node

CATCH_UP_SECONDS = 10.0
DESCRIBE_SECONDS = 3.0
CHANGE_SECONDS = 10.0

# The asker may try again after a time-out, and does: a replica catches up, and another change comes to its end.
_CODES = {
    Reason.ALREADY_A_VOTER: ErrorCode.DUPLICATE_VOTER,
    Reason.NOT_A_VOTER: ErrorCode.VOTER_NOT_FOUND,
    Reason.LAST_VOTER: ErrorCode.INVALID_REQUEST,
}


async def describe_quorum(node: "Node") -> QuorumView:
    if node.quorum.is_leading:
        return node.quorum.describe()
    try:
        return _read_view(await node.forwarding.ask_controller(Kind.DESCRIBE_QUORUM, b"", timeout_s=DESCRIBE_SECONDS))
    except (LinkFailure, MalformedInput):
        return node.quorum.describe()


async def change_voters(node: "Node", replica: Replica, *, is_added: bool) -> None:
    """One voter more, or less. Raises Refusal."""
    if node.quorum.is_leading:
        return await _change_here(node, replica, is_added=is_added)
    body = json.dumps({"node": replica.node, "directory": replica.directory.hex(), "is_added": is_added}).encode()
    try:
        told = _read_object(await node.forwarding.ask_controller(Kind.CHANGE_VOTERS, body, timeout_s=CHANGE_SECONDS))
        code = ErrorCode(told["code"])
    except LinkFailure as failure:
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT, f"the controller did not answer: {failure}") from None
    except (KeyError, ValueError, MalformedInput):
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's answer cannot be read: it may be a newer Penstock") from None
    if code is not ErrorCode.NONE:
        raise Refusal(code, str(told.get("reason", "")))


async def catch_up(node: "Node") -> None:
    """Waits until this node has replayed every decision that was committed before the call.

    What the image still lacks then is deleted, if it was there before. Without this the node may only be behind. Raises Refusal.
    """
    try:
        async with asyncio.timeout(CATCH_UP_SECONDS):
            if node.quorum.is_leading:
                await node.quorum.barrier()
                return
            told = _read_object(await node.forwarding.ask_controller(Kind.METADATA_END, b"", timeout_s=CATCH_UP_SECONDS))
            if told["end"] is None:
                raise Refusal(ErrorCode.NOT_CONTROLLER, "the metadata quorum has another leader")
            await node.quorum.applied(Offset(int(told["end"])))
    except (LinkFailure, TimeoutError, NotLeading, OrderRefused, CommitUnknown, DiskFailed) as failure:
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT, f"this node may lack the newest metadata: {failure}") from None
    except (KeyError, TypeError, ValueError, MalformedInput):
        raise Refusal(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller's answer cannot be read: it may be a newer Penstock") from None


def asked_for_metadata_end(node: "Node", asked: Asked) -> None:
    node.spawn(_answer_metadata_end(node, asked))


async def _answer_metadata_end(node: "Node", asked: Asked) -> None:
    try:
        end: int | None = await node.quorum.barrier()
    except (NotLeading, OrderRefused, CommitUnknown, DiskFailed):
        end = None
    asked.answer([json.dumps({"end": end}).encode()])


def asked_to_describe(node: "Node", asked: Asked) -> None:
    asked.answer([_write_view(node.quorum.describe())])


def asked_to_change(node: "Node", asked: Asked) -> None:
    """Raises MalformedInput."""
    told = _read_object(asked.body)
    try:
        replica = Replica(NodeId(int(told["node"])), DirectoryId(bytes.fromhex(told["directory"])))
        is_added = bool(told["is_added"])
    except (KeyError, TypeError, ValueError):
        raise MalformedInput("a wish about voters is not what it should be") from None
    node.spawn(_answer_change(node, asked, replica, is_added=is_added))


async def _answer_change(node: "Node", asked: Asked, replica: Replica, *, is_added: bool) -> None:
    code, reason = ErrorCode.NONE, ""
    try:
        await _change_here(node, replica, is_added=is_added)
    except Refusal as refusal:
        code, reason = refusal.code, refusal.reason
    asked.answer([json.dumps({"code": int(code), "reason": reason}).encode()])


async def _change_here(node: "Node", replica: Replica, *, is_added: bool) -> None:
    known = node.image.nodes.get(replica.node)
    if is_added and known is not None and "controller" not in known.roles:
        raise Refusal(ErrorCode.INVALID_REQUEST, f"node {replica.node} has not the role controller (--roles broker,controller)")
    try:
        await (node.quorum.add_voter(replica) if is_added else node.quorum.remove_voter(replica))
    except OrderRefused as refused:
        raise Refusal(_CODES.get(refused.reason, ErrorCode.REQUEST_TIMED_OUT), refused.reason.value) from None
    except NotLeading as elsewhere:
        raise Refusal(ErrorCode.NOT_CONTROLLER, str(elsewhere)) from None
    except (CommitUnknown, DiskFailed) as unknown:
        raise Refusal(ErrorCode.REQUEST_TIMED_OUT, f"nobody knows whether it was done: {unknown}") from None


def _write_view(view: QuorumView) -> bytes:
    told = {
        "leader": view.leader, "term": view.term, "committed_end": view.committed_end,
        "voters": list(map(_plain, view.voters)), "observers": list(map(_plain, view.observers)),
    }  # fmt: skip
    return json.dumps(told).encode()


def _plain(view: ReplicaView) -> list[Any]:
    return [view.replica.node, view.replica.directory.hex(), view.end, view.silent_seconds]


def _read_view(body: memoryview) -> QuorumView:
    told = _read_object(body)
    try:
        leader = None if told["leader"] is None else NodeId(int(told["leader"]))
        voters, observers = (tuple(map(_replica_view, told[name])) for name in ("voters", "observers"))
        return QuorumView(leader, Term(int(told["term"])), Offset(int(told["committed_end"])), voters, observers)
    except (KeyError, TypeError, ValueError):
        raise MalformedInput("a view of the quorum is not what it should be") from None


def _replica_view(row: list[Any]) -> ReplicaView:
    node, directory, end, silent = row
    replica = Replica(NodeId(int(node)), DirectoryId(bytes.fromhex(directory)))
    return ReplicaView(replica, Offset(int(end)), None if silent is None else float(silent))


def _read_object(body: memoryview) -> dict[str, Any]:
    try:
        told = json.loads(bytes(body))
    except ValueError:
        told = None
    if not isinstance(told, dict):
        raise MalformedInput("a call between nodes is not what it should be")
    return told
