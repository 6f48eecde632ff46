"""A day of an operator, as a script: a cluster of processes grows, moves, loses disks and files and bytes, and is killed whole. All day
producers, a group, transactions and a queue work on it, and in the evening an independent checker reads everything back.

Every command of `penstock cluster` that changes anything is used on the way, as operators use it: by its own process. Each step waits until
what it asked for has happened, and says how long that took. PENSTOCK_ROUNDS repeats the day.
"""

import os
import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from cli.running import Ended, penstock
from compatibility.workers import Worker
from system import librdkafka
from system.clusters import BROKER, Cluster, Member, until
from system.diary import Diary, check, writing
from system.replica_logs import check_replicas_agree
from system.test_exactly_once_kill import PARTITIONS as MOVED_PARTITIONS
from system.test_exactly_once_kill import Mover, moved
from system.test_exactly_once_kill import writing as writing_numbers
from system.test_queue_kill import DEAD, DELIVERIES_MAX, QUEUE, Crew, Sender, dead_letters, hired, is_empty, judge
from waiting import NEVER_MS, PATIENCE_S

from penstock.client import Queue

DAY = pytest.mark.soak(only_here="moves, kills and rebalancing of one cluster under load for hours; its parts are in clusters/")
pytestmark = [DAY, pytest.mark.paired, pytest.mark.timeout(7_200)]

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "1"))
ORDERS, PARTITIONS = "orders", 6
SAFE = {"replicas": 3, "min_insync_replicas": 2}
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 3, "transaction.state.log.num.partitions": 3,
    "default.replication.factor": 3, "checkpoint.interval.bytes": 64 * 1024,
}  # fmt: skip
PER_SECOND, MOVED_PER_SECOND, JOBS_PER_SECOND = 200, 200, 60
SEGMENT_BYTES = 32 * 1024
CUT_WITH_LOSS = "so acknowledged records are lost"  # What a replica logs that cuts off what was committed.


class Day:
    """The cluster and what works on it, and the commands of its operator."""

    writer: Diary

    def __init__(self, cluster: Cluster, directory: Path) -> None:
        self.cluster = cluster
        self.directory = directory
        self.began = time.monotonic()

    def run(self, *words: str, is_well: bool = True) -> Ended:
        ended = penstock("cluster", *words, "--bootstrap", self.cluster.bootstrap)
        assert not is_well or ended.code == 0, f"penstock cluster {' '.join(words)}\n{ended.out}\n{ended.err}"
        return ended

    @contextmanager
    def step(self, what: str) -> Iterator[None]:
        """Ends when everything is well again."""
        began = time.monotonic()
        yield
        self.settle()
        print(f"{began - self.began:7.1f} s  {what}: {time.monotonic() - began:.1f} s", flush=True)

    def settle(self) -> None:
        self.cluster.wait_until_full()
        until(lambda: self.run("status", is_well=False).code == 0, "all is well", why=lambda: self.run("status", is_well=False).out)

    def member(self, node_id: int) -> Member:
        return next(member for member in self.cluster.members if member.node_id == node_id)

    def leader(self, partition: int = 0, topic: str = ORDERS) -> Member:
        return self.member(self.cluster.leader_of(topic, partition).node_id)

    def directory_of(self, member: Member, partition: int, topic: str = ORDERS) -> Path:
        return member.log_directory(topic, self.cluster.view().topic_ids[topic], partition)

    def add(self, node_id: int) -> Member:
        first = self.cluster.members[0]
        place, log = self.directory / f"node-{node_id}", self.directory / f"node-{node_id}.log"
        member = Member(place, node_id, roles=BROKER, log=log, settings=SETTINGS)
        member.voters, member.cluster_id, member.secret_file, member.joins = first.voters, first.cluster_id, first.secret_file, True
        self.cluster.members.append(member)
        return member.start()

    # The day.

    def grow(self) -> None:
        with self.step("grow from three nodes to five, and even out"):
            for node_id in (4, 5):
                self.add(node_id)
            assert "nothing was changed" in self.run("rebalance").out
            self.run("rebalance", "--execute", "--throttle", "50000000")
            assert {4, 5} <= {node for view in self.cluster.view().topics[ORDERS].values() for node in view.replicas}

    def move_and_think_again(self) -> None:
        with self.step("begin moves with a throttle, cancel them, begin them again"):
            plan = ["reassign", "--topic", ORDERS, "--to", "3,4,5"]
            self.run(*plan, "--throttle", "20000", "--execute", "--no-wait")
            assert ORDERS in self.run("moves", is_well=False).out
            self.run("reassign", "--cancel", "--execute")
            self.run(*plan, "--execute")
            assert all(set(view.replicas) == {3, 4, 5} for view in self.cluster.view().topics[ORDERS].values())
            self.run("rebalance", "--execute")

    def drain_and_forget(self) -> None:
        with self.step("drain a node, stop it, forget it, and let it come back empty"):
            member = self.member(5)
            self.run("drain", "5", "--execute")
            assert member.stop() == 0
            self.run("forget-node", "5")
            member.lose_disk()
            member.start()
            self.run("rebalance", "--execute")

    def lead(self) -> None:
        with self.step("choose a leader"):
            view = self.cluster.view().topics[ORDERS][0]
            wanted = next(node for node in view.replicas if node != view.leader)
            self.run("lead", str(wanted), "--topic", ORDERS, "--partition", "0")
            assert self.leader().node_id == wanted
            self.run("elect", "preferred")

    def change_voters(self) -> None:
        with self.step("take a vote and give it back"):
            self.run("remove-voter", "3")
            self.run("add-voter", "3")

    def replace_a_disk(self) -> None:
        with self.step("a disk dies, and a new one takes its place"):
            member = self.member(2)
            member.kill()
            self.run("remove-voter", "2")
            member.lose_disk()
            member.start()
            self.run("add-voter", "2")

    def lose_a_directory(self) -> None:
        with self.step("a partition's directory is gone when its node comes back"):
            member = self.leader(1)
            lost = self.directory_of(member, 1)
            member.kill()
            shutil.rmtree(lost)
            member.start()
            until(lambda: "is fetched anew" in member.last_words(), "the copy is fetched anew")

    def kill_all(self) -> None:
        with self.step("everything is killed, and one directory is gone: its node comes first"):
            member = self.leader(2)
            lost = self.directory_of(member, 2)
            self.cluster.kill()
            shutil.rmtree(lost)
            member.spawn()
            for other in self.cluster.members:
                if other is not member:
                    other.spawn()
            for each in self.cluster.members:
                each.wait_until_ready()

    def rot(self) -> None:
        with self.step("bytes change in an old segment and in the last one of a leader"):
            member = self.leader(3)
            directory = self.directory_of(member, 3)
            segments = until(lambda: found if len(found := sorted(directory.glob("*.log"))) > 2 else None, "there are old segments")
            for segment in (segments[0], segments[-1]):
                flip_byte(segment, 100)
            told = self.run("scrub", "--topic", ORDERS)
            assert "mended" in told.out, told.out
            until(lambda: "orders-3 was damaged" in member.last_words(), "it was mended")

    def rot_at_rest(self) -> None:
        with self.step("the last byte of a log changes while its node is down"):
            member = self.leader(4)
            directory = self.directory_of(member, 4)
            self.writer.wait_for_more(300)
            member.kill()
            last = max(directory.glob("*.log"))
            flip_byte(last, last.stat().st_size - 1)
            member.start()
            self.settle()
            self.run("scrub", "--topic", ORDERS)

    def restart_in_turn(self) -> None:
        with self.step("restart every node in its turn"):
            for member in self.cluster.members:
                assert member.stop() == 0
                member.start()
                self.cluster.wait_until_full()

    def pause(self) -> None:
        with self.step("a node stands still for longer than its session"):
            member = self.leader(5)
            member.signal(signal.SIGSTOP)
            member.is_paused = True
            until(lambda: member.node_id not in self.cluster.view().brokers, "its session is over")
            member.go_on()


def flip_byte(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))


STEPS: tuple[Callable[[Day], None], ...] = (
    Day.move_and_think_again, Day.lead, Day.lose_a_directory, Day.drain_and_forget, Day.rot, Day.kill_all, Day.change_voters, Day.pause,
    Day.replace_a_disk, Day.rot_at_rest, Day.restart_in_turn,
)  # fmt: skip


@pytest.mark.invariant("replication.acked-is-kept", "replication.damaged-copy-not-trusted", "replication.damage-mended")
def test_a_day_of_an_operator_loses_and_doubles_nothing(tmp_path: Path) -> None:
    rng = random.Random("a day")
    with ExitStack() as stack:
        cluster = stack.enter_context(Cluster(tmp_path / "cluster", settings=SETTINGS))
        day = Day(cluster, tmp_path / "cluster")
        for name, partitions in ((ORDERS, PARTITIONS), ("from", MOVED_PARTITIONS), ("to", MOVED_PARTITIONS)):
            librdkafka.make_topic(cluster.bootstrap, name, partitions, **SAFE, segment_bytes=SEGMENT_BYTES)
        urls = ",".join(f"http://{member.host}:{member.http_port}" for member in cluster.members)
        safe = {"min.insync.replicas": "2"}
        Queue(DEAD, url=urls, patience=PATIENCE_S).ensure(partitions=1, replicas=3, settings=safe)
        queue = Queue(QUEUE, url=urls, patience=PATIENCE_S)
        queue.ensure(partitions=3, replicas=3, deliveries=DELIVERIES_MAX, dead_letters=DEAD, backoff=0, dedup_window=3_600, settings=safe)
        worker = stack.enter_context(Worker("confluent", cluster.bootstrap, "readers", ORDERS, session_ms=NEVER_MS))
        movers = [Mover(cluster, number, "from", "to", rng) for number in range(2)]
        for mover in movers:
            stack.callback(mover.kill)
        crew = stack.enter_context(hired(Crew(urls, tmp_path)))
        sender = Sender(urls, per_second=JOBS_PER_SECOND)
        with writing(cluster.bootstrap, ORDERS, PARTITIONS, writer="w", is_idempotent=True, per_second=PER_SECOND) as diary:
            day.writer = diary
            with writing_numbers(cluster.bootstrap, "from", per_second=MOVED_PER_SECOND) as count:
                sender.start()
                day.grow()
                for step in STEPS * ROUNDS:
                    diary.wait_for_more(200)
                    step(day)
                    for mover in movers:
                        mover.look_after()
            sender.stop()
        found = moved(cluster.bootstrap, "to", count[0], movers)
        assert found == [list(range(partition, count[0], MOVED_PARTITIONS)) for partition in range(MOVED_PARTITIONS)]
        until(lambda: is_empty(queue), "every job is finished", why=lambda: f"{len(sender.sent)} were sent")
        told = list(crew.told())
        judge(sender.sent, told, dead_letters(urls))
        assert check(cluster.bootstrap, diary) == diary.sent
        ends = {(ORDERS, partition): librdkafka.watermarks(cluster.bootstrap, ORDERS, partition)[1] for partition in range(PARTITIONS)}
        until(lambda: set(diary.acknowledged) <= worker.places(), f"the group has read everything: {ends}")
        assert check_replicas_agree(ORDERS, cluster.log_directories(ORDERS)) > 0
        assert cluster.complaints() == []
        assert [line for member in cluster.members for line in member.said().splitlines() if CUT_WITH_LOSS in line] == []
        print(f"{diary.sent} records, {count[0]} moved once each, {len(sender.sent)} jobs in {len(told)} deliveries")
