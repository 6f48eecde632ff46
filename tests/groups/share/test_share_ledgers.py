"""Where a share group has ledgers: recorded before they begin and until they are gone, and nobody comes between the halves of a change."""

from typing import Any

from groups.consumer.company import id_of
from groups.share.crew import NONE, Crew

from penstock.errors import ErrorCode
from penstock.groups.commands import BeginLedgers, EndLedgers, ForgetLedgers, ForgetLedgersOf, SweepLedger
from penstock.groups.replies import LedgersChanged, LedgerWord, TopicForgotten
from penstock.groups.share.changing import HELD_MS, SWEPT_MS
from penstock.groups.share.records import LedgersOf
from penstock.groups.states import GroupState
from penstock.vocabulary import TopicId

T = id_of("t")
LATER_SECONDS = HELD_MS / 1000 + 1


class Admins(Crew):
    def begin(self, topic: str = "t", *partitions: int, group: str = "g") -> LedgersChanged:
        return self._put(BeginLedgers, group=group, added=((id_of(topic), topic, partitions or (0,)),))

    def forget(self) -> LedgersChanged:
        return self._put(ForgetLedgers, group="g")

    def end(self, hold: int, *dropped: tuple[TopicId, int], is_over: bool = True) -> LedgersChanged:
        return self._put(EndLedgers, group="g", hold=hold, dropped=dropped, is_over=is_over)

    def topic_goes(self, topic: str) -> None:
        token = next(self._tokens)
        self.ask(ForgetLedgersOf(token=token, topic_id=id_of(topic)))
        self.read(token, TopicForgotten)

    def word(self, topic: str = "t", partition: int = 0, group: str = "g") -> LedgerWord:
        return self.coordinator.ledger_word(group, id_of(topic), partition, self.now)

    def sweep(self, topic: str, group: str = "g") -> LedgerWord:
        token = next(self._tokens)
        self.ask(SweepLedger(token=token, group=group, topic_id=id_of(topic), partition=0))
        return self.read(token, LedgerWord)

    def _put(self, command: Any, **said: Any) -> LedgersChanged:
        token = next(self._tokens)
        self.ask(command(token=token, **said))
        return self.read(token, LedgersChanged)


def test_a_leader_hears_of_ledgers_that_members_are_to_read() -> None:
    crew = Admins({"t": 2, "u": 1})
    assert crew.word() is LedgerWord.UNKNOWN
    crew.worker("ann", "t")
    assert [crew.word("t", each) for each in range(3)] == [LedgerWord.RECORDED, LedgerWord.RECORDED, LedgerWord.UNKNOWN]
    assert crew.word("u") is LedgerWord.UNKNOWN
    assert crew.word(group="h") is LedgerWord.UNKNOWN
    crew.restart()
    assert crew.word() is LedgerWord.RECORDED


def test_beginning_ledgers_makes_the_group() -> None:
    crew = Admins({"t": 1})
    begun = crew.begin()
    assert (begun.error, begun.ledgers, crew.word()) == (NONE, {}, LedgerWord.RECORDED)
    assert crew.end(begun.hold).error is NONE
    crew.restart()
    assert (crew.shared().state, crew.shared().ledgers) == (GroupState.EMPTY, {T: LedgersOf("t", (0,))})
    worker = crew.worker("ann")
    assert (worker.epoch, worker.has) == (2, [("t", 0)])


def test_a_name_that_another_kind_of_group_has_is_not_taken() -> None:
    crew = Admins({"t": 1})
    crew.member("cas", group="of consumers")
    assert crew.begin(group="of consumers").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert crew.begin(group=" ").error is ErrorCode.INVALID_GROUP_ID
    assert crew.begin(group="g" * 250).error is ErrorCode.INVALID_GROUP_ID


def test_where_none_began_none_is_recorded() -> None:
    crew = Admins({"t": 3})
    crew.end(crew.begin("t", 0).hold)
    begun = crew.begin("t", 1, 2)
    assert crew.end(begun.hold, (T, 2)).ledgers == {T: LedgersOf("t", (0, 1))}


def test_nobody_comes_between_while_ledgers_begin() -> None:
    crew = Admins({"t": 1})
    begun = crew.begin()
    refusals = crew.begin().error, crew.forget().error, crew.try_delete().error, crew.share("ann", 0, topics=("t",)).error
    assert refusals == (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * 4
    assert crew.end(begun.hold).error is NONE
    assert crew.share("ann", 0, topics=("t",)).error is NONE


def test_nobody_comes_between_while_a_group_is_deleted() -> None:
    crew = Admins({"t": 1, "u": 1})
    crew.worker("ann").leave()
    first = crew.try_delete()
    assert crew.begin("u").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert crew.share("ann", 0, topics=("t",)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert crew.word() is LedgerWord.GOING
    assert crew.try_delete(hold=first.hold).is_over
    assert crew.word() is LedgerWord.UNKNOWN
    assert crew.begin("u").error is NONE


def test_who_takes_too_long_between_the_halves_begins_again() -> None:
    crew = Admins({"t": 1})
    crew.worker("ann").leave()
    first = crew.try_delete()
    crew.wait(LATER_SECONDS)
    crew.worker("ann").leave()
    assert crew.try_delete(hold=first.hold).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    before = crew.forget()
    crew.restart()
    assert crew.end(before.hold, (T, 0)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE, "another coordinator knows nothing of it"
    assert crew.word() is LedgerWord.RECORDED


def test_a_second_try_need_not_wait_and_only_the_last_ends_it() -> None:
    crew = Admins({"t": 1})
    crew.worker("ann").leave()
    first, second = crew.try_delete(), crew.try_delete()
    assert crew.try_delete(hold=first.hold).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert crew.try_delete(hold=second.hold).is_over


def test_ledgers_are_recorded_until_they_are_forgotten() -> None:
    crew = Admins({"t": 2})
    crew.worker("ann").leave()
    before = crew.forget()
    assert (before.ledgers, crew.word()) == ({T: LedgersOf("t", (0, 1))}, LedgerWord.GOING)
    assert crew.end(before.hold, (T, 0), is_over=False).error is NONE
    assert crew.word("t", 1) is LedgerWord.GOING, "what becomes of this one nobody knows yet"
    crew.wait(LATER_SECONDS)
    assert (crew.word("t", 0), crew.word("t", 1)) == (LedgerWord.UNKNOWN, LedgerWord.RECORDED)


def test_ledgers_go_with_their_topic() -> None:
    crew = Admins({"t": 1, "u": 1})
    for name in ("g", "h"):
        assert crew.share("ann", 0, group=name, topics=("t", "u")).error is NONE
    assert crew.coordinator.has_ledgers_of(T)
    crew.topic_goes("t")
    assert not crew.coordinator.has_ledgers_of(T)
    assert crew.coordinator.ledger_topics() == [id_of("u")]
    crew.topic_goes("u")
    assert crew.shared().ledgers == {}


def test_a_ledger_that_nobody_is_to_have_is_swept_and_none_begins_meanwhile() -> None:
    crew = Admins({"t": 1, "u": 1})
    worker = crew.worker("ann")
    assert (crew.sweep("t"), crew.sweep("u")) == (LedgerWord.RECORDED, LedgerWord.GOING), "members may be about to read it"
    worker.leave()
    assert (crew.sweep("t"), crew.sweep("u")) == (LedgerWord.RECORDED, LedgerWord.UNKNOWN)
    assert crew.sweep("u") is LedgerWord.GOING, "somebody else is at it"
    refusals = crew.begin("u").error, crew.share("ann", 0, topics=("u",)).error
    assert refusals == (ErrorCode.COORDINATOR_NOT_AVAILABLE,) * 2
    crew.wait(SWEPT_MS / 1000 + 1)
    assert crew.share("ann", 0, topics=("u",)).error is NONE
    assert crew.shared().ledgers.keys() == {T, id_of("u")}


def test_a_sweep_is_recorded_so_that_a_replaced_coordinator_cannot_answer() -> None:
    crew = Admins({"t": 1})
    assert crew.sweep("t", group="nobody") is LedgerWord.UNKNOWN
    assert list(crew.log.values()) == [None]
    assert crew.coordinator.describe_share("nobody") is None
    assert crew.coordinator.held_bytes == 0
