"""Nodes tell and ask each other in virtual time, over roads that break."""

import asyncio
from itertools import pairwise

import pytest
from links.scene import ONE, THREE, TWO, Table

from penstock.links.channel import UNSENT_BYTES_HIGH
from penstock.links.door import Asked
from penstock.links.failures import AskTimedOut, LinkLost, NotUnderstood
from penstock.links.frames import Form, front
from penstock.links.kinds import Kind, Lane
from penstock.links.link import ASKS_MAX, QUEUE_BYTES_MAX
from penstock.links.links import Links
from penstock.simulator.links import LinkQuality


def test_a_question_is_answered_and_a_word_arrives() -> None:
    with Table() as table:
        assert table.ask(ONE, TWO, b"who is there?") == b"echo who is there?"
        table.tell(ONE, TWO, b"good morning")
        table.tell(TWO, ONE, b"good evening")
        table.world.run_for(0.1)
        assert table.parties[TWO].told == [(ONE, b"good morning")]
        assert table.parties[ONE].told == [(TWO, b"good evening")]


def test_words_arrive_in_their_order_on_a_road_that_splits_what_is_sent() -> None:
    with Table(quality=LinkQuality(split=0.9)) as table:
        said = [b"%d" % number * (number % 50) for number in range(300)]
        for word in said:
            table.tell(ONE, TWO, word)
        table.world.run_for(1)
        assert table.parties[TWO].said() == said


def test_answers_come_in_any_order_and_each_to_its_asker() -> None:
    with Table() as table:
        questions = [
            table.begin(ONE, lambda links, n=n: links.ask(TWO, Kind.HEARTBEAT, b"%d" % n, timeout_s=5))
            for n in range(5)  # type: ignore[misc]
        ]
        table.world.run_for(0.1)
        for asked in reversed(table.parties[TWO].kept):
            asked.answer([asked.body, b"!"])
        table.world.run_for(0.1)
        assert [bytes(question.result()) for question in questions] == [b"0!", b"1!", b"2!", b"3!", b"4!"]


def test_a_question_may_be_answered_once_and_what_is_said_after_that_is_dropped() -> None:
    with Table() as table:
        question = table.begin(ONE, lambda links: links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=5))
        table.world.run_for(0.1)
        asked = table.parties[TWO].kept[0]
        asked.answer([b"yes"])
        asked.answer([b"no"])
        table.world.run_for(0.1)
        assert bytes(question.result()) == b"yes"
        assert asked.is_over
        assert table.ask(ONE, TWO, b"still there?") == b"echo still there?"


def test_a_kind_that_the_other_node_does_not_know_is_ignored_when_told_and_refused_when_asked() -> None:
    with Table() as table:
        del table.parties[TWO].door.told[Kind.RAFT]
        table.tell(ONE, TWO, b"from the future")
        with pytest.raises(NotUnderstood):
            table.ask(ONE, TWO, b"", kind=Kind.CHANGE_VOTERS)
        assert table.ask(ONE, TWO, b"and now?") == b"echo and now?"


def test_a_late_answer_is_dropped_and_the_link_stays() -> None:
    with Table() as table:
        with pytest.raises(AskTimedOut) as late:
            table.ask(ONE, TWO, b"?", kind=Kind.HEARTBEAT, timeout_s=0.5)
        assert late.value.may_have_happened
        table.parties[TWO].kept[0].answer([b"too late"])
        assert table.ask(ONE, TWO, b"next") == b"echo next"
        assert table.parties[ONE].lost == []


def test_a_cancelled_question_leaves_nothing_behind() -> None:
    with Table() as table:
        question = table.begin(ONE, lambda links: links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=5))
        table.world.run_for(0.1)
        question.cancel()
        table.world.run_for(0.1)
        table.parties[TWO].kept[0].answer([b"nobody listens"])
        table.world.run_for(0.1)
        assert question.cancelled()
        assert table.ask(ONE, TWO, b"next") == b"echo next"


def test_a_question_to_nobody_is_lost_at_once_and_nothing_can_have_happened() -> None:
    with Table(1) as table:
        with pytest.raises(LinkLost, match="nobody has said where node 3 listens") as lost:
            table.ask(ONE, THREE, b"?")
        assert not lost.value.may_have_happened


def test_killing_a_node_is_noticed_at_once_and_its_next_life_is_found() -> None:
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        table.ask(TWO, ONE, b"?")
        question = table.begin(ONE, lambda links: links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=60))
        table.world.run_for(0.1)
        table.world.kill("node-2")
        table.world.run_for(0.01)
        assert table.parties[ONE].lost == [TWO]
        assert table.parties[ONE].callers_lost == [TWO]
        failure = question.exception()
        assert isinstance(failure, LinkLost)
        assert failure.may_have_happened
        with pytest.raises(LinkLost):
            table.ask(ONE, TWO, b"?")
        table.start(TWO)
        table.world.run_for(1)
        assert table.ask(ONE, TWO, b"back?") == b"echo back?"


def test_a_machine_without_power_is_noticed_though_it_says_nothing() -> None:
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        table.ask(TWO, ONE, b"?")
        table.world.power_cut("node-2")
        table.world.run_for(1)
        assert table.parties[ONE].lost == []
        table.world.run_for(10)
        assert table.parties[ONE].lost == [TWO]
        assert table.parties[ONE].callers_lost == [TWO]


@pytest.mark.parametrize("cut", [("node-1", "node-2"), ("node-2", "node-1")])
def test_a_road_that_is_cut_one_way_is_noticed_and_used_again_when_it_is_mended(cut: tuple[str, str]) -> None:
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        table.world.network.cut(*cut)
        with pytest.raises(AskTimedOut):
            table.ask(ONE, TWO, b"?", timeout_s=2)
        table.world.run_for(10)
        assert table.parties[ONE].lost == [TWO]
        table.world.network.heal()
        table.world.run_for(3)
        assert table.ask(ONE, TWO, b"mended?") == b"echo mended?"


def test_an_idle_link_stays_up_for_hours() -> None:
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        table.world.run_for(7_200)
        assert table.parties[ONE].lost == table.parties[TWO].callers_lost == []
        assert table.parties[ONE].links.is_up(TWO)


def test_a_node_that_was_stopped_for_a_while_does_not_take_the_others_for_dead() -> None:
    """It is its own clock that stood still: what the others said lies in its kernel."""
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        table.world.pause("node-1")
        table.world.run_for(2.9)
        table.world.resume("node-1")
        table.world.run_for(5)
        assert table.parties[ONE].lost == []


def test_a_link_that_breaks_in_the_middle_of_a_frame_gives_no_half_frame_away() -> None:
    with Table(quality=LinkQuality(reset=0.05)) as table:
        whole = {b"%d " % number * 5_000 for number in range(50)}
        for word in sorted(whole):
            table.tell(ONE, TWO, word)
            table.world.run_for(0.2)
        said = table.parties[TWO].said()
        assert set(said) <= whole
        assert len(said) > 10
        assert table.world.network.fired["reset"] > 3


def test_what_is_told_while_there_is_no_link_is_dropped_when_none_can_be_made() -> None:
    with Table() as table:
        table.world.kill("node-2")
        for _ in range(100):
            table.tell(ONE, TWO, b"anybody?")
        table.world.run_for(1)
        table.start(TWO)
        table.world.run_for(2)
        assert table.parties[TWO].told == []
        table.tell(ONE, TWO, b"hello")
        table.world.run_for(2)
        assert table.parties[TWO].said() == [b"hello"]


def test_tries_to_connect_get_rarer() -> None:
    with Table(1) as table:
        table.addresses[TWO] = table.addresses[ONE]._replace(port=1)  # Nobody listens there.
        links, tries = table.parties[ONE].links, []

        def address_of(node: int) -> object:
            tries.append(table.world.now())
            return table.addresses[TWO]

        links._calling = links._calling._replace(address_of=address_of)  # type: ignore[arg-type]

        async def talk(links: Links) -> None:
            while True:
                links.tell(TWO, Kind.RAFT, b"anybody?")
                await asyncio.sleep(0.01)

        table.begin(ONE, talk)
        table.world.run_for(30)
        gaps = [later - earlier for earlier, later in pairwise(tries)]
        assert gaps[0] < 0.2
        assert 20 < len(tries) < 80
        assert max(gaps) < 1.1


def test_a_node_that_does_not_read_costs_a_bounded_queue_and_then_words() -> None:
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        table.world.pause("node-2")
        for _ in range(200):
            table.tell(ONE, TWO, bytes(100_000))
        link = table.parties[ONE].links._links[TWO, Lane.CALLS]
        assert link._channel is not None
        assert link._channel._transport is not None
        assert link._channel._transport.get_write_buffer_size() <= UNSENT_BYTES_HIGH + 100_100
        assert link._queued_bytes <= QUEUE_BYTES_MAX
        assert link.dropped > 100
        table.world.resume("node-2")
        table.world.run_for(3)
        assert 20 < len(table.parties[TWO].told) < 100
        assert table.ask(ONE, TWO, b"still there?") == b"echo still there?"


def test_questions_past_the_bound_are_refused() -> None:
    with Table() as table:
        questions = [table.begin(ONE, lambda links: links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=5)) for _ in range(ASKS_MAX + 1)]
        table.world.run_for(1)
        assert [question.done() for question in questions] == [False] * ASKS_MAX + [True]
        assert isinstance(questions[-1].exception(), LinkLost)


def test_a_caller_that_does_not_take_its_answers_is_not_read_from() -> None:
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        answered = []

        def answer_at_length(asked: Asked) -> None:
            answered.append(asked)
            asked.answer([bytes(200_000)])

        table.parties[TWO].door.asked[Kind.SUBMIT] = answer_at_length
        for _ in range(100):
            table.begin(ONE, lambda links: links.ask(TWO, Kind.SUBMIT, b"tell me more", timeout_s=60))
        table.world.run_for(0.0001)
        table.world.pause("node-1")
        table.world.run_for(1)
        channel = table.parties[TWO].door._proven[ONE, Lane.CALLS]
        assert channel.is_congested
        assert channel._transport is not None
        assert channel._transport.get_write_buffer_size() < 600_000
        assert len(answered) < 10
        table.world.resume("node-1")
        table.world.run_for(3)
        assert len(answered) == 100


def test_long_answers_on_one_lane_do_not_delay_the_other() -> None:
    with Table(quality=LinkQuality(bytes_per_second=1e6)) as table:
        table.ask(ONE, TWO, b"?")
        bulk = table.begin(ONE, lambda links: links.ask(TWO, Kind.REPLICA_FETCH, bytes(5_000_000), timeout_s=60))
        table.world.run_for(1)
        started = table.world.now()
        table.ask(ONE, TWO, b"quick")
        assert table.world.now() - started < 0.1
        assert not bulk.done()
        table.world.run_for(30)
        assert len(bulk.result()) == 5_000_005


def test_a_large_answer_on_a_slow_road_is_not_taken_for_silence() -> None:
    with Table(quality=LinkQuality(bytes_per_second=200_000)) as table:
        answer = table.begin(ONE, lambda links: links.ask(TWO, Kind.REPLICA_FETCH, bytes(4_000_000), timeout_s=120))
        table.world.run_for(60)
        assert len(answer.result()) == 4_000_005


def test_a_frame_that_is_announced_too_long_ends_the_link_before_any_memory_is_given_to_it() -> None:
    with Table() as table:
        table.world.kill("node-1")
        table.start(ONE, answer_bytes_max=10_000)
        with pytest.raises(LinkLost, match="announced a frame of 20011 bytes") as lost:
            table.ask(ONE, TWO, bytes(20_000))
        assert lost.value.may_have_happened
        assert table.ask(ONE, TWO, b"small") == b"echo small"


def test_an_answer_that_comes_twice_or_to_no_question_is_dropped() -> None:
    """As a peer with a defect would send it."""
    with Table() as table:
        assert table.ask(ONE, TWO, b"first") == b"echo first"
        channel = table.parties[TWO].door._proven[ONE, Lane.CALLS]
        assert channel._transport is not None
        channel._transport.write(front(Form.ANSWER, 0, 1, 4) + b"late" + front(Form.ANSWER, 0, 77, 4) + b"what")
        assert table.ask(ONE, TWO, b"second") == b"echo second"


def test_closing_tells_those_who_wait_and_counts_as_no_loss_here() -> None:
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        question = table.begin(ONE, lambda links: links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=60))
        table.world.run_for(0.1)
        closing = table.begin(ONE, lambda links: links.close())
        table.world.run_for(0.1)
        assert closing.done()
        assert isinstance(question.exception(), LinkLost)
        assert table.parties[ONE].lost == []
        assert table.parties[TWO].callers_lost == [ONE]
        with pytest.raises(LinkLost, match="closed here"):
            table.ask(ONE, TWO, b"?")


def test_what_was_parked_for_a_question_is_cancelled_when_the_asker_goes() -> None:
    class Parked:
        is_cancelled = False

        def cancel(self) -> None:
            self.is_cancelled = True

    with Table() as table:
        table.begin(ONE, lambda links: links.ask(TWO, Kind.HEARTBEAT, b"?", timeout_s=60))
        table.world.run_for(0.1)
        parked = Parked()
        table.parties[TWO].kept[0].parked = parked
        table.world.kill("node-1")
        table.world.run_for(0.1)
        assert parked.is_cancelled
        assert table.parties[TWO].kept[0].is_over


def test_the_same_node_calling_again_takes_the_place_of_its_older_connection() -> None:
    with Table() as table:
        table.ask(ONE, TWO, b"?")
        older = table.parties[TWO].door._proven[ONE, Lane.CALLS]
        table.world.power_cut("node-1")
        table.start(ONE)
        assert table.ask(ONE, TWO, b"?") == b"echo ?"
        assert older.ended is not None
        assert table.parties[TWO].callers_lost == []


def test_a_seed_tells_the_same_story_twice() -> None:
    def story() -> str:
        with Table(seed=7, quality=LinkQuality(reset=0.02)) as table:
            for number in range(50):
                table.tell(ONE, TWO, b"%d" % number)
                table.tell(TWO, ONE, b"%d" % number)
                table.world.run_for(0.05)
            return table.world.trace_hash()

    assert story() == story()
