"""Clients that write unique records through whoever they believe to lead, and ask where the partition ends."""

from random import Random
from typing import TYPE_CHECKING

from penstock.simulator.replicas.asked import Asked, Result
from penstock.simulator.replicas.controller import TOPIC_ID
from penstock.vocabulary import NO_NODE, NodeId, Offset
from penstock.wire.batches import Record, encode_batch

if TYPE_CHECKING:
    from penstock.simulator.replicas.node import SimNode
    from penstock.simulator.replicas.world import World

PATIENCE_SECONDS = 0.15
RETRY_SECONDS = 0.03
ENDS_SHARE = 0.2


class Clients:
    def __init__(self, world: "World") -> None:
        self._world = world
        self._plan = world.plan
        self._rng = Random(f"{world.plan.seed}/clients")
        self._next_value = 1
        self._is_over = False
        self.results: dict[Result, int] = dict.fromkeys(Result, 0)
        self._all_share = self._rng.choice((0.5, 0.9, 1.0))

    def begin(self) -> None:
        for client in range(self._plan.clients):
            self._world.after(self._rng.random() * 0.05, lambda client=client: self._ask(client))  # type: ignore[misc]
        if self._plan.trim_seconds:
            self._world.after(self._plan.trim_seconds, self._trim)

    def end(self) -> None:
        self._is_over = True

    def write_last(self) -> Asked | None:
        """One more record, through the leader, if it is up."""
        leader = self._world.controller.partition.leader
        node = self._world.nodes.get(leader)
        if node is None or node.leading is None:
            return None
        asked = self._new_record(needs_all=True)
        node.leading.produce(asked)
        return asked

    def _ask(self, client: int) -> None:
        if self._is_over:
            return
        node = self._believed_leader()
        if node is None or not node.is_up or node.paused_until > self._world.now or node.leading is None:
            self._world.after(RETRY_SECONDS * (0.5 + self._rng.random()), lambda: self._ask(client))
            return
        if self._rng.random() < ENDS_SHARE:
            node.leading.tell_end()
            self._later(client)
            return
        is_waiting = True

        def tell(asked: Asked) -> None:
            nonlocal is_waiting
            self.results[asked.result] += 1
            if is_waiting:
                is_waiting = False
                self._later(client)

        def give_up() -> None:
            nonlocal is_waiting
            if is_waiting:
                is_waiting = False
                self._ask(client)

        asked = self._new_record(needs_all=self._rng.random() < self._all_share)
        asked.tell = tell
        node.leading.produce(asked)
        if asked.result is Result.OPEN:
            self._world.after(PATIENCE_SECONDS, give_up)

    def _new_record(self, *, needs_all: bool) -> Asked:
        records = [Record(value=b"%d" % (self._next_value + count)) for count in range(self._rng.choice((1, 1, 2)))]
        self._next_value += len(records)
        return Asked(encode_batch(records), needs_all, lambda asked: None)

    def _believed_leader(self) -> "SimNode | None":
        """As some node that is up tells; so zombies are asked too."""
        teller = self._rng.choice(list(self._world.nodes.values()))
        state = teller.image.partition(TOPIC_ID, 0) if teller.is_up else None
        leader = state.leader if state is not None else NO_NODE
        return self._world.nodes.get(NodeId(leader))

    def _later(self, client: int) -> None:
        self._world.after(self._plan.think_seconds * (0.3 + self._rng.expovariate(1.0)), lambda: self._ask(client))

    def _trim(self) -> None:
        """Somebody deletes records, or they grow old."""
        if self._is_over:
            return
        self._world.after(self._plan.trim_seconds * (0.5 + self._rng.random()), self._trim)
        node = self._world.nodes.get(self._world.controller.partition.leader)
        if node is not None and node.leading is not None:
            start, end = node.store.start_offset, node.leading.core.high_watermark
            node.leading.trim(Offset(self._rng.randint(start, max(start, end))))
