"""What the node notes of its copies for the next start: lowered and forgotten durably before the call returns."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from log.bench import StillEnv, run

from penstock.broker.known_ends import KnownEnds
from penstock.errors import DiskFailed
from penstock.simulator.disk import SimDisk
from penstock.simulator.platter import Loss
from penstock.vocabulary import Offset, TopicId

pytestmark = pytest.mark.invariant("log.known-end")

ONE, OTHER = TopicId(b"a" * 16), TopicId(b"b" * 16)
HIGH, LOW, GONE = Offset(100), Offset(40), Offset(0)


def opened(disk: SimDisk) -> KnownEnds:
    ends = KnownEnds(StillEnv(disk))
    assert ends.load()
    return ends


async def noted(disk: SimDisk) -> KnownEnds:
    """Both copies are known to be whole up to a high offset."""
    disk.mkdir("node")
    await disk.sync((), [""])
    ends = opened(disk)
    ends.raise_to(ONE, 0, HIGH)
    ends.raise_to(OTHER, 0, HIGH)
    await ends.save()
    return ends


def after_a_power_cut(disk: SimDisk) -> KnownEnds:
    disk.power_cut(Loss.ALL)
    return opened(disk)


@pytest.mark.parametrize("second", ["forget", "lower"])
def test_a_second_caller_waits_until_the_write_of_the_first_is_durable(second: str) -> None:
    async def story() -> None:
        disk = SimDisk()
        ends = await noted(disk)
        first = asyncio.ensure_future(ends.lower(ONE, 0, GONE))
        await asyncio.sleep(0)
        await (ends.forget(ONE, 0) if second == "forget" else ends.lower(ONE, 0, LOW))
        assert opened(disk).of(ONE, 0) == 0
        await first
        assert after_a_power_cut(disk).of(ONE, 0) == 0

    run(story())


@pytest.mark.parametrize("work", ["forget", "lower"])
def test_what_is_raised_while_a_fall_waits_falls_again(work: str) -> None:
    """A round that notes known ends comes in between, and the copy is still open."""

    async def story() -> None:
        disk = SimDisk()
        ends = await noted(disk)
        falling: Coroutine[Any, Any, None] = ends.forget(OTHER, 0) if work == "forget" else ends.lower(OTHER, 0, LOW)
        both = [asyncio.ensure_future(ends.forget(ONE, 0)), asyncio.ensure_future(falling)]
        await asyncio.sleep(0)
        ends.raise_to(OTHER, 0, HIGH)
        await asyncio.gather(*both)
        expected = GONE if work == "forget" else LOW
        assert ends.of(OTHER, 0) == expected
        assert after_a_power_cut(disk).of(OTHER, 0) == expected

    run(story())


def test_a_fall_that_failed_is_not_taken_for_done() -> None:
    async def story() -> None:
        disk = SimDisk()
        ends = await noted(disk)
        for _ in range(2):
            disk.fail_next_flush()
            with pytest.raises(DiskFailed):
                await ends.lower(ONE, 0, LOW)
        await ends.lower(ONE, 0, LOW)
        assert after_a_power_cut(disk).of(ONE, 0) == LOW

    run(story())


def test_a_full_disk_keeps_no_claim_that_must_fall() -> None:
    async def story() -> None:
        disk = SimDisk()
        ends = await noted(disk)
        disk.capacity_bytes = 1
        await ends.lower(ONE, 0, LOW)
        assert opened(disk).of(ONE, 0) == opened(disk).of(OTHER, 0) == 0
        disk.pacify()
        await ends.save()
        assert (opened(disk).of(ONE, 0), opened(disk).of(OTHER, 0)) == (LOW, HIGH)

    run(story())
