"""Fetch sessions under everything at once: a consumer that follows the rules misses nothing and hears of nothing that it did not name."""

import random
from typing import Any

import pytest
from consuming import Consumer
from serving import Serving, records_in
from tiers import pick

ALL_LOOPS = True


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=2, slow=4)))
async def test_whatever_a_consumer_asks_it_reads_everything_once_and_hears_only_of_what_it_named(serving: Serving, seed: int) -> None:
    """Small limits, many waits, partitions that join and leave, data that is cold: a consumer that follows the rules misses nothing."""
    rng = random.Random(seed)
    await serving.open()
    line, writer = await serving.line(), await serving.line()
    topics = {name: await writer.create(name, 4, segment_bytes=2_000) for name in ("a", "b")}
    version = rng.choice([7, 11, 12, 13, 18])
    places: list[tuple[str | bytes, str, int]] = [
        (topics[name] if version >= 13 else name, name, index) for name in topics for index in range(4)
    ]
    written: dict[tuple[str, int], int] = dict.fromkeys(((name, index) for _, name, index in places), 0)
    offsets: dict[tuple[Any, int], int] = {(topic, index): 0 for topic, _, index in places}
    named: set[tuple[Any, int]] = set()
    consumer = Consumer(line, version=version)

    def wishes(chosen: list[tuple[Any, int]]) -> dict[Any, dict[int, int]]:
        asked: dict[Any, dict[int, int]] = {}
        for topic, index in chosen:
            asked.setdefault(topic, {})[index] = offsets[topic, index]
        return asked

    async def write_some() -> None:
        for _ in range(rng.randrange(4)):
            _, name, index = rng.choice(places)
            values = [b"%d" % (written[name, index] + step) for step in range(rng.randrange(1, 4))]
            await writer.produce(name, *[value.ljust(rng.randrange(1, 400)) for value in values], partition=index)
            written[name, index] += len(values)

    def take(rows: dict[tuple[Any, int], Any]) -> list[tuple[Any, int]]:
        assert set(rows) <= named
        moved = []
        for place, row in rows.items():
            assert row.error_code == 0
            records = [record for record in records_in(row.records) if record.offset >= offsets[place]]
            for record in records:
                assert record.offset == offsets[place], "in order, without a gap"
                assert int((record.value or b"").split()[0]) == record.offset
                offsets[place] += 1
            if records:
                moved.append(place)
        return moved

    moved: list[tuple[Any, int]] = []
    for step in range(150):
        await write_some()
        serving.env.disk.is_cold = rng.random() < 0.3
        if step and rng.random() < 0.04:
            consumer.session_id, consumer.epoch, named, moved = 0, 0, set(), []  # As after a new connection.
        others = [place for place in offsets if place not in named]
        joining = rng.sample(others, rng.randrange(len(others) + 1)) if others and (step == 0 or rng.random() < 0.5) else []
        leaving = [place for place in named if rng.random() < 0.05 and place not in moved] if consumer.epoch else []
        named = (named | set(joining)) - set(leaving)
        if not consumer.epoch and not named:
            continue
        options = {
            "max_bytes": rng.choice([1, 300, 1_000, 1 << 20]),
            "partition_max_bytes": rng.choice([1, 300, 1_000, 1 << 20]),
            "min_bytes": rng.choice([0, 1, 1, 500]),
            "max_wait_ms": rng.choice([0, 1, 5]),
        }
        forgotten: dict[Any, list[int]] = {}
        for topic, index in leaving:
            forgotten.setdefault(topic, []).append(index)
        asked = wishes([*named] if not consumer.epoch else [*moved, *joining])
        moved = [place for place in take(await consumer.fetch(asked, forgotten=forgotten, **options)) if place in named]
    missing = [place for place in offsets if place not in named]
    named |= set(missing)
    for round_left in range(200, 0, -1):
        if all(offsets[topic, index] == written[name, index] for topic, name, index in places):
            break
        moved = take(await consumer.fetch(wishes([*moved, *(missing if round_left == 200 else [])]), max_bytes=1_000))
    assert {(name, index): offsets[topic, index] for topic, name, index in places} == written
