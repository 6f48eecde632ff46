"""How the tests of deadlines tell a machine that stalled from a product that was late."""

from client.client_side import Stalled

SPAN_S = 0.6


def measured(*, late_s: float = 0.0, flush_s: float = 0.001, looks: int = 100) -> Stalled:
    return Stalled([late_s] * looks, [flush_s] * looks)


def test_an_idle_machine_and_a_disk_that_is_always_a_little_slow_explain_nothing():
    assert not measured().may_explain(SPAN_S)
    assert not measured(flush_s=0.05).may_explain(SPAN_S)


def test_late_wake_ups_and_a_flush_that_takes_longer_than_usual_explain_what_was_late():
    assert measured(late_s=0.02).may_explain(SPAN_S)
    for unusual in (Stalled([0.0], [0.3]), Stalled([0.3], [0.0])):
        stalled = measured()
        stalled.late_s += unusual.late_s
        stalled.flush_s += unusual.flush_s
        assert stalled.may_explain(SPAN_S)
        assert not stalled.may_explain(2 * SPAN_S)


def test_a_disk_that_needs_much_of_the_span_for_each_flush_explains_what_was_late_until_the_span_is_long():
    stalled = measured(flush_s=0.1)
    assert stalled.may_explain(SPAN_S)
    assert not stalled.may_explain(2 * SPAN_S)
