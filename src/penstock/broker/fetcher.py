"""The follower's side of replication towards one leader.

A fetcher asks one thing at a time: what was appended since. What comes is checked, appended and flushed as its topic promises; while the
flush is under way it asks for more already, and when the flush has ended the leader is told how far the copies are durable. Reports of one
turn of the loop travel together. They may be lost with a link, so everything is reported again when a session begins, and what was reported
lately once more when nothing else is to do. A partition that is not in sync is reported again and again: its leader may have asked for it
to be let in, and have been refused because the controller had not heard of this node yet. When there is something new to ask while the
leader keeps a question, another one is sent after it, and the leader then answers the first.
Not here: what to make of an answer (partition/follower.py).
"""

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple, assert_never

from penstock.broker.patience import Patience
from penstock.broker.trimming import trim
from penstock.cluster.topic_names import is_internal
from penstock.errors import DiskFailed, DiskFull, ErrorCode, MalformedInput, Refusal
from penstock.links.failures import LinkFailure
from penstock.links.kinds import Kind
from penstock.links.replica_fetch import Answer, Fetched, Wish, read_fetched, write_fetch, write_reached
from penstock.partition import follower as follower_side
from penstock.partition.follower import Append, Diverging, Fetch, Follower, RaiseStart, StartOver, Step, Truncate, Wait
from penstock.partition.leader import AdvanceWatermark
from penstock.partition.partition import Partition
from penstock.vocabulary import LeaderEpoch, NodeId, Offset, TopicId

if TYPE_CHECKING:
    from penstock.broker.node import Node

log = logging.getLogger("penstock")

PAUSE_SECONDS_MIN, PAUSE_SECONDS_MAX = 0.02, 1.0  # Between tries at a leader that does not answer.
REFUSED_SECONDS = 0.1  # After which a partition is asked for again that the leader said no to: the two may not have heard the same yet.
ANSWER_SECONDS = 10.0  # More than a leader may keep a question: then something is wrong.
THROTTLED_SECONDS = 1.0  # At the latest after this long a replica that is held back looks whether the rate has been changed.
OUTSIDE_SECONDS = 0.5  # How often those are reported that are not in sync.
SESSION_END = 1 << 62

Key = tuple[TopicId, int]


class Followed(NamedTuple):
    partition: Partition
    follower: Follower


class Fetcher:
    def __init__(self, node: "Node", leader: NodeId) -> None:
        self._node = node
        self._leader = leader
        self._followed: dict[Key, Followed] = {}
        self._said: dict[Key, Wish] = {}  # What the leader knows of this session.
        self._session: int | None = None  # None: the next question opens one, and names everything.
        self._held_back: dict[Key, None] = {}  # Not asked for until a pause is over.
        self._trimming: dict[Partition, Offset] = {}
        self._reports: dict[Key, None] = {}  # To be sent this turn,
        self._reported: dict[Key, None] = {}  # and those sent since the last quiet moment.
        self._looked_at = node.env.now()  # For those that are not in sync.
        self._asking: asyncio.Task[Answer] | None = None
        self._asking_next: asyncio.Task[Answer] | None = None
        self._is_running = False
        self._news = asyncio.Event()

    def add(self, partition: Partition, follower: Follower) -> None:
        key = _key(partition)
        self._followed[key] = Followed(partition, follower)
        self._said.pop(key, None)
        self._held_back.pop(key, None)
        self._has_news()
        if not self._is_running:
            self._is_running = True
            self._node.spawn(self._run())

    def drop(self, partition: Partition) -> None:
        key = _key(partition)
        if key in self._followed and self._followed[key].partition is partition:
            del self._followed[key]

    def go_on(self, partition: Partition) -> None:
        """Whatever kept the partition from being fetched is over."""
        key = _key(partition)
        self._held_back.pop(key, None)
        self._said.pop(key, None)
        self._has_news()

    def _has_news(self) -> None:
        self._news.set()
        if self._asking is not None and self._asking_next is None and self._session is not None:
            self._asking_next = asyncio.get_running_loop().create_task(self._ask())

    # Asking

    async def _run(self) -> None:
        pause = PAUSE_SECONDS_MIN
        try:
            while True:
                if not self._followed:
                    self._session = None
                    self._news.clear()
                    await self._news.wait()
                try:
                    await self._fetch_once()
                    pause = PAUSE_SECONDS_MIN
                except Exception as failure:
                    if isinstance(failure, LinkFailure | MalformedInput):
                        log.debug("no fetch from node %d: %s", self._leader, failure)
                    else:
                        log.exception("fetching from node %d failed; it is tried again", self._leader)
                    self._session = None
                    await asyncio.sleep(pause * (0.5 + self._node.env.rng.random() / 2))
                    pause = min(pause * 2, PAUSE_SECONDS_MAX)
        finally:
            self._is_running = False
            for asking in (self._asking, self._asking_next):
                if asking is not None:
                    asking.cancel()

    async def _fetch_once(self) -> None:
        asking = self._asking = self._asking_next or asyncio.get_running_loop().create_task(self._ask())
        self._asking_next = None
        try:
            answer = await asking
        finally:
            self._asking = None
        if answer.session != self._session:
            return  # Of a session that is over.
        if answer.is_unknown:
            self._session = None
            return
        patience = Patience(self._node.env)
        for row in answer.rows:
            self._take(row)
            await patience.pause_if_over()
        if not answer.rows:
            self._repeat_reports()
        if self._node.env.now() >= self._looked_at + OUTSIDE_SECONDS:
            self._looked_at = self._node.env.now()
            self._tell_again({key: None for key in self._followed if not self._is_in_sync(key)})

    async def _ask(self) -> Answer:
        settings, is_full = self._node.settings, self._session is None
        if self._session is None:
            self._session = self._node.env.rng.randrange(SESSION_END)
            self._said.clear()
            for key, followed in self._followed.items():
                followed.follower.report_again()
                self._report(key)
        wishes, dropped = self._changes()
        question = write_fetch(
            self._session, wishes, dropped, is_full=is_full, wait_ms=settings.replica_wait_ms,
            bytes_max=settings.replica_response_bytes, partition_bytes_max=settings.replica_fetch_bytes,
        )  # fmt: skip
        timeout_s = settings.replica_wait_ms / 1000 + ANSWER_SECONDS
        links = self._node.links
        assert links is not None, "a node alone follows nobody"
        return read_fetched(await links.ask(self._leader, Kind.REPLICA_FETCH, question, timeout_s=timeout_s))

    def _changes(self) -> tuple[list[Wish], list[Key]]:
        dropped = [key for key in self._said if not self._is_wanted(key)]
        for key in dropped:
            del self._said[key]
        wishes = []
        for key, (_, follower) in self._followed.items():
            if not self._is_wanted(key):
                continue
            epoch, offset, last_epoch = follower.next_fetch()
            wish = Wish(*key, epoch, offset, last_epoch)
            if self._said.get(key) != wish:
                wishes.append(wish)
                self._said[key] = wish
        return wishes, dropped

    def _is_wanted(self, key: Key) -> bool:
        followed = self._followed.get(key)
        if followed is None or key in self._held_back or followed.partition.log.failure is not None:
            return False
        if self._node.disk_room.is_in_reserve and not is_internal(followed.partition.topic):
            return False  # The room that is left is for what the node itself must write.
        return not self._node.replica_fetching.is_cutting(followed.partition)

    # Taking

    def _take(self, row: Fetched) -> None:
        key = (row.topic_id, row.partition)
        followed = self._followed.get(key)
        if followed is None or not self._is_wanted(key):
            return  # It was asked for under another leadership, or is not wanted for now.
        partition = followed.partition
        if row.error_code == ErrorCode.NONE and row.log_start < partition.log.start_offset and not partition.log.is_start_known:
            start = partition.log.start_offset
            self._node.report(f"{partition} has lost records at its beginning: it starts at {start}, its leader at {row.log_start}")
            self._node.damaged_copies.found(partition)
            return
        asked = Fetch(LeaderEpoch(row.leader_epoch), row.fetch_offset, row.last_epoch)
        diverging = None if row.diverging is None else Diverging(row.diverging[0], Offset(row.diverging[1]))
        answer = follower_side.Fetched(row.error_code, row.high_watermark, row.log_start, diverging, row.records)
        try:
            for step in followed.follower.answered(asked, answer):
                self._carry_out(key, followed.partition, step)
                if isinstance(step, Truncate | StartOver):
                    return  # What came after it is asked for again when the log has been cut.
        except DiskFull as full:
            self._node.disk_was_full(full)
            self._hold_back(key)
        except DiskFailed:
            self._node.settle(followed.partition)
            return
        self._report(key)
        if row.records and self._node.settings.catch_up_rate:
            self._throttle(key, len(row.records))

    def _carry_out(self, key: Key, partition: Partition, step: Step) -> None:
        match step:
            case Append(batches):
                wall_ms = self._node.env.wall_ms()
                for content, header in batches:
                    partition.replicate(content, header, wall_ms)
                    self._node.metrics.replica_bytes_in += header.size
                self._node.appended(partition)
            case AdvanceWatermark(high_watermark):
                if partition.learn_watermark(high_watermark):
                    grown_bytes = partition.take_growth()
                    for watcher in list(partition.watchers):
                        watcher.advanced(partition, grown_bytes)
            case RaiseStart(offset):
                is_under_way = partition in self._trimming
                self._trimming[partition] = offset
                if not is_under_way:
                    self._node.spawn(self._raise_start(key, partition))
            case Truncate() | StartOver():
                self._node.replica_fetching.cut_later(partition, step)
            case Wait(reason):
                log.debug("%s-%d from node %d: %s", partition.topic, partition.index, self._leader, reason)
                self._hold_back(key)
            case _:
                assert_never(step)

    async def _raise_start(self, key: Key, partition: Partition) -> None:
        """Moves the start to where the leader's was last, which may move again meanwhile, and reports it: the replica may join by it."""
        try:
            while partition.log.start_offset < (offset := self._trimming[partition]):
                await trim(self._node, partition, offset)
        except Refusal as refusal:
            log.debug("the start of %s-%d stays where it is: %s", partition.topic, partition.index, refusal.reason)
            if self._follows(key, partition):
                self._hold_back(key)  # The leader tells its start again when it is asked again.
        finally:
            del self._trimming[partition]
        if self._follows(key, partition):
            self._report(key)

    def _follows(self, key: Key, partition: Partition) -> bool:
        followed = self._followed.get(key)
        return followed is not None and followed.partition is partition

    def _throttle(self, key: Key, size: int) -> None:
        node = self._node
        if not self._is_moving_here(key):
            return
        seconds = node.replica_fetching.throttle.took(size, node.settings.catch_up_rate, node.env.now())
        if seconds > 0.001:
            self._hold_back(key, seconds)

    def _hold_back(self, key: Key, seconds: float = 0.0) -> None:
        """For this many seconds at the rate that holds; without any, for the pause after a no."""
        self._held_back[key] = None
        loop = asyncio.get_running_loop()
        if seconds:
            loop.call_later(min(seconds, THROTTLED_SECONDS), self._let_go_if_paid, key)
        else:
            loop.call_later(REFUSED_SECONDS * (0.5 + self._node.env.rng.random()), self._let_go, key)

    def _let_go_if_paid(self, key: Key) -> None:
        """The rate may be another one by now, and the move over."""
        node = self._node
        seconds = node.replica_fetching.throttle.seconds_left(node.settings.catch_up_rate, node.env.now())
        if seconds > 0.001 and key in self._held_back and self._is_moving_here(key):
            self._hold_back(key, seconds)
        else:
            self._let_go(key)

    def _let_go(self, key: Key) -> None:
        if key in self._held_back:
            del self._held_back[key]
            self._said.pop(key, None)  # So that it is asked for again, whether or not the leader was told to forget it.
            self._has_news()

    # Reporting

    def report(self, partition: Partition) -> None:
        self._report(_key(partition))

    def _report(self, key: Key) -> None:
        if not self._reports:
            asyncio.get_running_loop().call_soon(self._send_reports)
        self._reports[key] = None

    def _repeat_reports(self) -> None:
        """One of them may have been lost."""
        reported, self._reported = self._reported, {}
        self._tell_again(reported)

    def _tell_again(self, keys: dict[Key, None]) -> None:
        for key in keys:
            if key in self._followed:
                self._followed[key].follower.report_again()
        self._tell(keys)

    def _is_moving_here(self, key: Key) -> bool:
        """A replica that only catches up after an outage is not throttled: while it is missing, records have fewer copies."""
        state = self._node.image.partition(*key)
        return state is not None and self._node.settings.node_id in state.adding

    def _is_in_sync(self, key: Key) -> bool:
        state = self._node.image.partition(*key)
        return state is None or self._node.settings.node_id in state.in_sync

    def _send_reports(self) -> None:
        reports, self._reports = self._reports, {}
        self._reported |= dict.fromkeys(self._tell(reports))

    def _tell(self, keys: dict[Key, None]) -> list[Key]:
        """Returns whose news was told."""
        rows = []
        for key in keys:
            followed = self._followed.get(key)
            report = None if followed is None else followed.follower.report(followed.partition.durable_end)
            if followed is not None and report is not None:
                rows.append((*key, followed.partition.epoch, *report))
        links = self._node.links
        if rows and links is not None:
            links.tell(self._leader, Kind.REACHED, write_reached(self._node.membership.node_epoch, rows))
        return [(topic_id, index) for topic_id, index, *_ in rows]


def _key(partition: Partition) -> Key:
    return partition.topic_id, partition.index
