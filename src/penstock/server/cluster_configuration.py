"""How a node stands to its cluster: who votes, its roles, where the other nodes find it, and the secret that they share.

Everything that would only show when three machines wait for each other is refused here, with what to do about it. The secret is no
setting: it comes from the variable PENSTOCK_CLUSTER_SECRET or from a file that nobody else may read, is never printed, and is gone from
what the process shows of itself.
Not here: what voters and roles mean (broker/), and what a node alone is given (configuration.py).
"""

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.cluster.quorum_addresses import parse_voters
from penstock.server.addresses import is_wildcard
from penstock.server.complaints import ConfigurationWrong
from penstock.settings import NodeSettings
from penstock.vocabulary import Address, NodeId

SECRET_VARIABLE = "PENSTOCK_CLUSTER_SECRET"
SECRET_BYTES_MIN = 16  # Half of what HMAC-SHA256 can use: enough that nobody guesses it.
SECRET_BYTES_MAX = 4_096

_CLUSTER_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_MAKE_SECRET = (
    "make one and give every node the same: (umask 077; openssl rand -hex 32 > cluster.secret)\n"
    "then add --cluster-secret-file cluster.secret"
)


@dataclass(frozen=True, slots=True)
class ClusterConfiguration:
    """Of a node that is one of several."""

    peers: Address  # Where this node listens for the others.
    advertised: Address  # Where the others are told to connect.
    voters: Mapping[NodeId, Address]
    secret: bytes = field(repr=False)


def read_secret(environment: Mapping[str, str], file: str) -> bytes:
    """Nothing where none was given."""
    given = environment.get(SECRET_VARIABLE, "")
    if given and file:
        raise ConfigurationWrong(f"the cluster secret is given twice: by {SECRET_VARIABLE} and by cluster.secret.file", "keep one of them")
    secret = _read_secret_file(Path(file)) if file else given.strip().encode()
    source = file or SECRET_VARIABLE
    if (given or file) and len(secret) < SECRET_BYTES_MIN:
        what = f"the cluster secret of {source} has {len(secret)} bytes; it needs {SECRET_BYTES_MIN} at least"
        raise ConfigurationWrong(what, _MAKE_SECRET)
    if len(secret) > SECRET_BYTES_MAX:
        raise ConfigurationWrong(f"the cluster secret of {source} has more than {SECRET_BYTES_MAX} bytes", _MAKE_SECRET)
    return secret


def stand_alone(settings: NodeSettings, peers: Address | None) -> None:
    """Refuses what makes sense among several nodes only."""
    _check_cluster_id(settings.cluster_id)
    if peers is not None:
        what = "--peers is where the other nodes of a cluster connect, and no voters are named"
        raise ConfigurationWrong(what, "add --voters, or leave --peers out")
    if settings.joins_cluster:
        raise ConfigurationWrong("a node that joins a cluster must know whom to ask", "add --voters with the voters of that cluster")
    for role in ("broker", "controller"):
        if role not in settings.process_roles:
            raise ConfigurationWrong(
                f"a node with the role {settings.process_roles} needs others, and no voters are named",
                "name them with --voters, or leave --roles out: a node alone has both roles",
            )


def stand_in_cluster(settings: NodeSettings, *, peers: Address | None, advertised: Address | None, secret: bytes) -> ClusterConfiguration:
    voters = read_voters(settings.quorum_voters)
    node_id = NodeId(settings.node_id)
    if not settings.cluster_id:
        raise ConfigurationWrong("--voters without a cluster id", "give every node of the cluster the same: --cluster-id NAME")
    _check_cluster_id(settings.cluster_id)
    if not secret:
        raise ConfigurationWrong("--voters without a cluster secret: nodes trust each other by it", _MAKE_SECRET)
    _check_roles(settings, voters)
    _check_times(settings)
    listens = peers or voters.get(node_id)
    if listens is None:
        what = f"node {node_id} is no voter, so nothing says where it listens for the other nodes"
        raise ConfigurationWrong(what, "add --peers HOST:PORT")
    return ClusterConfiguration(listens, _advertised(listens, advertised, voters.get(node_id)), voters, secret)


def read_voters(text: str) -> dict[NodeId, Address]:
    try:
        voters = parse_voters(text)
    except ValueError as wrong:
        what, _, example = str(wrong).partition(": write ")
        raise ConfigurationWrong(f"--voters: {what}", f"write {example}" if example else "") from None
    return voters


def _check_roles(settings: NodeSettings, voters: Mapping[NodeId, Address]) -> None:
    node_id, names = settings.node_id, ", ".join(map(str, voters))
    is_controller = "controller" in settings.process_roles
    if is_controller and node_id not in voters:
        raise ConfigurationWrong(
            f"node {node_id} has the role controller and is not among the voters ({names})",
            f"add {node_id}@HOST:PORT to --voters, or give it the role of a broker alone: --roles broker",
        )
    if not is_controller and node_id in voters:
        raise ConfigurationWrong(
            f"node {node_id} is among the voters ({names}) and has not the role controller",
            "add the role, --roles broker,controller or --roles controller, or take it out of --voters on every node",
        )
    if not ("broker" in settings.process_roles or len(voters) > 1):
        raise ConfigurationWrong("a controller that is the only voter and no broker serves nobody", "use --roles broker,controller")


def _check_times(settings: NodeSettings) -> None:
    texts = settings.as_texts()
    for name, other in (
        ("broker.session.timeout.ms", "broker.heartbeat.interval.ms"),
        ("controller.quorum.election.timeout.ms", "controller.quorum.heartbeat.interval.ms"),
    ):
        longer, shorter = int(texts[name]), int(texts[other])
        if longer < 2 * shorter:
            raise ConfigurationWrong(
                f"{name} is {longer} and {other} is {shorter}: one heartbeat that is late would count as a death",
                f"make the first twice the second at least, better four times: --set {name}={4 * shorter}",
            )


def _advertised(listens: Address, advertised: Address | None, entry: Address | None) -> Address:
    """A voter is found where the voters say; another node where it says itself."""
    told = advertised or entry or listens
    if is_wildcard(told.host):
        raise ConfigurationWrong(
            f"--peers {listens} listens on every interface, so the other nodes cannot be told where to connect",
            f"name the address that they can reach: --advertise-peers HOST:{listens.port or 'PORT'}",
        )
    return told


def _check_cluster_id(cluster_id: str) -> None:
    if cluster_id and not _CLUSTER_ID.fullmatch(cluster_id):
        raise ConfigurationWrong(f"{cluster_id!r} cannot be a cluster id", "use 1 to 64 letters, digits, '.', '_' or '-'")


def _read_secret_file(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise ConfigurationWrong(f"the cluster secret {path} is no file", _MAKE_SECRET)
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigurationWrong(
                f"the cluster secret {path} can be read by others (mode {stat.S_IMODE(mode):03o})", f"keep it to yourself: chmod 600 {path}"
            )
        return path.read_bytes().strip()
    except OSError as failure:
        raise ConfigurationWrong(f"the cluster secret {path} cannot be read: {failure.strerror}", _MAKE_SECRET) from None
