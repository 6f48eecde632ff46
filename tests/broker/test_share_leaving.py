"""What a member of a share group holds when it is gone: all of it goes back, and may have been worked on."""

import pytest
from serving import Serving, patient_ms
from share_members import ShareMember, configure, opened
from waiting import until_async

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("share.unsent-records-return")


async def test_all_that_a_member_has_goes_back_however_much_that_is(serving: Serving) -> None:
    """A thousand did, and the others when their time was up."""
    line, topic_id = await opened(serving)
    for _ in range(3):
        await line.produce("t", *(b"%d" % each for each in range(500)))
    one, other = ShareMember(await serving.line(), topic_id), ShareMember(line, topic_id, "other")
    held = 0
    while held < 1_500:
        held += len(await one.take(records_max=1_000))
    one.line.close()
    await until_async(lambda: not len(serving.node.shares.sessions))
    back = 0
    while back < 1_500:
        found = await other.take(records_max=1_000, wait_ms=patient_ms(5_000))
        assert found and {count for _, count in found.values()} == {2}
        back += len(found)


async def test_a_record_that_kills_whoever_has_it_comes_as_often_as_it_may(serving: Serving) -> None:
    line, topic_id = await opened(serving)
    await configure(line, "g", {"share.delivery.count.limit": "2"})
    await line.produce("t", b"poison", b"b")
    for count in (1, 2):
        member = ShareMember(await serving.line(), topic_id, f"member-{count}")
        assert await member.take(wait_ms=patient_ms(5_000), records_max=1) == {0: (b"poison", count)}
        member.line.close()
        await until_async(lambda: not len(serving.node.shares.sessions))
    assert await ShareMember(line, topic_id).take(wait_ms=patient_ms(5_000)) == {1: (b"b", 1)}
