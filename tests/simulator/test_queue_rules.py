"""What the rules of queues must not call broken: each was blamed once in a world in which nothing was wrong (seeds 502038 and 700192).

That each rule catches what it is made for is shown by broken queues (test_queue_seeds.py).
"""

import pytest

from penstock.broker.queues.calls import Outcome, Verb
from penstock.simulator.places import Place
from penstock.simulator.queue_diary import Decree, DeliveryTold, QueueDiary, QueueTerms, SettleTold, wall_ms
from penstock.simulator.queue_rules import a_lease_is_one_workers, deliveries_are_counted

PLACE = Place("jobs", 0, 7)


def lent(diary: QueueDiary, lease: int, at: float, *, seconds: float, attempt: int = 1) -> DeliveryTold:
    decided_ms = wall_ms(at)
    diary.terms.setdefault("jobs", QueueTerms("jobs"))
    diary.deliveries.append(
        DeliveryTold(
            PLACE, lease, "an id", b"a job", attempt, decided_ms, decided_ms + int(seconds * 1_000), f"worker-{lease}", diary.take_begins(),
            at, at, {},
        )
    )  # fmt: skip
    return diary.deliveries[-1]


@pytest.mark.invariant("queues.one-holder")
@pytest.mark.parametrize("is_rewound", [True, False])
def test_one_who_had_a_message_earlier_may_finish_it_and_after_a_rewind_it_is_lent_again(is_rewound: bool) -> None:
    diary = QueueDiary()
    first = lent(diary, 1, 1_001.0, seconds=1)
    lent(diary, 2, 1_003.0, seconds=30)
    first.settled.append(SettleTold(Verb.DONE, None, 1_004.0, Outcome.OK, ended=1_004.1))
    if is_rewound:
        diary.decrees.append(Decree("jobs", "rewind", asked=1_005.0, ended=1_005.1))
    lent(diary, 3, 1_006.0, seconds=30)
    assert bool(list(a_lease_is_one_workers(diary))) is not is_rewound


@pytest.mark.invariant("queues.deliveries-counted")
@pytest.mark.parametrize("failed", [True, False])
def test_a_take_that_passes_over_a_log_that_failed_may_have_counted_a_delivery_that_nobody_saw(failed: bool) -> None:
    diary = QueueDiary()
    diary.logs_failed = failed
    lent(diary, 1, 1_001.0, seconds=1)
    lent(diary, 3, 1_010.0, seconds=1, attempt=3)
    assert bool(list(deliveries_are_counted(diary))) is not failed
