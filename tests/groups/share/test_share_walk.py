"""Members come, go, change their minds and are forgotten, topics come and grow, the node restarts: at rest everything is shared out."""

import random

import pytest
from groups.share.crew import NONE, Crew, Worker

from penstock.errors import ErrorCode
from penstock.groups.consumer.partitions import each

TOPICS = ("a", "b", "c")


class Walk:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.crew = Crew({"a": 1, "b": 3})
        self.workers: dict[str, Worker] = {}
        self.epochs: dict[str, int] = {}

    def step(self) -> None:
        rng, crew = self.rng, self.crew
        match rng.randrange(10):
            case 0 | 1 | 2:
                name = f"w{rng.randrange(6)}"
                worker = self.workers[name] = Worker(crew, name, tuple(rng.sample(TOPICS, rng.randint(1, 3))))
                assert worker.join() is NONE
            case 3 if self.workers:
                name = rng.choice(list(self.workers))
                assert self.workers.pop(name).leave() is NONE
            case 4:
                shape = crew.topics.shapes.get("c")
                crew.make("c", 1 if shape is None else shape.partition_count + 1)
            case 5:
                crew.restart()
            case 6 if self.workers:
                del self.workers[rng.choice(list(self.workers))]  # It dies, and nobody hears of it for a while.
            case 7:
                for _ in range(12):
                    crew.wait(5)
                    self.beat_all()
            case _:
                for worker in list(self.workers.values())[: rng.randint(0, 6)]:
                    assert worker.beat() is NONE

    def beat_all(self) -> None:
        for worker in self.workers.values():
            assert worker.beat() is NONE

    def check(self) -> None:
        """Whoever is gone has lapsed, and everybody was heard of twice since."""
        for _ in range(12):
            self.crew.wait(5)
            self.beat_all()
        view = self.crew.coordinator.describe_share("g")
        if view is None:
            assert not self.workers
            return
        assert [member.member.member_id for member in view.members] == sorted(self.workers)
        assert view.epoch >= self.epochs.get("g", 0)
        self.epochs["g"] = view.epoch
        given: set[tuple[str, int]] = set()
        for worker in self.workers.values():
            assert worker.epoch == view.epoch == view.assignment_epoch
            assert {topic for topic, _ in worker.has} <= set(worker.topics)
            given |= set(worker.has)
        shapes = self.crew.topics.shapes
        read = {topic for worker in self.workers.values() for topic in worker.topics if topic in shapes}
        assert given == {(topic, number) for topic in read for number in range(shapes[topic].partition_count)}
        known = {(row.topic, number) for row in view.ledgers.values() for number in row.partitions}
        assert given <= known
        for member in view.members:
            assert set(each(member.assigned)) == set(each(self.workers[member.member.member_id].told))


@pytest.mark.parametrize("seed", range(20))
def test_a_walk_ends_with_everything_shared_out(seed: int) -> None:
    walk = Walk(seed)
    for _ in range(4):
        for _ in range(15):
            walk.step()
        walk.check()
    for worker in walk.workers.values():
        assert worker.leave() is NONE
    walk.workers.clear()
    walk.crew.restart()
    walk.check()
    first = walk.crew.try_delete()
    assert first.error in (NONE, ErrorCode.GROUP_ID_NOT_FOUND)
    if not first.is_over:
        assert walk.crew.try_delete(hold=first.hold).is_over
    assert walk.crew.coordinator.held_bytes == 0
