"""Whose data directory this is, and whether its last life ended well.

`node/identity` is written once: cluster, node and directory ids. A directory that belongs to another node is refused: with a wrong identity
a node would vouch for records that it never had.
`node/clean-shutdown` is written last when a node stops and removed first when it starts, so that it is there only after a stop that had
flushed and checkpointed every log.
"""

import json
from dataclasses import asdict, dataclass

from penstock.env import Env
from penstock.errors import DiskFailed
from penstock.log.small_files import read_whole, replace_file, seal, unseal

NODE_DIRECTORY = "node"
LOCK_PATH = "lock"
_IDENTITY, _PREVIOUS_IDENTITY = "identity", "identity.previous"
_CLEAN_MARKER, _PREVIOUS_CLEAN_MARKER = "clean-shutdown", "clean-shutdown.previous"
_KIND = b"identity"
_FORMAT_VERSION = 1


class WrongDirectory(Exception):
    """The data directory cannot be this node's; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class Identity:
    cluster_id: str
    node_id: int
    directory_id: str


async def load_or_create_identity(env: Env, node_id: int, cluster_id: str = "") -> Identity:
    """`cluster_id`: the cluster that it must belong to; empty: any, and a new directory founds one of its own."""
    identity = _load(env)
    if identity is None:
        return await _create(env, node_id, cluster_id)
    if cluster_id and identity.cluster_id != cluster_id:
        raise WrongDirectory(
            f"the data directory belongs to cluster {identity.cluster_id}, not to {cluster_id}: use another directory, or that cluster id"
        )
    if identity.node_id != node_id:
        raise WrongDirectory(
            f"the data directory belongs to node {identity.node_id}, this is node {node_id}: start it with --node-id {identity.node_id}"
        )
    return identity


async def take_clean_marker(env: Env) -> bool:
    """Whether the last stop was clean. The marker is gone for good before anything else is written."""
    was_clean = env.disk.exists(f"{NODE_DIRECTORY}/{_CLEAN_MARKER}")
    if was_clean:
        env.disk.unlink(f"{NODE_DIRECTORY}/{_CLEAN_MARKER}")
        if failures := await env.disk.sync([], [NODE_DIRECTORY]):
            raise DiskFailed(f"cannot remove the clean-shutdown marker: {failures[0][1]}")
    return was_clean


async def leave_clean_marker(env: Env) -> None:
    await replace_file(env.disk, NODE_DIRECTORY, _CLEAN_MARKER, b"clean\n", previous=_PREVIOUS_CLEAN_MARKER)


def _load(env: Env) -> Identity | None:
    for name in (_IDENTITY, _PREVIOUS_IDENTITY):
        path = f"{NODE_DIRECTORY}/{name}"
        content = read_whole(env.disk, path)
        body = None if content is None else unseal(content, _KIND, _FORMAT_VERSION, path)
        if body is not None:
            return Identity(**json.loads(bytes(body)))
    return None


async def _create(env: Env, node_id: int, cluster_id: str) -> Identity:
    if env.disk.list("metadata") or env.disk.list("topics"):
        raise WrongDirectory(
            "the data directory holds logs but no readable node/identity, so nobody knows whose they are; "
            "restore that file or use another directory"
        )
    drawn = _new_id(env)
    identity = Identity(cluster_id or drawn, node_id, _new_id(env))
    env.disk.mkdir(NODE_DIRECTORY)
    if failures := await env.disk.sync([], [""]):
        raise DiskFailed(f"cannot make {NODE_DIRECTORY}: {failures[0][1]}")
    content = seal(_KIND, _FORMAT_VERSION, json.dumps(asdict(identity)).encode())
    await replace_file(env.disk, NODE_DIRECTORY, _IDENTITY, content, previous=_PREVIOUS_IDENTITY)
    return identity


def _new_id(env: Env) -> str:
    return env.rng.randbytes(16).hex()
