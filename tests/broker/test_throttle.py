"""Replicas that catch up leave room for others."""

from penstock.broker.throttle import Throttle
from penstock.settings import NodeSettings
from penstock.vocabulary import Instant


def test_whoever_took_bytes_waits_until_the_rate_has_paid_for_them() -> None:
    throttle = Throttle()
    assert throttle.took(500, 1_000, Instant(10.0)) == 0.5
    assert throttle.took(500, 1_000, Instant(10.0)) == 1.0, "all of them share one rate"
    assert throttle.took(1_000, 1_000, Instant(20.0)) == 1.0, "what was not used is not saved up"


def test_without_a_rate_nobody_waits() -> None:
    assert Throttle().took(1 << 30, 0, Instant(0.0)) == 0.0


def test_a_rate_that_is_raised_or_lifted_holds_for_what_is_owed_already() -> None:
    throttle = Throttle()
    assert throttle.took(1_000, 1, Instant(0.0)) == 1_000.0
    assert throttle.seconds_left(1, Instant(100.0)) == 900.0
    assert throttle.seconds_left(100, Instant(100.0)) == 9.0
    assert throttle.seconds_left(0, Instant(100.0)) == 0.0
    assert throttle.seconds_left(1, Instant(100.0)) == 0.0, "and nothing is owed any more"


def test_the_smaller_of_our_rate_and_kafkas_holds() -> None:
    assert NodeSettings().catch_up_rate == 0
    assert NodeSettings(replication_throttle=5).catch_up_rate == 5
    assert NodeSettings(follower_throttle=7).catch_up_rate == 7
    assert NodeSettings(replication_throttle=5, follower_throttle=7).catch_up_rate == 5
