"""Consumer groups and time: members that fall silent, and how long the others wait for them."""

from members import member, opened, stable
from serving import Serving
from waiting import PATIENCE_MS, until_async

VIRTUAL_TIME = True


async def test_the_first_member_of_an_empty_group_waits_for_others(serving: Serving) -> None:
    await opened(serving, group_initial_rebalance_delay_ms=300)
    one, two = await member(serving), await member(serving)
    await one.take_id()
    await two.take_id()
    one.send_join()
    two.send_join()
    assert (await one.joined()).generation_id == (await two.joined()).generation_id == 1
    assert one.leader == two.leader == one.member_id
    assert one.everybody == [one.member_id, two.member_id]
    assert two.everybody == []


async def test_the_rest_goes_on_without_a_member_that_is_silent(serving: Serving) -> None:
    await opened(serving)
    one, two = await member(serving), await member(serving)
    options = {"session_timeout_ms": 300, "rebalance_timeout_ms": 500}
    await stable(one, two, **options)
    await until_async(one.must_rejoin)
    await one.join(**options)
    assert one.everybody == [one.member_id]
    assert await two.heartbeat() == 25


async def test_a_parked_join_whose_client_hangs_up_holds_up_nobody_for_ever(serving: Serving) -> None:
    await opened(serving)
    one, two = await member(serving), await member(serving)
    options = {"session_timeout_ms": 300, "rebalance_timeout_ms": PATIENCE_MS}
    await stable(one, **options)
    await two.take_id(**options)
    two.send_join(**options)
    await two.line.writer.drain()
    await until_async(one.must_rejoin)
    connections = len(serving.node.connections)
    two.line.close()
    await until_async(lambda: len(serving.node.connections) == connections - 1)
    await one.join(**options)
    assert one.everybody == [one.member_id]
    assert serving.node.request_room.bytes_taken == 0
