"""Who belongs to the cluster, who is alive, who leads instead of whom."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from broker.council import Council
from tiers import pick

from penstock.broker.forwarding import Forwarding
from penstock.cluster.commands import Command, FenceNode, RegisterNode, UnregisterNode
from penstock.cluster.controller import Controller
from penstock.cluster.records import NodeFenced
from penstock.cluster.replies import RegistrationOutdated
from penstock.links.kinds import Kind
from penstock.simulator.links import LinkQuality
from penstock.vocabulary import NO_NODE, Buffer, NodeId


def test_nodes_register_and_are_let_in_when_they_are_ready() -> None:
    with Council() as council:
        council.are_ready = False
        council.start()
        council.until(lambda: council.leader() is not None and all(node.membership.node_epoch for node in council.nodes.values()))
        council.world.run_for(5)
        assert not any(council.is_let_in(number) for number in (1, 2, 3))
        for number in (1, 2, 3):
            council.call(number, _become_ready)
        assert council.until(lambda: all(council.is_let_in(number) for number in (1, 2, 3))) < 0.5


async def _become_ready(node) -> None:  # type: ignore[no-untyped-def]
    node.membership.ready()
    await node.membership.let_in()


def test_a_node_alone_is_let_in_by_itself() -> None:
    with Council(1) as council:
        council.start_and_wait()
        assert council.nodes[1].membership.node_epoch == 1


def test_a_broker_that_does_not_vote_takes_part_like_the_others() -> None:
    with Council(3, observers=1) as council:
        council.start_and_wait()
        council.create(4, partitions=1, replicas=4)
        assert sorted(council.partition().replicas) == [1, 2, 3, 4]


@pytest.mark.repeats
def test_quiet_days_bring_no_fence_and_no_election() -> None:
    with Council() as council:
        council.start_and_wait()
        term = council.nodes[1].quorum.term
        council.world.run_for(pick(test=120, slow=600))
        assert {node.quorum.term for node in council.nodes.values()} == {term}
        assert not any("fenced" in report for node in council.nodes.values() for report in node.reports)


def test_a_broker_that_is_killed_is_fenced_within_a_second_and_its_partitions_are_led_by_others() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, partitions=9)
        victim = council.other_than(council.leader())
        council.kill(victim)
        assert council.until(lambda: council.is_fenced(victim)) < 1.0
        assert all(council.partition(index=index).leader not in (victim, NO_NODE) for index in range(9))


def test_a_controller_that_is_killed_is_replaced_and_fenced_within_two_seconds() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, partitions=9)
        victim = council.leader()
        assert victim is not None
        council.kill(victim)
        assert council.until(lambda: council.is_fenced(victim)) < 2.5
        assert all(council.partition(index=index).leader not in (victim, NO_NODE) for index in range(9))


@pytest.mark.invariant("consensus.disk-full-refuses-early")
def test_a_controller_without_room_on_its_disk_lets_another_fence_who_is_dead() -> None:
    with Council(3, observers=1) as council:
        council.start_and_wait()
        council.create(1, partitions=8)
        full = council.leader()
        assert full is not None
        disk = council.world.hosts[f"node-{full}"].disk
        disk.capacity_bytes -= disk.free_bytes() - 20_000
        council.kill(4)
        council.until(lambda: council.leader() != full and council.is_fenced(4), within=5)
        assert all(council.partition(index=index).leader not in (4, NO_NODE) for index in range(8))


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=2, slow=5)))
def test_a_broker_whose_machine_lost_power_is_fenced_when_its_session_ends(seed: int) -> None:
    with Council(seed=seed) as council:
        council.start_and_wait()
        victim = council.other_than(council.leader())
        council.world.power_cut(f"node-{victim}")
        assert council.until(lambda: council.is_fenced(victim)) < 2.5


def test_a_broker_that_is_stopped_for_a_while_is_fenced_and_let_in_again() -> None:
    with Council() as council:
        council.start_and_wait()
        victim = council.other_than(council.leader())
        council.world.pause(f"node-{victim}")
        assert council.until(lambda: council.is_fenced(victim)) < 2.5
        council.world.run_for(10)
        council.world.resume(f"node-{victim}")
        assert council.until(lambda: council.is_let_in(victim)) < 3
        assert council.nodes[victim].failures == []


def test_a_controller_that_was_stopped_itself_does_not_fence_the_others_for_its_own_silence() -> None:
    """It has heard nobody, because it did not listen."""
    with Council(1, observers=2) as council:
        council.start_and_wait()
        council.world.pause("node-1")
        council.world.run_for(8)
        council.world.resume("node-1")
        council.world.run_for(5)
        assert all(council.is_let_in(number) for number in (1, 2, 3))
        assert not any("fenced" in report for report in council.nodes[1].reports)


def test_a_controller_that_is_always_late_still_notices_who_is_dead() -> None:
    """What it did not hear because it did not listen counts against nobody; but only that."""
    with Council(1, observers=2) as council:
        council.start_and_wait()
        for _ in range(5):
            council.world.pause("node-1")
            council.world.run_for(1.0)
            council.world.resume("node-1")
            council.world.run_for(0.3)
        assert not any("fenced" in report for report in council.nodes[1].reports)
        council.world.power_cut("node-3")
        for _ in range(8):
            council.world.pause("node-1")
            council.world.run_for(1.0)
            council.world.resume("node-1")
            council.world.run_for(0.3)
        assert council.is_fenced(3)
        assert council.is_let_in(2)


def test_a_link_that_breaks_fences_nobody_who_lives_however_rare_its_signs_of_life_are() -> None:
    with Council(heartbeat_interval_ms=2_000, session_timeout_ms=10_000) as council:
        council.start_and_wait()
        for _ in range(40):
            council.world.network.reset_one(f"node-{council.world.rng.choice((1, 2, 3))}")
            council.world.run_for(council.world.rng.random())
        council.world.run_for(10)
        assert not any("fenced" in report for node in council.nodes.values() for report in node.reports)


def test_a_new_controller_does_not_doubt_a_node_for_a_link_that_broke_long_ago() -> None:
    with Council(3, observers=1) as council:
        council.start_and_wait()
        first = council.leader()
        assert first is not None
        council.call(first, lambda node: node.quorum.transfer())
        council.until(lambda: council.leader() not in (None, first))
        council.kill(4)
        council.start(4)
        council.until(lambda: council.is_let_in(4))
        council.world.run_for(20)
        council.nodes[first].reports.clear()
        council.call(council.leader() or 0, lambda node: node.quorum.transfer(NodeId(first)))
        council.until(lambda: council.leader() == first)
        council.world.run_for(5)
        assert not any("fenced" in report for report in council.nodes[first].reports)


def test_a_node_that_comes_back_has_a_higher_epoch_and_is_let_in() -> None:
    with Council() as council:
        council.start_and_wait()
        victim = council.other_than(council.leader())
        council.kill(victim)
        council.start(victim)
        assert council.until(lambda: council.is_let_in(victim)) < 3
        assert council.nodes[victim].membership.node_epoch == 2


def test_the_same_node_id_from_another_directory_is_refused_while_the_first_lives_and_let_in_when_it_is_gone() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        twin = RegisterNode(NodeId(council.other_than(leader)), "council", "ff" * 16, "elsewhere", 1, was_stopped_cleanly=True)
        (reply,) = council.submit(leader, twin)
        assert "is up with another data directory" in str(reply)
        assert council.nodes[twin.node_id].failures == []


def test_a_node_ends_when_another_process_has_registered_under_its_id() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        victim = council.other_than(leader)
        council.world.pause(f"node-{victim}")
        council.until(lambda: council.is_fenced(victim))
        council.submit(leader, RegisterNode(NodeId(victim), "council", "ff" * 16, "elsewhere", 1, was_stopped_cleanly=True))
        council.world.resume(f"node-{victim}")
        council.until(lambda: bool(council.nodes[victim].failures))
        assert "another process has registered as node" in council.nodes[victim].failures[0]


@pytest.mark.invariant("controller.stale-requests-ignored")
@pytest.mark.parametrize("previous_epoch", [0, 1], ids=["of the process before", "of this process"])
def test_a_registration_that_comes_late_or_twice_changes_nothing(previous_epoch: int) -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        victim = NodeId(council.other_than(leader))
        council.kill(victim)
        council.start(victim)
        council.until(lambda: council.is_let_in(victim))
        late = RegisterNode(
            victim, "council", council.directory(victim).hex(), f"node-{victim}", 9092, was_stopped_cleanly=False,
            previous_epoch=previous_epoch,
        )  # fmt: skip
        (reply,) = council.submit(leader, late)
        assert council.is_let_in(victim)
        assert reply == RegistrationOutdated(2)
        council.world.run_for(5)
        assert council.nodes[victim].membership.node_epoch == 2


def test_a_registration_of_its_own_that_names_no_epoch_before_it_does_not_end_a_node() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        victim = council.other_than(leader)
        late = council.nodes[victim].membership._registration
        assert late is not None
        council.submit(leader, late)
        council.until(lambda: council.is_let_in(victim))
        assert council.nodes[victim].failures == []
        assert council.nodes[victim].membership.node_epoch == 3


def test_a_node_that_must_register_again_and_is_refused_for_good_ends_with_the_reason() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        victim = council.other_than(leader)
        membership = council.nodes[victim].membership
        late = membership._registration
        assert late is not None
        membership._registration = replace(late, cluster_id="another")
        council.submit(leader, late)
        council.until(lambda: bool(council.nodes[victim].failures))
        assert "is refused: node" in council.nodes[victim].failures[0] and "belongs to cluster" in council.nodes[victim].failures[0]


class Stumble(Exception):
    """Something that nobody had thought of."""


@pytest.mark.expects_failure
def test_a_controller_that_stumbles_goes_on_and_fences_who_is_dead(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    whole, falls = Controller.owed, iter(range(3))

    def stumbling(*args: Any) -> list[Command]:
        for fall in falls:
            raise Stumble(str(fall))
        return whole(*args)

    with Council(3, observers=1) as council:
        council.start_and_wait()
        council.kill(4)
        monkeypatch.setattr(Controller, "owed", stumbling)
        council.until(lambda: council.is_fenced(4), within=10)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [Stumble] * 3


@pytest.mark.expects_failure
def test_a_node_that_stumbles_goes_on_giving_signs_of_life(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    whole, falls = Forwarding.ask_controller, iter(range(2))

    async def stumbling(self: Forwarding, kind: Kind, body: Buffer, *, timeout_s: float) -> memoryview:
        for fall in falls:
            raise Stumble(str(fall))
        return await whole(self, kind, body, timeout_s=timeout_s)

    with Council() as council:
        council.start_and_wait()
        monkeypatch.setattr(Forwarding, "ask_controller", stumbling)
        council.world.run_for(10)
        assert all(council.is_let_in(number) for number in (1, 2, 3))
        assert not any("fenced" in report for node in council.nodes.values() for report in node.reports)
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [Stumble] * 2


def test_a_node_that_was_taken_off_the_list_says_so_and_ends() -> None:
    with Council(3, observers=1) as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        council.world.pause("node-4")
        council.until(lambda: council.is_fenced(4))
        council.submit(leader, UnregisterNode(NodeId(4)))
        council.world.resume("node-4")
        council.until(lambda: bool(council.nodes[4].failures))
        assert "taken off the cluster's list" in council.nodes[4].failures[0]


def test_a_node_that_is_fenced_though_it_lives_is_let_in_again() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        other = council.other_than(leader)
        (reply,) = council.submit(leader, FenceNode(NodeId(other), 1))
        assert isinstance(reply, NodeFenced)
        assert council.until(lambda: council.is_let_in(other)) < 1


def test_a_node_that_does_not_know_yet_what_was_decided_is_not_let_in() -> None:
    with Council() as council:
        council.start_and_wait()
        leader = council.leader()
        assert leader is not None
        other = council.other_than(leader)
        council.slow_to_replay[other] = None
        council.submit(leader, FenceNode(NodeId(other), 1))
        council.world.run_for(5)
        assert council.is_fenced(other)
        council.slow_to_replay.clear()
        assert council.until(lambda: council.is_let_in(other)) < 1


def test_a_node_that_stops_waits_until_those_who_lead_in_its_place_know_it() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, partitions=9)
        victim = council.other_than(council.leader())
        slow = council.other_than(council.leader(), victim)
        council.slow_to_replay[slow] = None
        council.world.terminate(f"node-{victim}")
        council.world.run_for(5)
        assert council.world.is_running(f"node-{victim}")
        council.slow_to_replay.clear()
        assert council.until(lambda: council.world.has_ended(f"node-{victim}")) < 1


def test_a_node_that_stops_does_not_wait_for_a_controller_that_is_gone() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, partitions=9)
        victim = council.other_than(council.leader())
        council.slow_to_replay[council.other_than(council.leader(), victim)] = None
        council.world.terminate(f"node-{victim}")
        council.world.run_for(1)
        for number in (1, 2, 3):
            if number != victim:
                council.kill(number)
        assert council.until(lambda: council.world.has_ended(f"node-{victim}")) < 5


def test_a_broker_that_stops_in_order_hands_over_before_it_goes() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, partitions=9)
        victim = council.other_than(council.leader())
        council.stop(victim, within=2.0)
        assert all(council.partition(index=index).leader not in (victim, NO_NODE) for index in range(9))
        others = [number for number in (1, 2, 3) if number != victim]
        for number in others:  # Each of them knew before it was gone.
            image = council.nodes[number].image
            assert all(state.leader != victim for state in image.topics["orders"].partitions)


def test_a_controller_that_stops_in_order_hands_the_quorum_over_too() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, partitions=9)
        victim = council.leader()
        assert victim is not None
        term = council.nodes[victim].quorum.term
        council.stop(victim, within=3.0)
        assert council.until(lambda: council.leader() is not None) < 0.3
        successor = council.leader()
        assert successor not in (None, victim)
        assert council.nodes[successor or 0].quorum.term == term + 1
        assert all(council.partition(index=index).leader not in (victim, NO_NODE) for index in range(9))
        council.world.run_for(5)
        assert council.is_fenced(victim)


def test_all_nodes_may_stop_at_once_and_none_waits_long() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, partitions=9)
        for number in (1, 2, 3):
            council.world.terminate(f"node-{number}")
        assert council.until(lambda: all(council.world.has_ended(f"node-{number}") for number in (1, 2, 3))) < 10
        council.start()
        council.until(lambda: all(council.is_let_in(number) for number in (1, 2, 3)))
        assert all(council.partition(index=index).leader != NO_NODE for index in range(9))


def test_what_only_a_stopping_node_can_lead_does_not_hold_it_up() -> None:
    with Council() as council:
        council.start_and_wait()
        council.create(1, partitions=3, replicas=1)
        victim = council.other_than(council.leader())
        council.stop(victim, within=2.0)


def test_a_node_stops_in_time_though_the_others_are_gone() -> None:
    with Council() as council:
        council.start_and_wait()
        council.kill(2)
        council.kill(3)
        council.stop(1, within=10.0)


def test_a_quorum_that_is_away_fences_nobody_and_everybody_is_there_when_it_is_back() -> None:
    with Council(3, observers=2) as council:
        council.start_and_wait()
        for number in (1, 2, 3):
            council.kill(number)
        council.world.run_for(60)
        assert council.nodes[4].failures == council.nodes[5].failures == []
        council.start(1, 2, 3)
        assert council.until(lambda: all(council.is_let_in(number) for number in range(1, 6))) < 10
        assert council.nodes[4].membership.node_epoch == 1


def test_a_node_that_finds_no_controller_says_so_and_goes_on_trying() -> None:
    with Council() as council:
        council.start(1)
        council.world.run_for(30)
        assert any("not registered yet" in report for report in council.nodes[1].reports)
        council.start(2)
        assert council.until(lambda: council.is_let_in(1) and council.is_let_in(2)) < 15


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=3, slow=8)))
def test_after_any_trouble_everybody_is_let_in_again(seed: int) -> None:
    """Kills, power cuts, pauses, cuts and orderly stops in any order, on roads that may break; then it ends, and all must be well soon."""
    rng = Random(seed)
    quality = LinkQuality(reset=rng.choice((0.0, 0.002, 0.01)), split=rng.choice((0.05, 0.5)))
    with Council(3, observers=rng.randrange(3), seed=seed, quality=quality) as council:
        council.start_and_wait()
        trouble = Trouble(council, rng)
        for _ in range(rng.randrange(3, 15)):
            trouble.make()
            council.world.run_for(rng.random() * 4)
        trouble.end()
        assert council.until(lambda: all(council.is_let_in(number) for number in council.addresses), within=60) < 10
        assert [node.failures for node in council.nodes.values()] == [[]] * len(council.addresses)


class Trouble:
    def __init__(self, council: Council, rng: Random) -> None:
        self._council = council
        self._rng = rng
        self._paused: dict[str, None] = {}

    def make(self) -> None:
        council, world, rng = self._council, self._council.world, self._rng
        numbers = list(council.addresses)
        number = rng.choice(numbers)
        host = f"node-{number}"
        match rng.choice(("kill", "power", "pause", "resume", "cut", "partition", "heal", "stop", "start", "wait")):
            case "kill" if world.is_running(host):
                world.kill(host)
            case "power" if world.is_running(host):
                world.power_cut(host)
            case "pause":
                world.pause(host)
                self._paused[host] = None
            case "resume":
                self._resume()
            case "cut":
                world.network.cut(host, f"node-{rng.choice(numbers)}")
            case "partition":
                rng.shuffle(numbers)
                at = rng.randrange(1, len(numbers))
                world.network.partition([f"node-{one}" for one in numbers[:at]], [f"node-{one}" for one in numbers[at:]])
            case "heal":
                world.network.heal()
            case "stop" if council.is_up(number) and council.nodes[number].membership.node_epoch:
                world.terminate(host)
            case "start" if not world.is_running(host):
                council.start(number)

    def end(self) -> None:
        world = self._council.world
        world.network.heal()
        self._resume()
        world.run_for(15)  # More than any stop in order may take.
        for number in self._council.addresses:
            if not world.is_running(f"node-{number}"):
                self._council.start(number)

    def _resume(self) -> None:
        for host in self._paused:
            self._council.world.resume(host)
        self._paused.clear()
