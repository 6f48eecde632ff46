"""The follower core on a node: a fetch at a time, what comes is appended and flushed, and the leader hears how far."""

from typing import TYPE_CHECKING, assert_never

from penstock.cluster.image import PartitionState
from penstock.partition.follower import (
    Append,
    Fetch,
    Fetched,
    Follower,
    RaiseStart,
    StartOver,
    Step,
    Truncate,
    Wait,
)
from penstock.partition.leader import AdvanceWatermark, Reached
from penstock.simulator.replicas.judging import Violation
from penstock.vocabulary import Offset

if TYPE_CHECKING:
    from penstock.simulator.replicas.node import SimNode

PATIENCE_SECONDS = 0.12  # Until a question without an answer is asked again.
PAUSE_SECONDS = 0.02
REPEAT_SECONDS = 0.06


class Following:
    def __init__(self, node: "SimNode", state: PartitionState) -> None:
        self._node = node
        self._world = node.world
        self.leader = state.leader
        self.is_in_sync = node.node_id in state.in_sync
        self.core = Follower(state.leader_epoch, node.store, node.watermark)
        self._number = 0  # Of the question that is waited for.
        self._life = node.life
        self._leaders_watermark = Offset(0)
        self._has_reported = Offset(-1)

    def begin(self) -> None:
        self._fetch()
        self._repeat()

    @property
    def _is_over(self) -> bool:
        return self._node.role is not self or self._node.life != self._life

    # Fetching

    def _fetch(self) -> None:
        if self._is_over or self._node.store.failure is not None:
            return
        self._number += 1
        number, asked = self._number, self.core.next_fetch()

        def arrive() -> None:
            leader = self._world.nodes[self.leader].leading
            if leader is not None:
                leader.fetch(self, asked, number)

        self._world.send(self._node.node_id, self.leader, arrive)
        self._node.later(PATIENCE_SECONDS, lambda: self._fetch() if self._number == number else None)

    def hear(self, leader: "SimNode", asked: Fetch, number: int, answer: Fetched) -> None:
        self._world.send(leader.node_id, self._node.node_id, lambda: self._heard(asked, number, answer))

    def _heard(self, asked: Fetch, number: int, answer: Fetched) -> None:
        if self._is_over or self._node.store.failure is not None:
            return
        self._leaders_watermark = max(self._leaders_watermark, answer.high_watermark)
        steps = self.core.answered(asked, answer)
        for step in steps:
            self._carry_out(step)
            if self._is_over:
                return
        if self._number == number:
            is_waiting = any(isinstance(step, Wait) for step in steps)
            self._number += 1  # Whatever else comes of it was heard already.
            self._node.later(PAUSE_SECONDS if is_waiting else 0.0005, self._fetch)
        self._report()

    def _carry_out(self, step: Step) -> None:
        node, store = self._node, self._node.store
        match step:
            case Append(batches):
                for batch, header in batches:
                    store.append(batch, header)
                node.flush_soon()
            case Truncate(offset, is_loss):
                if is_loss:
                    raise Violation("what was seen is never cut", f"node {node.node_id} at {offset}, watermark {node.watermark}")
                node.world.moment("at a cut", node)
                if node.is_up:
                    store.truncate_to(offset)
                    node.was_cut()
            case StartOver(offset):
                store.start_over(offset)
                node.was_cut()
            case RaiseStart(offset):
                store.raise_start(offset)
            case AdvanceWatermark(watermark):
                node.raise_watermark(max(node.watermark, watermark))
            case Wait():
                pass
            case _:
                assert_never(step)

    # Reporting

    def settled(self) -> None:
        self._report()

    def _report(self) -> None:
        node = self._node
        if self._is_over or node.store.failure is not None:
            return
        report = self.core.report(node.durable_end)
        if report is None:
            return
        node.world.moment("before report", node)
        if self._is_over:
            return
        self._has_reported = report.durable_end
        epoch, node_epoch, leader = self.core.epoch, node.node_epoch, self._world.nodes[self.leader]

        def arrive() -> None:
            if leader.leading is not None:
                leader.leading.follower_reached(Reached(node.node_id, report.durable_end, node_epoch, epoch, report.start))

        self._world.send(node.node_id, self.leader, arrive)
        node.world.moment("after report", node)

    def _repeat(self) -> None:
        """A report may have been lost, and who is out of the set must be heard to come in again."""
        if not self._is_over:
            self._node.later(REPEAT_SECONDS, self._repeat)
            if not self.is_in_sync or self._leaders_watermark < self._has_reported:
                self.core.report_again()
                self._report()
