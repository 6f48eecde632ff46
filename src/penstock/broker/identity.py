"""Whose data directory this is, and whether its last life ended well.

`node.json` is written once: format version, cluster, node and directory ids. A directory that belongs to another node is refused: with a
wrong identity a node would vouch for records that it never had.
`clean-shutdown` is written last when a node stops and removed first when it starts, so that it is there only after a stop
that had flushed and checkpointed every log.
"""

import json
from dataclasses import asdict, dataclass
from random import Random

from penstock.env import Disk, Env
from penstock.errors import DiskFailed
from penstock.log.atomic import replace_file

IDENTITY_PATH = "node.json"
CLEAN_MARKER_PATH = "clean-shutdown"
LOCK_PATH = "lock"
FORMAT_VERSION = 1
_READ_MAX = 1 << 16


class WrongDirectory(Exception):
    """The data directory cannot be this node's; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    cluster_id: str
    node_id: int
    directory_id: str


async def load_or_create_identity(env: Env, node_id: int) -> Identity:
    disk = env.disk
    if not disk.exists(IDENTITY_PATH):
        if disk.list("metadata") or disk.list("topics"):
            raise WrongDirectory("the data directory holds logs but no node.json, so nobody knows whose they are; restore node.json or use another directory")
        identity = Identity(_new_id(env.rng), node_id, _new_id(env.rng))
        await replace_file(disk, IDENTITY_PATH, json.dumps({"format_version": FORMAT_VERSION, **asdict(identity)}, indent=1).encode())
        return identity
    identity = _parse(_read_whole(disk, IDENTITY_PATH))
    if identity.node_id != node_id:
        raise WrongDirectory(f"the data directory belongs to node {identity.node_id}, this is node {node_id}: start it with --node-id {identity.node_id}")
    return identity


def _parse(content: bytes) -> Identity:
    try:
        fields = json.loads(content)
        version = fields.pop("format_version")
        identity = Identity(**fields) if version <= FORMAT_VERSION else None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise WrongDirectory("node.json cannot be read; restore it from a copy: it names the cluster, the node and the directory") from None
    if identity is None:
        raise WrongDirectory(f"node.json has format {version}: start a newer Penstock on this data directory")
    return identity


async def take_clean_marker(env: Env) -> bool:
    """Whether the last stop was clean. The marker is gone for good before anything else is written."""
    was_clean = env.disk.exists(CLEAN_MARKER_PATH)
    if was_clean:
        env.disk.unlink(CLEAN_MARKER_PATH)
        if failures := await env.disk.sync([], [""]):
            raise DiskFailed(f"cannot remove the clean-shutdown marker: {failures[0][1]}")
    return was_clean


async def leave_clean_marker(env: Env) -> None:
    await replace_file(env.disk, CLEAN_MARKER_PATH, b"1\n")


def _read_whole(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return disk.read_at(file, 0, _READ_MAX)
    finally:
        disk.close(file)


def _new_id(rng: Random) -> str:
    return rng.randbytes(16).hex()
