"""Requests that are long work: others have their turn meanwhile, and what has no bound of its own is given one.

Whatever looks at the clock here finds its time over: so every place where it would let others go first is one where it does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest
from broker.test_consumer_groups import Consumer
from serving import Line, Serving, batch, produce_body
from waiting import until_async

from penstock.broker import group_topics, long_answers, patience
from penstock.broker.patience import Patience
from penstock.errors import ErrorCode
from penstock.links.transaction_calls import Ended, Place
from penstock.simulator.loop import SimLoop
from penstock.vocabulary import ProducerId
from penstock.wire.api_keys import ApiKey
from penstock.wire.compression import Codec
from penstock.wire.markers import NO_NUMBER

VIRTUAL_TIME = True

T = TypeVar("T")

QUICK = {"offsets_topic_num_partitions": 1, "transaction_partitions": 1, "group_consumer_assignment_interval_ms": 0}
PARTITIONS = 8
NONE = ErrorCode.NONE


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(patience, "SECONDS_AT_ONCE", -1.0)
    monkeypatch.setattr(long_answers, "ROWS_AT_ONCE", 1)
    yield


async def opened(serving: Serving, *ids: str) -> Line:
    await serving.open(**QUICK)
    line = await serving.line()
    for key_type, key in ((0, "g"), (1, "t")):
        await line.ask(ApiKey.FIND_COORDINATOR, 4, key_type=key_type, coordinator_keys=[key])
    await line.create("a", PARTITIONS)
    for name in ids:
        answer = await line.ask(
            ApiKey.INIT_PRODUCER_ID, 4, transactional_id=name, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        assert answer.error_code == NONE
    return line


async def steps(work: Awaitable[T], seen: Callable[[], int]) -> tuple[T, list[int]]:
    """What came of some work, and by how much `seen` had grown at each turn that others had meanwhile."""
    task, last, grown = asyncio.ensure_future(work), seen(), []
    while not task.done():
        await asyncio.sleep(0 if any(grown[-PARTITIONS:]) or len(grown) < PARTITIONS else 0.001)  # Time stands still between turns.
        grown.append(seen() - last)
        last = seen()
    return await task, grown


async def test_others_have_their_turn_between_the_batches_of_a_request(serving: Serving) -> None:
    """Two hundred batches of a hundred bytes that unpack to a mebibyte each would hold the loop for a good part of a second."""
    await serving.open()
    line = await serving.line()
    await line.create("a", partitions=200)
    bomb = batch(bytes(1_000_000), codec=Codec.ZSTD)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, SimLoop)
    turns = loop.turns
    answer = await line.ask(ApiKey.PRODUCE, 9, **produce_body({"a": dict.fromkeys(range(200), bomb)}))
    assert [row.error_code for row in answer.responses[0].partition_responses] == [NONE] * 200
    assert loop.turns - turns > 2 * 200, "each batch is looked at, and then appended"


async def test_others_have_their_turn_between_the_markers_of_a_transaction(serving: Serving) -> None:
    await opened(serving)
    node = serving.node
    topic_id = node.image.topics["a"].topic_id
    places = tuple(Place("a", topic_id, index) for index in range(PARTITIONS))
    end = Ended(ProducerId(7), 0, NO_NUMBER, is_commit=False, is_v2=False, coordinator_epoch=0, places=places)

    def written() -> int:
        return sum(partition.log.end_offset for place in places if (partition := node.partitions.find_by_id(topic_id, place.partition)))

    codes, grown = await steps(node.marker_writing.write_all([end]), written)
    assert codes == [(NONE,) * PARTITIONS]
    assert (sum(grown), max(grown)) == (PARTITIONS, 1)


async def test_a_client_that_names_more_partitions_than_a_transaction_has_is_shown_the_door(serving: Serving) -> None:
    await opened(serving)

    def markers(count: int) -> dict[str, object]:
        topics = [{"name": "nowhere", "partition_indexes": list(range(count))}]
        marker = {"producer_id": 1, "producer_epoch": 0, "transaction_result": False, "topics": topics, "coordinator_epoch": 0}
        return {"markers": [marker]}

    line = await serving.line()
    answer = await line.ask(ApiKey.WRITE_TXN_MARKERS, 1, **markers(10_000))
    assert {row.error_code for row in answer.markers[0].topics[0].partitions} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    line.send(ApiKey.WRITE_TXN_MARKERS, 1, **markers(10_001))
    assert await line.is_closed()


@pytest.mark.parametrize(
    ("key", "version", "asked"),
    [(ApiKey.LIST_TRANSACTIONS, 0, {}), (ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": ["x", "y", "y"]})],
)
async def test_long_answers_about_transactions_are_written_beside_the_loop(
    serving: Serving, key: ApiKey, version: int, asked: dict[str, list[str]]
) -> None:  # fmt: skip
    line, other = await opened(serving, "x", "y"), await serving.line()
    serving.env.offloads.hold()
    told = asyncio.ensure_future(line.ask(key, version, **asked or {"state_filters": [], "producer_id_filters": []}))
    await serving.env.offloads.until_waited_for()
    assert (await other.ask(ApiKey.API_VERSIONS, 0)).error_code == NONE
    serving.env.offloads.let_go()
    assert [row.transactional_id for row in (await told).transaction_states] == ["x", "y"]


async def test_ids_are_held_against_a_pattern_and_a_bad_one_has_its_code(serving: Serving) -> None:
    line = await opened(serving, "x1", "y1", "x2", "a" * 249)
    filters = {"state_filters": [], "producer_id_filters": [], "duration_filter": -1}
    for pattern, ids in (("x.", ["x1", "x2"]), ("^" + "a{0,10}" * 20 + "b", []), (".1|x2", ["x1", "y1", "x2"])):
        answer = await line.ask(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern=pattern, **filters)
        assert (answer.error_code, [row.transactional_id for row in answer.transaction_states]) == (NONE, ids)
    answer = await line.ask(ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="(", **filters)
    assert (answer.error_code, answer.transaction_states) == (ErrorCode.INVALID_REGULAR_EXPRESSION, ())


async def test_topics_are_held_against_a_pattern_before_the_group_hears_of_it(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_topics, "LOOKED_AT_ONCE", 1)
    line = await opened(serving)
    for name in ("logs-x", "logs-y", "other"):
        await line.create(name, 1)
    topics, coordinator = serving.node.groups._topics, next(iter(serving.node.groups))
    looked: list[bool] = []
    decide = type(topics).matching
    monkeypatch.setattr(type(topics), "matching", lambda self, regex: looked.append(self.look(regex)) or decide(self, regex))
    consumer = Consumer(line, "me")
    answer = await consumer.join(subscribed_topic_names=None, subscribed_topic_regex="logs-.*")
    assert (answer.error_code, len(consumer.owned), set(looked)) == (NONE, 2, {True})
    assert coordinator.state is not None and list(coordinator.state.patterns()) == ["logs-.*"]
    await line.create("logs-z", 1)
    await consumer.beat()
    assert len(consumer.owned) == 3


async def test_whoever_brings_a_pattern_and_hangs_up_leaves_nothing_behind(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_topics, "LOOKED_AT_ONCE", 1)
    line = await opened(serving)
    for number in range(5):
        await line.create(f"logs-{number}", 1)
    room, door = serving.node.request_room, asyncio.Event()
    monkeypatch.setattr(Patience, "pause_if_over", lambda self: door.wait())
    guest = await serving.line()
    said = {"subscribed_topic_names": None, "subscribed_topic_regex": "logs-.*", "rebalance_timeout_ms": 1_000, "topic_partitions": []}
    guest.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, group_id="g", member_id="me", member_epoch=0, **said)
    await until_async(lambda: room._bytes_held > 0)
    guest.close()
    await until_async(lambda: room._bytes_held == 0)
    door.set()
    await line.ask(ApiKey.API_VERSIONS, 0)
    coordinator = next(iter(serving.node.groups))
    assert coordinator.state is not None and not coordinator.state.holds("g")


async def test_what_patterns_stand_for_is_looked_for_when_their_groups_are_loaded(serving: Serving) -> None:
    line = await opened(serving)
    await Consumer(line, "me").join(subscribed_topic_names=None, subscribed_topic_regex="a|b")
    await serving.stop()
    await serving.open(**QUICK)
    await until_async(lambda: "a|b" in serving.node.groups._topics._matches._looked)
