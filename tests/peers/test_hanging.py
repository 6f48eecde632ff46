"""Whether a transaction hangs is asked anew where the coordinators change meanwhile, and not told where one of them keeps silent."""

from collections import deque
from collections.abc import Iterable
from typing import Any

import pytest
from all_loops import OnLoop
from peers.scripted import Question, ScriptedPeer, scripted_peer

from penstock.errors import ErrorCode
from penstock.peers.client import Client
from penstock.peers.hanging_transactions import CannotTell, Hanging, hanging
from penstock.peers.transaction_admin import describe_producers
from penstock.simulator.env import SimEnv
from penstock.vocabulary import TopicPartition
from penstock.wire.api_keys import ApiKey

pytestmark = pytest.mark.invariant("transactions.hanging-only-if-certain")

WHERE = TopicPartition("orders", 0)
PRODUCER = 7


class Coordinators:
    """One node that leads everything. Scripts say what becomes of the next questions; their last word holds from then on."""

    def __init__(self, peer: ScriptedPeer, epochs: deque[int], knows: deque[bool | ErrorCode]) -> None:
        self.peer = peer
        self.epochs = epochs  # In which it leads the coordinators' topic.
        self.knows = knows  # Whether it lists the producer.
        peer.handlers |= {
            ApiKey.METADATA: self.metadata,
            ApiKey.LIST_TRANSACTIONS: self.listed,
            ApiKey.FIND_COORDINATOR: self.find,
            ApiKey.DESCRIBE_TRANSACTIONS: self.describe,
            ApiKey.DESCRIBE_PRODUCERS: self.producers,
        }

    def metadata(self, question: Question) -> Any:
        names = [topic.name for topic in question.body.topics]
        epoch = _next(self.epochs) if "__transaction_state" in names else 0
        row = {"partition_index": 0, "leader_id": 1, "leader_epoch": epoch}
        host, port = self.peer.address
        topics = [{"name": name, "topic_id": bytes([len(name)]) * 16, "partitions": [row]} for name in names]
        return {"brokers": [{"node_id": 1, "host": host, "port": port}], "controller_id": 1, "topics": topics}

    def listed(self, _: Question) -> Any:
        known = _next(self.knows)
        if isinstance(known, ErrorCode):
            return {"error_code": known}
        row = {"transactional_id": "mover", "producer_id": PRODUCER, "transaction_state": "Ongoing"}
        return {"error_code": 0, "transaction_states": [row] if known else []}

    def find(self, question: Question) -> Any:
        host, port = self.peer.address
        return {"coordinators": [{"key": question.body.coordinator_keys[0], "node_id": 1, "host": host, "port": port}]}

    def describe(self, _: Question) -> Any:
        row = {"transactional_id": "mover", "producer_id": PRODUCER, "transaction_state": "Ongoing", "error_code": 0}
        return {"transaction_states": [{**row, "topics": [{"topic": "orders", "partitions": [0]}]}]}

    def producers(self, _: Question) -> Any:
        active = {"producer_id": PRODUCER, "producer_epoch": 0, "last_sequence": 0, "last_timestamp": 1, "coordinator_epoch": -1}
        row = {"partition_index": 0, "error_code": 0, "active_producers": [{**active, "current_txn_start_offset": 3}]}
        return {"topics": [{"name": "orders", "partitions": [row]}]}

    async def look(self, env: SimEnv) -> list[Hanging]:
        async with Client(env, [self.peer.address]) as client:
            deadline = client.router.deadline(None)
            return await hanging(client.router, await describe_producers(client.router, WHERE, deadline), deadline)


def _next(script: "deque[Any]") -> Any:
    return script.popleft() if len(script) > 1 else script[0]


def play(on_loop: OnLoop, *, epochs: Iterable[int] = (0,), knows: Iterable[bool | ErrorCode] = (False,)) -> tuple[list[Hanging], int]:
    """What was found, and how often the coordinators were asked for their lists."""

    async def whole(env: SimEnv) -> tuple[list[Hanging], int]:
        async with scripted_peer() as peer:
            node = Coordinators(peer, deque(epochs), deque(knows))
            return await node.look(env), len(peer.of(ApiKey.LIST_TRANSACTIONS))

    return on_loop(whole)


def test_what_nobody_knows_twice_hangs(on_loop: OnLoop) -> None:
    (found,), lists = play(on_loop)
    assert (found.producer.producer_id, found.producer.open_since, found.transactional_id, lists) == (PRODUCER, 3, None, 2)


def test_what_is_known_at_the_second_look_does_not_hang(on_loop: OnLoop) -> None:
    assert play(on_loop, knows=(False, True)) == ([], 2)


def test_where_the_coordinators_changed_meanwhile_it_begins_anew(on_loop: OnLoop) -> None:
    """It moved while it was asked: who led it before had let it go, and who leads it now had not taken it over."""
    assert play(on_loop, epochs=(0, 0, 1), knows=(False, False, True)) == ([], 3)


def test_a_coordinator_that_is_loading_is_waited_for(on_loop: OnLoop) -> None:
    assert play(on_loop, knows=(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, True)) == ([], 2)


@pytest.mark.parametrize("story", [{"knows": (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,)}, {"epochs": range(10_000)}], ids=["loads", "moves"])
def test_where_it_does_not_come_to_rest_nothing_is_told(on_loop: OnLoop, story: dict[str, Any]) -> None:
    with pytest.raises(CannotTell, match="nobody can tell now"):
        play(on_loop, **story)
