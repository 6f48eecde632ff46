"""A coordinator that comes late to what time has caused, because its node was busy or paused, finds several things due at once."""

from groups.consumer.company import Company, settle

from penstock.errors import ErrorCode

NONE = ErrorCode.NONE


def test_a_member_that_goes_while_an_assignment_is_due_gets_nothing_in_it() -> None:
    """Both fell due before the coordinator came to it: the assignment must be made of those who are left."""
    company = Company({"t": 2}, group_consumer_assignment_interval_ms=1_000)
    company.member("silent")
    company.wait(44.4)
    second = company.member("second")
    company.wait(0.5)
    third = company.member("third")
    assert second.beat() is NONE
    company.sizes.clear()
    company._pass_to(company.now + 0.6)  # The session of the first is over by now, and the assignment for the third is due.
    company.wait(0.0)
    company.wait(2.0)
    assert sum(company.sizes) < 10, "what is due is done once"
    settle(second, third)
    assert sorted(second.has + third.has) == [("t", 0), ("t", 1)]

