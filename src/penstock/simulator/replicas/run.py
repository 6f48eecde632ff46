"""One seed, one story of a partition: work in trouble, then calm, then a reckoning.

    report = run_seed(7)
    report.violation         # None, for cores that keep their word
    report.trace             # the same in every process
"""

from collections import Counter
from contextlib import nullcontext

from penstock.errors import BrokenPromise
from penstock.simulator.core_seeds import Report
from penstock.simulator.knobs import replaced
from penstock.simulator.replicas.asked import Result
from penstock.simulator.replicas.clients import Clients
from penstock.simulator.replicas.judging import Violation
from penstock.simulator.replicas.nemesis import Nemesis
from penstock.simulator.replicas.plan import Plan, draw_plan
from penstock.simulator.replicas.variants import VARIANTS
from penstock.simulator.replicas.world import World

CALM_SECONDS = 8.0


def run_seed(seed: int, *, variant: str | None = None) -> Report:
    with replaced(VARIANTS[variant]()) if variant is not None else nullcontext():
        return Story(draw_plan(seed)).tell()


class Story:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan)
        self.clients = Clients(self.world)
        self.nemesis = Nemesis(self.world)

    def tell(self) -> Report:
        violation = None
        try:
            self.clients.begin()
            self.nemesis.begin()
            self.world.run_until(self.plan.seconds)
            self._calm_down()
        except (Violation, BrokenPromise) as broken:
            violation = str(broken)
        return Report(self.plan.seed, violation, self.world.trace, self.world.steps, self._statistics())

    def _calm_down(self) -> None:
        """Now somebody leads, everybody is in sync before long, and what is written then is acknowledged."""
        self.clients.end()
        self.nemesis.calm()
        world, end = self.world, self.world.now + CALM_SECONDS
        if not world.run_until(end, self._is_whole):
            raise Violation("in the calm everybody is in sync", self._told())
        while not self._writes_one_more():
            if world.now >= end:
                raise Violation("in the calm records are acknowledged", self._told())
        if not world.run_until(end, self._is_whole):
            raise Violation("in the calm everybody is in sync", self._told())
        replicas = world.controller.partition.replicas
        world.judge.check_logs({node: world.nodes[node].store for node in replicas})

    def _writes_one_more(self) -> bool:
        written = self.clients.write_last()
        return self.world.run_until(self.world.now + 0.2, lambda: written is not None and written.result is Result.ACKNOWLEDGED)

    def _is_whole(self) -> bool:
        state = self.world.controller.partition
        leader = self.world.nodes.get(state.leader)
        if leader is None or leader.leading is None or set(state.in_sync) != set(state.replicas) or state.is_reassigning:
            return False
        end = leader.leading.core.high_watermark
        return all(self.world.nodes[node].store.end_offset == self.world.nodes[node].durable_end == end for node in state.replicas)

    def _told(self) -> str:
        state = self.world.controller.partition
        nodes = "; ".join(
            f"{one.node_id}: {type(one.role).__name__} in {one.epoch}, {one.store.start_offset} to {one.store.end_offset}, "
            f"watermark {one.watermark}, life {one.life}, node epoch {one.node_epoch}, {one.store.failure}"
            for one in self.world.nodes.values()
        )
        return f"{state}; {nodes}"

    def _statistics(self) -> Counter[str]:
        numbers = Counter({f"struck: {kind}": times for kind, times in self.nemesis.struck.items()})
        for result, times in self.clients.results.items():
            numbers[f"records {result.value}"] += times
        numbers["batches committed"] = len(self.world.judge.committed)
        numbers["leader epochs"] = self.world.controller.partition.leader_epoch
        numbers["versions"] = self.world.controller.partition.partition_epoch
        numbers["lives"] = sum(node.life for node in self.world.nodes.values())
        return numbers
