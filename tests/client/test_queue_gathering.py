"""Calls that are made at once go together, and nobody can tell by what they hear."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from penstock.client.queues.failures import QueueMissing, Refused, Unreachable
from penstock.client.queues.gathering import AT_ONCE, Gathering


class Node:
    """Doubles numbers, once it is let; refuses a request with a negative one."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []
        self.may_answer = asyncio.Event()
        self.failure: Exception | None = None

    async def ask(self, items: Sequence[int]) -> list[int]:
        self.asked.append(list(items))
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        if min(items) < 0:
            raise Refused("no negative numbers")
        return [2 * item for item in items]


def run(story: Callable[[Node, Gathering[int, int]], Awaitable[None]]) -> None:
    async def whole() -> None:
        node = Node()
        await story(node, Gathering(node.ask, count_max=4, bytes_max=100))

    asyncio.run(whole())


async def begun(*calls: Any) -> list[asyncio.Task[Any]]:
    tasks = [asyncio.create_task(call) for call in calls]
    await asyncio.sleep(0)
    return tasks


FIRST = list(range(AT_ONCE))


def test_a_few_go_by_themselves_and_the_others_together():
    async def story(node: Node, gather: Gathering[int, int]) -> None:
        first = await begun(*(gather([number]) for number in FIRST))
        late = await begun(gather([10, 11]), gather([12]))
        assert node.asked == [[number] for number in FIRST]
        node.may_answer.set()
        assert [await task for task in first] == [[2 * number] for number in FIRST]
        assert [await task for task in late] == [[20, 22], [24]]
        assert node.asked[AT_ONCE:] == [[10, 11, 12]]
        assert await gather([1]) == [2], "and there is room again"

    run(story)


def test_a_request_has_its_bounds():
    async def story(node: Node, gather: Gathering[int, int]) -> None:
        calls = await begun(*(gather([0]) for _ in FIRST), gather([1, 2, 3]), gather([4, 5]), gather([6], 60), gather([7], 60))
        node.may_answer.set()
        await asyncio.gather(*calls)
        assert node.asked[AT_ONCE:] == [[1, 2, 3], [4, 5, 6], [7]]

    run(story)


def test_a_no_to_one_of_them_is_a_no_to_that_one_alone():
    async def story(node: Node, gather: Gathering[int, int]) -> None:
        calls = await begun(*(gather([0]) for _ in FIRST), gather([1]), gather([-1]), gather([2]))
        node.may_answer.set()
        one, two, three = (await asyncio.gather(*calls, return_exceptions=True))[AT_ONCE:]
        assert (one, three) == ([2], [4]) and isinstance(two, Refused)

    run(story)


@pytest.mark.parametrize("kind", [Unreachable, QueueMissing])
def test_what_becomes_of_a_whole_request_is_told_to_all_in_it(kind: type[Exception]):
    async def story(node: Node, gather: Gathering[int, int]) -> None:
        calls = await begun(*(gather([0]) for _ in FIRST), gather([1]), gather([2]))
        node.failure = kind("it is so", "do this")
        node.may_answer.set()
        told = await asyncio.gather(*calls, return_exceptions=True)
        assert [str(each) for each in told] == ["it is so\n  do this"] * len(told)
        assert len(node.asked) == AT_ONCE + 1

    run(story)


def test_who_is_cancelled_before_it_went_out_has_asked_for_nothing():
    async def story(node: Node, gather: Gathering[int, int]) -> None:
        calls = await begun(*(gather([0]) for _ in FIRST), gather([1]), gather([2]))
        calls[AT_ONCE].cancel()
        await asyncio.sleep(0)
        node.may_answer.set()
        assert await calls[-1] == [4]
        assert node.asked[AT_ONCE:] == [[2]]

    run(story)


def test_another_loop_begins_anew():
    """A queue that outlives asyncio.run()."""
    gathers: list[Gathering[int, int]] = []

    async def stuck(node: Node, gather: Gathering[int, int]) -> None:
        gathers.append(gather)
        await begun(*(gather([0]) for _ in FIRST), gather([1]))

    run(stuck)

    async def again(node: Node, _: Gathering[int, int]) -> None:
        gathers[0]._ask = node.ask
        node.may_answer.set()
        assert await gathers[0]([5]) == [10]

    run(again)
