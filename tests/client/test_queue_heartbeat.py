"""The heartbeat of a lease in virtual time: how often it beats, what it survives, and when it ends."""

import asyncio

import pytest
from serving import virtually

from penstock.client.queues.failures import LeaseLost, NotAvailable, QueueError
from penstock.client.queues.heartbeat import LONGEST_SECONDS, Heartbeat

LEASES_S = [0.6, 5.0, 30.0, 3_600.0]


class Lease:
    """A lease at a node: it lasts for so long from now on each time it is extended, and an extension that comes too late finds it lost."""

    def __init__(self, lease_s: float, answers: dict[int, QueueError] | None = None) -> None:
        self.is_held = True
        self.beats_at: list[float] = []  # In leases since it was given.
        self._lease_s = lease_s
        self._answers = answers or {}  # Of the node to some of the beats, instead of an extension.
        self._loop = asyncio.get_running_loop()
        self._given_at = self._loop.time()
        self._end = self._loop.call_later(lease_s, self._lapse)

    async def extend(self) -> None:
        self.beats_at.append((self._loop.time() - self._given_at) / self._lease_s)
        if not self.is_held:
            raise LeaseLost("the lease has lapsed", "", "lost")
        if len(self.beats_at) in self._answers:
            raise self._answers[len(self.beats_at)]
        self._end.cancel()
        self._end = self._loop.call_later(self._lease_s, self._lapse)

    def _lapse(self) -> None:
        self.is_held = False


def not_now() -> NotAvailable:
    return NotAvailable("no leader", "", "not_available")


@pytest.mark.parametrize("lease_s", LEASES_S)
def test_it_beats_three_times_in_each_lease(lease_s: float):
    async def story(*_: object) -> None:
        lease = Lease(lease_s)
        heartbeat = Heartbeat(lease.extend, lease_s, "message 1")
        heartbeat.start()
        await asyncio.sleep(3.1 * lease_s)
        await heartbeat.stop()
        assert lease.beats_at == pytest.approx([number / 3 for number in range(1, 10)])

    virtually(story)


@pytest.mark.parametrize("lease_s", LEASES_S)
def test_a_beat_that_does_not_get_through_loses_no_lease(lease_s: float):
    async def story(*_: object) -> None:
        lease = Lease(lease_s, {number: not_now() for number in (1, 4, 6)})
        heartbeat = Heartbeat(lease.extend, lease_s, "message 1")
        heartbeat.start()
        for _ in range(50):
            await asyncio.sleep(lease_s / 10)
            assert lease.is_held
        await heartbeat.stop()

    virtually(story)


def test_it_ends_when_the_lease_is_lost():
    async def story(*_: object) -> None:
        lease = Lease(30.0, {2: LeaseLost("it was taken away", "", "lost")})
        heartbeat = Heartbeat(lease.extend, 30.0, "message 1")
        heartbeat.start()
        await asyncio.sleep(300.0)
        assert len(lease.beats_at) == 2
        await heartbeat.stop()

    virtually(story)


def test_no_beat_is_under_way_when_it_has_stopped():
    async def story(*_: object) -> None:
        is_under_way = False

        async def extend_slowly() -> None:
            nonlocal is_under_way
            is_under_way = True
            try:
                await asyncio.sleep(5.0)
            finally:
                is_under_way = False

        heartbeat = Heartbeat(extend_slowly, 30.0, "message 1")
        heartbeat.start()
        await asyncio.sleep(12.0)
        assert is_under_way
        await heartbeat.stop()
        assert not is_under_way
        await asyncio.sleep(100.0)
        assert not is_under_way

    virtually(story)


def test_a_worker_that_hangs_gives_its_message_up_at_last():
    async def story(*_: object) -> None:
        lease = Lease(3_600.0)
        heartbeat = Heartbeat(lease.extend, 3_600.0, "message 1")
        heartbeat.start()
        await asyncio.sleep(LONGEST_SECONDS)
        assert lease.is_held
        await asyncio.sleep(2 * 3_600.0)
        assert not lease.is_held
        assert lease.beats_at[-1] * 3_600.0 == pytest.approx(LONGEST_SECONDS)
        await heartbeat.stop()

    virtually(story)
