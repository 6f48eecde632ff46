"""Deadlines and pauses."""

from random import Random

from penstock.peers.patience import TIMER_MIN_S, Backoff, Deadline
from penstock.vocabulary import Instant


class StillEnv:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.rng = Random(3)
        self.instant = 100.0

    def now(self) -> Instant:
        return Instant(self.instant)

    def wall_ms(self) -> int:
        return 0


def test_pauses_double_up_to_the_longest_each_within_a_fifth():
    backoff = Backoff(StillEnv(), first_s=0.1, longest_s=1.0)
    for expected in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0):
        assert 0.8 * expected <= backoff.pause_s() <= 1.2 * expected


def test_two_clients_do_not_come_back_together():
    env = StillEnv()
    assert Backoff(env, first_s=1.0).pause_s() != Backoff(env, first_s=1.0).pause_s()


def test_the_same_seed_gives_the_same_pauses():
    first, second = (Backoff(StillEnv()) for _ in range(2))
    assert [first.pause_s() for _ in range(9)] == [second.pause_s() for _ in range(9)]


def test_a_time_out_is_cut_to_what_is_left():
    env = StillEnv()
    deadline = Deadline(env, 10.0)
    assert deadline.cut(4.0) == 4.0
    env.instant += 8.0
    assert deadline.cut(4.0) == 2.0 and deadline.left_s() == 2.0
    env.instant += 8.0
    assert deadline.left_s() == 0.0
    assert deadline.cut(4.0) == TIMER_MIN_S, "no timer is shorter"
