"""What a coordinator's runtime promises: while it loads, on disks that fail or are full, by the clock, and within its bounds."""

import asyncio
from typing import Any

import pytest
from members import Member, commit, committed_codes, coordinated, joined, member, offsets_of, send_commit, stable
from serving import Line, Serving, started, virtually
from waiting import NEVER_MS, PATIENCE_MS, until_async

from penstock.broker import groups as groups_module
from penstock.broker.connection import OTHER_FRAME_BYTES_MAX
from penstock.broker.groups import CONSUMER_OFFSETS
from penstock.broker.node import Node
from penstock.settings import NodeSettings
from penstock.simulator.env import SimEnv
from penstock.simulator.world import World
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

QUICK = {"group_initial_rebalance_delay_ms": 0, "offsets_topic_num_partitions": 1, "group_min_session_timeout_ms": 100}


async def opened(serving: Serving, **changes: Any) -> Line:
    await serving.open(**(QUICK | changes))
    line = await serving.line()
    await coordinated(line)
    await line.create("a", 3)
    return line


# Loading


async def test_while_a_coordinator_loads_it_says_so(serving: Serving) -> None:
    line = await opened(serving)
    one = await member(serving)
    await stable(one)
    await one.commit("a", {0: 5})
    await serving.crash()
    serving.lives.append(serving.new_env())
    serving._node = node = Node(serving.env, NodeSettings(**QUICK))
    reads = serving.env.disk.cold_reads
    await node.start()
    await until_async(lambda: not node.groups.is_loading())
    reads.hold()
    for coordinator in node.groups:
        coordinator.reload("as after a start")
    serving.address = await node.listen_kafka("127.0.0.1", 0)
    line = await serving.line()
    one.line = line
    assert (await one.join()).error_code == 14
    assert (await one.sync()).error_code == 14
    assert await one.heartbeat() == 0, "nobody's session runs while it loads"
    assert await one.leave() == 14
    assert await one.commit("a", {0: 6}) == {0: 14}
    wish = {"name": "a", "partition_indexes": [0]}
    assert (await line.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": [wish]}])).groups[0].error_code == 14
    assert (await line.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=[wish])).error_code == 14
    first = await line.ask(ApiKey.OFFSET_FETCH, 1, group_id="g", topics=[wish])
    assert [row.error_code for row in first.topics[0].partitions] == [14]
    assert (await line.ask(ApiKey.LIST_GROUPS)).error_code == 14
    assert (await line.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"])).groups[0].error_code == 14
    assert (await line.ask(ApiKey.DELETE_GROUPS, groups_names=["g"])).results[0].error_code == 14
    reads.let_go()
    await until_async(lambda: not node.groups.is_loading())
    assert await one.heartbeat() == 0
    assert await offsets_of(line, "g") == {0: 5}


def test_a_read_that_fails_while_loading_is_tried_again() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **QUICK)
        line = await Line.open(address)
        await coordinated(line)
        await line.create("a")
        await commit(line, "g", "a", {0: 5})
        (coordinator,) = node.groups
        disk = world.hosts["node"].disk
        for _ in range(3):
            disk.fail_next_read_where(lambda path: path.endswith(".log"))
            coordinator.reload("as after a start")
            assert await commit(line, "g", "a", {0: 6}) == {0: 14}
            await asyncio.sleep(0.5)
            assert await commit(line, "g", "a", {0: 6}) == {0: 16}
            await asyncio.sleep(1)
            assert await offsets_of(line, "g") == {0: 5}
        await node.stop()

    virtually(scenario)


def test_a_log_that_could_not_be_opened_is_not_taken_for_an_empty_one() -> None:
    """Its offsets are there, and nobody can tell them: whoever heard that there are none would begin anew."""

    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **QUICK)
        line = await Line.open(address)
        await coordinated(line)
        await line.create("a")
        await commit(line, "g", "a", {0: 5})
        (partition,) = node.partitions.by_name[CONSUMER_OFFSETS].values()
        await node.stop()
        world.hosts["node"].disk.fail_next_read_where(lambda path: path == f"{partition.log.directory}/checkpoint")
        node, address = await started(env, **QUICK)
        line = await Line.open(address)
        found = await line.ask(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
        assert found.coordinators[0].error_code == 15
        wish = {"name": "a", "partition_indexes": [0]}
        told = (await line.ask(ApiKey.OFFSET_FETCH, groups=[{"group_id": "g", "topics": [wish]}])).groups[0]
        assert told.error_code == 16
        await node.stop()
        node, address = await started(env, **QUICK)
        await until_async(lambda: not node.groups.is_loading())
        assert await offsets_of(await Line.open(address), "g") == {0: 5}
        await node.stop()

    virtually(scenario)


async def test_a_topic_deleted_while_a_coordinator_loads_is_forgotten_afterwards(serving: Serving) -> None:
    line = await opened(serving)
    await commit(line, "g", "a", {0: 5})
    reads = serving.env.disk.cold_reads
    reads.hold()
    for coordinator in serving.node.groups:
        coordinator.reload("as after a start")
    await line.delete("a")
    reads.let_go()
    await until_async(lambda: not serving.node.groups.is_loading())
    await line.create("a")
    assert await offsets_of(line, "g") == {0: -1}


async def test_offsets_of_a_topic_that_was_deleted_before_a_crash_do_not_come_back(serving: Serving) -> None:
    """The deletion is in the metadata, and the power went before the offsets' log had heard of it."""
    line = await opened(serving)
    await line.create("kept")
    await commit(line, "g", "a", {0: 5})
    await commit(line, "g", "kept", {0: 7})
    directory = serving.directory / serving.node.partitions.by_name[CONSUMER_OFFSETS][0].log.directory
    before = {path: path.read_bytes() for path in directory.files()}
    await line.delete("a")
    await serving.crash()
    directory.remove()
    directory.mkdir()
    for path, content in before.items():
        path.write_bytes(content)
    await serving.open(**QUICK)
    line = await serving.line()
    await line.create("a")
    await until_async(lambda: not serving.node.groups.is_loading())
    assert await offsets_of(line, "g", "a") == {0: -1}
    assert await offsets_of(line, "g", "kept") == {0: 7}


def test_what_a_full_disk_kept_the_node_from_noting_is_noted_later() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **QUICK, disk_free_bytes_min=0)
        line = await Line.open(address)
        await coordinated(line)
        await line.create("a")
        await commit(line, "g", "a", {0: 5})
        disk = world.hosts["node"].disk
        roomy, disk.capacity_bytes = disk.capacity_bytes, 0
        node.groups.topic_deleted(node.image.topics["a"].topic_id, "a")
        await node.groups.flush()
        await asyncio.sleep(12)
        assert len(world.loop._events) < 500, "one try makes more than one other"
        assert await offsets_of(line, "g") == {0: 5}
        disk.capacity_bytes = roomy
        await asyncio.sleep(2)
        assert await offsets_of(line, "g") == {0: -1}
        await node.stop()

    virtually(scenario)


# Disks that fail


@pytest.mark.invariant("groups.failed-log-stops-answers")
def test_a_log_that_fails_takes_its_coordinator_with_it() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **QUICK)
        line, other = await Line.open(address), await Line.open(address)
        await coordinated(line)
        await line.create("a")
        one, two = Member(line, "g"), Member(other, "g")
        await stable(one)
        assert await one.commit("a", {0: 1}) == {0: 0}
        await two.take_id()
        two.send_join()
        await asyncio.sleep(0.1)
        (partition,) = node.partitions.by_name[CONSUMER_OFFSETS].values()
        world.hosts["node"].disk.fail_next_flush(f"{partition.log.directory}/{0:020}.log")
        assert await one.commit("a", {0: 2}) == {0: 16}
        assert (await two.joined()).error_code == 16, "a parked join must not wait for ever"
        assert await one.heartbeat() == 16
        assert await one.commit("a", {0: 3}) == {0: 16}
        answer = await line.ask(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=["g"])
        assert answer.coordinators[0].error_code == 15
        assert (await line.ask(ApiKey.LIST_GROUPS)).error_code == 15, "a list without its groups would be believed"
        await node.stop()

    virtually(scenario)


@pytest.mark.invariant("groups.failed-log-stops-answers")
def test_a_full_disk_changes_nothing_and_is_over_when_there_is_room() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **QUICK, disk_free_bytes_min=0)
        line = await Line.open(address)
        await coordinated(line)
        await line.create("a")
        one = Member(line, "g")
        await stable(one)
        assert await one.commit("a", {0: 1}) == {0: 0}
        disk = world.hosts["node"].disk
        roomy, disk.capacity_bytes = disk.capacity_bytes, 0
        assert await one.commit("a", {0: 2}) == {0: 15}
        assert await offsets_of(line, "g") == {0: 1}
        assert await one.heartbeat() == 0, "what needs no room goes on"
        disk.capacity_bytes = roomy
        assert await one.commit("a", {0: 3}) == {0: 0}
        assert await offsets_of(line, "g") == {0: 3}
        await node.stop()

    virtually(scenario)


def test_a_full_disk_holds_a_rebalance_up_and_then_it_goes_on() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **QUICK, disk_free_bytes_min=0)
        lines = [await Line.open(address) for _ in range(2)]
        await coordinated(lines[0])
        members = [Member(line, "g") for line in lines]
        disk = world.hosts["node"].disk
        await joined(*members)
        roomy, disk.capacity_bytes = disk.capacity_bytes, 0
        leader, follower = sorted(members, key=lambda one: not one.is_leader)
        follower.send_sync()
        await asyncio.sleep(0.1)
        assert (await leader.sync(assignments={leader.member_id: b"all"})).error_code == 15
        assert (await follower.line.receive()).error_code == 15
        disk.capacity_bytes = roomy
        follower.send_sync()
        assert (await leader.sync(assignments={leader.member_id: b"all"})).assignment == b"all"
        assert (await follower.line.receive()).error_code == 0
        await node.stop()

    virtually(scenario)


@pytest.mark.expects_failure
async def test_a_defect_in_the_core_costs_one_request_and_a_reload(serving: Serving) -> None:
    line = await opened(serving)
    await commit(line, "g", "a", {0: 5})
    (coordinator,) = serving.node.groups
    assert coordinator.state is not None
    coordinator.state.settings = None  # type: ignore[assignment] # As a defect would leave it.
    assert await commit(line, "g", "a", {0: 6}) == {0: -1}
    await until_async(lambda: not serving.node.groups.is_loading())
    assert await offsets_of(line, "g") == {0: 5}
    assert await commit(line, "g", "a", {0: 7}) == {0: 0}


# Time


def test_sessions_lapse_by_the_clock() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        node, address = await started(env, **QUICK)
        one = Member(await Line.open(address), "g")
        await coordinated(one.line)
        await stable(one, session_timeout_ms=6_000)
        for _ in range(10):
            await asyncio.sleep(5)
            assert await one.heartbeat() == 0
        await asyncio.sleep(6.1)
        assert await one.heartbeat() == 25
        (group,) = (await one.line.ask(ApiKey.DESCRIBE_GROUPS, groups=["g"])).groups
        assert group.group_state == "Empty"
        await node.stop()

    virtually(scenario)


def test_offsets_of_an_empty_group_are_forgotten_in_time() -> None:
    async def scenario(world: World, env: SimEnv) -> None:
        retention = {"offsets_retention_minutes": 6, "offsets_retention_check_interval_ms": 60_000}
        node, address = await started(env, **QUICK, **retention, connections_max_idle_ms=10**9)
        line = await Line.open(address)
        await coordinated(line)
        await line.create("a")
        await commit(line, "g", "a", {0: 1})
        await asyncio.sleep(5 * 60)
        assert await offsets_of(line, "g") == {0: 1}
        await asyncio.sleep(2.5 * 60)
        assert await offsets_of(line, "g") == {0: -1}
        assert (await line.ask(ApiKey.LIST_GROUPS)).groups == ()
        await node.stop()

    virtually(scenario)


async def test_settings_of_groups_hold_as_soon_as_they_are_changed(serving: Serving) -> None:
    await opened(serving, group_min_session_timeout_ms=NEVER_MS)
    one = await member(serving)
    assert (await one.join(session_timeout_ms=PATIENCE_MS)).error_code == 26
    serving.node.settings = NodeSettings(**QUICK | {"group_min_session_timeout_ms": PATIENCE_MS})
    serving.node.groups.settings_changed()
    assert (await one.join(session_timeout_ms=PATIENCE_MS)).error_code == 0


async def test_a_node_takes_no_more_groups_than_it_may_hold(serving: Serving) -> None:
    await serving.open(**QUICK | {"groups_max": 1})
    line = await serving.line()
    await coordinated(line)
    await line.create("a")
    one, two = await member(serving, "one"), await member(serving, "two")
    await stable(one)
    assert (await two.join()).error_code == 15
    assert await commit(line, "two", "a", {0: 1}) == {0: 15}
    assert await one.commit("a", {0: 2}) == {0: 0}, "those that are there go on"
    await one.leave()
    await line.ask(ApiKey.DELETE_GROUPS, groups_names=["one"])
    assert (await two.join()).error_code == 0


async def test_members_that_say_too_much_about_themselves_are_refused(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "SHARE_OF_MEMORY", 512)  # A quarter of a mebibyte.
    await serving.open(**QUICK | {"memory_bytes_max": 128 << 20})
    line = await serving.line()
    await coordinated(line)
    talkative = [await member(serving, f"g{number}") for number in range(4)]
    codes = [(await one.join(protocols=[("range", bytes(100_000))])).error_code for one in talkative]
    assert codes[0] == 0
    assert codes[-1] == 15
    assert await talkative[0].heartbeat() == 0


async def test_assignments_count_in_the_memory_of_all_groups(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups_module, "SHARE_OF_MEMORY", 512)  # A quarter of a mebibyte.
    await serving.open(**QUICK | {"memory_bytes_max": 128 << 20})
    await coordinated(await serving.line())
    codes = []
    for number in range(4):
        one = await member(serving, f"g{number}")
        assert (await one.join()).error_code == 0
        codes.append((await one.sync(assignments={one.member_id: bytes(100_000)})).error_code)
    assert codes == [0, 0, 15, 15]


async def test_an_assignment_as_large_as_a_request_may_be_is_kept(serving: Serving) -> None:
    await opened(serving)
    one = await member(serving)
    assert (await one.join()).error_code == 0
    assignment = bytes(OTHER_FRAME_BYTES_MAX - 1_000)
    assert (await one.sync(assignments={one.member_id: assignment})).assignment == assignment


async def test_many_pipelined_commits_are_answered_in_order(serving: Serving) -> None:
    line = await opened(serving)
    for offset in range(500):
        send_commit(line, "g", "a", {0: offset})
    for _ in range(500):
        assert committed_codes(await line.receive()) == {0: 0}
    assert await offsets_of(line, "g") == {0: 499}
