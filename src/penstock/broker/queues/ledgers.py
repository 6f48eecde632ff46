"""The ledgers of a node: one for each partition of a queue that it leads, over the companion partition, which it leads too.

A ledger begins when the node leads both logs: its state is loaded from the companion (checkpoints.py), taught what the data log has
(following.py), and then it answers. It ends with either leadership. A few are loaded at a time, while everything else is served already.
Rounds of upkeep, each second: a ledger whose log has grown by as much as its last checkpoint was large gets a new one, and so does one
whose data log has grown by much, for loading reads that from the checkpoint on; a data log whose queue keeps nothing that is done is
trimmed to where its first unfinished message is.
"""

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from penstock.broker.askers import Nobody
from penstock.broker.coordinator import Coordinator, Kind
from penstock.broker.patience import Patience
from penstock.broker.queues import checkpoints
from penstock.broker.queues.bucket_files import DIRECTORY
from penstock.broker.queues.leading import QueuePartition
from penstock.broker.queues.policies import keeps_nothing, policy_of
from penstock.broker.trimming import trim
from penstock.cluster.commands import MakeCompanion
from penstock.cluster.records import UnknownRecord
from penstock.errors import BrokenPromise, DiskFailed, ErrorCode, MalformedInput, Refusal
from penstock.log.faults import NewerFormat, OffsetOutOfRange
from penstock.partition.partition import Partition
from penstock.queues.commands import QUEUE_GROUP, Abandoned, Command, NoteDelay, Rewind
from penstock.queues.policy import Policy
from penstock.queues.records import Record, encode
from penstock.queues.state import LedgerState
from penstock.settings import MIB, TopicConfig
from penstock.vocabulary import Offset, TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

LOADED_AT_A_TIME = 4
LOADED_AGAIN_SECONDS = 1.0
ROUND_SECONDS = 1.0
CHECKPOINT_EVERY_BYTES_MIN = 1 * MIB  # Of new ledger: loading that much takes a few hundredths of a second.
CHECKPOINT_EVERY_DATA_BYTES = 64 * MIB  # Of new messages: loading looks at all of them since the last checkpoint.
TRIMMED_BYTES_MIN = 8 * MIB  # From which on a log of which nothing is needed is begun anew.

Key = tuple[TopicId, int]


@dataclass(slots=True)
class _Saved:
    """What the last checkpoint of a ledger stands for."""

    ledger_bytes: int = 0  # That its log had taken in all.
    data_bytes: int = 0  # That the data log had.
    size: int = 0


class Ledgers:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._queues: dict[Key, QueuePartition] = {}
        self._by_log: dict[Partition, QueuePartition] = {}  # Found by either of its logs.
        self._saved: dict[QueuePartition, _Saved] = {}
        self._waiting: dict[QueuePartition, None] = {}  # To be loaded.
        self._loading = 0
        self._caches: Iterator[int] | None = None  # Numbers of directories; None before the first look at what is there.
        self._policies: dict[Partition, tuple[TopicConfig, Policy]] = {}

    def __iter__(self) -> Iterator[QueuePartition]:
        return iter(list(self._queues.values()))

    def find(self, topic_id: TopicId, index: int) -> QueuePartition | None:
        """None: this node does not lead it. Its ledger may still be loading."""
        return self._queues.get((topic_id, index))

    def is_loading(self) -> bool:
        return any(
            queue.coordinator.state is None and queue.coordinator.unavailable is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS for queue in self
        )

    async def prepare(self, topic_id: TopicId) -> None:
        """Makes the companion of a topic that has none. Raises Refusal."""
        if self._node.image.companion_of(topic_id) is None:
            (reply,) = await self._node.submit(MakeCompanion(topic_id))
            if isinstance(reply, Refusal):
                raise reply

    # Leading

    def partition_led(self, partition: Partition) -> None:
        """This node leads the partition, perhaps again. If it leads what belongs to it, there is a ledger."""
        image, partitions = self._node.image, self._node.partitions
        topic = image.topics_by_id.get(partition.topic_id)
        pair = () if topic is None else image.together(topic)
        if len(pair) < 2:
            return
        self.partition_left(partition)
        data, companion = (partitions.find_by_id(each.topic_id, partition.index) for each in pair)
        if data is not None and companion is not None and data.leader is not None and companion.leader is not None:
            self._begin(data, companion)

    def has(self, partition: Partition) -> bool:
        """Whether it is one of the two logs of a queue that this node leads."""
        return partition in self._by_log

    def partition_left(self, partition: Partition) -> None:
        """It leads it no longer, or the partition is gone."""
        queue = self._by_log.get(partition)
        if queue is None:
            return
        del self._queues[queue.data.topic_id, queue.data.index], self._by_log[queue.data], self._by_log[queue.companion]
        self._saved.pop(queue, None)
        self._waiting.pop(queue, None)
        self._policies.pop(queue.data, None)
        queue.close()

    def configured(self, partition: Partition) -> None:
        """The settings of its topic have changed."""
        queue = self._by_log.get(partition)
        if queue is not None and queue.data is partition and queue.coordinator.state is not None:
            self._note_delay(queue, queue.coordinator.state)

    def send_waiting_away(self) -> None:
        """The node stops: whoever waits for messages hears that there are none."""
        for queue in self:
            queue.send_waiting_away()

    def stop(self) -> None:
        for queue in self:
            queue.close()

    def _begin(self, data: Partition, companion: Partition) -> None:
        queue = QueuePartition(self._node, data, companion, lambda group: self._policy_of(data, group))
        kind: Kind[LedgerState, Command, Record] = Kind(
            topic=companion.topic,
            overrides={},
            new_state=queue.new_state,
            encode=encode,
            replay=LedgerState.replay_stored,
            loaded=lambda state, now: state.begin(now, self._node.env.wall_ms()),
            abandoned=Abandoned,
            changed=lambda coordinator: self._changed(queue),
        )
        queue.coordinator = Coordinator(self._node, kind, companion, lambda coordinator: self._load_later(queue))
        self._queues[data.topic_id, data.index] = self._by_log[data] = self._by_log[companion] = queue
        self._load_later(queue)

    def _policy_of(self, data: Partition, group: str) -> Policy:
        """Asked at every decision, so the last one is kept for as long as the settings are the same."""
        if group != QUEUE_GROUP:
            return self._node.shares.configs.policy_of(group)
        config, policy = self._policies.get(data, (None, None))
        if policy is None or config is not data.config:
            policy = policy_of(data.config)
            self._policies[data] = (data.config, policy)
        return policy

    def _changed(self, queue: QueuePartition) -> None:
        queue.has_changed.set()
        queue.look_soon()
        self._node.queues.burying.look_soon(queue)

    # Loading

    def _load_later(self, queue: QueuePartition) -> None:
        queue.following.end()
        if not queue.companion.log.end_offset and not queue.data.log.end_offset and _failure_of(queue) is None:
            self._answer(queue, queue.new_state())  # A new queue is ready when its reply leaves.
            return
        self._waiting[queue] = None
        if self._loading < LOADED_AT_A_TIME:
            self._loading += 1
            self._node.spawn(self._load_waiting())

    async def _load_waiting(self) -> None:
        try:
            while self._waiting:
                queue = next(iter(self._waiting))
                del self._waiting[queue]
                await self._load(queue)
        finally:
            self._loading -= 1

    async def _load(self, queue: QueuePartition) -> None:
        node, companion, name = self._node, queue.companion, f"{queue.data.topic}-{queue.data.index}"
        began = node.env.now()
        try:
            if (failed := _failure_of(queue)) is not None:
                raise DiskFailed(failed)
            state, loaded = await checkpoints.load(node.env, companion.log, queue.new_state)
            data_bytes = await queue.following.catch_up(state)
            if data_bytes is None or not await self._prepare(queue, state):
                return
        except (DiskFailed, NewerFormat, UnknownRecord, MalformedInput, BrokenPromise) as failure:
            if self._is_here(queue):
                node.report(f"the ledger of {name} cannot be loaded: {failure}")
                queue.coordinator.close()
                if isinstance(failure, DiskFailed) and _failure_of(queue) is None:
                    node.spawn(self._load_again(queue))
            return
        except OffsetOutOfRange:  # The log was trimmed meanwhile: what was read is in the checkpoint that it begins with now.
            queue.coordinator.close()
            node.spawn(self._load_again(queue))
            return
        except Exception:
            log.exception("the ledger of %s could not be loaded, and is tried again", name)
            queue.coordinator.close()
            node.spawn(self._load_again(queue))
            return
        if self._is_here(queue) and companion.log.failure is None:
            ledger_bytes = companion.log.appended_bytes - loaded.log_bytes
            self._saved[queue] = _Saved(ledger_bytes, queue.data.log.appended_bytes - data_bytes, loaded.checkpoint_bytes)
            self._answer(queue, state)
            log.debug("loaded the ledger of %s: %d bytes in %.2f s", name, loaded.log_bytes, node.env.now() - began)

    async def _prepare(self, queue: QueuePartition, state: LedgerState) -> bool:
        """Opens the delays that are due. Raises DiskFailed where what was put aside for that does not come back. False: nobody needs the
        state any more, for another node leads or another load has begun; what was put aside went with that, and never comes back."""
        pages = queue.pages
        while state.pages is pages and not pages.is_closed:
            if state.prepare(self._node.env.wall_ms()):
                return True
            await pages.fetched()
            if pages.failure:
                raise DiskFailed(pages.failure)
        return False

    def _answer(self, queue: QueuePartition, state: LedgerState) -> None:
        """The state is whole: it answers from here on."""
        queue.coordinator.begin(state)
        end_offset, known_end = int(queue.data.log.end_offset), state.known_end
        if known_end > end_offset:
            self._node.report(
                f"{queue.data.topic}-{queue.data.index} has lost up to {known_end - end_offset} messages that its ledger knows of; "
                "what is written there from now on is lent as new"
            )
            state.moves.forget_from(end_offset)
            for group in state.groups():
                queue.coordinator.order(Rewind(Nobody(), group, end_offset))
        self._note_delay(queue, state)
        if queue.coordinator.state is not state:
            return  # What was ordered has found that the log fails.
        queue.following.begin(state)
        self._node.queues.burying.look_soon(queue)
        self._node.queues.redriving.look_soon(queue)

    def _note_delay(self, queue: QueuePartition, state: LedgerState) -> None:
        """A delay holds from a message on that the ledger knows. Before it follows the log: a new queue's holds for all of them."""
        if state.messages.common_delay.last_ms != queue.data.config.queue_delay_ms:
            queue.coordinator.order(NoteDelay(Nobody(), QUEUE_GROUP))

    def _is_here(self, queue: QueuePartition) -> bool:
        is_led = queue.data.leader is not None and queue.companion.leader is not None
        return is_led and self._queues.get((queue.data.topic_id, queue.data.index)) is queue

    async def _load_again(self, queue: QueuePartition) -> None:
        """A read that failed may succeed later: nothing was lost by it."""
        await asyncio.sleep(LOADED_AGAIN_SECONDS)
        if self._is_here(queue) and queue.coordinator.state is None:
            queue.coordinator.unavailable = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            self._load_later(queue)

    # Delays that are far away

    def new_directory(self) -> str:
        """For the caches of one load of one ledger: no other has, or had, files there."""
        if self._caches is None:
            try:
                found = [int(name) for name in self._node.env.disk.list(DIRECTORY) if name.isdigit()]
                self._caches = count(max(found, default=0) + 1)
                self._node.spawn(self._drop_old_caches(found))
            except DiskFailed as failure:  # Delays stay in memory, if nothing can be written there either.
                self._node.report(f"old files in {DIRECTORY}/ stay until the next start: {failure}")
                self._caches = count(self._node.env.wall_ms())
        return f"{DIRECTORY}/{next(self._caches)}"

    async def _drop_old_caches(self, found: list[int]) -> None:
        """Of an earlier life of this node: nobody knows any more what is where."""
        try:
            for number in found:
                await self._node.env.offload(self._node.env.disk.unlink, f"{DIRECTORY}/{number}")
        except (DiskFailed, FileNotFoundError) as failure:
            self._node.report(f"old files in {DIRECTORY}/ stay until the next start: {failure}")

    # Upkeep

    async def look_after(self) -> None:
        """Off the hot path: a round each second."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            patience = Patience(self._node.env)
            for queue in self:
                try:
                    await self.look_at(queue)
                except Exception:
                    log.exception("the upkeep of a queue failed; the next round tries again")
                await patience.pause_if_over()

    async def look_at(self, queue: QueuePartition, *, is_forced: bool = False) -> None:
        if queue.coordinator.state is None:
            return
        queue.following.look_at_start()
        self._node.queues.confirming.look_at(queue)
        queue.bodies.let_go_if_idle()
        queue.stored.let_go_if_idle()
        queue.look_soon()  # The queue may have been resumed by its settings.
        if is_forced or self._wants_checkpoint(queue):
            ledger_bytes, data_bytes = queue.companion.log.appended_bytes, queue.data.log.appended_bytes
            size = await checkpoints.write(self._node, queue)
            if size is not None:
                self._saved[queue] = _Saved(ledger_bytes + size, data_bytes, size)
        await self._trim_data(queue)

    def _wants_checkpoint(self, queue: QueuePartition) -> bool:
        saved = self._saved.setdefault(queue, _Saved())
        ledger_bytes = queue.companion.log.appended_bytes - saved.ledger_bytes
        data_bytes = queue.data.log.appended_bytes - saved.data_bytes
        return ledger_bytes >= max(CHECKPOINT_EVERY_BYTES_MIN, saved.size) or data_bytes >= max(CHECKPOINT_EVERY_DATA_BYTES, saved.size)

    async def _trim_data(self, queue: QueuePartition) -> None:
        """Whole segments of messages that are finished go, where the queue keeps none. What is finished is durable before its message
        goes: the ledger is asked again once all of it is."""
        data, state = queue.data, queue.coordinator.state
        if state is None or not keeps_nothing(data.config) or _needless(data, state.base_of_all) <= data.log.start_offset:
            return
        try:
            wanted = _needless(data, await queue.coordinator.read(lambda state: state.base_of_all))
            if data.log.start_offset < wanted <= data.high_watermark and data.leader is not None and data.log.failure is None:
                await trim(self._node, data, Offset(wanted))
        except Refusal:
            return  # Nothing is committed now, or another node leads: a later round tries again.


def _failure_of(queue: QueuePartition) -> str | None:
    """Why the ledger cannot be loaded before the logs are opened again. Of data that could not be read to their end nobody knows what is
    missing: the ledger must not take it for lost."""
    data = queue.data
    return queue.companion.log.failure or (None if data.end_is_known else data.log.failure or "the end of the messages is not known")


def _needless(data: Partition, base: int) -> int:
    """To where the log is of no use, if everything below the base is done: up to a segment, so that files go; or all of it."""
    if base <= data.log.start_offset:  # Also where it begins after a message whose id still counts.
        return int(data.log.start_offset)
    if base >= data.log.end_offset and data.log.size_bytes >= TRIMMED_BYTES_MIN:
        return base
    return data.log.segment_start(min(base, data.log.end_offset))
