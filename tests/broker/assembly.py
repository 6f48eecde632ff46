"""Several replicas of the metadata log in one simulated world, each on a host and a disk of its own, with messages that may be lost.

What is decided is a block of producer ids for an asker of its own number. So everything can be judged: the blocks come in order, each went
to one asker and the same everywhere, whoever was told of a block has it, and whoever was told that nothing was done has none.
"""

from collections.abc import Callable, Coroutine
from typing import Any

from penstock.broker.quorum import CommitUnknown, NotLeading, Quorum
from penstock.cluster import records
from penstock.cluster.commands import TakeProducerBlock
from penstock.cluster.controller import PRODUCER_BLOCK_SIZE, Controller
from penstock.cluster.image import ClusterImage
from penstock.consensus.messages import Message
from penstock.consensus.nouns import DirectoryId, Replica
from penstock.consensus.options import Options
from penstock.consensus.voters import Voters
from penstock.errors import DiskFailed, Refusal
from penstock.log.open_files import OpenFiles
from penstock.settings import TopicConfig
from penstock.simulator.disk_faults import HONEST, DiskFaults
from penstock.simulator.env import SimEnv
from penstock.simulator.platter import Loss
from penstock.simulator.world import Host, World
from penstock.vocabulary import NodeId

VIRTUAL_TIME = True

OPTIONS = Options(election_seconds_min=0.2, election_seconds_max=0.4, heartbeat_seconds=0.04, chunk_bytes_max=40, caught_up_entries_max=5)


class Actor:
    """A node: its disks, and its replica while it lives."""

    def __init__(self, number: int) -> None:
        self.node = NodeId(number)
        self.host = f"node{number}"
        self.disks = 1
        self.quorum: Quorum | None = None
        self.is_clean = False  # Its last end.
        self.failures: list[str] = []
        self.reports: list[str] = []
        self.reasons: list[str] = []  # Why it could not start.
        self.installed = 0
        self.led = 0

    @property
    def me(self) -> Replica:
        return Replica(self.node, DirectoryId(bytes((int(self.node), self.disks)) * 8))

    @property
    def living(self) -> Quorum:
        assert self.quorum is not None, f"{self.host} does not run"
        return self.quorum


class Assembly:
    def __init__(self, world: World, voters: int = 3, *, spares: int = 0, options: Options = OPTIONS) -> None:
        self.world = world
        self.options = options
        self.actors = {number: Actor(number) for number in range(1, voters + spares + 1)}
        self.first_voters = Voters(tuple(self[number].me for number in range(1, voters + 1)))
        self.loss = 0.0
        self.delay_seconds = (0.001, 0.01)
        self.cut: dict[tuple[int, int], None] = {}  # From, to.
        self.blocks: dict[int, int] = {}  # The first id of each that was replayed anywhere, and who asked for it.
        self.granted: dict[int, int] = {}  # By asker: told that it has this block.
        self.refused: list[int] = []  # Nothing was done for them.
        self.unknown: list[int] = []  # It may have been.
        self.next_asker = 1
        self.on_replayed: Callable[[Actor, records.Record], Coroutine[Any, Any, None]] | None = None

    def __getitem__(self, number: int) -> Actor:
        return self.actors[number]

    # Lives.

    def start_all(self) -> None:
        for number in self.actors:
            self.start(number)

    def start(self, number: int, first_voters: Voters | None = None) -> None:
        actor = self[number]
        voters = first_voters if first_voters is not None else self.first_voters if actor.disks == 1 else Voters()
        if first_voters is None and number not in dict(self.first_voters.replicas):
            voters = Voters()
        actor.quorum = None
        self.world.start(actor.host, lambda env: self._live(actor, env, voters))

    async def _live(self, actor: Actor, env: SimEnv, first_voters: Voters) -> None:
        is_clean, actor.is_clean = actor.is_clean, False

        async def replayed(record: records.Record) -> None:
            await self._replayed(actor, record)

        async def installed(image: ClusterImage) -> None:
            actor.installed += 1

        try:
            quorum = await Quorum.open(
                env, OpenFiles(env.disk, 100), actor.me, is_clean=is_clean, first_voters=first_voters,
                contacts=tuple(map(NodeId, self.actors)), options=self.options, on_replayed=replayed,
                tell=lambda to, message: self._carry(actor, to, message),
                on_failed=actor.failures.append, report=actor.reports.append,
            )  # fmt: skip
        except Exception as failure:
            actor.reasons.append(str(failure))
            return
        quorum.on_installed = installed
        quorum.on_lead = lambda: self._note_lead(actor)
        actor.quorum = quorum
        quorum.start()
        await env.terminated.wait()
        try:
            await quorum.close()
            actor.is_clean = True
        except DiskFailed as failure:
            actor.failures.append(str(failure))
        actor.quorum = None

    def _note_lead(self, actor: Actor) -> None:
        actor.led += 1
        others = [
            each.host
            for each in self.actors.values()
            if each is not actor and self.is_leading(each) and each.living.term == actor.living.term
        ]
        assert others == [], "a term has one leader"

    def is_leading(self, actor: Actor) -> bool:
        return self.world.is_running(actor.host) and actor.quorum is not None and actor.quorum.is_leading

    def kill(self, number: int) -> None:
        self.world.kill(self[number].host)
        self[number].quorum = None

    def power_cut(self, number: int, loss: Loss | None = None) -> None:
        self.world.power_cut(self[number].host, loss)
        self[number].quorum = None

    def stop(self, number: int) -> None:
        self.world.terminate(self[number].host)
        self.world.run_until(lambda: self.world.has_ended(self[number].host), 30)

    def new_disk(self, number: int) -> None:
        self.world.replace_disk(self[number].host)
        self[number].quorum = None
        self[number].disks += 1

    def host(self, number: int) -> Host:
        return self.world.host(self[number].host)

    # Messages.

    def _carry(self, sender: Actor, to: NodeId, message: Message) -> None:
        world = self.world
        if to not in self.actors or (int(sender.node), int(to)) in self.cut or world.rng.random() < self.loss:
            return
        world.at(world.rng.uniform(*self.delay_seconds), lambda: self._deliver(to, message))

    def _deliver(self, to: NodeId, message: Message) -> None:
        actor = self[int(to)]
        process = self.world.host(actor.host).process
        if process is not None and actor.quorum is not None:
            self.world.loop.call_soon(actor.quorum.received, message, context=process.context.copy())

    def isolate(self, number: int) -> None:
        for other in self.actors:
            self.cut |= {(number, other): None, (other, number): None}

    def heal(self) -> None:
        self.cut.clear()
        self.loss = 0.0

    # Decisions.

    async def _replayed(self, actor: Actor, record: records.Record) -> None:
        assert isinstance(record, records.ProducerBlockTaken)
        asker = self.blocks.setdefault(int(record.first), int(record.node_id))
        assert asker == record.node_id, "what is committed is the same everywhere"
        assert actor.quorum is not None and actor.quorum.image.next_producer_id == record.first + record.size, (
            "decisions are replayed in order"
        )
        if self.on_replayed is not None:
            await self.on_replayed(actor, record)

    def ask_soon(self, number: int) -> int:
        """Asks this node for a block; what comes of it is noted."""
        asker, self.next_asker = self.next_asker, self.next_asker + 1
        actor, host = self[number], self.host(number)
        if host.process is not None and actor.quorum is not None:
            self.world.loop.create_task(self._ask(actor.quorum, asker), context=host.process.context.copy())
        return asker

    async def _ask(self, quorum: Quorum, asker: int) -> None:
        try:
            (block,) = await quorum.submit(TakeProducerBlock(NodeId(asker)), Controller(quorum.image, TopicConfig(), 1, 1))
        except (NotLeading, Refusal):
            self.refused.append(asker)
            return
        except (CommitUnknown, DiskFailed):
            self.unknown.append(asker)
            return
        assert isinstance(block, records.ProducerBlockTaken)
        assert quorum.image.next_producer_id >= block.first + block.size, "whoever is answered finds it in the image"
        self.granted[asker] = int(block.first)

    def leader(self, within: float = 30.0) -> int:
        """Waits for one that may decide, in the newest term of any that lives."""

        found: list[int] = []

        def look() -> bool:
            running = [actor for actor in self.actors.values() if self.world.is_running(actor.host) and actor.quorum is not None]
            newest = max((actor.living.term for actor in running), default=0)
            found.extend(int(actor.node) for actor in running if actor.living.is_leading and actor.living.term == newest)
            return bool(found)

        self.world.run_until(look, within)
        return found[0]

    def take_block(self, within: float = 30.0) -> int:
        """Asks whoever leads until a block is given."""
        while True:
            leader = self.leader(within)
            host, asker = self[leader].host, self.ask_soon(leader)
            answers = (self.granted, self.refused, self.unknown)
            self.world.run_until(lambda: any(asker in each for each in answers) or self.world.has_ended(host), within)  # noqa: B023
            if asker in self.granted:
                return self.granted[asker]

    def take_blocks(self, count: int) -> None:
        for _ in range(count):
            self.take_block()

    # Judging.

    def settle(self, within: float = 30.0) -> None:
        """A last block is given, every node that runs has it, and all have the same."""
        self.take_block(within)
        running = [actor for actor in self.actors.values() if self.world.is_running(actor.host)]
        self.world.run_until(lambda: all(actor.quorum is not None for actor in running), within)
        end = max(actor.living.committed_end for actor in running)
        self.world.run_until(lambda: all(actor.living.applied_end >= end for actor in running), within)
        assert self.world.complaints() == []
        count = len(self.blocks)
        assert sorted(self.blocks) == [PRODUCER_BLOCK_SIZE * place for place in range(count)], "the blocks follow each other"
        assert {int(actor.living.image.next_producer_id) for actor in running} == {PRODUCER_BLOCK_SIZE * count}
        for asker, first in self.granted.items():
            assert self.blocks[first] == asker, "whoever was told of a block has it"
        askers = list(self.blocks.values())
        assert len(askers) == len(dict.fromkeys(askers)), "nobody was given two for one question"
        assert [asker for asker in self.refused if asker in askers] == [], "who was refused was given nothing"


def worlds(seed: int = 1, *, faults: DiskFaults = HONEST) -> World:
    return World(seed, disk_faults=faults)
