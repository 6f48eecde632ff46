"""Members of one group are killed and started at random while records come in: each is read at least once, and nothing goes back.

Members of all libraries in one group, so that each must live with the others' manners. PENSTOCK_ROUNDS sets how many blows fall.
Checked at the end, from what the node itself has recorded: no generation gave a partition to two members, and committed offsets never
went back. And from what the members told: every acknowledged record was read.
"""

import os
import random
from contextlib import ExitStack
from pathlib import Path

import pytest
from compatibility.group_log import PARTITIONS as OFFSETS_PARTITIONS
from compatibility.group_log import read_history
from compatibility.workers import LIBRARIES, Worker
from confluent_kafka import ConsumerGroupTopicPartitions
from system.diary import writing
from system.harness import Node
from system.librdkafka import SECONDS_MAX, admin, make_topic, unique, watermarks
from tiers import pick
from waiting import pause_at_random, until

pytestmark = pytest.mark.paired

ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", str(pick(test=5, slow=8))))
SOAK_ROUNDS = int(os.environ.get("PENSTOCK_ROUNDS", "200"))
MEMBERS = 3
PARTITIONS = 6
RECORDS_A_ROUND = 50
SETTINGS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "offsets.topic.num.partitions": OFFSETS_PARTITIONS,
}
SESSION_MS = 1_500  # Killed members are soon missed. One that lives and is too slow for it joins again, as in production.
rounds_of = pytest.mark.parametrize("rounds", [ROUNDS, pytest.param(SOAK_ROUNDS, marks=[pytest.mark.soak, pytest.mark.timeout(3_600)])])


def committed(bootstrap: str, group: str) -> dict[int, int]:
    found = admin(bootstrap).list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(SECONDS_MAX)
    return {one.partition: one.offset for one in found.topic_partitions}


ONLY_MEMBERS = pytest.mark.slow(stays="tests/compatibility/test_group_kills.py::test_killed_members_lose_nothing_and_share_nothing")


@pytest.mark.invariant("groups.killed-members-lose-nothing")
@pytest.mark.repeats
@rounds_of
@pytest.mark.parametrize(
    "also_the_node", [pytest.param(True, id="members-and-node"), pytest.param(False, id="members", marks=ONLY_MEMBERS)]
)
def test_killed_members_lose_nothing_and_share_nothing(tmp_path: Path, rounds: int, also_the_node: bool) -> None:
    rng = random.Random(rounds)
    group = unique("killed")
    with ExitStack() as stack:
        node = stack.enter_context(Node(tmp_path / "data", settings=SETTINGS))
        topic = make_topic(node.bootstrap, "load", PARTITIONS)
        everybody: list[Worker] = []

        def enter() -> Worker:
            worker = Worker(rng.choice(LIBRARIES), node.bootstrap, group, topic, session_ms=SESSION_MS)
            everybody.append(stack.enter_context(worker))
            return worker

        alive = [enter() for _ in range(MEMBERS)]
        with writing(node.bootstrap, topic, PARTITIONS, writer="w", is_idempotent=True, per_second=500) as diary:
            for number in range(rounds):
                diary.wait_for_more(RECORDS_A_ROUND)
                pause_at_random(rng, 0.1, 1.0)
                if also_the_node and number % 5 == 4:
                    node.kill()
                    node.start()
                    continue
                victim = alive.pop(rng.randrange(len(alive)))
                if rng.random() < 0.7:
                    victim.kill()
                else:
                    victim.stop()
                alive.append(enter())
        ends = {partition: watermarks(node.bootstrap, topic, partition)[1] for partition in range(PARTITIONS)}
        until(lambda: committed(node.bootstrap, group) == ends, f"everything is committed: {ends}")
        for worker in alive:
            worker.stop()
        history = read_history(node.bootstrap, group)
        history.check()
        assert len(history.generations) > rounds // 4
        read = {place for worker in everybody for place in worker.places()}
        missed = sorted(set(diary.acknowledged) - read)
        assert missed == [], f"{len(missed)} of {len(diary.acknowledged)} acknowledged records were never read"
        assert node.complaints() == []
