"""Commands to the controller from any node: decided here if this node leads the metadata quorum, else carried to the one that does.

Either way a command is answered when the decision is replayed here, so that whoever asked sees it in the image. It is tried again, until
`DEADLINE_SECONDS` are over, while there is no controller, while it cannot be reached, and when nobody knows whether it was done: deciding a
command twice does no harm, because the controller looks at what holds. A second try that is refused because the first one was done is
answered as the first would have been (second_tries.py). When another node takes the lead, whoever still waits for the old one asks the
new one at once.
"""

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.quorum import CommitUnknown, NotLeading
from penstock.broker.second_tries import as_if_first
from penstock.cluster import commands, replies
from penstock.cluster.commands import Command
from penstock.cluster.replies import Reply
from penstock.errors import DiskFailed, ErrorCode, MalformedInput, Refusal
from penstock.links.calls import Submitted, Verdict, read_submitted, write_submitted
from penstock.links.door import Asked
from penstock.links.failures import LinkFailure, LinkLost
from penstock.links.kinds import Kind
from penstock.vocabulary import Buffer, NodeId, Offset

if TYPE_CHECKING:
    from penstock.broker.node import Node

DEADLINE_SECONDS = 10.0  # After this no new try begins. One that is under way may take longer: large topics are made before it is answered.
ANSWER_SECONDS = 60.0  # A controller that dies or is replaced meanwhile is noticed much sooner.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.005, 0.1  # Between tries. An election takes a second; nobody should wait much longer than that.


class NotDone(Exception):
    """This try came to nothing, or nobody knows: another may do better."""

    def __init__(self, problem: str, *, may_have_happened: bool) -> None:
        super().__init__(problem)
        self.may_have_happened = may_have_happened


class Forwarding:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._waiting: dict[asyncio.Timeout, NodeId] = {}  # Who waits for an answer, and of whom.

    async def submit(self, command: Command, *, deadline_s: float = DEADLINE_SECONDS) -> tuple[Reply, ...]:
        """One reply for each thing asked, once this node has replayed what was decided. Raises Refusal."""
        deadline, pause = self._node.env.now() + deadline_s, PAUSE_SECONDS_MIN
        may_be_done = False
        while True:
            try:
                made = await (self._try_here(command) if self._node.quorum.is_leading else self._try_elsewhere(command))
                return as_if_first(self._node.image, command, made) if may_be_done else made
            except NotDone as failure:
                may_be_done |= failure.may_have_happened
                if self._node.env.now() + pause > deadline:
                    reason = f"the controller did not answer within {deadline_s:g} s: {failure}"
                    raise Refusal(ErrorCode.REQUEST_TIMED_OUT, reason) from None
            await asyncio.sleep(pause * (0.5 + self._node.env.rng.random() / 2))
            pause = min(2 * pause, PAUSE_SECONDS_MAX)

    async def ask_controller(self, kind: Kind, body: Buffer, *, timeout_s: float) -> memoryview:
        """An answer of the node that leads now, which is another one. Raises `LinkFailure`, also when another takes the lead meanwhile."""
        leader, links = self._node.quorum.leader, self._node.links
        if leader is None or leader == self._node.settings.node_id or links is None:
            raise LinkLost("the metadata quorum has no leader that is known here", may_have_happened=False)
        try:
            async with asyncio.timeout(timeout_s) as scope:
                self._waiting[scope] = leader
                try:
                    return await links.ask(leader, kind, body, timeout_s=timeout_s)
                finally:
                    del self._waiting[scope]
        except TimeoutError:
            raise LinkLost(f"node {leader} did not answer, or leads no longer", may_have_happened=True) from None

    def leader_changed(self) -> None:
        """Whoever waits for a node that does not lead any more need not wait longer."""
        now = asyncio.get_running_loop().time()
        for scope, leader in self._waiting.items():
            if leader != self._node.quorum.leader and not scope.expired():  # One that expired has been told, and leaves in its next turn.
                scope.reschedule(now)

    def asked(self, asked: Asked) -> None:
        """Another node has a command. Raises `MalformedInput`."""
        if self._node.controller_node() != self._node.settings.node_id:
            asked.answer(write_submitted(Submitted(Verdict.NOT_CONTROLLER)))
            return
        try:
            command = commands.decode(bytes(asked.body))
        except Refusal as refusal:
            asked.answer(write_submitted(Submitted(Verdict.REFUSED, replies=replies.encode((refusal,)))))
            return
        self._node.spawn(self._answer(asked, command))

    async def _answer(self, asked: Asked, command: Command) -> None:
        quorum = self._node.quorum
        try:
            decided = await quorum.submit(command, self._node.controller)
            submitted = Submitted(Verdict.DECIDED, quorum.applied_end, replies.encode(decided))
        except NotLeading:
            submitted = Submitted(Verdict.NOT_CONTROLLER)
        except (CommitUnknown, DiskFailed):
            submitted = Submitted(Verdict.UNKNOWN)
        except Refusal as refusal:
            submitted = Submitted(Verdict.REFUSED, replies=replies.encode((refusal,)))
        asked.answer(write_submitted(submitted))

    async def _try_here(self, command: Command) -> tuple[Reply, ...]:
        """As long as it takes: if it cannot be decided, this node loses the lead."""
        try:
            return await self._node.quorum.submit(command, self._node.controller)
        except (NotLeading, CommitUnknown) as failure:
            raise NotDone(str(failure), may_have_happened=isinstance(failure, CommitUnknown)) from None
        except DiskFailed as failure:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log failed") from failure

    async def _try_elsewhere(self, command: Command) -> tuple[Reply, ...]:
        try:
            answer = await self.ask_controller(Kind.SUBMIT, commands.encode(command), timeout_s=ANSWER_SECONDS)
            submitted = read_submitted(answer)
            made = replies.decode(submitted.replies)
        except LinkFailure as failure:
            raise NotDone(str(failure), may_have_happened=failure.may_have_happened) from None
        except MalformedInput as failure:
            raise NotDone(str(failure), may_have_happened=True) from None
        match submitted.verdict:
            case Verdict.DECIDED:
                await self._replay(submitted.end)
                return made
            case Verdict.REFUSED if made and isinstance(made[0], Refusal):
                raise made[0]
            case Verdict.NOT_CONTROLLER:
                raise NotDone("the metadata quorum has another leader", may_have_happened=False)
            case _:
                raise NotDone("nobody knows whether it was done", may_have_happened=True)

    async def _replay(self, end: Offset) -> None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                await self._node.quorum.applied(end)
        except TimeoutError:
            raise NotDone("it was decided, but this node has not heard of it", may_have_happened=True) from None
        except CommitUnknown as failure:
            raise NotDone(str(failure), may_have_happened=True) from None
        except DiskFailed as failure:
            raise Refusal(ErrorCode.KAFKA_STORAGE_ERROR, "the metadata log failed") from failure
