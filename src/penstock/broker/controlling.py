"""What a node does while it leads the metadata quorum: it is the controller, and looks after who is alive and what is owed.

It hears the heartbeats of all nodes and fences whoever is silent for `broker.session.timeout.ms`, or, once a link to it broke, for half a
second. It lets in again (unfences) whoever is ready and knows what had been decided when it was first seen outside.
It submits what the controller owes the partitions. Nothing of this outlives the office: a successor begins with full sessions, except for
nodes that it cannot reach either, and for the leader that it replaces, which most often is why there was an election.

A controller that was itself stopped for a while (SIGSTOP, a suspended machine, a busy one) has heard nobody: it must not blame the others
for that. When its own timer is late by more than `LATE_SECONDS`, all sessions last so much longer.

Whatever fails here, known or not, is told and tried again: a controller that had quietly stopped looking would fence nobody any more.
"""

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.broker.quorum import CommitUnknown, NotLeading
from penstock.cluster.commands import Command, FenceNode, UnfenceNode
from penstock.cluster.image import NodeState
from penstock.cluster.sessions import SUSPECT_SECONDS, Sessions
from penstock.errors import DiskFailed, Refusal
from penstock.links.calls import Heard, Heartbeat, Standing, read_heartbeat, write_heard
from penstock.links.door import Asked
from penstock.vocabulary import Instant, NodeId, Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

LOOK_SECONDS = 0.2  # Between two looks at what is owed; fencing does not wait for it.
LATE_SECONDS = 0.1
AGAIN_SECONDS = 0.1  # After something could not be done.
STUMBLED_SECONDS = 1.0  # After a failure that nobody had thought of.


class Controlling:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self.sessions = Sessions(node.settings.session_timeout_ms / 1000)
        self._term = 0  # Grows with each time in office, so that what belongs to an earlier one ends.
        self._is_in_office = False
        self._news = asyncio.Event()
        self._lost_at: dict[NodeId, Instant] = {}  # When the last link to a node broke; kept also out of office.
        self._waiting_outside: dict[NodeId, int] = {}  # To be let in, with their node epochs.
        self._known_from: dict[NodeId, Offset] = {}  # How much of the metadata log a node must know to be let in, or to go.
        self._applied: dict[NodeId, Offset] = {}  # As far as each node says that it has come.
        self._leader_before: NodeId | None = None
        self._handed_over_at: dict[NodeId, int] = {}  # Versions of the image in which a node leads nothing that others could.

    # Taking office, and leaving it.

    def lead(self) -> None:
        node, now = self._node, self._node.env.now()
        self._term += 1
        self._is_in_office = True
        self._waiting_outside.clear()
        self._known_from.clear()
        self._applied.clear()
        self._handed_over_at.clear()
        self.sessions = Sessions(node.settings.session_timeout_ms / 1000)
        self._begin_sessions(now)
        self._leader_before = None
        node.spawn(self._rule(self._term))

    def follow(self) -> None:
        """Another leads, or nobody."""
        leader = self._node.quorum.leader
        if leader is not None:
            self._leader_before = leader
        self._term += 1
        self._is_in_office = False
        self._news.set()

    def contact_lost(self, node_id: NodeId) -> None:
        """A link broke, theirs to here or ours to there. A controller doubts the node; a member shows the controller that it lives."""
        now = self._node.env.now()
        self._lost_at[node_id] = now
        if self._is_in_office:
            self._doubt(node_id, now)
            self._news.set()
        elif node_id == self._node.controller_node():
            self._node.membership.hurry()

    def seconds_since_heard(self, node_id: NodeId) -> float | None:
        return self.sessions.seconds_since_heard(node_id, self._node.env.now())

    def doubts(self, node_id: NodeId) -> bool:
        """Whether the node may be down although the image has it as up: it was not heard since this controller took office, or since a link
        to it broke."""
        return node_id in self._lost_at or self.seconds_since_heard(node_id) is None

    # Heartbeats.

    def asked(self, asked: Asked) -> None:
        """Another node gives a sign of life. Raises `MalformedInput`."""
        asked.answer([write_heard(self.heard(asked.node, read_heartbeat(asked.body)))])

    def heard(self, node_id: NodeId, heartbeat: Heartbeat) -> Heard:
        node, now = self._node, self._node.env.now()
        if not self._is_in_office or not node.quorum.is_leading:
            return Heard(Standing.NOT_CONTROLLER)
        state = node.image.nodes.get(node_id)
        if state is None:
            return Heard(Standing.NOT_REGISTERED)
        if heartbeat.node_epoch < state.node_epoch:
            return Heard(Standing.STALE)
        if heartbeat.node_epoch > state.node_epoch:  # It was given by a successor, of whom this node knows nothing yet.
            return Heard(Standing.NOT_CONTROLLER)
        self._lost_at.pop(node_id, None)
        self.sessions.heard(node_id, state.node_epoch, now)
        self._applied[node_id] = heartbeat.applied_end
        if state.is_fenced and heartbeat.is_ready and not state.is_stopping and not heartbeat.wants_to_stop and self._knows(node_id):
            self._waiting_outside[node_id] = state.node_epoch
            self._news.set()
        return Heard(Standing.REGISTERED, state.is_fenced, heartbeat.wants_to_stop and self._may_stop(state))

    def _knows(self, node_id: NodeId) -> bool:
        """Everything that was decided before it was first seen outside."""
        return self._applied[node_id] >= self._known_from.setdefault(node_id, self._node.quorum.applied_end)

    def _may_stop(self, state: NodeState) -> bool:
        """Whatever others could lead, they lead, and every one of them has heard of it."""
        image = self._node.image
        if not state.is_stopping:
            return False
        if self._leads_what_others_could(state.node_id):
            self._known_from.pop(state.node_id, None)
            return False
        knows_from = self._known_from.setdefault(state.node_id, self._node.quorum.applied_end)
        others = [other for other in image.live_brokers() if other != state.node_id and self.sessions.is_alive(other, self._node.env.now())]
        return all(self._applied.get(other, Offset(-1)) >= knows_from for other in others)

    def _leads_what_others_could(self, node_id: NodeId) -> bool:
        image = self._node.image
        if self._handed_over_at.get(node_id) == image.version:
            return False
        able = {other for other in image.live_brokers() if other != node_id and not image.nodes[other].is_stopping}
        leads = any(
            state.leader == node_id and not able.isdisjoint(image.in_sync(topic, index)) for topic, index, state in image.each_partition()
        )
        if not leads:
            self._handed_over_at[node_id] = image.version
        return leads

    # Ruling.

    def _begin_sessions(self, now: Instant) -> None:
        node, me = self._node, NodeId(self._node.settings.node_id)
        alive = {node_id: state.node_epoch for node_id, state in node.image.nodes.items() if not state.is_fenced}
        self.sessions.begin(now, alive)
        if self._leader_before not in (None, me):
            self._doubt(self._leader_before, now)
        self._lost_at = {node_id: at for node_id, at in self._lost_at.items() if now - at < self.sessions.timeout_s}
        for node_id, lost_at in self._lost_at.items():
            if node.links is None or not node.links.is_up(node_id):
                self._doubt(node_id, lost_at)  # It has been silent since, whoever led.

    def _doubt(self, node_id: NodeId, since: Instant) -> None:
        """Until it should have been heard at least once, even where signs of life are rare."""
        rarely = 1.5 * self._node.settings.heartbeat_interval_ms / 1000 - SUSPECT_SECONDS
        self.sessions.lost_contact(node_id, Instant(since + max(0.0, rarely)))

    async def _rule(self, term: int) -> None:
        wakes_at = self._node.env.now()
        while term == self._term and self._node.quorum.is_leading:
            try:
                wakes_at = await self._look_round(wakes_at)
            except Exception as failure:
                log.error("the controller stumbles, and goes on", exc_info=failure)
                wakes_at = Instant(self._node.env.now() + STUMBLED_SECONDS)
            await self._sleep_until(wakes_at)

    async def _look_round(self, wakes_at: Instant) -> Instant:
        """When to look again."""
        now = self._node.env.now()
        if now - wakes_at > LATE_SECONDS:
            self.sessions.excuse(now - wakes_at)
        is_done = await self._do_what_is_owed(now)
        now, due = self._node.env.now(), self.sessions.due()
        wakes_at = Instant(now + LOOK_SECONDS if is_done else now + AGAIN_SECONDS)
        return min(wakes_at, due) if is_done and due is not None else wakes_at

    async def _do_what_is_owed(self, now: Instant) -> bool:
        """Whether all of it could be done."""
        node = self._node
        for node_id in self.sessions.expired(now):
            state = node.image.nodes.get(node_id)
            if state is None or state.is_fenced:
                self.sessions.forget(node_id)
        try:
            for node_id, node_epoch in list(self._waiting_outside.items()):
                del self._waiting_outside[node_id]
                await self._order(UnfenceNode(node_id, node_epoch))
            for command in node.controller.owed(now, self.sessions):
                if not isinstance(command, FenceNode) or command.node_id in self.sessions.expired(node.env.now()):
                    await self._order(command)  # Unless it was heard while something else was being done.
        except (NotLeading, CommitUnknown, DiskFailed, Refusal) as failure:
            node.report(f"the controller could not do what is owed: {failure}")
            return False
        return True

    async def _order(self, command: Command) -> None:
        node = self._node
        replies = await node.quorum.submit(command, node.controller)
        for reply in replies:
            if isinstance(reply, Refusal):
                node.report(f"the controller refuses itself {type(command).__name__}: {reply.reason}")
        if isinstance(command, FenceNode):
            self.sessions.forget(command.node_id)
            self._known_from.pop(command.node_id, None)
            node.report(f"node {command.node_id} is fenced: it has not been heard of for too long")
        elif isinstance(command, UnfenceNode):
            self._known_from.pop(command.node_id, None)
            if command.node_id != node.settings.node_id:
                node.report(f"node {command.node_id} takes part (again)")

    async def _sleep_until(self, instant: Instant) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(instant - self._node.env.now(), 0.001)):
                await self._news.wait()
        self._news.clear()
