"""When a group is assigned, by whom, and what subscriptions and topics have to do with it."""

from groups.consumer.company import NONE, Company, id_of, settle

from penstock.groups.consumer.records import MemberState
from penstock.groups.states import GroupState


def test_members_that_come_together_are_assigned_together() -> None:
    """The first is assigned at once, the others a second later, in one go; they are called back then."""
    company = Company({"t": 4}, group_consumer_assignment_interval_ms=1_000)
    first = company.member("a")
    company.wait(0.25)
    reply = company.say_join("b")
    assert (reply.error, reply.member_epoch, reply.assignment, reply.heartbeat_interval_ms) == (NONE, 1, {}, 750)
    assert company.say_join("c").error is NONE
    assert (company.view().state, company.view().epoch, company.view().assignment_epoch) == (GroupState.ASSIGNING, 3, 1)
    assert first.beat() is NONE and len(first.has) == 4
    company.wait(0.75)
    assert (company.view().state, company.view().assignment_epoch) == (GroupState.RECONCILING, 3)


def test_whoever_waits_for_what_another_lets_go_of_is_called_back_soon() -> None:
    """Nobody reads it meanwhile. Whoever gives up has no hurry: it reads on until it hears of it."""
    company = Company({"t": 2})
    first = company.member("a")
    assert company.say_join("b").heartbeat_interval_ms == 500
    assert company.say("a", 1).heartbeat_interval_ms == 5_000
    assert company.say("b", 2).heartbeat_interval_ms == 500
    assert first.beat() is NONE and first.beat() is NONE and len(first.has) == 1
    reply = company.say("b", 2)
    assert (len(reply.assignment or {}), reply.heartbeat_interval_ms) == (1, 5_000)


def test_a_group_that_waits_for_its_assignment_gets_it_after_a_restart() -> None:
    company = Company({"t": 4}, group_consumer_assignment_interval_ms=1_000)
    first = company.member("a")
    second = company.member("b")
    company.restart()
    company.wait(0)
    settle(first, second)
    assert len(first.has) == len(second.has) == 2


def test_an_assignment_that_cannot_be_stored_is_tried_again_but_not_all_the_time() -> None:
    company = Company({"t": 2})
    first, second = company.member("a"), company.member("b")
    settle(first, second)
    second.leave()
    company.is_disk_full = True
    company.sizes.clear()
    company.wait(11)
    assert 1 <= sum(map(bool, company.sizes)) <= 3
    company.is_disk_full = False
    company.wait(5)
    assert company.view().assignment_epoch == company.view().epoch


def test_whoever_stops_reading_a_topic_gives_it_up_before_the_others_are_assigned() -> None:
    company = Company({"t": 1, "u": 1}, group_consumer_assignment_interval_ms=1_000)
    client = company.member("a", "t", "u")
    reply = company.say("a", 1, topics=("u",), owned=client.owned)
    assert reply.assignment == {id_of("u"): (0,)}
    assert company.coordinator._image.consumers.groups["g"].current("a").state is MemberState.UNREVOKED


def test_a_changed_subscription_is_assigned_anew() -> None:
    company = Company({"t": 2, "u": 2})
    first, second = company.member("a", "t"), company.member("b", "t", "u")
    settle(first, second)
    assert sorted(first.has + second.has) == [("t", 0), ("t", 1), ("u", 0), ("u", 1)]
    reply = company.say("a", first.epoch, topics=("u",), owned=first.owned)
    assert reply.assignment == {}
    first.epoch, first.told = reply.member_epoch, reply.assignment
    first.obey()
    settle(first, second)
    assert {topic for topic, _ in first.has} <= {"u"}
    assert sorted(first.has + second.has) == [("t", 0), ("t", 1), ("u", 0), ("u", 1)]


def test_topics_that_come_go_and_grow_are_noticed_by_the_next_heartbeat() -> None:
    company = Company({})
    client = company.member("a", "t")
    assert client.has == []
    company.make("t", 1)
    settle(client)
    assert client.has == [("t", 0)]
    company.make("t", 3)
    settle(client)
    assert client.has == [("t", 0), ("t", 1), ("t", 2)]
    company.make("other", 5)
    epoch = company.view().epoch
    settle(client)
    assert company.view().epoch == epoch, "what nobody reads concerns nobody"
    company.delete("t")
    settle(client)
    assert client.owned == {}
    company.make("t", 2, life=1)
    settle(client)
    assert client.owned == {id_of("t", 1): (0, 1)}, "another topic of that name is another topic"


def test_a_topic_that_grew_while_nobody_coordinated_is_noticed() -> None:
    company = Company({"t": 1})
    client = company.member("a")
    company.make("t", 2)
    company.restart()
    settle(client)
    assert client.has == [("t", 0), ("t", 1)]


def test_patterns_are_read_as_the_topics_that_they_match() -> None:
    company = Company({"logs-a": 1, "logs-b": 1, "other": 1})
    client = company.member("a", "other", regex="logs-[ab]")
    assert client.has == [("logs-a", 0), ("logs-b", 0), ("other", 0)]
    company.make("logs-ab", 1)
    epoch = company.view().epoch
    settle(client)
    assert company.view().epoch == epoch, "a pattern matches a name as a whole"
    reply = company.say("a", client.epoch, regex="", owned=client.owned)
    assert reply.error is NONE
    client.told = reply.assignment or {}
    client.obey()
    settle(client)
    assert client.has == [("other", 0)]


def test_the_assignor_that_most_ask_for_is_taken() -> None:
    company = Company({"t": 3})
    company.member("a")
    assert company.view().assignor == "uniform"
    company.member("b", assignor="range")
    assert company.view().assignor == "range"
    company.member("c", assignor="uniform")
    assert company.view().assignor == "uniform", "as many ask for either; the node names this one first"
