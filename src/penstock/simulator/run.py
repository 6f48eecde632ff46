"""One seed, one node, one story: clients, trouble, calm, reckoning; and what of the promises was broken.

    report = run_seed(7)
    report.violations        # empty, for a node that keeps its word
    report.trace_hash        # the same in every process

The play has four acts. Topics are made in peace. Clients work while the nemesis strikes. The trouble ends, clients finish, the node's last
life ends in one more way and it starts again. Then everything is read back and judged.
"""

from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from penstock.broker.node import Node
from penstock.simulator import damage
from penstock.simulator.checkers import Violation, check
from penstock.simulator.delivery_menu import with_deliveries
from penstock.simulator.diary import Outcome
from penstock.simulator.env import SimEnv
from penstock.simulator.faults import HARMLESS
from penstock.simulator.final import Reckoning
from penstock.simulator.knobs import turned
from penstock.simulator.loop import FIRST_INSTANT, Stuck
from penstock.simulator.menu import ClientPlan, Menu, TopicPlan, draw_menu
from penstock.simulator.nemesis import Nemesis, Plan, draw_plan
from penstock.simulator.node_process import NodeProcess, Reports
from penstock.simulator.queue_menu import draw_lost, with_queues_alone
from penstock.simulator.queue_reckoning import QueueReckoning, make_groups, make_queues
from penstock.simulator.transaction_reckoning import TransactionReckoning
from penstock.simulator.variants import applied
from penstock.simulator.workloads.asking import Asking
from penstock.simulator.workloads.churning import Churning
from penstock.simulator.workloads.consumer_groups import Belonging
from penstock.simulator.workloads.fetching import Fetching
from penstock.simulator.workloads.joining import Joining
from penstock.simulator.workloads.keeping import Keeping
from penstock.simulator.workloads.line import LineLost
from penstock.simulator.workloads.notebook import NOWHERE, Notebook, TopicLife
from penstock.simulator.workloads.pipelining import Pipelining
from penstock.simulator.workloads.producing import Producing
from penstock.simulator.workloads.queue_desk import Desk
from penstock.simulator.workloads.queueing import Decreeing, Sending, Working
from penstock.simulator.workloads.reading import Reading
from penstock.simulator.workloads.sharing import Sharing
from penstock.simulator.workloads.stage import NODE, Stage
from penstock.simulator.workloads.transacting_members import TransactingMember
from penstock.simulator.workloads.transactions import Transacting
from penstock.simulator.workloads.values import timestamp_of
from penstock.simulator.world import World
from penstock.vocabulary import TopicPartition

ACTORS: dict[str, Callable[[ClientPlan, Stage, SimEnv], Any]] = {
    "produce": Producing,
    "pipeline": Pipelining,
    "follow": Reading,
    "reread": Reading,
    "fetch": Fetching,
    "ask": Asking,
    "churn": Churning,
    "keep": Keeping,
    "join": Joining,
    "belong": Belonging,
    "transact": Transacting,
    "transact as member": TransactingMember,
    "queue send": Sending,
    "queue work": Working,
    "queue decree": Decreeing,
    "share": Sharing,
}
_UP_WITHIN_SECONDS = 60.0
_FINISHED_WITHIN_SECONDS = 200.0
_RECKONED_WITHIN_SECONDS = 2_000.0  # Queues may lend one message at a time.


@dataclass(slots=True)
class Report:
    seed: int
    trace_hash: str
    violations: list[Violation]
    statistics: Counter[str]
    story: list[str] = field(default_factory=list)  # For people: what the seed chose and what happened.
    trace: list[str] | None = None


def run_seed(seed: int, *, variant: str | None = None, record: bool = False, has_queues: bool = False) -> Report:
    """With queues, there is nothing else: see the queues' menu."""
    menu = with_queues_alone(draw_menu(seed)) if has_queues else with_deliveries(draw_menu(seed))
    with applied(variant) if variant is not None else nullcontext(), turned(menu.knobs):
        return Play(menu, record=record).perform()


class Play:
    def __init__(self, menu: Menu, *, record: bool = False) -> None:
        self.menu = menu
        self.plan = draw_trouble(menu)
        self.world = World(menu.seed, record=record)
        self.notebook = Notebook(caches_are_harmed=menu.harms_caches)
        self.stage = Stage(self.notebook, {topic.name: topic for topic in menu.topics})
        self.process = NodeProcess(menu.settings, Random(f"{menu.seed}/operator"))
        self.stage.desk = Desk(self.world, self._serving, lost=draw_lost(menu.seed))
        self.reports = Reports()
        self.nemesis = Nemesis(
            self.world,
            self.plan,
            nodes=[NODE],
            clients=[client.name for client in menu.clients],
            start=lambda _: self._start_node(),
            special=damage.strikes(self.notebook),
        )

    def perform(self) -> Report:
        with self.world, self.reports:
            try:
                self._make_topics()
                self._work_in_trouble()
                if self._calm_down():
                    self._reckon()
            except Stuck as stuck:
                self.notebook.find("the run goes on", NOWHERE, str(stuck))
            self._look_behind_the_scenes()
            self._excuse()
            return Report(
                self.menu.seed, self.world.trace_hash(), self.notebook.findings + check(self.notebook.diary),
                self._statistics(), self._story(), self.world.trace.lines,
            )  # fmt: skip

    # The acts.

    def _make_topics(self) -> None:
        self._start_node()
        self.world.run_until(self._node_serves, within=_UP_WITHIN_SECONDS)

        async def make(env: SimEnv) -> None:
            async with self.stage.client(env, "stage hand") as client:
                if (own := self.menu.offsets_topic) is not None:
                    await client.create_topic(own.name, partitions=own.partitions, config=own.config)
                for topic in self.menu.topics:
                    view = await client.create_topic(topic.name, partitions=topic.partitions, config=topic.config)
                    self.notebook.made(view.topic_id, topic)
                    self.stage.topic_ids[topic.name] = view.topic_id
            await make_queues(self.stage, env, self.menu.queues)
            await make_groups(self.stage, env, self.menu.clients)

        self._run_to_its_end("stage-hand", make)

    def _work_in_trouble(self) -> None:
        for client in self.menu.clients:
            self.world.start(client.name, lambda env, client=client: ACTORS[client.kind](client, self.stage, env).run())  # type: ignore[misc]
        self.nemesis.unleash()
        self.stage.provoke = self.nemesis.provoke
        self.world.run_for(self.menu.seconds)

    def _calm_down(self) -> bool:
        """Whether there is a node to reckon with: a damaged one may refuse to start, as long as it says why."""
        self.nemesis.calm()
        self.stage.is_over = True
        if not self._wait_for_the_node():
            return False
        try:
            self.world.run_until(
                lambda: all(self.world.has_ended(client.name) for client in self.menu.clients), within=_FINISHED_WITHIN_SECONDS
            )
        except Stuck:
            late = [client.name for client in self.menu.clients if self.world.is_running(client.name)]
            self.notebook.find("clients come to an end", NOWHERE, f"{', '.join(late)} did not in {_FINISHED_WITHIN_SECONDS:g} s of calm")
            for name in late:
                self.world.kill(name)
        self._end_the_node()
        return self._wait_for_the_node()

    def _reckon(self) -> None:
        async def reckon(env: SimEnv) -> None:
            try:
                await Reckoning(self.stage, env).run()
                await TransactionReckoning(self.stage, env).run()
                await QueueReckoning(self.stage, env, clocks_are_right=self._clocks_are_right()).run(self.menu.clients)
            except LineLost as lost:
                self.notebook.find("the run goes on", NOWHERE, f"the reckoning lost its connection: {lost}")

        self._run_to_its_end("reckoning", reckon)
        node = self.process.node
        if node is None:
            self.notebook.find("the run goes on", NOWHERE, "the node did not survive the reckoning")
            return
        for partition in node.partitions:
            life = self.notebook.lives.get(partition.topic_id)
            where = TopicPartition(life.label if life else partition.topic, partition.index)
            if partition.log.failure is not None and where not in self.notebook.diary.damaged:
                self.notebook.find("a log that is whole is open", where, partition.log.failure)
        self._check_retention()
        self._check_graves()

    def _check_retention(self) -> None:
        """Whatever is young enough is still there. Only where all clocks agree can that be said."""
        now_ms = self.world.hosts[NODE].wall.ms()
        if not self._clocks_are_right():
            return
        for life in self.notebook.lives.values():
            if "retention.ms" in life.plan.config and "retention.bytes" not in life.plan.config:
                self._check_that_young_records_stay(life, now_ms - int(life.plan.config["retention.ms"]))

    def _check_that_young_records_stay(self, life: TopicLife, oldest_ms: int) -> None:
        diary = self.notebook.diary
        for attempt in diary.attempts:
            final = diary.finals.get(attempt.partition)
            if final is None or attempt.partition.topic != life.label or attempt.outcome is not Outcome.ACKNOWLEDGED:
                continue
            if attempt.offset < final.start_offset and timestamp_of(attempt.value) > oldest_ms:
                story = f"offset {attempt.offset} is gone, though it was kept for less than it should have been"
                self.notebook.find("retention takes only what is old", attempt.partition, story)
                return

    def _check_graves(self) -> None:
        """Nothing is left of topics that are gone, once the node has had time to bury them."""
        self.world.run_for(2.0)
        node = self.process.node
        if node is not None:
            there = {topic_id.hex() for topic_id in node.image.topics_by_id}
            left = [name for name in self.world.hosts[NODE].disk.list("topics") if name not in there]
            if left:
                self.notebook.find("what is deleted leaves nothing behind", NOWHERE, f"{len(left)} folders, such as {left[0]}")

    # The node.

    def _start_node(self) -> None:
        self.world.start(NODE, self.process.run)

    def _node_serves(self) -> bool:
        return self.world.is_running(NODE) and self.process.serves

    def _serving(self) -> dict[str, Node]:
        node = self.process.node if self.world.is_running(NODE) else None
        return {} if node is None else {NODE: node}

    def _wait_for_the_node(self) -> bool:
        try:
            self.world.run_until(self._node_serves, within=_UP_WITHIN_SECONDS)
        except Stuck:
            why = str(self.process.failed_starts[-1]) if self.process.failed_starts else "it is not known why"
            if not (self.notebook.may_refuse_to_start and self.process.failed_starts):
                self.notebook.find("in the calm the node serves", NOWHERE, f"it does not: {why}")
            return False
        return True

    def _end_the_node(self) -> None:
        match self.menu.last_ending:
            case "power cut":
                self.world.power_cut(NODE)
            case "kill":
                self.world.kill(NODE)
            case "clean stop":
                self.world.terminate(NODE)
                self.world.run_until(lambda: self.world.has_ended(NODE), within=_UP_WITHIN_SECONDS)

    def _run_to_its_end(self, name: str, main: Callable[[SimEnv], Coroutine[Any, Any, None]]) -> None:
        self.world.start(name, main)
        self.world.run_until(lambda: self.world.has_ended(name), within=_RECKONED_WITHIN_SECONDS)
        ending = self.world.hosts[name].endings[-1]
        if ending != "returned":
            self.notebook.find("the run goes on", NOWHERE, f"{name}: {ending}")

    # Afterwards.

    def _look_behind_the_scenes(self) -> None:
        """What no client could see: broken promises, and failures that nobody had foreseen."""
        for broken in self.process.broken_promises:
            self.notebook.find("no promise is broken", NOWHERE, broken)
        for failure in (*self.reports.failures, *self.world.complaints(), *self.stage.surprises()):
            self.notebook.find("every failure is foreseen", NOWHERE, failure)
        for client in self.menu.clients:
            for ending in self.world.hosts[client.name].endings if client.name in self.world.hosts else ():
                if ending not in ("returned", "closed", "killed"):
                    self.notebook.find("clients come to an end", NOWHERE, f"{client.name}: {ending}")
        for ending in self.world.hosts[NODE].endings:
            if ending not in ("returned", "closed", "killed", "power cut"):
                self.notebook.find("every failure is foreseen", NOWHERE, f"the node ended with {ending}")

    def _excuse(self) -> None:
        """Tells the checkers what may be missing: the suffix of a weak partition, if unflushed bytes were lost at all."""
        diary, fired = self.notebook.diary, self.world.fired()
        diary.clocks_are_right = diary.queues.clocks_are_right = self._clocks_are_right()
        diary.queues.logs_failed = bool(fired["flush failure"] or fired["write failure"])
        diary.cuts = [at for at, name in self.world.power_cuts if name == NODE]
        if fired["flush failure"] and not self.plan.disk.failed_pages_stay:
            diary.cuts += self.world.hosts[NODE].ended_at  # The machine forgets what a flush has failed to save when its process ends.
        self.notebook.excuse_weak_topics()
        if self.menu.harms_caches:
            diary.forgetful = frozenset(topic.name for topic in self.menu.topics if topic.forgets)

    def _clocks_are_right(self) -> bool:
        fired = self.world.fired()
        return not (fired["clock jump"] or fired["clock drift"])

    def _statistics(self) -> Counter[str]:
        numbers = Counter(self.world.fired())
        numbers.update(self.notebook.account())
        numbers["starts of the node"] = self.world.hosts[NODE].starts
        numbers["faults"] = len(self.nemesis.struck)
        numbers["virtual milliseconds"] = int((self.world.now() - FIRST_INSTANT) * 1_000)
        numbers["deliveries"] = self.world.network.deliveries
        numbers["disk operations"] = self.world.hosts[NODE].disk.operations
        return numbers

    def _story(self) -> list[str]:
        menu = self.menu
        lines = [f"topic {_told(topic)}" for topic in menu.topics]
        lines += [f"queue {_told(queue)}" for queue in menu.queues]
        lines += [f"client {client.name} on {client.topic}: {_options(client)}" for client in menu.clients]
        lines.append(f"made small: {', '.join(menu.knobs) or 'nothing'}")
        lines.append(f"trouble: {', '.join(self.plan.kinds)}")
        lines += [f"  {at - FIRST_INSTANT:7.3f} s  {fault.kind}, for {fault.seconds:.3f} s" for at, fault in self.nemesis.struck]
        lines += [f"damaged: {where}, {what}" for where, what in self.notebook.diary.damaged.items()]
        lines += [f"the node: {ending}" for ending in self.process.endings]
        lines += [f"the node said: {line}" for line in self.reports.lines]
        return lines


def draw_trouble(menu: Menu) -> Plan:
    kinds = [*HARMLESS, damage.READ_FAILURE]
    if menu.harms_caches:
        kinds += [damage.CACHES] * 4
    if menu.rots:
        kinds += [damage.ROT] * 4 + [damage.ROT_ELSEWHERE] * (Random(f"{menu.seed}/own").random() < 0.1)
    plan = draw_plan(menu.seed, menu.seconds, kinds=kinds)
    stays = Random(f"{menu.seed}/pages").random() < 0.7
    return replace(plan, disk=replace(plan.disk, failed_pages_stay=stays))


def _told(topic: TopicPlan) -> str:
    settings = ", ".join(f"{name}={value}" for name, value in topic.config.items())
    return f"{topic.name}, {topic.partitions} partitions{': ' + settings if settings else ''}"


def _options(client: ClientPlan) -> str:
    return ", ".join(f"{name} {value}" for name, value in client.options.items() if name != "plan")
