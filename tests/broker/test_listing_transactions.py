"""ListTransactions tells of all that a node coordinates, or says that it cannot yet."""

import pytest
from serving import Line, Serving
from waiting import until_async

from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

pytestmark = pytest.mark.invariant("transactions.hanging-only-if-certain")

ID = "mover-1"


async def coordinating(serving: Serving) -> Line:
    await serving.open(transaction_partitions=1)
    line = await serving.line()
    await line.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[ID])
    rest = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    assert (await line.ask(ApiKey.INIT_PRODUCER_ID, 4, transactional_id=ID, **rest)).error_code == ErrorCode.NONE
    return line


async def listed(line: Line) -> tuple[ErrorCode, list[str]]:
    answer = await line.ask(ApiKey.LIST_TRANSACTIONS, 1)
    return ErrorCode(answer.error_code), [row.transactional_id for row in answer.transaction_states]


async def test_while_a_coordinator_loads_nothing_is_listed(serving: Serving) -> None:
    line = await coordinating(serving)
    assert await listed(line) == (ErrorCode.NONE, [ID])
    reads, node = serving.env.disk.cold_reads, serving.node
    reads.hold()
    for coordinator in node.transactions:
        coordinator.reload("as after a start")
    assert await listed(line) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    reads.let_go()
    await until_async(lambda: not node.transactions.is_loading())
    assert await listed(line) == (ErrorCode.NONE, [ID])


async def test_a_coordinator_that_is_still_to_be_made_is_not_passed_over(serving: Serving) -> None:
    """The node was chosen to lead a partition of the coordinators' log, and has not taken it over."""
    line = await coordinating(serving)
    (coordinator,) = serving.node.transactions
    serving.node.transactions.partition_left(coordinator.partition)
    assert await listed(line) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
