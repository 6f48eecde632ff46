"""A world around the controller: leaders commit, followers catch up, disks are lost, messages come late. And what must always hold.

For each partition it keeps who provably has every committed record (`complete`). The world is as hostile as the rules allow: a record that
is committed goes to the in-sync set and nobody else; an unclean stop loses all that was not flushed; a leader's wish may be delivered late,
or twice. So if anyone in an in-sync set, or anyone eligible, is not in `complete`, a clean election could lose an acknowledged record.
What leaders do here is what leaders may do: they commit only while the set has its least size, count those whom they have proposed, and
make one proposal at a time.
One topic is a queue: its partition and the one with its ledger are told of, catch up and fail each by itself, and yet must
always have the same leader, who has everything of both.
"""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from cluster.scene import Scene, code_of, topic_id

from penstock.cluster import records
from penstock.cluster.commands import (
    BuryTopic,
    ChangeInSync,
    Command,
    CreateTopics,
    DeleteTopic,
    ElectionKind,
    ElectLeaders,
    InSyncWish,
    NewTopic,
    Reassignment,
    ReassignPartitions,
    ReportDisk,
    Settle,
    UnregisterNode,
)
from penstock.cluster.configuring import Change, ConfigureTopic
from penstock.cluster.image import ClusterImage, PartitionState, Topic
from penstock.cluster.moving import has_everything_of_all, in_sync_in_all
from penstock.cluster.replies import LeaderElected, Reply
from penstock.errors import ErrorCode
from penstock.vocabulary import NO_NODE, NodeId
from penstock.wire.configs import Operation

NODES = (1, 2, 3, 4)
FIRST = {  # name: replicas, min.insync.replicas, flush
    "flushed": ((1, 2, 3), 2, "ack"),
    "lossy": ((2, 3, 1), 2, "os"),
    "loose": ((3, 1, 2), 1, "os"),
    "wide": ((4, 1, 2, 3), 3, "ack"),
    "queue": ((1, 3, 2), 2, "ack"),
    "lossy queue": ((2, 4, 3), 1, "os"),
}
QUEUES = {"ledger": "queue", "lossy ledger": "lossy queue"}
PARTITIONS = (*FIRST, *QUEUES)


# As often as they are named.
STEPS = (
    *("change_controller", "hear", "hear", "hear"),
    *("fence", "fence", "unfence", "unfence", "stop", "unregister", "change_disk", "restart", "come_back", "come_back", "come_back"),
    *("commit", "commit", "commit", "catch_up", "catch_up", "propose", "propose", "deliver", "deliver", "deliver"),
    *("change_in_sync", "change_in_sync", "change_in_sync", "elect", "reassign", "configure", "promise", "make_again", "fail_log"),
)


def as_topic(name: str) -> str:
    return name.replace(" ", "-")


def have_everything(together: list[PartitionState]) -> set[int]:
    return {n for n in together[0].replicas if has_everything_of_all(n, together)}


class Outstanding(NamedTuple):
    """A leader's proposal, until it hears what became of it."""

    command: ChangeInSync
    members: frozenset[int]
    leader_epoch: int
    partition_epoch: int


@dataclass
class Known:
    complete: set[int]  # Who has every committed record.
    caught_up: dict[int, int] = field(default_factory=dict)  # Whom the leader saw catch up, and in which node epoch.
    seen_by: tuple[int, int] = (0, 0)  # The leader epoch, and the life of the leader, in which that was seen.
    outstanding: Outstanding | None = None
    leaders: dict[int, int] = field(default_factory=dict)  # Who led in each epoch.
    early: set[tuple[int, int]] = field(default_factory=set)  # Lives of nodes that may have acknowledged what was not flushed.
    lingering: set[int] = field(default_factory=set)  # Fenced nodes in the set since one replica alone could lead.


class World:
    def __init__(self, *, is_hasty: bool = False) -> None:
        self.scene = Scene(len(NODES), is_hasty=is_hasty)
        self.known: dict[str, Known] = {}
        self.wishes: list[ChangeInSync] = []
        self.disks = dict.fromkeys(NODES, 0)
        self.doubted: set[int] = set()
        self.back_in_doubt: set[int] = set()  # They may have kept their places though they are fenced.
        self.scene.controller.doubts = self.doubted.__contains__
        self._topics_made = 0
        for name in FIRST:
            self.make(name)

    # What may happen

    def make(self, name: str) -> None:
        if self._topic(name) is not None:
            return
        replicas, min_insync, flush = FIRST[name]
        self._topics_made += 1
        told = {"min.insync.replicas": str(min_insync), "flush": flush} | ({"queue.enabled": "true"} if name in QUEUES.values() else {})
        wish = NewTopic(as_topic(name), topic_id(self._topics_made), -1, overrides=told, assignments=((0, replicas),))
        made = [name, *(ledger for ledger, queue in QUEUES.items() if queue == name)]
        self.known |= {each: Known(set(replicas)) for each in made}
        if code_of(self._submit(CreateTopics((wish,)))[0]) is not ErrorCode.NONE:
            for each in made:
                del self.known[each]

    def delete(self, name: str) -> None:
        if (topic := self._topic(name)) is not None:
            self._submit(DeleteTopic(topic.topic_id))

    def bury(self, n: int) -> None:
        for deleted in list(self.scene.image.graveyard)[:1]:
            self._submit(BuryTopic(deleted, NodeId(n)))

    def change_controller(self) -> None:
        self.doubted |= set(NODES)

    def hear(self, n: int) -> None:
        self.doubted.discard(n)

    def fence(self, n: int) -> None:
        if n in self.scene.image.nodes:
            self._submit_for_node(n, "fence")

    def unfence(self, n: int) -> None:
        self.back_in_doubt.discard(n)
        if n in self.scene.image.nodes:
            self._submit_for_node(n, "unfence")

    def stop(self, n: int) -> None:
        if n in self.scene.image.nodes:
            self._submit_for_node(n, "stop")

    def report_disk(self, n: int, *, is_full: bool) -> None:
        if n in self.scene.image.nodes:
            self._submit(ReportDisk(NodeId(n), self.scene.epoch(n), is_full))

    def unregister(self, n: int) -> None:
        self._submit(UnregisterNode(NodeId(n)))

    def restart(self, n: int, *, cleanly: bool, new_disk: bool = False) -> None:
        node = self.scene.image.nodes.get(NodeId(n))
        disk = self.disks[n] + new_disk
        command = self.scene.register(n, directory=f"disk-{n}-{disk}" if disk else "", was_stopped_cleanly=cleanly)
        if node is not None and new_disk and not node.is_fenced:
            assert self.scene.refuses(command).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
            return
        self.disks[n] = disk
        self.doubted.discard(n)
        self.back_in_doubt |= {n} if self.doubted else set()
        for name, known in self.known.items():
            if (topic := self._topic(name)) is not None:
                is_early = topic.overrides["flush"] == "os" or (n, self._life(n)) in known.early
                self._lose(known, self._together(name), n, is_lossy=not cleanly and is_early, new_disk=new_disk)
        self._submit(command)

    def commit(self, name: str) -> None:
        """The leader commits a record: from now on only those who count for it have everything."""
        if (state := self._state(name)) is None or state.leader == NO_NODE:
            return
        known, least = self.known[name], int(self._held(name).overrides["min.insync.replicas"])
        if len(state.in_sync) < min(least, len(state.replicas)) or state.eligible:
            return  # As leaders do: nothing is committed while replicas out of the set are counted on.
        outstanding = self._outstanding(name)
        known.complete = set(state.in_sync) | (set(outstanding.members) if outstanding is not None else set())
        known.caught_up = {n: epoch for n, epoch in known.caught_up.items() if n in known.complete}

    def catch_up(self, name: str, n: int) -> None:
        state = self._state(name)
        if state is not None and n in state.replicas and state.leader != NO_NODE and n in self.scene.image.nodes:
            self.known[name].complete.add(n)
            self._caught_up(name, state)[n] = self.scene.epoch(n)

    def propose(self, name: str, members: frozenset[int]) -> None:
        """The leader wants in its set those of `members` who are there, and whom it saw catch up. The wish travels as long as it likes."""
        if (state := self._state(name)) is None or state.leader == NO_NODE or self._outstanding(name) is not None:
            return
        known, topic = self.known[name], self._held(name)
        wanted = {state.leader: self.scene.epoch(state.leader)}
        wanted |= {n: self.scene.epoch(n) for n in state.in_sync if n in members}
        caught_up = self._caught_up(name, state)
        wanted |= {NodeId(n): epoch for n, epoch in caught_up.items() if n in members and n not in wanted and n in state.replicas}
        wish = InSyncWish(topic.topic_id, 0, state.leader_epoch, state.partition_epoch, tuple(wanted.items()))
        command = ChangeInSync(state.leader, self.scene.epoch(state.leader), (wish,))
        known.outstanding = Outstanding(command, frozenset(wanted), state.leader_epoch, state.partition_epoch)
        self.wishes.append(command)

    def fail_log(self, name: str) -> None:
        """The leader's log fails: it leaves itself out, if others are there."""
        state = self._state(name)
        if state is None or state.leader == NO_NODE:
            return
        others = tuple((n, self.scene.epoch(n)) for n in state.in_sync if n != state.leader)
        wish = InSyncWish(self._held(name).topic_id, 0, state.leader_epoch, state.partition_epoch, others)
        (answer,) = self._submit(ChangeInSync(state.leader, self.scene.epoch(state.leader), (wish,)))
        if code_of(answer) is ErrorCode.NONE:
            self.known[name].complete.discard(state.leader)
            self._look(self._states())

    def deliver(self, which: int, *, again_later: bool) -> None:
        if self.wishes:
            which %= len(self.wishes)
            self._submit(self.wishes[which] if again_later else self.wishes.pop(which))

    def elect(self, name: str, kind: ElectionKind) -> None:
        if (topic := self._topic(name)) is not None:
            self._submit(ElectLeaders(kind, ((topic.name, 0),)))

    def reassign(self, name: str, replicas: tuple[int, ...] | None) -> None:
        self._submit(ReassignPartitions((Reassignment(self._name(name), 0, replicas),)))  # type: ignore[arg-type]

    def configure(self, name: str, min_insync: int) -> None:
        self._submit(ConfigureTopic(self._name(name), (Change("min.insync.replicas", Operation.SET, str(min_insync)),)))

    def promise(self, name: str, flush: str) -> None:
        """Whoever lives while the flush is not waited for may lose something by the end of that life, whatever is promised by then."""
        if (topic := self._topic(name)) is None:
            return
        if topic.overrides["flush"] == "os":
            self.known[name].early |= {(n, self._life(n)) for n in NODES}
            for ledger in [ledger for ledger, queue in QUEUES.items() if queue == name]:
                self.known[ledger].early |= self.known[name].early
        self._submit(ConfigureTopic(topic.name, (Change("flush", Operation.SET, flush),)))

    def change_disk(self, n: int) -> None:
        self.fence(n)
        self.restart(n, cleanly=False, new_disk=True)

    def come_back(self, n: int, *, cleanly: bool) -> None:
        self.restart(n, cleanly=cleanly)
        self.unfence(n)

    def change_in_sync(self, name: str, members: frozenset[int]) -> None:
        """All at once, as when nothing goes wrong."""
        for n in sorted(members):
            self.catch_up(name, n)
        self.propose(name, members)
        self.deliver(-1, again_later=False)

    def make_again(self, name: str, n: int) -> None:
        self.delete(name)
        self.make(name)
        self.bury(n)

    def step(self, rng: Random) -> None:
        """Something of the above."""
        name, n, flag = rng.choice(sorted(PARTITIONS)), rng.choice(NODES), rng.random() < 0.5
        some = tuple(rng.sample(NODES, rng.randint(1, len(NODES))))
        match rng.choice(STEPS):
            case "change_controller":
                self.change_controller()
            case "fence" | "unfence" | "stop" | "unregister" | "change_disk" | "hear" as what:
                getattr(self, what)(n)
            case "restart" | "come_back" as what:
                getattr(self, what)(n, cleanly=flag)
            case "commit" | "fail_log" as what:
                getattr(self, what)(name)
            case "catch_up":
                self.catch_up(name, n)
            case "propose" | "change_in_sync" as what:
                getattr(self, what)(name, frozenset(some))
            case "deliver":
                self.deliver(rng.randrange(10), again_later=flag)
            case "elect":
                self.elect(name, rng.choice(list(ElectionKind)))
            case "reassign":
                self.reassign(name, some if rng.random() < 0.7 else None)
            case "configure":
                self.configure(name, rng.randint(1, 3))
            case "promise":
                self.promise(name, "ack" if flag else "os")
            case _:
                self.make_again(QUEUES.get(name, name), n)

    # What follows

    def _life(self, n: int) -> int:
        return self.scene.epoch(n) if n in self.scene.image.nodes else 0

    def _submit_for_node(self, n: int, what: str) -> None:
        before = self._states()
        getattr(self.scene, what)(n)
        self._look(before)

    def _submit(self, command: Command) -> tuple[Reply, ...]:
        before = self._states()
        answers = self.scene.submit(command)
        for answer in answers:
            if isinstance(answer, LeaderElected) and answer.may_have_lost:
                assert isinstance(command, ElectLeaders) and command.kind is ElectionKind.UNCLEAN
                self._believe(before, answer)
        self._look(before)
        return answers

    def _believe(self, before: dict[str, PartitionState], answer: LeaderElected) -> None:
        """What the new leader has is the truth from now on. Of a pair it may have everything of one."""
        for name, state in self._states().items():
            held = before[name]
            if self._name(QUEUES.get(name, name)) == answer.topic and state.leader not in (*held.in_sync, *held.eligible):
                self.known[name].complete = {answer.leader}
                self.known[name].caught_up = {}

    def _lose(self, known: Known, together: list[PartitionState], n: int, *, is_lossy: bool, new_disk: bool) -> None:
        is_last = have_everything(together) == {n}
        if new_disk or (is_lossy and not is_last):
            known.complete.discard(n)
        elif is_lossy:  # Nobody else could help: what it still has is the truth, and no more than others have who had everything.
            known.complete.add(n)

    def _caught_up(self, name: str, state: PartitionState) -> dict[int, int]:
        """What the leader knows by itself: a new one, or a new life of it, has seen nobody yet."""
        known, seen_by = self.known[name], (state.leader_epoch, self.scene.epoch(state.leader))
        if known.seen_by != seen_by:
            known.seen_by, known.caught_up = seen_by, {}
        return known.caught_up

    def _outstanding(self, name: str) -> Outstanding | None:
        """The leader's proposal while it may still be taken, as far as the leader can tell."""
        state, known = self._state(name), self.known[name]
        found = known.outstanding
        if found is None or state is None or (found.leader_epoch, found.partition_epoch) != (state.leader_epoch, state.partition_epoch):
            return None
        return found if found.command.node_epoch == self.scene.epoch(found.command.node_id) else None

    def _topic(self, name: str) -> Topic | None:
        image = self.scene.image
        if name in QUEUES:
            queue = image.topics.get(as_topic(QUEUES[name]))
            return None if queue is None else image.companion_of(queue.topic_id)
        return image.topics.get(as_topic(name))

    def _held(self, name: str) -> Topic:
        topic = self._topic(name)
        assert topic is not None
        return topic

    def _name(self, name: str) -> str:
        topic = self._topic(name)
        return as_topic(name) if topic is None else topic.name

    def _state(self, name: str) -> PartitionState | None:
        topic = self._topic(name)
        return None if topic is None else topic.partitions[0]

    def _states(self) -> dict[str, PartitionState]:
        states = {name: state for name in PARTITIONS if (state := self._state(name)) is not None}
        assert len(states) == len(self.scene.image.topics), "every queue has its ledger, and nothing else has one"
        return states

    def _together(self, name: str) -> list[PartitionState]:
        return [topic.partitions[0] for topic in self.scene.image.together(self._held(name))]

    # What must hold

    def _look(self, before: dict[str, PartitionState]) -> None:
        for name, state in self._states().items():
            known = self.known[name]
            old = before.get(name)
            gone = set() if old is None else set(old.replicas) - set(state.replicas)
            if known.complete and gone:
                known.complete -= gone
                known.caught_up = {n: epoch for n, epoch in known.caught_up.items() if n not in gone}
                assert known.complete, f"{name}: the last copy of everything was given away: {old} -> {state}"
            if old is not None:
                self._check_step(name, old, state)
            self._check_state(name, state)

    def _check_step(self, name: str, old: PartitionState, new: PartitionState) -> None:
        assert new.leader_epoch >= old.leader_epoch and new.partition_epoch >= old.partition_epoch, "epochs only grow"
        if new != old:
            assert new.partition_epoch > old.partition_epoch, f"{name}: a change has an epoch: {old} -> {new}"
        if new.leader != old.leader:
            assert new.leader_epoch > old.leader_epoch, f"{name}: a leader has an epoch: {old} -> {new}"
        if old.adding and not new.is_reassigning and new.replicas == old.target:
            assert set(old.adding) <= {*new.in_sync}, f"{name}: finished before all were in sync: {old} -> {new}"

    def _check_state(self, name: str, state: PartitionState) -> None:
        known, nodes = self.known[name], self.scene.image.nodes
        assert state.leader == NO_NODE or state.leader in state.in_sync, f"{name}: {state}"
        assert set(state.in_sync) <= set(state.replicas) and set(state.eligible) <= set(state.replicas), f"{name}: {state}"
        assert not set(state.in_sync) & set(state.eligible), f"{name}: {state}"
        assert {*state.in_sync, *state.eligible} <= known.complete, f"{name}: only {known.complete} have everything: {state}"
        assert known.leaders.setdefault(state.leader_epoch, state.leader) == state.leader, f"{name}: two leaders in one epoch: {state}"
        together = self._together(name)
        live = [n for n in sorted(have_everything(together)) if nodes[n].is_live]
        assert state.leader in live or not live, f"{name}: {live} could lead: {together}"
        roomy = [n for n in in_sync_in_all(together) if nodes[n].may_take_more]
        assert state.leader == NO_NODE or not nodes[state.leader].is_disk_full or not roomy, f"{name}: {roomy} have room: {together}"
        fenced = {n for n in state.in_sync if nodes[n].is_fenced}
        is_alone = 1 in (len(state.in_sync), len(in_sync_in_all(together)))
        known.lingering = fenced if is_alone else fenced & known.lingering
        assert fenced <= self.back_in_doubt | known.lingering, f"{name}: in sync with a fenced node: {together}"
        self._check_pair(name, together)

    def _check_pair(self, name: str, together: list[PartitionState]) -> None:
        """One thing with two logs: whoever leads one leads the other, and may."""
        first, *others = together
        for other in others:
            assert other.leader == first.leader, f"{name}: two leaders: {together}"
            assert first.leader == NO_NODE or first.leader in in_sync_in_all(together), f"{name}: led without everything: {together}"
            places = (other.replicas, other.adding, other.removing)
            assert places == (first.replicas, first.adding, first.removing), f"{name}: in different places: {together}"

    def check_image(self) -> None:
        """A snapshot says the same, what is reckoned along the way is what can be reckoned from nothing, and what is owed can be paid."""
        image, again = self.scene.image, ClusterImage()
        for record in image.snapshot():
            again.replay(records.decode(records.encode(record)))
        assert again == image
        for _ in range(2):
            self._submit(Settle())
        owed = self.scene.controller.decide(Settle()).records
        assert owed == (), f"owed though it was paid: {owed}"
        for name, state in self._states().items():
            least = min(int(self._held(name).overrides["min.insync.replicas"]), len(state.replicas))
            could_commit = len(state.in_sync) >= least and any(image.nodes[n].is_live for n in state.in_sync)
            assert not state.eligible or state.leader == NO_NODE or not could_commit, f"{name}: nothing is committed for them: {state}"
