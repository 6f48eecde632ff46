"""One seed, one story of cores: work in trouble, then calm, then a reckoning.

    report = run_seed(7)
    report.violation         # None, for a core that keeps its word
    report.trace             # the same in every process
"""

from collections import Counter
from contextlib import nullcontext

from penstock.consensus.roles import RoleName
from penstock.errors import BrokenPromise
from penstock.simulator.core_seeds import Report
from penstock.simulator.cores.clients import Clients
from penstock.simulator.cores.diary import Result, check_register
from penstock.simulator.cores.judging import Violation
from penstock.simulator.cores.nemesis import Nemesis
from penstock.simulator.cores.plan import Plan, draw_plan
from penstock.simulator.cores.replica import VALUE
from penstock.simulator.cores.variants import VARIANTS
from penstock.simulator.cores.world import World
from penstock.simulator.knobs import replaced

_LOOK_EVERY_SECONDS = 0.5
# After the trouble, an election or two, and what was left behind is caught up with. In election time-outs.
_CALM_TIMEOUTS = 40


def run_seed(seed: int, *, variant: str | None = None) -> Report:
    with replaced(VARIANTS[variant]()) if variant is not None else nullcontext():
        return Story(draw_plan(seed)).tell()


class Story:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.world = World(plan)
        self.clients = Clients(self.world, plan)
        self.nemesis = Nemesis(self.world, plan)

    def tell(self) -> Report:
        violation = None
        try:
            self._work_in_trouble()
            self._calm_down()
            self._check_refusals()
            check_register(self.clients.asked)
        except (Violation, BrokenPromise) as broken:
            violation = str(broken)
        return Report(self.plan.seed, violation, self.world.trace, self.world.steps, self._statistics())

    def _work_in_trouble(self) -> None:
        self.clients.begin()
        self.nemesis.begin()
        while self.world.now < self.plan.seconds:
            self.world.run_until(self.world.now + _LOOK_EVERY_SECONDS)
            self.world.judge.check_logs_match([replica.store for replica in self.world.replicas])

    def _calm_down(self) -> None:
        """Now somebody leads, takes a value, and everybody who is there has it before long."""
        self.clients.end()
        self.nemesis.calm()
        world, end = self.world, self.world.now + _CALM_TIMEOUTS * self.plan.options.election_seconds_max
        while not self._writes_one_more():
            if world.now >= end:
                raise Violation("in the calm somebody leads", self._told())
        last = len(world.judge.chosen)
        if not world.run_until(end, lambda: all(replica.applied_end >= last for replica in world.replicas)):
            raise Violation("in the calm everybody catches up", self._told())
        world.judge.check_logs_match([replica.store for replica in world.replicas])

    def _writes_one_more(self) -> bool:
        written = self.clients.write_last()
        return self.world.run_until(
            self.world.now + self.plan.options.election_seconds_min, lambda: written is not None and written.result is Result.DONE
        )

    def _check_refusals(self) -> None:
        """A proper no means that it was not done, and will not be."""
        for asked in self.clients.asked:
            if asked.value is not None and asked.result is Result.REFUSED and VALUE.pack(asked.value) in self.world.judge.values:
                raise Violation("what is refused is not done", f"{asked.value}")

    def _told(self) -> str:
        return "; ".join(
            f"{one.node}: {one.core.role.name} in {one.core.term}, {one.store.start} to {one.store.end}, applied {one.applied_end}"
            for one in self.world.replicas
            if one.core is not None
        )

    def _statistics(self) -> Counter[str]:
        numbers = Counter({f"struck: {kind}": times for kind, times in self.nemesis.struck.items()})
        for asked in self.clients.asked:
            kind = "writes" if asked.value is not None else "reads"
            numbers[f"{kind} {asked.result.value}"] += 1
        for reason, times in self.clients.refusals.items():
            numbers[f"refused: {reason.value}"] += times
        numbers["changes of voters and transfers"] = self.clients.changes_done
        numbers["entries"] = len(self.world.judge.chosen)
        numbers["terms"] = max((one.core.term for one in self.world.alive() if one.core is not None), default=0)
        numbers["snapshots"] = sum(one.store.snapshot is not None for one in self.world.replicas)
        numbers["snapshots installed"] = sum(one.installed for one in self.world.replicas)
        numbers["leading at the end"] = sum(
            one.core is not None and one.core.role.name is RoleName.LEADER for one in self.world.replicas
        )
        return numbers
