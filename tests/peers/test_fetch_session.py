"""What is said to a node in a fetch session, and what is left unsaid."""

from penstock.errors import ErrorCode
from penstock.peers.fetch_session import EPOCH_END, FetchSession, FetchWish
from penstock.vocabulary import TopicId, TopicPartition

ID = TopicId(b"\x01" * 16)


def wish(partition: int, offset: int, topic_id: TopicId = ID) -> FetchWish:
    return FetchWish(TopicPartition("t", partition), topic_id, offset)


def opened(*wishes: FetchWish) -> FetchSession:
    session = FetchSession()
    session.accept(session.plan(wishes), 5)
    return session


def test_the_first_fetch_names_everything_and_asks_for_a_session():
    plan = FetchSession().plan([wish(0, 0), wish(1, 0)])
    assert (plan.session_id, plan.session_epoch, len(plan.ask), len(plan.forget)) == (0, 0, 2, 0)


def test_a_later_fetch_names_only_what_changed():
    session = opened(wish(0, 0), wish(1, 0), wish(2, 0))
    plan = session.plan([wish(0, 0), wish(1, 9), wish(3, 0)])
    assert (plan.session_id, plan.session_epoch) == (5, 1)
    assert plan.ask == [wish(1, 9), wish(3, 0)]
    assert plan.forget == [wish(2, 0)]
    session.accept(plan, 5)
    assert session.plan([wish(0, 0), wish(1, 9), wish(3, 0)]) == (5, 2, [], [])


def test_a_plan_that_was_not_answered_changes_nothing():
    session = opened(wish(0, 0))
    first, again = session.plan([wish(0, 7)]), session.plan([wish(0, 7)])
    assert first == again


def test_a_topic_made_again_is_forgotten_under_its_old_id_and_named_under_its_new_one():
    session = opened(wish(0, 5))
    fresh = wish(0, 0, TopicId(b"\x02" * 16))
    plan = session.plan([fresh])
    assert plan.ask == [fresh] and plan.forget == [wish(0, 5)]
    session.accept(plan, 5)
    assert session.plan([fresh]).ask == []


def test_a_node_without_sessions_is_asked_in_full_each_time():
    session = FetchSession()
    session.accept(session.plan([wish(0, 0)]), 0)
    assert session.plan([wish(0, 0)]) == (0, 0, [wish(0, 0)], ())
    assert not session.is_open


def test_after_a_lost_answer_a_new_session_is_opened_and_the_old_one_let_go():
    session = opened(wish(0, 0))
    session.restart()
    assert session.plan([wish(0, 0)]) == (5, 0, [wish(0, 0)], ())


def test_a_session_that_the_node_forgot_is_not_named_again():
    session = opened(wish(0, 0))
    session.restart(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
    assert session.plan([wish(0, 0)]).session_id == 0


def test_a_new_session_holds_nothing_of_the_old_one():
    session = opened(wish(0, 0), wish(1, 0))
    session.restart()
    session.accept(session.plan([wish(0, 0)]), 6)
    assert session.plan([wish(0, 0)]) == (6, 1, [], [])


def test_epochs_start_over_at_one():
    session = opened(wish(0, 0))
    session._epoch = EPOCH_END
    session.accept(session.plan([wish(0, 0)]), 5)
    assert session.plan([wish(0, 0)]).session_epoch == 1
