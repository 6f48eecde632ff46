"""One node: the rooms below put together, started, served from, stopped.

Starting: take the directory, load the metadata, open every log and cut what a crash left half-written, flush what was recovered,
register, and only then listen. Stopping: stop listening, flush, note for each log how far it is good, leave the marker that says so.
The node owns no protocol and decides nothing: handlers ask, the cores decide, and `carry_out` does what they say.
"""

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from penstock.broker.apis import Apis
from penstock.broker.assignments import Assignments
from penstock.broker.cleaning import Cleaner
from penstock.broker.configuring import follow_settings
from penstock.broker.connection import Connection
from penstock.broker.coordinators import look_after_snapshots
from penstock.broker.damaged_copies import DamagedCopies
from penstock.broker.disk_room import DiskRoom
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.flusher import Flusher
from penstock.broker.forwarding import Forwarding
from penstock.broker.group_lag import GroupLags
from penstock.broker.groups import Groups
from penstock.broker.handlers.metadata import TopicPieces
from penstock.broker.handlers.produce import Produce
from penstock.broker.handlers.single_produce import SingleProduce
from penstock.broker.housekeeping import GATHERING_SECONDS_WHEN_CROWDED, Housekeeper
from penstock.broker.identity import LOCK_PATH, Identity, WrongDirectory, leave_clean_marker, load_or_create_identity, take_clean_marker
from penstock.broker.in_sync_changes import InSyncChanges
from penstock.broker.marker_writing import MarkerWriting
from penstock.broker.membership import Membership
from penstock.broker.memory import split_memory
from penstock.broker.metrics import Metrics
from penstock.broker.neighbours import Neighbours
from penstock.broker.partitions import Partitions
from penstock.broker.producer_ids import ProducerIds
from penstock.broker.queues.facade import Queues
from penstock.broker.queues.ledgers import Ledgers
from penstock.broker.quorum import Quorum
from penstock.broker.quorum_opening import options_from, replica_of
from penstock.broker.replica_fetching import ReplicaFetching
from penstock.broker.replica_serving import ReplicaServing
from penstock.broker.reporting import Reporter
from penstock.broker.scrubbing import Scrubber
from penstock.broker.sending_soon import SendingSoon
from penstock.broker.shares.shares import Shares
from penstock.broker.together import together
from penstock.broker.transactions import Transactions
from penstock.cluster import records
from penstock.cluster.commands import AddPartitions, Command, CreateTopics, MakeCompanion, RegisterNode, TakeProducerBlock, UnfenceNode
from penstock.cluster.controller import Controller
from penstock.cluster.image import ClusterImage
from penstock.cluster.promises import flush_defaults
from penstock.cluster.replies import Reply
from penstock.consensus.messages import Message
from penstock.consensus.voters import Voters
from penstock.env import Env
from penstock.errors import DiskFull, ErrorCode, MalformedInput, OutOfHandles, Refusal
from penstock.links.links import Links
from penstock.log.open_files import OpenFiles
from penstock.partition.leader import AdvanceWatermark, Answer, Effect, ProposeInSync
from penstock.partition.partition import NOT_LEADING, Partition, ProduceToken
from penstock.settings import KIB, NodeSettings
from penstock.vocabulary import METADATA_TOPIC_ID, Address, Instant, NodeId, TopicId

log = logging.getLogger("penstock")

SHARED_BUFFER_BYTES = 512 * KIB
TAKING_BACK_SECONDS = 0.01  # Looking at all connections has its price; a crowd asks for it often.
PARTING_SECONDS = 1.0  # How long a client may take for its last replies when the node stops.
METADATA = "metadata"  # Among accept.losses, in place of a partition.
BYTES_PER_INTEREST = 4 * KIB  # A tenth of it is what a partition in a fetch session takes; so sessions take a tenth of the memory at most.


class Health(NamedTuple):
    is_ready: bool
    reason: str


class Node:
    def __init__(
        self, env: Env, settings: NodeSettings, *, data_directory: str = "data", secret: bytes = b"",
        gathering_s_when_crowded: float = GATHERING_SECONDS_WHEN_CROWDED,
    ) -> None:  # fmt: skip
        self.env = env
        self.secret = secret  # By which the nodes of a cluster trust each other. Never shown.
        self.data_directory = data_directory  # As operators know it; told to those who ask how large it is, never opened.
        self.started_with = settings
        self.settings = settings  # What holds now: some of it may be changed while the node runs.
        self.metrics = Metrics()
        self.disk_room = DiskRoom(env, lambda: self.settings, self.report)
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.request_room, self.reply_room = split_memory(settings.memory_bytes_max)
        self.files = OpenFiles(env.disk, settings.open_files_max)
        self.damaged_copies = DamagedCopies(self)
        self.partitions = Partitions(env, settings, self.files, self.damaged_copies.mending.damaged)
        self.flusher = Flusher(env, self.settle, self._promise_broke)
        self.fetch_sessions = FetchSessions(settings.fetch_sessions_max, settings.memory_bytes_max // BYTES_PER_INTEREST, env)
        self.producer_ids = ProducerIds(self._take_producer_block)
        self.groups = Groups(self)
        self.transactions = Transactions(self)
        self.marker_writing = MarkerWriting(self)
        self.ledgers = Ledgers(self)
        self.queues = Queues(self)
        self.shares = Shares(self)
        self.group_lags = GroupLags(self)
        self.assignments = Assignments(self)
        self.in_sync_changes = InSyncChanges(self)
        self.replica_fetching = ReplicaFetching(self)
        self.replica_serving = ReplicaServing(self)
        self.forwarding = Forwarding(self)
        self.membership = Membership(self)
        self.neighbours: Neighbours | None = None  # None: this node is a cluster of its own.
        self.topic_pieces = TopicPieces()
        self.apis = Apis(self)
        self.parked_produces: dict[Produce | SingleProduce, None] = {}
        self.connections: dict[Connection, None] = {}
        self.unpacking = asyncio.Lock()
        self._is_recovered = False
        self.stopped: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # Resolves when the node cannot go on.
        self._health = Health(False, "not started")
        self._quorum: Quorum | None = None
        self._identity: Identity | None = None
        self._was_clean = False
        self._housekeeper = Housekeeper(self, gathering_s_when_crowded=gathering_s_when_crowded)
        self.cleaner = Cleaner(self, self._housekeeper)
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.send_soon = SendingSoon()
        self._reporter = Reporter(env)
        self._taking_back: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.Server] = []
        self._all_gone = asyncio.Event()  # Of the connections, once the node takes no more.
        self._address = (settings.advertised_host, settings.advertised_port)

    # Life

    async def listen_peers(self, host: str, port: int, *, advertised: Address | None = None) -> Address:
        """Serves the other nodes of the cluster, from before this one takes part; returns the address that it is bound to.

        `advertised` is where they are told to connect. Raises WrongDirectory or DiskFailed.
        """
        await self._take_directory()
        assert self.neighbours is not None, "a node without voters is a cluster of its own"
        return await self.neighbours.listen(host, port, advertised)

    async def start(self) -> None:
        """Recovers everything this directory holds, and takes its place in the cluster: for that it waits for a controller.

        Raises WrongDirectory, DiskFailed or Refusal, with nothing served.
        """
        self._health = Health(False, "recovering")
        identity = await self._take_directory()
        await self._join_quorum(identity)
        try:
            await self.membership.register(self._registration(identity))
            follow_settings(self)
            await self.assignments.open_all(is_clean=self._was_clean)
            self.membership.begin()
            self.spawn(self.membership.tell_of_disk(self.disk_room))
            await self.damaged_copies.tell_controller([partition for partition in self.partitions if partition.is_damaged])
            if self.neighbours is None:
                await self.submit(UnfenceNode(NodeId(self.settings.node_id), self.membership.node_epoch))
        except BaseException:
            self.quorum.abandon()
            raise
        self._is_recovered = True
        if not self.is_broker:
            self.membership.ready()
        self.spawn(self._housekeeper.look_after_clients())
        self.spawn(self._housekeeper.look_after_reserve())
        self.spawn(self._housekeeper.look_after_logs())
        self.spawn(self._housekeeper.look_after_followers())
        self.spawn(self._housekeeper.look_after_known_ends())
        self.spawn(Scrubber(self).run())
        self.spawn(self.cleaner.look_after_compacted_logs())
        self.spawn(look_after_snapshots([self.groups, self.transactions]))
        self.spawn(self.ledgers.look_after())
        self.spawn(self.shares.sweeping.look_after())
        self._health = Health(not self.is_broker, "not listening" if self.is_broker else "ready")

    async def _take_directory(self) -> Identity:
        """Once: from here on the directory is this process's, and its last life is over."""
        if self._identity is None:
            if not self.env.disk.lock(LOCK_PATH):
                raise WrongDirectory("another process uses this data directory; stop it first, or start this node on another directory")
            self._identity = await load_or_create_identity(self.env, self.settings.node_id, self.settings.cluster_id)
            await self.disk_room.begin()
            self._was_clean = await take_clean_marker(self.env)
            if not self.partitions.known_ends.load():
                self.report("node/known-ends cannot be read: whether logs lack records at their ends is not known for this start")
            if self.settings.quorum_voters:
                self.neighbours = Neighbours(self, self._identity, self.secret)
        return self._identity

    async def _join_quorum(self, identity: Identity) -> None:
        me, others = replica_of(identity), self.neighbours
        accepts_loss = METADATA in self.settings.accepted_losses.split(",")
        if accepts_loss:
            await self.partitions.known_ends.forget(METADATA_TOPIC_ID, 0)
        self._quorum = await Quorum.open(
            self.env, self.files, me,
            is_clean=self._was_clean,
            known_end=self.partitions.known_ends.of(METADATA_TOPIC_ID, 0),
            accepts_loss=accepts_loss,
            first_voters=Voters((me,)) if others is None else others.first_voters,
            contacts=() if others is None else tuple(others.voters),
            options=options_from(self.settings),
            on_replayed=self.assignments.replayed,
            tell=_nobody_hears if others is None else others.tell_replica,
            on_failed=self.fail,
            report=self.report,
            make_room=self.disk_room.make_room,
        )  # fmt: skip
        self.controller = Controller.of(self.image, self.settings)
        self.controller.seconds_since_heard = self.membership.controlling.seconds_since_heard
        self.controller.doubts = self.membership.controlling.doubts
        self.controller.voters = lambda: [voter.node for voter in self.quorum.voters.replicas]
        self._quorum.on_installed = lambda image: self.assignments.installed()
        self.membership.attach()
        if others is not None:
            others.hear()
        self._quorum.start()
        if others is None:
            try:
                await self._quorum.leading()
            except BaseException:
                self._quorum.abandon()
                raise

    def _registration(self, identity: Identity) -> RegisterNode:
        settings, (host, port) = self.settings, self._address
        peers = None if self.neighbours is None else self.neighbours.advertised
        return RegisterNode(
            NodeId(settings.node_id), identity.cluster_id, identity.directory_id, host, port, was_stopped_cleanly=self._was_clean,
            peer_host=peers.host if peers else "", peer_port=peers.port if peers else 0,
            roles=tuple(settings.process_roles.split(",")), rack=settings.rack or None,
            flush_defaults=flush_defaults(self.started_with.default_topic_config()),
        )  # fmt: skip

    async def listen_kafka(self, host: str, port: int) -> tuple[str, int]:
        """Serves clients; returns the address that it is bound to."""
        server = await asyncio.get_running_loop().create_server(lambda: Connection(self), host, port)
        self._servers.append(server)
        bound_host, bound_port = server.sockets[0].getsockname()[:2]
        self._address = (self.settings.advertised_host or bound_host, self.settings.advertised_port or bound_port)
        self.membership.ready()
        if self.neighbours is not None:
            self._health = Health(False, "waiting for the controller to let this node in")
            await self.membership.let_in()
        self._health = Health(True, "ready")
        return bound_host, bound_port

    async def stop(self) -> None:
        """Stops so that the next start has nothing to recover. In a cluster, others lead first what this node leads."""
        if self._is_recovered and not self.stopped.done():
            await self.membership.leave()
        self._health = Health(False, "stopping")
        self.ledgers.send_waiting_away()
        for server in self._servers:
            server.close()
        self.shares.sessions.forget_all()
        await self._part_with_clients()
        await self._end_tasks()
        await self.flusher.flush(list(self.partitions))
        await self.groups.stop()
        await self.transactions.stop()
        self.ledgers.stop()
        await self.flusher.stop()
        if self._is_recovered:
            await self._housekeeper.note_known_ends()
        whole = [partition for partition in self.partitions if partition.log.failure is None and not partition.log.owner_is_void]
        await together(partial(partition.log.close, partition.producers.snapshot()) for partition in whole)
        if self._quorum is not None and not self.stopped.done():
            await self._quorum.close()
            if self._is_recovered and len(whole) == len(self.partitions):
                await leave_clean_marker(self.env)
        self.replica_serving.close()
        if self.neighbours is not None:
            await self.neighbours.close()

    async def _part_with_clients(self) -> None:
        """Nothing more is taken; what was appended is flushed and answered, so that a producer that isn't idempotent need not ask twice."""
        self._all_gone.clear()
        for connection in list(self.connections):
            connection.stop_reading()
        await self.flusher.flush(list(self.partitions))
        for connection in list(self.connections):
            connection.send_ready()
            connection.part()
        with suppress(TimeoutError):
            async with asyncio.timeout(PARTING_SECONDS):
                if self.connections:
                    await self._all_gone.wait()
        for connection in list(self.connections):
            connection.close()

    async def _end_tasks(self) -> None:
        """Waits until none runs any more: the logs are about to be closed."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def health(self) -> Health:
        if self._health.is_ready and self.neighbours is not None and self.membership.is_fenced:
            return Health(False, "the controller has not heard of this node for a while, and others lead in its place")
        return self._health

    def readiness(self) -> Health:
        """For load balancers: as `health`, but a node that refuses producers is not ready. It goes on serving everybody else."""
        state = self.health()
        return Health(False, "the disk has too little room: produce requests are refused") if state.is_ready and self.disk_is_low else state

    @property
    def quorum(self) -> Quorum:
        assert self._quorum is not None
        return self._quorum

    @property
    def image(self) -> ClusterImage:
        return self.quorum.image

    def controller_node(self) -> NodeId | None:
        """The node that decides for the cluster, as far as this one knows."""
        return None if self._quorum is None else self._quorum.leader

    @property
    def has_image(self) -> bool:
        return self._quorum is not None

    @property
    def is_broker(self) -> bool:
        return "broker" in self.settings.process_roles

    @property
    def links(self) -> Links | None:
        return None if self.neighbours is None else self.neighbours.links

    def is_in_contact_with(self, node_id: NodeId) -> bool:
        return self.neighbours is not None and self.neighbours.is_in_contact_with(node_id)

    def endpoints(self) -> list[tuple[int, str, int, str | None]]:
        """The nodes that clients may connect to. This one knows its own address best."""
        me, nodes = NodeId(self.settings.node_id), self.image.nodes
        others = [nodes[node_id] for node_id in self.image.live_brokers() if node_id != me]
        known = [(node.node_id, node.host, node.port, node.rack) for node in others]
        return sorted([(me, *self._address, self.settings.rack or None), *known], key=lambda endpoint: endpoint[0])

    def report(self, sentence: str) -> None:
        """Tells the operator."""
        self._reporter.tell(sentence)

    def fail(self, reason: str) -> None:
        """The node cannot go on: whoever runs it must end the process."""
        log.error("%s", reason)
        self._health = Health(False, reason)
        if not self.stopped.done():
            self.stopped.set_result(reason)

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Runs beside everything else; what it raises is never lost."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        if task.cancelled():
            return
        failure = task.exception()
        if failure is None:
            return
        log.error("a task failed", exc_info=failure)
        if not isinstance(failure, Exception):
            self._promise_broke(failure)

    def _promise_broke(self, failure: BaseException) -> None:
        self.fail(f"a promise was broken: {failure}")

    # Metadata

    async def submit(self, command: Command) -> tuple[Reply, ...]:
        """Has the controller decide, wherever it is, and waits until the decision holds here. Raises Refusal."""
        if self.disk_is_low and isinstance(command, CreateTopics | AddPartitions | MakeCompanion) and not self._others_have_room():
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the disk has no room for new partitions (disk.free.bytes.min)")
        if self.stopped.done():
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, f"this node cannot go on: {self.stopped.result()}")
        return await self.forwarding.submit(command)

    def _others_have_room(self) -> bool:
        """Whether the controller can place new partitions on other nodes."""
        return any(node.may_take_more and node.node_id != self.settings.node_id for node in self.image.nodes.values())

    def leading(self, topic: str, index: int) -> Partition:
        """The partition, which this node leads. Raises Refusal."""
        partition = self.partitions.find(topic, index)
        if partition is None:
            raise Refusal(*self.why_not_here(topic, index))
        if partition.leader is None:
            raise Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADING)
        return partition

    def why_not_here(self, topic: str | bytes, index: int) -> tuple[ErrorCode, str]:
        """What to tell somebody who asks for a partition that this node does not hold."""
        known = self.image.topics.get(topic) if isinstance(topic, str) else self.image.topics_by_id.get(TopicId(topic))
        if known is not None and 0 <= index < len(known.partitions):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, NOT_LEADING
        if known is None and isinstance(topic, bytes):
            return ErrorCode.UNKNOWN_TOPIC_ID, "there is no such topic"
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition"

    def new_topic_id(self) -> TopicId:
        return TopicId(self.env.rng.randbytes(16))

    async def _take_producer_block(self) -> records.ProducerBlockTaken:
        (block,) = await self.submit(TakeProducerBlock(NodeId(self.settings.node_id)))
        assert isinstance(block, records.ProducerBlockTaken)
        return block

    # Logs

    def appended(self, partition: Partition) -> None:
        """A batch was appended: flush as the topic promises, and let readers see what needs no flush."""
        if self.disk_room.found_no_room:
            self.disk_room.had_room()
        if partition.followers:
            for follower in list(partition.followers):
                follower.appended(partition)
        config = partition.config
        if config.acknowledges_after_flush:
            self.flusher.request(partition)
            return
        self.carry_out(partition, partition.reached(partition.log.end_offset, self.env.now()))
        if partition.log.end_offset - partition.log.flushed_end >= config.flush_messages:
            self.flusher.request(partition)
        elif (interval_ms := config.flush_interval_ms) is not None:
            self.flusher.request_by(partition, Instant(self.env.now() + max(1, interval_ms) / 1000))

    def settle(self, partition: Partition) -> None:
        """A flush round over this partition ended, or a write failed: answer whom that concerns."""
        if partition.is_deleted:
            return
        now = self.env.now()
        if partition.log.failure is None:
            if partition.leader is None:
                self.replica_fetching.settled(partition)
            else:
                self.carry_out(partition, partition.reached(partition.log.flushed_end, now))
            return
        self.report(f"{partition.topic}-{partition.index} went offline for writes: {partition.log.failure}")
        self.carry_out(partition, partition.failed(partition.log.failure, now))

    def carry_out(
        self, partition: Partition, effects: list[Effect[ProduceToken]], refusal: ErrorCode = ErrorCode.KAFKA_STORAGE_ERROR
    ) -> None:
        for effect in effects:
            if isinstance(effect, AdvanceWatermark):
                grown_bytes = partition.take_growth()
                for watcher in list(partition.watchers):
                    watcher.advanced(partition, grown_bytes)
            elif isinstance(effect, Answer):
                for token in effect.tokens:
                    token.made_durable()
            elif isinstance(effect, ProposeInSync):
                self.in_sync_changes.propose(partition, effect)
            else:
                for token in effect.tokens:
                    token.refused(refusal, effect.reason)

    def look_for_old_segments_soon(self) -> None:
        self._housekeeper.look_for_old_segments_soon()

    @property
    def disk_is_low(self) -> bool:
        """Producers are refused for want of room."""
        return self.disk_room.is_low

    def look_at_disk_room(self) -> None:
        self.disk_room.look()

    def disk_was_full(self, full: DiskFull) -> None:
        """A write found no room."""
        if isinstance(full, OutOfHandles):
            self.report(f"a batch was refused: {full}; raise the limit on open files (ulimit -n), or lower connections.max")
        else:
            self.disk_room.was_full()

    # Connections

    def connection_opened(self, connection: Connection) -> bool:
        if len(self.connections) >= self.settings.connections_max or self.health().reason == "stopping":
            self.metrics.connections_refused += 1
            return False
        self.metrics.connections_accepted += 1
        self.connections[connection] = None
        return True

    def connection_closed(self, connection: Connection) -> None:
        self.connections.pop(connection, None)
        self.shares.sessions.connection_closed(connection)
        if not self.connections:
            self._all_gone.set()

    def client_erred(self, connection: Connection, malformed: MalformedInput) -> None:
        self.metrics.connections_closed_as_malformed += 1
        log.info("closed a connection: %s", malformed)
        connection.close()

    def take_buffers_back_soon(self) -> None:
        """Somebody waits for room: what others keep only for what they might send next is taken from them."""
        if self._taking_back is None:
            self._taking_back = asyncio.get_running_loop().call_later(TAKING_BACK_SECONDS, self._take_buffers_back)

    def _take_buffers_back(self) -> None:
        self._taking_back = None
        for connection in list(self.connections):
            connection.let_buffer_go()


def _nobody_hears(to: NodeId, message: Message) -> None:
    """A node alone has nobody to tell."""
