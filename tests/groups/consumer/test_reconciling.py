"""The member's state table of KIP-848, row by row."""

from typing import NamedTuple

import pytest

from penstock.groups.consumer.partitions import NOTHING, Partitions, gathered
from penstock.groups.consumer.reconciling import reconciled
from penstock.groups.consumer.records import CurrentAssigned, MemberState
from penstock.vocabulary import TopicId

pytestmark = pytest.mark.invariant("groups.consumer-one-owner")

T = TopicId(b"t" * 16)
STABLE, UNREVOKED, UNRELEASED = MemberState.STABLE, MemberState.UNREVOKED, MemberState.UNRELEASED
SILENT = None


class Stand(NamedTuple):
    state: MemberState
    epoch: int
    assigned: tuple[int, ...] = ()
    revoking: tuple[int, ...] = ()


class Row(NamedTuple):
    why: str
    before: Stand
    target: tuple[int, ...]  # Of epoch 5.
    owned: tuple[int, ...] | None
    taken: tuple[int, ...]  # By others.
    after: Stand


ROWS = [
    Row("it has what it shall have", Stand(STABLE, 5, (0, 1)), (0, 1), SILENT, (), Stand(STABLE, 5, (0, 1))),
    Row("only the epoch is another", Stand(STABLE, 4, (0, 1)), (0, 1), SILENT, (), Stand(STABLE, 5, (0, 1))),
    Row("it gets what is free", Stand(STABLE, 4, (0,)), (0, 1, 2), SILENT, (), Stand(STABLE, 5, (0, 1, 2))),
    Row("it waits for what another has", Stand(STABLE, 4, (0,)), (0, 1, 2), SILENT, (2,), Stand(UNRELEASED, 5, (0, 1))),
    Row("all of it is another's", Stand(STABLE, 4), (1,), SILENT, (1,), Stand(UNRELEASED, 5)),
    Row("it is told to give up first", Stand(STABLE, 4, (0, 1)), (1, 2), SILENT, (), Stand(UNREVOKED, 4, (1,), (0,))),
    Row("it has given up unasked", Stand(STABLE, 4, (0, 1)), (1, 2), (1,), (), Stand(STABLE, 5, (1, 2))),
    Row("it doesn't say", Stand(UNREVOKED, 4, (1,), (0,)), (1, 2), SILENT, (), Stand(UNREVOKED, 4, (1,), (0,))),
    Row("it still has it", Stand(UNREVOKED, 4, (1,), (0,)), (1, 2), (0, 1), (), Stand(UNREVOKED, 4, (1,), (0,))),
    Row("it has given up", Stand(UNREVOKED, 4, (1,), (0,)), (1, 2), (1,), (), Stand(STABLE, 5, (1, 2))),
    Row("and waits for another", Stand(UNREVOKED, 4, (1,), (0,)), (1, 2), (1,), (2,), Stand(UNRELEASED, 5, (1,))),
    Row("and must give up more", Stand(UNREVOKED, 3, (1, 2), (0,)), (2,), (1, 2), (), Stand(UNREVOKED, 4, (2,), (1,))),
    Row("what it gave up is its own again", Stand(UNREVOKED, 4, (1,), (0,)), (0, 1), (1,), (), Stand(STABLE, 5, (0, 1))),
    Row("what it waited for is free", Stand(UNRELEASED, 5, (0,)), (0, 1), SILENT, (), Stand(STABLE, 5, (0, 1))),
    Row("it is not free yet", Stand(UNRELEASED, 5, (0,)), (0, 1), SILENT, (1,), Stand(UNRELEASED, 5, (0,))),
    Row("there is another target meanwhile", Stand(UNRELEASED, 4, (0,)), (2,), SILENT, (), Stand(UNREVOKED, 4, (), (0,))),
    Row("it shall have nothing", Stand(STABLE, 4, (0,)), (), (), (), Stand(STABLE, 5)),
]


def partitions(numbers: tuple[int, ...] | None) -> Partitions | None:
    return None if numbers is None else gathered([(T, numbers)])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.why)
def test_each_row_of_the_table(row: Row) -> None:
    state, epoch, assigned, revoking = row.before
    before = CurrentAssigned(
        group="g", member_id="m", epoch=epoch, previous_epoch=epoch - 1, state=state, assigned=partitions(assigned) or NOTHING,
        revoking=partitions(revoking) or NOTHING,
    )  # fmt: skip
    after = reconciled(before, 5, partitions(row.target) or NOTHING, partitions(row.owned), lambda _, number: number not in row.taken)
    assert (after.state, after.epoch, after.assigned.get(T, ()), after.revoking.get(T, ())) == row.after
    assert after.previous_epoch == (epoch - 1 if after.epoch == epoch else epoch), "what an answer that got lost would have told"


def test_whoever_reads_less_gives_up_before_there_is_another_target() -> None:
    before = CurrentAssigned(group="g", member_id="m", epoch=5, previous_epoch=4, assigned={T: (0, 1)})
    after = reconciled(before, 5, {T: (0,)}, {T: (0, 1)}, lambda *_: True, reads_less=True)
    assert (after.state, after.epoch, after.revoking) == (UNREVOKED, 5, {T: (1,)})
