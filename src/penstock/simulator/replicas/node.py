"""A node of the world: its disk, its lives, what it knows of the cluster, and the role that this gives it.

It does around the cores what a broker does, without waiting for anything: flushes, heartbeats, fetches, reports.
A life acts only once it has read of its own registration. What it reads before that was decided about an earlier life of the node, which
may have had more in its log: to lead on in that life's epoch would give one epoch two histories.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.cluster import records
from penstock.cluster.commands import ChangeInSync, Command, RegisterNode, StopNode
from penstock.cluster.image import ClusterImage, PartitionState
from penstock.cluster.replies import RegistrationOutdated, Reply
from penstock.errors import Refusal
from penstock.simulator.replicas.controller import CLUSTER, CONTROLLER, TOPIC_ID
from penstock.simulator.replicas.following import Following
from penstock.simulator.replicas.judging import Violation
from penstock.simulator.replicas.leading import Leading
from penstock.simulator.replicas.store import Store
from penstock.vocabulary import NO_NODE, Instant, LeaderEpoch, NodeId, Offset

if TYPE_CHECKING:
    from penstock.simulator.replicas.world import World

ASK_SECONDS = 0.06  # Until an answer is given up.
UNREGISTERED = -1


class SimNode:
    def __init__(self, world: "World", node_id: NodeId) -> None:
        self.world = world
        self.node_id = node_id
        self.store = Store()
        self.disks = 1
        self.life = 0
        self.is_up = False
        self.was_clean = True  # It stopped in order, and said so last.
        self.began_clean = True
        self.paused_until = Instant(0.0)
        self.flush_seconds = world.plan.flush_seconds
        self.role: Leading | Following | None = None
        self.image = ClusterImage()
        self.applied = 0  # How much of the metadata log is replayed.
        self._known = 0  # How much of it is on this node's disk: a later life begins with that.
        self.min_insync = world.plan.min_insync
        self.node_epoch = UNREGISTERED
        self._told_epoch = 0  # Of the last registration that the controller knows of.
        self._acts = False
        self.epoch = LeaderEpoch(-1)
        self.watermark = Offset(0)  # What readers of this replica may have seen in this life.
        self._seen_end = Offset(0)  # What of that was judged.
        self._is_flushing = False

    @property
    def directory(self) -> str:
        return f"disk {self.disks} of node {self.node_id}"

    @property
    def leading(self) -> Leading | None:
        return self.role if isinstance(self.role, Leading) else None

    @property
    def following(self) -> Following | None:
        return self.role if isinstance(self.role, Following) else None

    @property
    def durable_end(self) -> Offset:
        return self.store.flushed_end if self.world.plan.flushes_before_ack else self.store.end_offset

    # Lives

    def start(self) -> None:
        if self.is_up:
            return
        self.life += 1
        self.is_up = True
        self.store.start_again()
        self.image, self.applied = ClusterImage(), 0
        self.node_epoch, self._acts, self.epoch, self.role = UNREGISTERED, False, LeaderEpoch(-1), None
        self.watermark = self._seen_end = self.store.start_offset
        self._is_flushing = False
        self._replay_until(self._known)
        if self.life == 1:  # The cluster was made with this node in it.
            self._known = len(self.world.controller.log)
            self.node_epoch = 1
            self._replay_until(self._known)
        self._beat()
        self._poll()

    def kill(self) -> None:
        """The process is gone, the machine is not: its memory of the files stays."""
        if self.is_up:
            self.is_up = self.was_clean = False
            self.role = None
            self._known = self.world.rng.randint(self._known, self.applied)
            self.world.controller.lost_contact(self.node_id)

    def lose_power(self) -> None:
        self.kill()
        self.store.lose_power(self.world.rng)

    def wipe(self) -> None:
        """Its machine gets a new disk."""
        self.kill()
        self.store, self.disks, self._known = Store(), self.disks + 1, 1

    def stop(self) -> None:
        """In order: others take over first, if they hear of it, and everything is flushed."""
        if not self.is_up or self.store.failure is not None:
            return
        self.ask(StopNode(self.node_id, self.node_epoch), lambda replies: None)
        self.later(ASK_SECONDS, self._end_in_order)

    def _end_in_order(self) -> None:
        if self.store.failure is None:
            is_clean = self._acts or self.was_clean  # A life that was never registered does not make up for how the one before it ended.
            self.kill()
            self.store.start_again()
            self.was_clean = is_clean

    def later(self, seconds: float, what: Callable[[], None]) -> None:
        """In this life, and not while it is paused."""
        life = self.life

        def when_due() -> None:
            if self.life != life or not self.is_up:
                return
            if self.paused_until > self.world.now:
                self.world.after(self.paused_until - self.world.now, when_due)
            else:
                what()

        self.world.after(seconds, when_due)

    # Metadata

    def hears_of_metadata(self) -> None:
        if self.is_up and not self.world.is_cut(CONTROLLER, self.node_id):
            self.later(self.world.plan.metadata_seconds * (0.3 + self.world.rng.expovariate(1.0)), self._catch_up)

    def _poll(self) -> None:
        """Questions and news get lost."""
        self.later(ASK_SECONDS * 1.5, self._poll)
        self._register()
        if self.applied < len(self.world.controller.log) and not self.world.controller.is_away:
            self.hears_of_metadata()

    def _catch_up(self) -> None:
        if not self.world.is_cut(CONTROLLER, self.node_id):
            self._replay_until(len(self.world.controller.log))

    def _replay_until(self, end: int) -> None:
        while self.applied < end and self.is_up:
            record = self.world.controller.log[self.applied]
            self.image.replay(record)
            self.applied += 1
            if isinstance(record, records.NodeRegistered) and record.node_id == self.node_id:
                self._read_of_registration(record.node_epoch)
            elif isinstance(record, records.TopicCreated | records.TopicConfigured):
                self.min_insync = int(record.overrides["min.insync.replicas"])
                self.adopt()
            elif isinstance(record, records.PartitionsChanged):
                self.adopt()

    def _read_of_registration(self, node_epoch: int) -> None:
        if node_epoch == self.node_epoch:
            self.began_clean, self.was_clean, self._acts = self.was_clean, False, True
            self.adopt()
        elif self.node_epoch != UNREGISTERED and node_epoch > self.node_epoch:
            # It asked again before it had the first answer, and does not know which life it is in: it begins one more.
            if self.leading is not None:
                self.leading.resign()
            self.role, self.epoch, self.node_epoch, self._acts = None, LeaderEpoch(-1), UNREGISTERED, False

    def _register(self) -> None:
        """Until it is accepted; each try that is begins a life of its own in the controller's eyes."""
        if self.node_epoch == UNREGISTERED:
            state = self.image.nodes.get(self.node_id)
            previous_epoch = max(self._told_epoch, 0 if state is None else state.node_epoch)
            command = RegisterNode(
                self.node_id, CLUSTER, self.directory, "h", 1, was_stopped_cleanly=self.was_clean, previous_epoch=previous_epoch
            )
            self.ask(command, self._registered)
            self.world.moment("while restarting", self)

    def _registered(self, replies: tuple[Reply, ...]) -> None:
        (reply,) = replies
        if isinstance(reply, RegistrationOutdated):
            self._told_epoch = max(self._told_epoch, reply.node_epoch)
            self._register()
        elif isinstance(reply, records.NodeRegistered) and self.node_epoch == UNREGISTERED:
            self.node_epoch = reply.node_epoch
            self._read_of_registration(self.image.nodes[self.node_id].node_epoch)
            self._send_heartbeat()

    def _beat(self) -> None:
        self.later(self.world.plan.session_seconds / 3, self._beat)
        self._send_heartbeat()

    def _send_heartbeat(self) -> None:
        if self.node_epoch != UNREGISTERED:
            node_epoch, applied = self.node_epoch, self.applied
            self.world.send(self.node_id, CONTROLLER, lambda: self.world.controller.heard(self.node_id, node_epoch, applied))

    def ask(self, command: Command, answered: Callable[[tuple[Reply, ...]], None]) -> None:
        """The answer comes when this node has read of what was decided; or it never comes."""
        life = self.life

        def reply(replies: tuple[Reply, ...], end: int) -> None:
            self.world.send(CONTROLLER, self.node_id, lambda: when_applied(replies, end))

        def when_applied(replies: tuple[Reply, ...], end: int) -> None:
            if self.life == life and self.is_up:
                self._replay_until(end)
                answered(replies)

        self.world.send(self.node_id, CONTROLLER, lambda: self.world.controller.asked(command, reply))

    # Roles

    def adopt(self) -> None:
        """Takes the role that the image gives this node."""
        state = self.image.partition(TOPIC_ID, 0)
        if not self._acts or state is None:
            return
        if self.node_id not in state.replicas:
            self._drop()
        elif state.leader == self.node_id:
            if self.leading is not None and self.epoch == state.leader_epoch:
                self.leading.learn(state, self.min_insync)
            else:
                self._take(state, Leading)
        elif self.following is None or self.epoch != state.leader_epoch:
            self._take(state, Following if state.leader != NO_NODE else None)
        else:
            self.following.is_in_sync = self.node_id in state.in_sync

    def _take(self, state: PartitionState, role: type[Leading] | type[Following] | None) -> None:
        if self.epoch == state.leader_epoch and role is None and self.role is None:
            return
        if self.leading is not None:
            self.leading.resign()
        self.epoch, self.role = state.leader_epoch, None
        if role is Leading:
            if self.watermark > self.store.end_offset:
                raise Violation("what was seen is never cut", f"node {self.node_id} leads with {self.store.end_offset} of {self.watermark}")
            self.role = Leading(self, state)
            self.role.begin()
        elif role is Following:
            self.role = Following(self, state)
            self.role.begin()

    def _drop(self) -> None:
        """It is a replica no more: its copy goes."""
        if self.leading is not None:
            self.leading.resign()
        if self.role is not None or self.store.end_offset:
            self.role, self.store, self.epoch = None, Store(), LeaderEpoch(-1)
            self.watermark = self._seen_end = Offset(0)

    def with_epochs(self, nodes: tuple[NodeId, ...]) -> list[tuple[NodeId, int]]:
        return [(node, self.image.nodes[node].node_epoch) for node in nodes]

    def wish_in_sync(self, command: ChangeInSync, answered: Callable[[Refusal | None], None]) -> None:
        self.ask(command, lambda replies: answered(replies[0] if isinstance(replies[0], Refusal) else None))

    # What readers see

    def raise_watermark(self, watermark: Offset) -> None:
        if watermark < self.watermark:
            raise Violation("the watermark never goes back", f"node {self.node_id}: {watermark} after {self.watermark}")
        self.watermark = watermark
        fresh = [header for header in self.store.headers() if self._seen_end < header.end_offset <= watermark]
        self.world.judge.sees(f"node {self.node_id} in epoch {self.epoch}", fresh, watermark, self.epoch)
        self._seen_end = max(self._seen_end, watermark)

    def was_cut(self) -> None:
        """What comes instead is judged again."""
        self._seen_end = min(self._seen_end, self.store.end_offset)

    # Flushing

    def flush_soon(self) -> None:
        if self._is_flushing or (ticket := self.store.begin_flush()) is None:
            return
        self._is_flushing = True

        def ended() -> None:
            self._is_flushing = False
            self.store.end_flush(ticket)
            self.settled()
            self.flush_soon()

        slow = 1.0 if self.world.plan.flushes_before_ack else 10.0
        self.later(self.flush_seconds * slow * (0.3 + self.world.rng.expovariate(1.0)), ended)

    def settled(self) -> None:
        """More is durable here than before, or nothing ever will be."""
        if self.role is not None:
            self.role.settled()

    def fail_disk(self) -> None:
        if self.is_up and self.store.failure is None:
            self.store.fail("the disk failed")
            self.settled()
