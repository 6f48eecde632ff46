"""Transactions as a node serves them: each wrong id, epoch, state and time-out gets its code and leaves nothing behind."""

from typing import Any

import pytest
from serving import Line, Serving
from waiting import PATIENCE_MS, until_async

from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch

ALL_LOOPS = True

ID = "mover-1"
QUICK = {"offsets_topic_num_partitions": 1, "transaction_partitions": 1}
NONE = ErrorCode.NONE

Producer = tuple[int, int]


async def opened(serving: Serving, **settings: Any) -> Line:
    await serving.open(**QUICK, **settings)
    line = await serving.line()
    await found(line)
    await line.create("a", 2)
    return line


async def found(line: Line) -> None:
    answer = await line.ask(ApiKey.FIND_COORDINATOR, 4, key_type=1, coordinator_keys=[ID])
    assert answer.coordinators[0].error_code == NONE


async def init(line: Line, *, version: int = 4, timeout_ms: int = 60_000, known: Producer = (-1, -1)) -> tuple[ErrorCode, Producer]:
    rest = {"producer_id": known[0], "producer_epoch": known[1]} if version >= 3 else {}
    answer = await line.ask(ApiKey.INIT_PRODUCER_ID, version, transactional_id=ID, transaction_timeout_ms=timeout_ms, **rest)
    return ErrorCode(answer.error_code), (answer.producer_id, answer.producer_epoch)


async def begun(line: Line, **options: Any) -> Producer:
    code, producer = await init(line, **options)
    assert code is NONE
    return producer


async def add(line: Line, producer: Producer, *partitions: int, topic: str = "a", version: int = 3, name: str = ID) -> list[ErrorCode]:
    answer = await line.ask(
        ApiKey.ADD_PARTITIONS_TO_TXN, version, v3_and_below_transactional_id=name, v3_and_below_producer_id=producer[0],
        v3_and_below_producer_epoch=producer[1], v3_and_below_topics=[{"name": topic, "partitions": list(partitions)}],
    )  # fmt: skip
    return [ErrorCode(row.partition_error_code) for row in answer.results_by_topic_v3_and_below[0].results_by_partition]


async def end(line: Line, producer: Producer, *, commits: bool, version: int = 3) -> ErrorCode:
    answer = await line.ask(
        ApiKey.END_TXN, version, transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=commits
    )
    return ErrorCode(answer.error_code)


async def ended(line: Line, producer: Producer, *, commits: bool) -> None:
    """And written down in every partition."""
    assert await end(line, producer, commits=commits) is NONE

    async def is_written() -> bool:
        return await state(line) in ("CompleteCommit", "CompleteAbort")

    await until_async(is_written)


async def state(line: Line) -> str:
    answer = await line.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[ID])
    return str(answer.transaction_states[0].transaction_state)


async def produce(
    line: Line, producer: Producer, sequence: int,
    *, partition: int = 0, version: int = 9, name: str | None = ID, is_transactional: bool = True,
) -> ErrorCode:  # fmt: skip
    batch = encode_batch(
        [Record(b"k", b"%d" % sequence, timestamp_ms=1)], producer_id=producer[0], producer_epoch=producer[1], base_sequence=sequence,
        is_transactional=is_transactional,
    )  # fmt: skip
    topics = [{"name": "a", "partition_data": [{"index": partition, "records": bytes(batch)}]}]
    answer = await line.ask(ApiKey.PRODUCE, version, transactional_id=name, acks=-1, timeout_ms=PATIENCE_MS, topic_data=topics)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


async def end_of(line: Line, partition: int = 0, *, committed: bool) -> int:
    wish = {"partition_index": partition, "timestamp": -1, "current_leader_epoch": -1}
    topics = [{"name": "a", "partitions": [wish]}]
    answer = await line.ask(ApiKey.LIST_OFFSETS, 5, replica_id=-1, isolation_level=int(committed), topics=topics)
    return int(answer.topics[0].partitions[0].offset)


async def test_readers_of_committed_records_wait_for_the_end_of_a_transaction(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    assert await add(line, producer, 0) == [NONE]
    assert await produce(line, producer, 0) is NONE
    assert (await end_of(line, committed=True), await end_of(line, committed=False)) == (0, 1)
    await ended(line, producer, commits=True)
    assert (await end_of(line, committed=True), await end_of(line, committed=False)) == (2, 2)  # The record, and the marker.


async def test_a_batch_of_no_open_transaction_is_refused_and_nothing_is_stored(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    assert await produce(line, producer, 0) is ErrorCode.INVALID_TXN_STATE
    assert await add(line, producer, 1) == [NONE]
    assert await produce(line, producer, 0) is ErrorCode.INVALID_TXN_STATE  # Another partition is part of it, this one is not.
    assert await produce(line, producer, 0, name=None) is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert await produce(line, producer, 0, name="somebody-else") is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert await end_of(line, committed=False) == 0


@pytest.mark.parametrize(("version", "told"), [(9, ErrorCode.INVALID_TXN_STATE), (11, ErrorCode.TRANSACTION_ABORTABLE)])
async def test_what_is_refused_is_told_in_words_that_the_client_knows(serving: Serving, version: int, told: ErrorCode) -> None:
    line = await opened(serving)
    assert await produce(line, await begun(line), 0, version=version) is told


async def test_the_second_protocol_needs_no_word_beforehand(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line, version=5)
    topic_id = (await line.ask(ApiKey.METADATA, topics=[{"name": "a"}])).topics[0].topic_id
    batch = encode_batch(
        [Record(b"k", b"v", timestamp_ms=1)], producer_id=producer[0], producer_epoch=producer[1], base_sequence=0, is_transactional=True
    )
    topics = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": bytes(batch)}]}]
    answer = await line.ask(ApiKey.PRODUCE, 13, transactional_id=ID, acks=-1, timeout_ms=PATIENCE_MS, topic_data=topics)
    assert answer.responses[0].partition_responses[0].error_code == NONE
    assert await state(line) == "Ongoing"
    told = await line.ask(ApiKey.END_TXN, 5, transactional_id=ID, producer_id=producer[0], producer_epoch=producer[1], committed=True)
    assert (told.error_code, told.producer_id, told.producer_epoch) == (NONE, producer[0], producer[1] + 1)


@pytest.mark.parametrize(("version", "told"), [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)])
async def test_whoever_was_fenced_hears_so_and_changes_nothing(serving: Serving, version: int, told: ErrorCode) -> None:
    line = await opened(serving)
    old, new = await begun(line), await begun(line)
    assert new == (old[0], old[1] + 1)
    assert await add(line, old, 0, version=version) == [told]
    assert await end(line, old, commits=True, version=version) is told
    assert await produce(line, old, 0) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await state(line), await end_of(line, committed=False)) == ("Empty", 0)


async def test_a_newcomer_aborts_what_its_predecessor_left_open(serving: Serving) -> None:
    line = await opened(serving)
    old = await begun(line)
    await add(line, old, 0)
    assert await produce(line, old, 0) is NONE
    code, _ = await init(line)
    assert code is ErrorCode.CONCURRENT_TRANSACTIONS
    while code is ErrorCode.CONCURRENT_TRANSACTIONS:
        code, new = await init(line)
    assert new[1] > old[1]
    assert await produce(line, old, 1) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await end_of(line, committed=True) == 2


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
async def test_a_time_out_that_cannot_be_is_refused(serving: Serving, timeout_ms: int) -> None:
    line = await opened(serving)
    code, producer = await init(line, timeout_ms=timeout_ms)
    assert (code, producer) == (ErrorCode.INVALID_TRANSACTION_TIMEOUT, (-1, -1))
    answer = await line.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=[ID])
    assert answer.transaction_states[0].error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


async def test_partitions_are_added_all_or_none(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    assert await add(line, producer, 0, 7) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await add(line, producer, 0, topic="nowhere") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert await add(line, (producer[0] + 1, 0), 0) == [ErrorCode.INVALID_PRODUCER_ID_MAPPING]
    assert await add(line, producer, 0, name="") == [ErrorCode.INVALID_REQUEST]
    assert await state(line) == "Empty"


async def test_a_transaction_that_is_not_open_cannot_be_ended(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    assert await end(line, producer, commits=True) is ErrorCode.INVALID_TXN_STATE
    await add(line, producer, 0)
    await ended(line, producer, commits=True)
    assert await end(line, producer, commits=True) is NONE  # The answer may have been lost.
    assert await end(line, producer, commits=False) is ErrorCode.INVALID_TXN_STATE


async def test_a_late_batch_does_not_join_what_has_ended(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    await add(line, producer, 0)
    await produce(line, producer, 0)
    await ended(line, producer, commits=True)
    assert await produce(line, producer, 1) is ErrorCode.INVALID_TXN_STATE
    assert await end_of(line, committed=True) == 2


async def test_an_idempotent_batch_does_not_stand_among_those_of_an_open_transaction(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    await add(line, producer, 0)
    await produce(line, producer, 0)
    assert await produce(line, producer, 1, is_transactional=False) is ErrorCode.INVALID_TXN_STATE


async def test_what_is_open_survives_a_restart_and_what_has_ended_is_told(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    await add(line, producer, 0, 1)
    await produce(line, producer, 0)
    await serving.crash()
    await serving.open(**QUICK)
    line = await serving.line()
    await found(line)
    await until_async(lambda: not serving.node.transactions.is_loading())
    assert (await state(line), await end_of(line, committed=True)) == ("Ongoing", 0)
    assert await produce(line, producer, 1) is NONE
    await ended(line, producer, commits=False)
    assert [await end_of(line, partition, committed=True) for partition in (0, 1)] == [3, 1]


async def test_a_client_cannot_commit_what_only_a_coordinator_may(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    await add(line, producer, 0)
    await produce(line, producer, 0)
    topics = [{"name": "a", "partition_indexes": [0]}]
    marker = {"producer_id": producer[0], "producer_epoch": producer[1], "topics": topics, "coordinator_epoch": 0}
    refused = await line.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[{**marker, "transaction_result": True}])
    assert refused.markers[0].topics[0].partitions[0].error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await end_of(line, committed=True) == 0
    done = await line.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[{**marker, "transaction_result": False}])
    assert done.markers[0].topics[0].partitions[0].error_code == NONE
    assert await end_of(line, committed=True) == 2


async def test_what_a_client_says_of_epochs_shuts_nobody_out(serving: Serving) -> None:
    """Neither the coordinator, by an epoch that it has not reached yet, nor the producer; and where nothing is open nothing is written."""
    line = await opened(serving)
    producer = await begun(line)
    await add(line, producer, 0)
    await produce(line, producer, 0)
    await ended(line, producer, commits=True)
    before = await end_of(line, committed=False)
    for producer_id, epoch, told in (
        (producer[0], producer[1], NONE),  # Has ended.
        (producer[0], producer[1] + 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (producer[0], -1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (-7, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
        (producer[0] + 9, 0, ErrorCode.INVALID_PRODUCER_EPOCH),
    ):
        assert await abort_from_outside(line, (producer_id, epoch), coordinator_epoch=1_000) is told
    assert await end_of(line, committed=False) == before
    await add(line, producer, 0)
    assert await produce(line, producer, 1) is NONE
    assert await abort_from_outside(line, producer, coordinator_epoch=-1) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert await abort_from_outside(line, producer, coordinator_epoch=1_000) is NONE
    await ended(line, producer, commits=True)  # Its coordinator is heard as before.
    assert await abort_from_outside(line, producer, topic="__transaction_state") is ErrorCode.INVALID_PRODUCER_EPOCH


async def test_offsets_that_are_pending_are_dropped_for_their_own_epoch_alone(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    await commit_pending(line, producer)
    assert await abort_from_outside(line, (producer[0], producer[1] + 1), topic="__consumer_offsets") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert await abort_from_outside(line, (producer[0] + 9, 0), topic="__consumer_offsets") is NONE
    await ended(line, producer, commits=True)
    assert await committed_offset(line) == 5


async def test_what_nodes_keep_their_own_state_in_takes_part_in_no_transaction(serving: Serving) -> None:
    line = await opened(serving)
    producer = await begun(line)
    assert await add(line, producer, 0, topic="__transaction_state") == [ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert await state(line) == "Empty"


async def commit_pending(line: Line, producer: Producer) -> None:
    names = {"transactional_id": ID, "producer_id": producer[0], "producer_epoch": producer[1], "group_id": "g"}
    assert (await line.ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, **names)).error_code == NONE
    row = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    answer = await line.ask(
        ApiKey.TXN_OFFSET_COMMIT, 3, **names, generation_id=-1, member_id="", group_instance_id=None,
        topics=[{"name": "a", "partitions": [row]}],
    )  # fmt: skip
    assert answer.topics[0].partitions[0].error_code == NONE


async def committed_offset(line: Line) -> int:
    answer = await line.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=[{"name": "a", "partition_indexes": [0]}], require_stable=True)
    return int(answer.topics[0].partitions[0].committed_offset)


async def abort_from_outside(line: Line, producer: Producer, *, topic: str = "a", coordinator_epoch: int = 0) -> ErrorCode:
    topics = [{"name": topic, "partition_indexes": [0]}]
    marker = {"producer_id": producer[0], "producer_epoch": producer[1], "topics": topics, "coordinator_epoch": coordinator_epoch}
    answer = await line.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=[{**marker, "transaction_result": False}])
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)
