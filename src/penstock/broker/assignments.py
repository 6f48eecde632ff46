"""What this node holds follows from the image: it opens, leads, follows, drops and buries as the replayed records say.

A partition whose replicas name this node is opened here. Its role is taken from the image when its log is open, and again whenever a
record changes it; so it does not matter what was decided while the log was being opened. Roles change at once, in the order of the
records; only opening and removing files take time. Until `open_all` nothing is acted upon: the image is still on its way to today.
`graveyard` duties: the files of a deleted topic are removed off the loop, and then that is noted, so that nothing more is owed.
"""

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.configuring import adopt_settings, adopt_topic_config, least_in_sync
from penstock.broker.partitions import TOPICS_DIRECTORY, topic_directory
from penstock.broker.together import together
from penstock.cluster import records
from penstock.cluster.commands import BuryTopic
from penstock.cluster.image import PartitionState, Topic
from penstock.errors import DiskFailed, ErrorCode, Refusal
from penstock.partition.in_sync import NO_NODE_EPOCH
from penstock.partition.leader import InSyncChanged, Leader, MinInSyncChanged, Resigned
from penstock.partition.partition import NOT_LEADING, Partition, ProduceToken
from penstock.vocabulary import NO_NODE, NodeId, TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

_TOPIC_ID = re.compile("[0-9a-f]{32}")
OPENED_AGAIN_SECONDS = 2.0
DROPPED = ".dropped"  # The files of a replica that was moved away. They are being removed.
NEVER_ENOUGH = 1 << 15  # More than a partition has replicas.


class Assignments:
    def __init__(self, node: "Node") -> None:
        self._node = node
        self._me = NodeId(node.settings.node_id)
        self._is_acting = False
        self._has_opened_all = False
        self._names: dict[TopicId, str] = {}  # Of all topics: a record that deletes one names only its id.
        self._opening: dict[tuple[TopicId, int], None] = {}
        self._retrying: dict[tuple[TopicId, int], None] = {}
        self._dropping: dict[tuple[TopicId, int], asyncio.Event] = {}
        self._burying: dict[TopicId, None] = {}

    # What was decided

    async def open_all(self, *, is_clean: bool) -> None:
        """Opens everything that the image gives to this node. From here on records are acted upon."""
        self._is_acting = True
        self._names = {topic.topic_id: topic.name for topic in self._node.image.topics.values()}
        self._node.queues.deletions.all_seen(self._node.image.topics.values())
        self._drop_strangers()
        began, topics = self._node.env.now(), list(self._node.image.topics.values())
        opened = await self._open([(topic, index) for topic in topics for index in range(len(topic.partitions))], is_clean=is_clean)
        self._has_opened_all = True
        self.bury_the_rest()
        if not is_clean:
            seconds, scanned_bytes = self._node.env.now() - began, sum(partition.log.report.scanned_bytes for partition in opened)
            log.info("recovered %d partitions of %d topics: %d bytes checked in %.2f s", len(opened), len(topics), scanned_bytes, seconds)

    async def replayed(self, record: records.Record) -> None:
        if not self._is_acting:
            return
        node, image = self._node, self._node.image
        match record:
            case records.TopicCreated() | records.PartitionsAdded() | records.CompanionMade():
                topic = image.topics_by_id[record.companion_id if isinstance(record, records.CompanionMade) else record.topic_id]
                self._names[topic.topic_id] = topic.name
                node.queues.deletions.seen(topic)
                await self._open([(topic, index) for index in range(len(topic.partitions))], is_clean=True)
                node.topic_pieces.forget(topic.name)  # Clients are told of partitions when they can be used.
                node.groups.topics_changed()
            case records.TopicDeleted():
                self._remove_topic(record.topic_id)
                await node.groups.flush()  # Before a topic of this name can be made again: its readers would begin in the middle.
            case records.TopicConfigured():
                node.queues.deletions.seen(image.topics_by_id[record.topic_id])
                adopt_topic_config(node, image.topics_by_id[record.topic_id])
            case records.NodeConfigured():
                await adopt_settings(node)
            case records.PartitionsChanged():
                for change in record.changes:
                    self._changed(image.topics_by_id[change.topic_id], change.partition)
            case records.ClusterFormed() | records.TopicBuried() | records.ProducerBlockTaken() | records.GroupConfigured():
                pass
            case _:
                node.topic_pieces.forget_all()  # A node came or went: it stands in the rows of every partition that it has.

    async def installed(self) -> None:
        """The whole image was replaced by a later one: whatever happened in between is seen from what holds now."""
        if not self._is_acting:
            return
        node, image = self._node, self._node.image
        node.topic_pieces.forget_all()
        await adopt_settings(node)
        for topic_id in [topic_id for topic_id in self._names if topic_id not in image.topics_by_id]:
            self._remove_topic(topic_id)
        self._names = {topic.topic_id: topic.name for topic in image.topics.values()}
        node.queues.deletions.all_seen(image.topics.values())
        node.groups.topics_changed()
        await node.groups.flush()
        for topic, index, _ in list(image.each_partition()):
            self._changed(topic, index)
        self.bury_the_rest()

    def _changed(self, topic: Topic, index: int) -> None:
        node = self._node
        node.topic_pieces.forget(topic.name)
        partition = node.partitions.find_by_id(topic.topic_id, index)
        if self._me in topic.partitions[index].replicas:
            if partition is not None:
                self.adopt(partition)
            elif self._is_owed(topic, index):
                node.spawn(self._open_later(topic.topic_id, index))
        elif partition is not None:
            self._drop_replica(partition, "the replica was moved to another node")

    # Opening

    def open_again(self, topic_id: TopicId, index: int, *, is_new: bool, accepts_loss: bool = False) -> None:
        """A copy that was removed here, because it was damaged, is opened anew, with the files that are there now."""
        topic = self._node.image.topics_by_id.get(topic_id)
        if topic is not None and self._is_owed(topic, index):
            delay_s = OPENED_AGAIN_SECONDS  # A disk may fail for long.
            self._node.spawn(self._open_later(topic_id, index, delay_s=delay_s, is_clean=is_new, accepts_loss=accepts_loss))

    async def _open_later(
        self, topic_id: TopicId, index: int, *, delay_s: float = 0.0, is_clean: bool = True, accepts_loss: bool = False
    ) -> None:
        """Until it is open and has its role, or is another node's: a replica that is not there counts for nobody."""
        if (topic_id, index) in self._retrying:
            return
        self._retrying[topic_id, index] = None
        try:
            await asyncio.sleep(delay_s)
            while not await self._try_to_open(topic_id, index, is_clean=is_clean, accepts_loss=accepts_loss):
                is_clean = False
                await asyncio.sleep(OPENED_AGAIN_SECONDS)
        finally:
            del self._retrying[topic_id, index]

    async def _try_to_open(self, topic_id: TopicId, index: int, *, is_clean: bool, accepts_loss: bool) -> bool:
        """Whether there is nothing left to do."""
        topic, partition = self._node.image.topics_by_id.get(topic_id), self._node.partitions.find_by_id(topic_id, index)
        if topic is None:
            return True
        try:
            if partition is not None:
                self.adopt(partition)
            else:
                await self._open([(topic, index)], is_clean=is_clean, accepts_loss=accepts_loss)
        except DiskFailed as failure:
            self._node.report(f"the replica of {topic.name}-{index} cannot be opened, and is tried again: {failure}")
            return False
        except Exception:
            log.exception("the replica of %s-%d could not be opened, and is tried again", topic.name, index)
            return False
        return not self._is_owed(topic, index)  # It is, where what was opened was of no use.

    async def _open(self, wanted: list[tuple[Topic, int]], *, is_clean: bool, accepts_loss: bool = False) -> list[Partition]:
        """Opens those of them that are this node's and not open yet. A recovered tail is flushed before anybody can read it."""
        mine = [(topic, index) for topic, index in wanted if self._is_owed(topic, index)]
        for topic, index in mine:
            self._opening[topic.topic_id, index] = None
        open_one = partial(self._open_one, is_clean=is_clean, accepts_loss=accepts_loss)
        return await together(partial(open_one, topic, index) for topic, index in mine)

    def _is_owed(self, topic: Topic, index: int) -> bool:
        if self._me not in topic.partitions[index].replicas or (topic.topic_id, index) in self._opening:
            return False
        return self._node.partitions.find_by_id(topic.topic_id, index) is None

    async def _open_one(self, topic: Topic, index: int, *, is_clean: bool, accepts_loss: bool) -> Partition:
        node = self._node
        try:
            dropping = self._dropping.get((topic.topic_id, index))
            if dropping is not None:
                await dropping.wait()
            partition = await node.partitions.open(topic, index, is_clean=is_clean, accepts_loss=accepts_loss)
        finally:
            del self._opening[topic.topic_id, index]
        state = node.image.partition(topic.topic_id, index)
        if state is None or self._me not in state.replicas:  # Deleted or moved meanwhile. By now another topic may have its name.
            node.partitions.discard(partition)
            partition.log.abandon()
            self._drop_files(topic.topic_id, index)
            return partition
        for note in partition.log.report.notes:
            node.report(f"{topic.name}-{index}: {note}")
        if partition.log.failure is not None:
            node.report(f"{topic.name}-{index} is offline for writes: {partition.log.failure}")
        node.partitions.serve(partition)
        self.adopt(partition)
        if partition.is_damaged and self._has_opened_all:
            node.spawn(node.damaged_copies.tell_controller([partition]))
        return partition

    # Roles

    def adopt(self, partition: Partition) -> None:
        """Takes the role that the image gives this node. One whose log is being cut takes it when that has ended."""
        state = self._node.image.partition(partition.topic_id, partition.index)
        if state is None or self._node.replica_fetching.is_cutting(partition):
            return
        if state.leader != self._me:
            self._follow(partition, state)
        elif partition.leader is None or partition.epoch != state.leader_epoch:
            self._lead(partition, state)
        else:
            self._change_set(partition, partition.leader, state)

    def _change_set(self, partition: Partition, leader: Leader[ProduceToken], state: PartitionState) -> None:
        """Nothing is committed while the leader knows the new set and not yet how large it must be, or the other way round."""
        changed = InSyncChanged(self._with_epochs(state.in_sync), state.partition_epoch, state.replicas)
        for event in (MinInSyncChanged(NEVER_ENOUGH), changed, MinInSyncChanged(least_in_sync(partition.config, state))):
            self._node.carry_out(partition, leader.step(event, self._node.env.now()))

    def _lead(self, partition: Partition, state: PartitionState) -> None:
        """A leader that stays in a new epoch goes on with those who wait for it. Where it coordinates something, that begins anew."""
        before = partition.leader
        if partition.is_internal or self._node.ledgers.has(partition):
            self._resign(partition)
            before = None
        self._node.replica_fetching.leave(partition)
        node, now = self._node, self._node.env.now()
        leader: Leader[ProduceToken] = Leader(
            self._me,
            state.leader_epoch,
            in_sync=self._with_epochs(state.in_sync),
            replicas=state.replicas,
            partition_epoch=state.partition_epoch,
            own_end=partition.durable_end,
            high_watermark=partition.high_watermark,
            epoch_start=partition.log.end_offset,
            log_start=partition.log.start_offset,
            min_insync=least_in_sync(partition.config, state),
            lag_max_s=node.settings.replica_lag_ms / 1000,
            now=now,
        )
        partition.lead(leader)
        if before is not None:
            node.carry_out(partition, leader.take_over(before))
        node.flusher.request(partition)  # What it took as a follower may not be flushed.
        node.groups.partition_led(partition)
        node.transactions.partition_led(partition)
        node.ledgers.partition_led(partition)
        if partition.log.failure is not None:  # Then another had better lead.
            node.carry_out(partition, partition.failed(partition.log.failure, now))
        if partition.is_damaged:
            node.damaged_copies.leads(partition)

    def _follow(self, partition: Partition, state: PartitionState) -> None:
        self._resign(partition)
        partition.follow(state.leader_epoch)
        if state.leader == NO_NODE:
            self._node.replica_fetching.leave(partition)
        elif partition.is_damaged:
            self._node.replica_fetching.leave(partition)
            self._node.damaged_copies.follows(partition, state.leader)
        else:
            self._node.replica_fetching.follow(partition, state.leader)

    def _resign(self, partition: Partition) -> None:
        """Whoever waits for an answer here asks the next leader."""
        if partition.leader is None:
            return
        node = self._node
        node.groups.partition_left(partition)
        node.transactions.partition_left(partition)
        node.ledgers.partition_left(partition)
        effects = partition.leader.step(Resigned(NOT_LEADING), node.env.now())
        partition.follow(partition.epoch)
        node.carry_out(partition, effects, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for watcher in list(partition.watchers):
            watcher.advanced(partition, 0)

    def _with_epochs(self, in_sync: Sequence[NodeId]) -> list[tuple[NodeId, int]]:
        nodes = self._node.image.nodes
        return [(node_id, nodes[node_id].node_epoch if node_id in nodes else NO_NODE_EPOCH) for node_id in in_sync]

    # Dropping

    def _remove_topic(self, topic_id: TopicId) -> None:
        """Also where no partition of it is: offsets may be committed here for it."""
        held = list(self._node.partitions.by_id.get(topic_id, {}).values())
        for partition in held:
            self._node.partitions.remove(partition)  # All of them, before anybody is told of one.
        for partition in held:
            self.removed(partition, "the topic was deleted")
        self._node.queues.deletions.deleted(topic_id)
        self._node.partitions.known_ends.topic_deleted(topic_id)
        name = self._names.pop(topic_id, None)
        if name is not None:
            self._node.topic_pieces.forget(name)
            self._node.groups.topic_deleted(topic_id, name)
        self.bury_the_rest()

    def removed(self, partition: Partition, reason: str) -> None:
        """Nobody finds it any more: those who have it in hand are told."""
        node = self._node
        node.topic_pieces.forget(partition.topic)
        node.groups.partition_left(partition)
        node.transactions.partition_left(partition)
        node.ledgers.partition_left(partition)
        node.replica_fetching.leave(partition)
        node.carry_out(partition, partition.failed(reason, node.env.now()), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        partition.log.abandon()
        node.damaged_copies.forget(partition)
        for watcher in list(partition.watchers):
            watcher.advanced(partition, 0)

    def _drop_replica(self, partition: Partition, reason: str) -> None:
        self._node.partitions.remove(partition)
        self.removed(partition, reason)
        self._drop_files(partition.topic_id, partition.index)

    def _drop_files(self, topic_id: TopicId, index: int) -> None:
        self._begin_dropping(topic_id, index, self._drop)

    def _begin_dropping(self, topic_id: TopicId, index: int, drop: Callable[[TopicId, int], Awaitable[None]]) -> None:
        if (topic_id, index) not in self._dropping:
            self._dropping[topic_id, index] = asyncio.Event()
            self._node.spawn(self._report_dropping(topic_id, index, drop))

    async def _drop(self, topic_id: TopicId, index: int) -> None:
        """Removes the files of a replica that is on another node now. They go by another name: what a crash or a failing disk leaves of
        them must never be opened as a log, since it may lack records at its beginning and still look whole."""
        disk, directory = self._node.env.disk, topic_directory(topic_id, index)
        if disk.exists(directory):
            await self._unlink_dropped(topic_id, index)
            disk.rename(directory, directory + DROPPED)
            self._node.files.forget_directory(directory)
            await self._sync_names(topic_id)
        await self._node.partitions.known_ends.forget(topic_id, index)
        await self._unlink_dropped(topic_id, index)

    async def _unlink_dropped(self, topic_id: TopicId, index: int) -> None:
        """Removes what is left of a replica that was dropped."""
        disk, directory = self._node.env.disk, topic_directory(topic_id, index) + DROPPED
        if disk.exists(directory):
            await self._node.env.offload(disk.unlink, directory)
            await self._sync_names(topic_id)

    async def _sync_names(self, topic_id: TopicId) -> None:
        if failures := await self._node.env.disk.sync([], [topic_directory(topic_id)]):
            raise DiskFailed(f"{failures[0][0]}: {failures[0][1]}")

    async def _report_dropping(self, topic_id: TopicId, index: int, drop: Callable[[TopicId, int], Awaitable[None]]) -> None:
        node = self._node
        try:
            await drop(topic_id, index)
        except (DiskFailed, FileNotFoundError) as failure:
            node.report(f"the files of a replica that was moved away stay until the next start: {failure}")
        except Exception:
            log.exception("the files of a replica that was moved away stay until the next start")
        finally:
            self._dropping.pop((topic_id, index)).set()

    def _drop_strangers(self) -> None:
        """Files of replicas that were moved away while this node did not run, or whose removal a crash cut short."""
        disk = self._node.env.disk
        for topic in self._node.image.topics.values():
            for name in disk.list(topic_directory(topic.topic_id)):
                number = name.removesuffix(DROPPED)
                if not number.isdigit() or int(number) >= len(topic.partitions):
                    continue
                if self._me not in topic.partitions[int(number)].replicas:
                    self._drop_files(topic.topic_id, int(number))
                elif name != number:  # It was moved back. Its known end stays: it may be that of the copy that was begun since.
                    self._begin_dropping(topic.topic_id, int(number), self._unlink_dropped)
        if gone := self._gone_topics():
            self._node.report(f"{TOPICS_DIRECTORY}/ has files of {len(gone)} topics that the cluster deleted; they are removed")
            self._node.spawn(self._drop_topics(gone))

    def _gone_topics(self) -> list[TopicId]:
        """Topics whose files lie here although the cluster has them no more, and does not owe their burial: they were deleted after their
        replicas had been moved off this node, which did not hear of either.

        Nothing is gone for a node that is alone, since nobody else decides for it; nor for one that the cluster did not know before: what
        it finds may be another cluster's. The image is not older than this node's registration, so it has every topic that an earlier
        life of this node has ever had, unless that is deleted."""
        node, image = self._node, self._node.image
        registered = image.nodes.get(self._me)
        if node.neighbours is None or registered is None or not 1 < node.membership.node_epoch <= registered.node_epoch:
            return []
        found = [TopicId(bytes.fromhex(name)) for name in node.env.disk.list(TOPICS_DIRECTORY) if _TOPIC_ID.fullmatch(name)]
        return [topic_id for topic_id in found if topic_id not in image.topics_by_id and self._me not in image.graveyard.get(topic_id, ())]

    async def _drop_topics(self, topic_ids: list[TopicId]) -> None:
        node = self._node
        try:
            for topic_id in topic_ids:
                await node.env.offload(node.env.disk.unlink, topic_directory(topic_id))
            await node.env.disk.sync([], [TOPICS_DIRECTORY])
        except DiskFailed as failure:
            node.report(f"the files of topics that are gone stay until the next start: {failure}")
        except Exception:
            log.exception("the files of topics that are gone stay until the next start")

    # Burying

    def bury_the_rest(self) -> None:
        """Begins whatever burial is still owed. One that a full disk prevented is tried again here."""
        for topic_id, holders in self._node.image.graveyard.items():
            if self._me in holders and topic_id not in self._burying:
                self._burying[topic_id] = None
                self._node.spawn(self._bury(topic_id))

    async def _bury(self, topic_id: TopicId) -> None:
        """Removes a deleted topic's files, off the loop because large files take long, and notes that nothing more is owed."""
        node = self._node
        try:
            await node.env.offload(node.env.disk.unlink, topic_directory(topic_id))
            if failures := await node.env.disk.sync([], ["topics"]):
                node.report(f"the files of a deleted topic may come back, the next start removes them again: {failures[0][1]}")
                return  # A later success would not be believed: it stays among those that are being buried.
            await node.submit(BuryTopic(topic_id, self._me))
        except (DiskFailed, Refusal) as failure:
            node.report(f"a deleted topic is not buried yet: {failure}")
        except Exception:
            log.exception("a deleted topic is not buried yet")
        del self._burying[topic_id]
