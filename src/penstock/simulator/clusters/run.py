"""One seed, one cluster, one story: clients, trouble, calm, reckoning; and what of the promises was broken.

    report = run_cluster_seed(7)
    report.violations        # empty, for nodes that keep their word
    report.trace_hash        # the same in every process

Topics are made in peace. Clients work while the nemesis strikes, blindly, by aim and from ambush, and a watcher looks into all nodes at
once. The trouble ends: within a bound everything must be available again. Clients finish, the nodes' last lives end in one more way, and
everything is read back and judged.
"""

from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import replace
from random import Random
from typing import Any

from penstock.broker.node import Node
from penstock.peers.connection import Address
from penstock.peers.failures import PeerFailure
from penstock.simulator import damage
from penstock.simulator.checkers import check
from penstock.simulator.clusters import aiming, faults
from penstock.simulator.clusters.ambushes import Ambushes, draw_ambushes
from penstock.simulator.clusters.churning import ClusterChurning
from penstock.simulator.clusters.data_menu import with_clocks, with_data
from penstock.simulator.clusters.data_variants import DATA_VARIANTS
from penstock.simulator.clusters.data_watch import DataWatch
from penstock.simulator.clusters.delivery_menu import with_deliveries
from penstock.simulator.clusters.fetching import ClusterFetching
from penstock.simulator.clusters.growing import Growing
from penstock.simulator.clusters.joining import ClusterJoining
from penstock.simulator.clusters.keeping import ClusterKeeping
from penstock.simulator.clusters.lag_menu import with_lag
from penstock.simulator.clusters.lag_variants import LAG_VARIANTS
from penstock.simulator.clusters.lagging import Lagging
from penstock.simulator.clusters.machines import Machines
from penstock.simulator.clusters.machining import ChangingNodes
from penstock.simulator.clusters.members import Cluster
from penstock.simulator.clusters.menu import KAFKA_PORT, ClusterMenu, draw_cluster
from penstock.simulator.clusters.move_variants import MOVE_VARIANTS
from penstock.simulator.clusters.move_watching import MoveWatch
from penstock.simulator.clusters.moves_menu import GROW, JOIN, MOVE, VOTE, with_moves
from penstock.simulator.clusters.moves_reckoning import reckon_moves
from penstock.simulator.clusters.moving import MovingPartitions
from penstock.simulator.clusters.near_reading import NearReading
from penstock.simulator.clusters.pipelining import ClusterPipelining
from penstock.simulator.clusters.reckoning import ClusterReckoning
from penstock.simulator.clusters.record_deleting import RecordDeleting
from penstock.simulator.clusters.recovering import AVAILABLE_WITHIN_SECONDS, is_available, missing
from penstock.simulator.clusters.remade_offsets import RemadeOffsets
from penstock.simulator.clusters.remade_queues import RemadeQueues
from penstock.simulator.clusters.remade_shares import RemadeShares
from penstock.simulator.clusters.remade_transactions import RemadeTransactions
from penstock.simulator.clusters.rotten_copies import ReadingEveryCopy, RottenCopies
from penstock.simulator.clusters.setting_changes import DescribingEverywhere, ProducingAsTold, SettingChanges
from penstock.simulator.clusters.stage import ClusterStage
from penstock.simulator.clusters.variants import VARIANTS
from penstock.simulator.clusters.voting import ChangingVoters
from penstock.simulator.clusters.watching import Watcher
from penstock.simulator.clusters.watermarks import AskingForEnds
from penstock.simulator.env import SimEnv
from penstock.simulator.faults import HARMLESS
from penstock.simulator.knobs import replaced, turned
from penstock.simulator.loop import FIRST_INSTANT, Stuck
from penstock.simulator.menu import ClientPlan
from penstock.simulator.nemesis import Nemesis, Plan, draw_plan
from penstock.simulator.node_process import Reports
from penstock.simulator.queue_menu import cluster_with_queues_alone, draw_lost
from penstock.simulator.queue_reckoning import QueueReckoning, make_groups, make_queues
from penstock.simulator.queue_variants import QUEUE_VARIANTS
from penstock.simulator.run import Report
from penstock.simulator.share_variants import SHARE_VARIANTS
from penstock.simulator.transaction_reckoning import TransactionReckoning
from penstock.simulator.workloads.consumer_groups import Belonging
from penstock.simulator.workloads.notebook import NOWHERE, Notebook
from penstock.simulator.workloads.producing import Producing
from penstock.simulator.workloads.queue_desk import Desk
from penstock.simulator.workloads.queueing import Decreeing, Sending, Working
from penstock.simulator.workloads.reading import Reading
from penstock.simulator.workloads.sharing import Sharing
from penstock.simulator.workloads.transacting_members import TransactingMember
from penstock.simulator.workloads.transactions import Transacting
from penstock.simulator.world import World
from penstock.vocabulary import TopicId

ACTORS: dict[str, Callable[[ClientPlan, ClusterStage, SimEnv], Any]] = {
    "produce": Producing,
    "pipeline": ClusterPipelining,
    "follow": Reading,
    "reread": Reading,
    "fetch": ClusterFetching,
    "ask": AskingForEnds,
    "churn": ClusterChurning,
    "read near": NearReading,
    "delete records": RecordDeleting,
    "change settings": SettingChanges,
    "produce as told": ProducingAsTold,
    "keep": ClusterKeeping,
    "join": ClusterJoining,
    "belong": Belonging,
    "transact": Transacting,
    "transact as member": TransactingMember,
    "remake transact": RemadeTransactions,
    "remake commit": RemadeOffsets,
    "remake share": RemadeShares,
    "remake queue": RemadeQueues,
    MOVE: MovingPartitions,
    GROW: Growing,
    JOIN: ChangingNodes,
    VOTE: ChangingVoters,
    "queue send": Sending,
    "queue work": Working,
    "queue decree": Decreeing,
    "share": Sharing,
}
CLUSTER_VARIANTS = VARIANTS | DATA_VARIANTS | LAG_VARIANTS | MOVE_VARIANTS
ALL_VARIANTS = CLUSTER_VARIANTS | QUEUE_VARIANTS | SHARE_VARIANTS
_UP_WITHIN_SECONDS = 60.0
_OFTEN_SECONDS = 0.4  # With trouble more often than that, nobody ever leads.
_FINISHED_WITHIN_SECONDS = 200.0
_RECKONED_WITHIN_SECONDS = 2_000.0  # Queues may lend one message at a time.
_ENDED_BY_THE_WORLD = ("returned", "closed", "killed", "power cut", "disk lost")


def run_cluster_seed(seed: int, *, variant: str | None = None, record: bool = False, has_queues: bool = False) -> Report:
    """With queues, there is nothing else: see the queues' menu."""
    menu = with_clocks(cluster_with_queues_alone(draw_cluster(seed))) if has_queues else draw_menu(seed)
    with replaced(ALL_VARIANTS[variant]()) if variant is not None else nullcontext(), turned(menu.knobs):
        return ClusterPlay(menu, record=record).perform()


def draw_menu(seed: int) -> ClusterMenu:
    """All that is played in a cluster, but queues."""
    return with_moves(with_lag(with_clocks(with_data(with_deliveries(draw_cluster(seed))))))


class ClusterPlay:
    def __init__(self, menu: ClusterMenu, *, record: bool = False) -> None:
        self.menu = menu
        self.world = World(menu.seed, record=record)
        self.cluster = Cluster(self.world, menu.nodes, menu.later)
        self.notebook = Notebook()
        self.stage = ClusterStage(
            self.notebook,
            {topic.name: topic for topic in menu.topics},
            addresses=[Address(host, KAFKA_PORT) for host in self.cluster.brokers],
            operations=self.cluster.operations,
        )
        self.stage.desk = Desk(self.world, self._serving, lost=draw_lost(menu.seed))
        self.notebook.diary.queues.answers_cross_nodes = len(menu.nodes) > 1
        self.watcher = Watcher(self.cluster, self.notebook, is_rotten=self._is_rotten)
        self.stage.watch = DataWatch(self.cluster, self.notebook)
        self.watcher.also(self.stage.watch.look)
        self.reports = Reports()
        self._is_night = False  # Nobody is started before everybody has stopped.
        special = {**damage.strikes(self.notebook), **faults.strikes(self.cluster), **aiming.strikes(self.cluster)}
        self.plan = draw_trouble(menu, [*faults.strikes(self.cluster), *aiming.strikes(self.cluster)])
        self.nemesis = Nemesis(
            self.world,
            self.plan,
            nodes=self.cluster.hosts,
            clients=[client.name for client in menu.clients],
            start=self._start,
            special=special,
        )
        self.stage.machines = Machines(self.cluster, self.nemesis.field)
        self.move_watch = MoveWatch(self.cluster, self.notebook)
        chances = {} if menu.is_quiet else draw_ambushes(Random(f"{menu.seed}/moments"))
        self.ambushes = Ambushes(self.cluster, self.nemesis.field, chances)
        self.lagging = Lagging(self.cluster, self.nemesis.field, menu.lags)
        self.rotten = RottenCopies(self.cluster, self.notebook, self.nemesis.field, menu.seed)
        self.cluster.is_sound = lambda: self.rotten.is_over

    def perform(self) -> Report:
        patches = [*self.ambushes.patches(), *self.lagging.patches()]
        with self.world, self.reports, replaced(patches), replaced(self.move_watch.patches()):
            try:
                if self._make_topics():
                    self._work_in_trouble()
                    if self._calm_down():
                        self._reckon()
            except Stuck as stuck:
                self.notebook.find("the run goes on", NOWHERE, str(stuck))
            self.watcher.end()
            self._look_behind_the_scenes()
            self._excuse()
            return Report(
                self.menu.seed, self.world.trace_hash(), self.notebook.findings + check(self.notebook.diary),
                self._statistics(), self._story(), self.world.trace.lines,
            )  # fmt: skip

    def _start(self, host: str) -> None:
        if not self._is_night:
            self.cluster.start(host)

    def _serving(self) -> dict[str, Node]:
        found = {host: self.cluster.processes[host].node for host in self.cluster.brokers if self.world.is_running(host)}
        return {host: node for host, node in found.items() if node is not None}

    def _is_rotten(self, host: str, topic_id: TopicId, index: int) -> bool:
        return self.rotten.is_rotten(host, topic_id, index)

    # The acts.

    def _make_topics(self) -> bool:
        for host, seconds in self.menu.clocks:
            self.world.host(host)
            self.world.jump_clock(host, seconds)
        self.cluster.start_all()
        if not self._wait_until_available("in peace everything comes up"):
            return False

        async def make(env: SimEnv) -> None:
            async with self.stage.client(env, "stage hand") as client:
                for topic in (*([self.menu.offsets_topic] if self.menu.offsets_topic else []), *self.menu.topics):
                    view = await client.create_topic(
                        topic.name, partitions=topic.partitions, replication_factor=topic.replication_factor, config=topic.config
                    )
                    if topic is not self.menu.offsets_topic:
                        self.notebook.made(view.topic_id, topic)
                        self.stage.topic_ids[topic.name] = view.topic_id
            await make_queues(self.stage, env, self.menu.queues)
            await make_groups(self.stage, env, self.menu.clients)

        return self._run_to_its_end("stage-hand", make)

    def _work_in_trouble(self) -> None:
        for client in self.menu.clients:
            self.world.start(client.name, lambda env, client=client: ACTORS[client.kind](client, self.stage, env).run())  # type: ignore[misc]
        self.watcher.begin()
        self.nemesis.unleash()
        self.lagging.unleash()
        self.stage.delay_metadata = self.lagging.provoke
        if self.menu.rots:
            self.rotten.begin(self.menu.seconds)
        self.stage.provoke = self.nemesis.provoke
        self.world.run_for(self.menu.seconds)

    def _calm_down(self) -> bool:
        self.nemesis.calm()
        self.stage.is_calm = True
        if not self._wait_until_available("in the calm everything is available"):
            return False
        self.stage.is_over = True
        try:
            self.world.run_until(
                lambda: all(self.world.has_ended(client.name) for client in self.menu.clients), within=_FINISHED_WITHIN_SECONDS
            )
        except Stuck:
            late = [client.name for client in self.menu.clients if self.world.is_running(client.name)]
            self.notebook.find("clients come to an end", NOWHERE, f"{', '.join(late)} did not in {_FINISHED_WITHIN_SECONDS:g} s of calm")
            for name in late:
                self.world.kill(name)
        self._end_the_nodes()
        return self._wait_until_available("in the calm everything is available")

    def _reckon(self) -> None:
        async def reckon(env: SimEnv) -> None:
            await ClusterReckoning(self.stage, env).run()
            await DescribingEverywhere(self.stage, env).run()
            await ReadingEveryCopy(self.stage, self.cluster, self.rotten, env).run()
            await TransactionReckoning(self.stage, env).run()
            await QueueReckoning(self.stage, env, clocks_are_right=self._clocks_are_right()).run(self.menu.clients)

        self._run_to_its_end("reckoning", reckon)
        self.stage.last_checks.append(lambda: self.rotten.what_is_not_whole(self.notebook.diary.finals))
        for check_at_the_end in self.stage.last_checks:
            for rule, where, story in check_at_the_end():
                self.notebook.find(rule, where, story)
        self._wait_until_available("in the calm everything is available")
        reckon_moves(self.cluster, self.stage)
        self.watcher.look()
        self.watcher.compare_logs()

    def _wait_until_available(self, rule: str) -> bool:
        try:
            self.world.run_until(lambda: is_available(self.cluster), within=AVAILABLE_WITHIN_SECONDS)
        except Stuck:
            reasons = [*missing(self.cluster)][:3]
            for host, process in self.cluster.processes.items():
                reasons += [f"{host} could not start: {failure}" for failure in process.failed_starts[-1:]]
            self.notebook.find(rule, NOWHERE, f"not so after {AVAILABLE_WITHIN_SECONDS:g} s: {'; '.join(reasons)}")
            return False
        return True

    def _end_the_nodes(self) -> None:
        """All of them at once, in one more way; the nemesis starts them again. Where bytes rot, some do before that."""
        spots = self.rotten.choose() if self.menu.rots else []
        match self.menu.last_ending:
            case "power cut":
                for host in self.cluster.hosts:
                    self.world.power_cut(host)
            case "kill":
                for host in self.cluster.hosts:
                    self.world.kill(host)
            case "clean stop":
                self._is_night = True
                for host in self.cluster.hosts:
                    self.world.terminate(host)
                self.world.run_until(lambda: all(map(self.world.has_ended, self.cluster.hosts)), within=_UP_WITHIN_SECONDS)
                self._is_night = False
            case _:
                pass
        self.rotten.change(spots)

    def _run_to_its_end(self, name: str, main: Callable[[SimEnv], Coroutine[Any, Any, None]]) -> bool:
        async def run(env: SimEnv) -> None:
            try:
                await main(env)
            except PeerFailure as failure:
                self.notebook.find("in the calm everything works", NOWHERE, f"{name}: {failure.problem}")

        self.world.start(name, run)
        self.world.run_until(lambda: self.world.has_ended(name), within=_RECKONED_WITHIN_SECONDS)
        ending = self.world.hosts[name].endings[-1]
        if ending != "returned":
            self.notebook.find("the run goes on", NOWHERE, f"{name}: {ending}")
        return not self.notebook.findings

    # Afterwards.

    def _look_behind_the_scenes(self) -> None:
        """What no client could see: broken promises, and failures that nobody had foreseen."""
        for process in self.cluster.processes.values():
            for broken in process.broken_promises:
                self.notebook.find("no promise is broken", NOWHERE, f"{process.plan.host}: {broken}")
        for failure in (*self.reports.failures, *self.world.complaints(), *self.stage.surprises()):
            self.notebook.find("every failure is foreseen", NOWHERE, failure)
        for host in self.world.hosts.values():
            for ending in host.endings:
                if ending not in _ENDED_BY_THE_WORLD:
                    self.notebook.find("every failure is foreseen", NOWHERE, f"{host.name} ended with {ending}")

    def _excuse(self) -> None:
        """Tells the checkers what may be missing: the suffix of a weak partition, if unflushed bytes were lost at all."""
        diary, fired = self.notebook.diary, self.world.fired()
        diary.clocks_are_right = diary.queues.clocks_are_right = self._clocks_are_right()
        diary.cuts = [at for at, _ in (*self.world.power_cuts, *self.cluster.lost_disks)]
        if fired["flush failure"] and not self.plan.disk.failed_pages_stay:
            diary.cuts += [at for host in self.cluster.hosts for at in self.world.hosts[host].ended_at]
        self.notebook.excuse_weak_topics()

    def _clocks_are_right(self) -> bool:
        fired = self.world.fired()
        return not (fired["clock jump"] or fired["clock drift"])

    def _statistics(self) -> Counter[str]:
        numbers = Counter(self.world.fired())
        numbers.update(self.notebook.account())
        numbers["starts of the node"] = sum(self.world.hosts[host].starts for host in self.cluster.hosts if host in self.world.hosts)
        numbers["terms"] = len(self.watcher.terms)
        numbers["leader epochs"] = len(self.watcher.epochs)
        numbers["faults"] = len(self.nemesis.struck) + sum(self.ambushes.struck.values())
        numbers.update({f"ambush {moment}": times for moment, times in self.ambushes.struck.items()})
        struck = [(at, at + fault.seconds) for at, fault in self.nemesis.struck]
        struck += self.ambushes.intervals + self.lagging.intervals + self.rotten.intervals
        numbers["metadata lags"] = len(self.lagging.intervals)
        numbers.update(self.stage.operations.statistics(struck))
        numbers["virtual milliseconds"] = int((self.world.now() - FIRST_INSTANT) * 1_000)
        numbers["deliveries"] = self.world.network.deliveries
        return numbers

    def _story(self) -> list[str]:
        lines = [f"node {node.host}: {node.settings.process_roles}, {_changed(node.settings)}" for node in self.menu.nodes[:1]]
        lines += [f"nodes: {', '.join(f'{node.host} {node.settings.process_roles}' for node in self.menu.nodes)}"]
        lines += [
            f"topic {topic.name}, {topic.partitions} partitions with {topic.replication_factor} replicas: {dict(topic.config)}"
            for topic in (*self.menu.topics, *self.menu.queues)
        ]
        lines += [f"client {client.name} on {client.topic}: {dict(client.options)}" for client in self.menu.clients]
        lines += [f"clock of {host}: {seconds:+.3f} s" for host, seconds in self.menu.clocks]
        lines.append(f"made small: {', '.join(self.menu.knobs) or 'nothing'}")
        lines.append(f"trouble: {', '.join(self.plan.kinds)}; ambushes: {self.ambushes.chances}")
        lines += [f"  {at - FIRST_INSTANT:7.3f} s  {fault.kind}, for {fault.seconds:.3f} s" for at, fault in self.nemesis.struck]
        for host, process in self.cluster.processes.items():
            lines += [f"{host}: {ending}" for ending in process.endings]
        lines += [f"a node said: {line}" for line in self.reports.lines]
        return lines


def draw_trouble(menu: ClusterMenu, kinds: list[str]) -> Plan:
    usual = [*HARMLESS, damage.READ_FAILURE, *(kind for kind in kinds if kind != "lost disk")]
    if menu.may_lose_a_disk:
        usual += ["lost disk"] * 4
    plan = draw_plan(menu.seed, menu.seconds, kinds=usual, often_seconds=_OFTEN_SECONDS)
    if menu.is_quiet:
        plan = replace(plan, faults=(), provoked=0.0)
    stays = Random(f"{menu.seed}/pages").random() < 0.7
    return replace(plan, disk=replace(plan.disk, failed_pages_stay=stays))


def _changed(settings: Any) -> str:
    usual = type(settings)()
    return ", ".join(f"{name} {value}" for name, value in settings.as_texts().items() if value != usual.as_texts()[name])
