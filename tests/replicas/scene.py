"""A quiet world of one partition, in which only happens what a test makes happen."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.cluster.commands import Command
from penstock.simulator.replicas.asked import Asked, Result
from penstock.simulator.replicas.controller import CONTROLLER
from penstock.simulator.replicas.node import SimNode
from penstock.simulator.replicas.plan import Plan, draw_plan
from penstock.simulator.replicas.world import World
from penstock.vocabulary import Instant
from penstock.wire.batches import Record, encode_batch

NEVER_SECONDS = 1e6
QUIET: dict[str, Any] = {
    "nodes": 3, "replicas": 3, "min_insync": 1, "flushes_before_ack": True, "clients": 0, "delay_seconds": 0.001, "loss": 0.0,
    "doubling": 0.0, "flush_seconds": 0.001, "metadata_seconds": 0.001, "lag_max_s": 0.2, "session_seconds": 0.2,
    "batches_max": 50, "asks_again": False,
    "knows_nodes": False, "trim_seconds": 0.0, "reassign_seconds": 0.0, "faults": {}, "ambushes": {},
}  # fmt: skip


def quiet_plan(**instead: Any) -> Plan:
    return replace(draw_plan(0), **{**QUIET, **instead})


class Scene:
    def __init__(self, **instead: Any) -> None:
        self.world = World(quiet_plan(**instead))
        self.run(0.03)

    def __getitem__(self, number: int) -> SimNode:
        return self.world.nodes[number]  # type: ignore[index]

    @property
    def state(self) -> Any:
        return self.world.controller.partition

    @property
    def leader(self) -> SimNode | None:
        node = self.world.nodes.get(self.state.leader)
        return node if node is not None and node.leading is not None and node.epoch == self.state.leader_epoch else None

    def run(self, seconds: float) -> None:
        self.world.run_until(self.world.now + seconds)

    def until(self, is_so: Callable[[], bool], seconds: float = 5.0) -> None:
        assert is_so() or self.world.run_until(self.world.now + seconds, is_so), f"it never came to that: {self.state}"

    # What clients do

    def produce(self, number: int | None = None, *, needs_all: bool = True) -> Asked:
        """One record, through this node, or through the leader. Nothing else happens meanwhile."""
        node = self[number] if number is not None else self.leader
        assert node is not None and node.leading is not None, "it leads"
        value = b"record %d at %f" % (node.store.end_offset, self.world.now)
        asked = Asked(encode_batch([Record(value=value)]), needs_all, lambda asked: None)
        node.leading.produce(asked)
        return asked

    def acknowledged(self, count: int = 1) -> list[Asked]:
        """So many records, each acknowledged."""
        asked = []
        for _ in range(count):
            asked.append(self.produce())
            self.until(lambda: asked[-1].result is Result.ACKNOWLEDGED)
        return asked

    def crcs(self, number: int) -> list[int]:
        return [header.crc for header in self[number].store.headers()]

    # What is done to them

    def cut(self, *ways: tuple[int, int]) -> None:
        for one, other in ways:
            self.world.cuts.update({(one, other): None, (other, one): None})  # type: ignore[dict-item]

    def cut_off(self, number: int, *, but: tuple[int, ...] = ()) -> None:
        self.cut(*((number, other) for other in (CONTROLLER, *self.world.nodes) if other != number and other not in but))

    def heal(self) -> None:
        self.world.cuts.clear()

    def pause(self, number: int, seconds: float) -> None:
        self[number].paused_until = Instant(self.world.now + seconds)

    def stop_flushing(self, number: int) -> None:
        self[number].flush_seconds = NEVER_SECONDS

    def hold_questions(self, number: int) -> list[Callable[[], None]]:
        """What the node asks the controller from now on waits until the test lets it arrive."""
        held: list[Callable[[], None]] = []
        node = self[number]

        def ask(command: Command, answered: Callable[[Any], None]) -> None:
            held.append(lambda: self.world.controller.asked(command, lambda replies, end: answered(replies)))

        node.ask = ask  # type: ignore[method-assign]
        return held

    def let_questions_go(self, number: int) -> None:
        del self[number].ask  # type: ignore[attr-defined]
