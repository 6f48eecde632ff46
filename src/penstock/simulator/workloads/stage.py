"""What all clients of a run share: the topics, the notebook, and the bell that ends the play."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.peers.client import Client
from penstock.peers.connection import Address, Limits
from penstock.peers.routing import ClientSettings
from penstock.simulator.env import SimEnv
from penstock.simulator.menu import TopicPlan
from penstock.simulator.workloads.notebook import Notebook
from penstock.simulator.workloads.queue_desk import Desk
from penstock.vocabulary import TopicId, TopicPartition

NODE = "node"
PORT = 9092
ADDRESS = Address(NODE, PORT)
PATIENCE = ClientSettings(request_timeout_s=2.0, deadline_s=30.0, limits=Limits(connect_s=2.0))


@dataclass(slots=True)
class Stage:
    notebook: Notebook
    topics: dict[str, TopicPlan] = field(default_factory=dict)  # Those that stay, by name.
    topic_ids: dict[str, TopicId] = field(default_factory=dict)
    is_over: bool = False  # Clients finish what they are at, and end.
    at_rest: dict[str, dict[str, bool]] = field(default_factory=dict)  # For each group, whether each member's part of it moves no more.
    provoke: Callable[[], None] = lambda: None  # A tender moment: the nemesis is told.
    desk: Desk | None = None  # Where queues are asked.

    def client(self, env: SimEnv, name: str) -> Client:
        return Client(env, self.bootstrap(name), client_id=name, settings=self.patience)

    @property
    def patience(self) -> ClientSettings:
        return PATIENCE

    def bootstrap(self, name: str) -> list[Address]:
        return [ADDRESS]

    def is_promise(self, acks: int) -> bool:
        """Whether an answer means that the record stays: of a single node any does."""
        return True

    def partitions(self, topic: str) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for index in range(self.topics[topic].partitions)]

    def surprises(self) -> list[str]:
        """What calls to queues raised that no door could have foreseen."""
        return [] if self.desk is None else self.desk.surprises

    async def breathe(self, env: SimEnv, seconds: float) -> None:
        """A pause around this long; a short one once the bell has rung."""
        await asyncio.sleep(0.02 if self.is_over else max(0.001, env.rng.expovariate(1 / seconds)))
