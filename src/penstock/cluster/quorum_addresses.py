"""The setting `controller.quorum.voters` as a table: which nodes vote, and where the listener of each for other nodes is.

Written 1@host:port,2@host:port,3@host:port; an IPv6 host stands in brackets. An entry is what the other nodes connect to, so it names a
host and a port that they can reach. Who votes once a cluster is there is in its metadata log; this is how a cluster is founded, and where a
node that knows nothing yet asks first.
"""

from penstock.vocabulary import Address, NodeId

_WILDCARDS = frozenset({"0.0.0.0", "::", "*", ""})
_EXAMPLE = "write NODE@HOST:PORT with commas between them, for example 1@10.0.0.1:9093,2@10.0.0.2:9093,3@10.0.0.3:9093"


def parse_voters(text: str) -> dict[NodeId, Address]:
    """By node, in the order of their numbers; none of an empty text. Raises ValueError with a sentence that says what is wrong."""
    voters: dict[NodeId, Address] = {}
    for entry in (part.strip() for part in text.split(",")) if text.strip() else ():
        node_id, address = _parse_one(entry)
        if node_id in voters:
            raise ValueError(f"node {node_id} is named twice among the voters")
        for other, taken in voters.items():
            if taken == address:
                raise ValueError(f"nodes {other} and {node_id} cannot both listen on {address}")
        voters[node_id] = address
    return dict(sorted(voters.items()))


def spell_voters(voters: dict[NodeId, Address]) -> str:
    """As `parse_voters` reads it."""
    return ",".join(f"{node_id}@{address}" for node_id, address in voters.items())


def _parse_one(entry: str) -> tuple[NodeId, Address]:
    node, at, address = entry.partition("@")
    host, colon, port = address.rpartition(":")
    if not at or not colon or not _is_number(node, 2**31 - 1) or not _is_number(port, 65_535):
        raise ValueError(f"{entry!r} is no voter: {_EXAMPLE}")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{entry!r} is ambiguous: an IPv6 host stands in brackets, for example 1@[::1]:9093")
    if host in _WILDCARDS or int(port) == 0:
        raise ValueError(f"{entry!r} is nothing that other nodes can connect to: {_EXAMPLE}")
    return NodeId(int(node)), Address(host, int(port))


def _is_number(text: str, most: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) <= most
