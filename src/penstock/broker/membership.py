"""This node as a member of its cluster: it registers, gives signs of life, and takes its leave.

Registering gives it a node epoch, by which everybody tells this life of the node from others. It is fenced until it has said that it is
ready (its logs are open and it listens) and the controller has let it in; then it may lead. Signs of life go to whoever leads the metadata
quorum, at once when that changes. Nothing here stops the node from serving what it leads while no controller answers: only the image does.

A node epoch that is no longer the newest means that somebody else has registered under this node's id. From another data directory: two
processes have one id, and this one ends. From this one, which no other process can have open: it was an older registration of our own that
did not name the epoch that it follows, and registering once more puts that right. Those that name it change nothing when they are late.
Whatever else fails is told and tried again: a node that had quietly stopped giving signs of life would be fenced for ever.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.broker.controlling import Controlling
from penstock.broker.disk_room import DiskRoom
from penstock.cluster.commands import RegisterNode, ReportDisk, StopNode
from penstock.cluster.records import NodeRegistered
from penstock.cluster.replies import RegistrationOutdated
from penstock.errors import ErrorCode, MalformedInput, Refusal
from penstock.links.calls import Heard, Heartbeat, Standing, read_heard, write_heartbeat
from penstock.links.failures import LinkFailure
from penstock.links.kinds import Kind
from penstock.vocabulary import NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

STOPPING_SECONDS = 10.0  # How long a node that was told to stop waits for others to lead what it leads.
ASKING_TO_STOP_SECONDS = 3.0  # Without an answer for so long there is nobody left who could take over.
HANDING_OVER_SECONDS = 3.0
HURRY_SECONDS = 0.05  # Between signs of life while something is waited for, or none was heard.
REGISTERING_SECONDS = 1.0  # Between tries.
DISK_SECONDS = 1.0  # Between looks whether the metadata says the right thing of the disk; a change is told at once.
STUMBLED_SECONDS = 0.5  # After a failure that nobody had thought of. Shorter than a session.

_TRIED_AGAIN = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, ErrorCode.DUPLICATE_BROKER_REGISTRATION)


class Membership:
    """Made with the node; `attach` when it has its quorum and its controller, then `register`, `begin`, and `ready` when it serves."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.controlling = Controlling(node)
        self.node_epoch = 0  # Of this life; 0 before it is registered.
        self.is_fenced = True  # As the controller last said.
        self._registration: RegisterNode | None = None
        self._is_ready = False
        self._wants_to_stop = False
        self._heard_at = node.env.now()
        self._is_let_in = asyncio.Event()
        self._may_stop = asyncio.Event()
        self._news = asyncio.Event()

    def attach(self) -> None:
        quorum = self._node.quorum
        quorum.on_lead, quorum.on_follow = self._lead, self._follow
        if quorum.is_leading:
            self._lead()

    async def register(self, command: RegisterNode) -> None:
        """Until it is accepted. Raises Refusal for what trying again would not mend."""
        self._registration = command
        state = self._node.image.nodes.get(command.node_id)
        previous_epoch = 0 if state is None else state.node_epoch  # As far as this node knows; the controller tells of a later one.
        while True:
            try:
                (reply,) = await self._node.submit(replace(command, previous_epoch=previous_epoch))
            except Refusal as refusal:
                reply = refusal
            if isinstance(reply, RegistrationOutdated):
                previous_epoch = reply.node_epoch
                continue
            if isinstance(reply, NodeRegistered):
                self.node_epoch, self.is_fenced = reply.node_epoch, True
                return
            if not isinstance(reply, Refusal) or not self._may_be_mended(reply):
                raise reply if isinstance(reply, Refusal) else MalformedInput("the controller answered something else")
            self._node.report(f"this node is not registered yet, and goes on trying: {reply.reason}")
            await asyncio.sleep(REGISTERING_SECONDS * (0.5 + self._node.env.rng.random() / 2))

    def begin(self) -> None:
        """Gives signs of life from now on."""
        self._node.spawn(self._live())

    def ready(self) -> None:
        """Its logs are open, and it listens."""
        self._is_ready = True
        self._news.set()

    async def tell_of_disk(self, disk_room: DiskRoom) -> None:
        """Tells the controller whether the disk is short of room, whenever the metadata says otherwise. Until the node ends."""
        node, me = self._node, NodeId(self._node.settings.node_id)
        while node.links is not None:
            disk_room.news.clear()
            state, is_short = node.image.nodes.get(me), disk_room.is_short
            if state is not None and state.node_epoch == self.node_epoch and state.is_disk_full != is_short:
                await self._report_disk(ReportDisk(me, self.node_epoch, is_short))
            with suppress(TimeoutError):
                async with asyncio.timeout(DISK_SECONDS):
                    await disk_room.news.wait()

    def hurry(self) -> None:
        """Gives the next sign of life at once."""
        self._news.set()

    async def let_in(self) -> None:
        """Waits until the controller has let this node in."""
        await self._is_let_in.wait()

    async def leave(self) -> None:
        """Before the node stops: lets others lead what they can. Ends in time, whatever the others do."""
        node = self._node
        if node.links is None or not self.node_epoch:
            return
        try:
            async with asyncio.timeout(STOPPING_SECONDS):
                await self._part_with_leadership()
        except TimeoutError:
            node.report(f"this node stops although it leads what others could: they did not take over within {STOPPING_SECONDS:g} s")
        if node.quorum.is_leading:
            with suppress(TimeoutError):
                async with asyncio.timeout(HANDING_OVER_SECONDS):
                    await node.quorum.transfer()

    # Whoever leads.

    def _lead(self) -> None:
        self.controlling.lead()
        self._leader_changed()

    def _follow(self) -> None:
        self.controlling.follow()
        self._leader_changed()

    def _leader_changed(self) -> None:
        self._node.forwarding.leader_changed()
        self.hurry()

    # Signs of life.

    async def _live(self) -> None:
        while True:
            try:
                seconds = await self._exchange_signs()
            except Exception as failure:
                log.error("this node stumbles over a sign of life, and goes on", exc_info=failure)
                seconds = STUMBLED_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds * (0.75 + self._node.env.rng.random() / 4)):
                    await self._news.wait()
            self._news.clear()

    async def _exchange_signs(self) -> float:
        """How long to wait before the next."""
        heard = await self._give_sign()
        if heard is not None:
            await self._take_note(heard)
        is_waiting = self._wants_to_stop or (self.is_fenced and self._is_ready)
        return HURRY_SECONDS if heard is None or is_waiting else self._node.settings.heartbeat_interval_ms / 1000

    async def _give_sign(self) -> Heard | None:
        """What the controller said; None when nobody did."""
        node = self._node
        heartbeat = Heartbeat(self.node_epoch, node.quorum.applied_end, self._is_ready, self._wants_to_stop)
        if node.quorum.is_leading:
            return self.controlling.heard(NodeId(node.settings.node_id), heartbeat)
        seconds = max(node.settings.session_timeout_ms / 2000, HURRY_SECONDS)
        try:
            return read_heard(await node.forwarding.ask_controller(Kind.HEARTBEAT, write_heartbeat(heartbeat), timeout_s=seconds))
        except (LinkFailure, MalformedInput):
            return None

    async def _take_note(self, heard: Heard) -> None:
        if heard.standing is Standing.REGISTERED:
            self._heard_at = self._node.env.now()
            self.is_fenced = heard.is_fenced
            if not heard.is_fenced:
                self._is_let_in.set()
            if heard.may_stop:
                self._may_stop.set()
        elif heard.standing in (Standing.STALE, Standing.NOT_REGISTERED):
            await self._look_who_registered()

    async def _look_who_registered(self) -> None:
        """Believes only what this node has replayed itself: the answer may be older."""
        node, registration = self._node, self._registration
        state = node.image.nodes.get(NodeId(node.settings.node_id))
        if registration is None or (state is not None and state.node_epoch <= self.node_epoch):
            return
        if state is None:
            node.fail("this node was taken off the cluster's list; start it again to let it register anew")
        elif state.directory_id != registration.directory_id:
            node.fail(
                f"another process has registered as node {node.settings.node_id}, with another data directory, and this one must end: "
                "give each process a node id of its own"
            )
        else:
            try:
                await self.register(replace(registration, was_stopped_cleanly=True))  # This life has lost nothing.
            except Refusal as refusal:
                node.fail(f"this node must register again and is refused: {refusal.reason}")

    def _may_be_mended(self, refusal: Refusal) -> bool:
        is_for_want_of_room = refusal.code is ErrorCode.KAFKA_STORAGE_ERROR and self._node.links is not None  # Another may lead soon.
        return refusal.code in _TRIED_AGAIN or is_for_want_of_room

    async def _report_disk(self, command: ReportDisk) -> None:
        try:
            (reply,) = await self._node.submit(command)
        except Refusal as refusal:
            reply = refusal
        except Exception as failure:
            log.error("this node stumbles over telling how full its disk is, and tries again", exc_info=failure)
            return
        if isinstance(reply, Refusal):
            self._node.report(f"the controller was not told how full this node's disk is: {reply.reason}")

    # Taking leave.

    async def _part_with_leadership(self) -> None:
        node = self._node
        try:
            (reply,) = await node.forwarding.submit(
                StopNode(NodeId(node.settings.node_id), self.node_epoch), deadline_s=ASKING_TO_STOP_SECONDS
            )
        except Refusal as refusal:
            reply = refusal
        if isinstance(reply, Refusal):
            node.report(f"this node stops without telling the controller: {reply.reason}")
            return
        self._wants_to_stop = True
        self._heard_at = node.env.now()
        self._news.set()
        while not self._may_stop.is_set() and node.env.now() - self._heard_at < ASKING_TO_STOP_SECONDS:
            with suppress(TimeoutError):
                async with asyncio.timeout(HURRY_SECONDS):
                    await self._may_stop.wait()
