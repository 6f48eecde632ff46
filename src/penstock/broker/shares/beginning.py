"""How the ledger of a share group begins when a member first fetches from a partition.

Only the group's coordinator knows whether there is such a group, and what its members are to read: so the partition's leader asks it, and
begins nothing for a group that nobody has joined. What is recorded there is durable before a member hears of it: whoever fetches what it
was assigned is served. An admin's change of a group comes to the coordinator first, and then here: a coordinator's word that was asked for
before a ledger was forgotten counts for nothing, and is asked for again.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.groups import sweeping_ledger
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.quorum_calls import catch_up
from penstock.broker.shares import ledger_calls
from penstock.errors import ErrorCode, MalformedInput, Refusal
from penstock.groups.replies import LedgerWord
from penstock.links.door import Asked
from penstock.links.failures import LinkFailure, NotUnderstood
from penstock.links.kinds import Kind
from penstock.links.share_calls import LedgerAnswer, LedgerQuestion, read_answer, read_question, write_answer, write_question
from penstock.vocabulary import NO_NODE, NodeId

if TYPE_CHECKING:
    from penstock.broker.node import Node

LOOKED_FOR_SECONDS = 5.0  # For a coordinator that answers: it may be loading, or another node is about to be.
PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.01, 0.25
ANSWER_SECONDS = 5.0


class _Asking:
    """Somebody waits for a coordinator's word."""

    __slots__ = ("is_void",)

    def __init__(self) -> None:
        self.is_void = False  # The ledger was forgotten meanwhile.


class Beginnings:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._asking: dict[tuple[QueuePartition, str], dict[_Asking, None]] = {}

    # At the leader of a partition

    async def begin(self, queue: QueuePartition, group: str) -> None:
        """Begins the ledger unless it has begun. Raises NotHere, QueueRefusal, or Refusal: GROUP_ID_NOT_FOUND where the group is to have
        none here."""
        if queue.state.has(group):
            return
        offset = await ledger_calls.first_offset(queue, group)
        question = LedgerQuestion(group, queue.data.topic_id, queue.data.index)
        is_void = True
        while is_void:
            with self._waits(queue, group) as asking:
                await self.check(question)
            is_void = asking.is_void
        if not queue.state.has(group):  # Somebody else may have begun it meanwhile.
            await ledger_calls.begin_at(queue, group, offset)  # Decided before anything else can happen.

    async def check(self, question: LedgerQuestion) -> None:
        """Raises Refusal where the group is to have no ledger there, or no coordinator answers."""
        env, pause_s = self._node.env, PAUSE_SECONDS_MIN
        ends = env.now() + LOOKED_FOR_SECONDS
        while True:
            answer = await self.ask(question)
            if answer.word == LedgerWord.RECORDED.value:
                return
            if answer.word == LedgerWord.UNKNOWN.value:
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"no member of a share group {question.group!r} is to read this partition")
            if env.now() + pause_s > ends:
                raise Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the group's coordinator does not know yet: {answer.reason}; ask again")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_SECONDS_MAX)

    def forgotten(self, queue: QueuePartition, group: str) -> None:
        """Whatever a coordinator says that was asked before this is of no use."""
        for asking in self._asking.get((queue, group), ()):
            asking.is_void = True

    @contextmanager
    def _waits(self, queue: QueuePartition, group: str) -> Iterator[_Asking]:
        asking, key = _Asking(), (queue, group)
        self._asking.setdefault(key, {})[asking] = None
        try:
            yield asking
        finally:
            beside = self._asking[key]
            del beside[asking]
            if not beside:
                del self._asking[key]

    async def ask(self, question: LedgerQuestion) -> LedgerAnswer:
        """The word of the group's coordinator, or why there is none."""
        groups, links = self._node.groups, self._node.links
        if groups.partition_of(question.group) is None:
            if question.sweeps:
                return LedgerAnswer("", "there is nobody who could say so for certain")
            try:
                await catch_up(self._node)  # The group may have been the first of all, a moment ago.
            except Refusal as refusal:
                return LedgerAnswer("", refusal.reason)
        index, topic = groups.partition_of(question.group), self._node.image.topics.get(groups.topic)
        if index is None or topic is None:
            return LedgerAnswer(LedgerWord.UNKNOWN.value)  # There are no groups at all.
        coordinator = topic.partitions[index].leader
        if coordinator == self._node.settings.node_id:
            return await self._answer(question)
        if coordinator == NO_NODE or links is None:
            return LedgerAnswer("", "nobody leads the groups' log now")
        try:
            return read_answer(
                await links.ask(NodeId(coordinator), Kind.SHARE_LEDGER, write_question(question), timeout_s=ANSWER_SECONDS)
            )
        except NotUnderstood:
            return LedgerAnswer(LedgerWord.RECORDED.value)  # Its version is older, in which any fetch began a ledger.
        except (LinkFailure, MalformedInput) as failure:
            return LedgerAnswer("", str(failure))

    # At the coordinator of a group

    def asked(self, asked: Asked) -> None:
        """Another node leads the partition. Raises MalformedInput."""
        self._node.spawn(self._answer_other(asked, read_question(asked.body)))

    async def _answer_other(self, asked: Asked, question: LedgerQuestion) -> None:
        asked.answer([write_answer(await self._answer(question))])

    async def _answer(self, question: LedgerQuestion) -> LedgerAnswer:
        """What is recorded, when it is durable."""
        group, topic_id, partition, sweeps = question
        now = self._node.env.now()
        try:
            coordinator = self._node.groups.find(group)
            if sweeps:
                word = await coordinator.ask(partial(sweeping_ledger, group, topic_id, partition))
            else:
                word = await coordinator.read(lambda state: state.ledger_word(group, topic_id, partition, now))
        except Refusal as refusal:
            return LedgerAnswer("", refusal.reason)
        return LedgerAnswer(word.value, "the group is being deleted, or is to forget its offsets" if word is LedgerWord.GOING else "")
