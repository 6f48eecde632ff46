"""This node among others: where they listen, its links to them, its own listener for them, and who takes what they say.

A node that is a cluster of its own has no neighbours, no links and no such listener.
An address is what the other node last registered; until one is known, what the setting `controller.quorum.voters` says. A node that is new,
or has moved, cannot register before it hears from the leader, and the leader could not call it: so whoever hears from no leader says where
it listens, and that holds until it has registered.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.copy_reading import asked_for_batches
from penstock.broker.identity import Identity
from penstock.broker.quorum_calls import asked_for_metadata_end, asked_to_change, asked_to_describe
from penstock.broker.trimming import asked_to_trim
from penstock.cluster.quorum_addresses import parse_voters
from penstock.consensus.messages import Knock, Message
from penstock.consensus.nouns import ANY_DIRECTORY, DirectoryId, Replica
from penstock.consensus.voters import Voters
from penstock.errors import MalformedInput
from penstock.links.door import Door
from penstock.links.handshake import Introduction
from penstock.links.kinds import Kind, Lane
from penstock.links.links import Links
from penstock.links.raft_messages import read_message, write_message
from penstock.vocabulary import Address, NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node

_ADDRESS_BYTES_MAX = 300  # A host name has 253 characters at most.


class Neighbours:
    def __init__(self, node: "Node", identity: Identity, secret: bytes) -> None:
        self._node = node
        self.voters = parse_voters(node.settings.quorum_voters)  # As the setting has them: whom a node asks that knows nothing yet.
        me = Introduction(identity.cluster_id, NodeId(identity.node_id), DirectoryId(bytes.fromhex(identity.directory_id)))
        self.links = Links(node.env, me, secret, address_of=self.address_of, report=node.report)
        self.door = Door(node.env, me, secret, report=node.report)
        self.advertised: Address | None = None  # Where the other nodes are told to connect.
        self._announced: dict[NodeId, tuple[Address, int]] = {}  # Where nodes say that they listen, and their node epoch at that time.
        self._server: asyncio.Server | None = None

    def hear(self) -> None:
        """From here on what others say is taken. The node listens before it has a quorum, which could make nothing of it."""
        node = self._node
        self.links.on_contact_lost = self.door.on_contact_lost = node.membership.controlling.contact_lost
        self.door.told[Kind.RAFT] = lambda sender, body: node.quorum.received(read_message(body))
        self.door.told[Kind.REACHED] = node.replica_serving.reached
        self.door.told[Kind.LISTENS_AT] = self._announced_itself
        self.door.told[Kind.QUEUE_CALL_OVER] = node.queues.answering.over
        self.door.asked[Kind.QUEUE_CALL] = node.queues.answering.asked
        self.door.asked[Kind.REPLICA_FETCH] = node.replica_serving.asked
        self.door.asked[Kind.SUBMIT] = node.forwarding.asked
        self.door.asked[Kind.HEARTBEAT] = node.membership.controlling.asked
        self.door.asked[Kind.ADD_TO_TRANSACTION] = node.transactions.asked_to_add
        self.door.asked[Kind.WRITE_MARKERS] = node.marker_writing.asked
        self.door.asked[Kind.SHARE_LEDGER] = node.shares.beginnings.asked
        self.door.asked[Kind.TRIM] = partial(asked_to_trim, node)
        self.door.asked[Kind.COPY] = partial(asked_for_batches, node)
        self.door.asked[Kind.METADATA_END] = partial(asked_for_metadata_end, node)
        self.door.asked[Kind.DESCRIBE_QUORUM] = partial(asked_to_describe, node)
        self.door.asked[Kind.CHANGE_VOTERS] = partial(asked_to_change, node)

    @property
    def first_voters(self) -> Voters:
        """Of a cluster that begins with this node's empty disk and others'; none for a disk that joins one which is there."""
        settings = self._node.settings
        if settings.joins_cluster or settings.node_id not in self.voters:
            return Voters()
        return Voters(tuple(Replica(node_id, ANY_DIRECTORY) for node_id in self.voters))

    def address_of(self, node_id: NodeId) -> Address | None:
        known = self._node.image.nodes.get(node_id)
        announced = self._announced.get(node_id)
        if announced is not None and announced[1] == (0 if known is None else known.node_epoch):
            return announced[0]
        if known is not None and known.peer_host:
            return Address(known.peer_host, known.peer_port)
        return self.voters.get(node_id)

    def is_in_contact_with(self, node_id: NodeId) -> bool:
        return self.links.is_up(node_id, Lane.CALLS)

    def tell_replica(self, to: NodeId, message: Message) -> None:
        if isinstance(message, Knock) and self.advertised is not None:
            self.links.tell(to, Kind.LISTENS_AT, f"{self.advertised.port} {self.advertised.host}".encode())
        self.links.tell(to, Kind.RAFT, write_message(message))

    def _announced_itself(self, sender: NodeId, body: memoryview) -> None:
        port, _, host = bytes(body).decode(errors="replace").partition(" ")
        if not port.isdecimal() or not host or len(body) > _ADDRESS_BYTES_MAX:
            raise MalformedInput("a node says where it listens, and it is no address")
        known = self._node.image.nodes.get(sender)
        self._announced[sender] = (Address(host, int(port)), 0 if known is None else known.node_epoch)

    async def listen(self, host: str, port: int, advertised: Address | None) -> Address:
        self._server = await asyncio.get_running_loop().create_server(self.door, host, port)
        bound = Address(*self._server.sockets[0].getsockname()[:2])
        self.advertised = advertised or bound
        return bound

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.door.close()
        await self.links.close()
