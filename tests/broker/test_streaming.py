"""Long fetch replies are read while they are sent."""

import pytest
from serving import Serving, batch, fetch_body, records_in
from waiting import until_async

from penstock.errors import ErrorCode
from penstock.wire.api_keys import ApiKey

ALL_LOOPS = True

VALUE = bytes(range(250)) * 240  # 60,000 bytes
BATCHES = 60


async def filled(serving: Serving, partitions: int = 3) -> list[list[bytes]]:
    await serving.open()
    line = await serving.line()
    await line.create("a", partitions)
    sent = [[b"%d-%d-" % (partition, number) + VALUE for number in range(BATCHES)] for partition in range(partitions)]
    for partition, values in enumerate(sent):
        for value in values:
            assert (await line.produce_batch("a", batch(value), partition=partition)).error_code == 0
    return sent


def wish(offsets: dict[int, int], **options: int) -> dict[str, object]:
    return fetch_body({"a": offsets}, max_bytes=20 << 20, partition_max_bytes=2 << 20, **options)


async def test_a_long_reply_brings_every_record_of_every_partition_in_order(serving: Serving) -> None:
    sent = await filled(serving)
    line = await serving.line()
    offsets, found = {0: 0, 1: 0, 2: 0}, {0: [], 1: [], 2: []}  # type: ignore[var-annotated]
    while any(offset < BATCHES for offset in offsets.values()):
        answer = await line.ask(ApiKey.FETCH, 12, **wish(offsets))
        for row in answer.responses[0].partitions:
            records = records_in(row.records)
            found[row.partition_index] += [record.value for record in records]
            offsets[row.partition_index] += len(records)
    assert [found[partition] for partition in range(3)] == sent
    assert serving.node.reply_room.bytes_taken == 0
    assert not serving.node.files._pinned


async def test_replies_behind_a_long_one_wait_for_its_end(serving: Serving) -> None:
    await filled(serving)
    line = await serving.line(receive_bytes=10_000)
    for _ in range(8):
        line.send(ApiKey.FETCH, 12, **wish({0: 0, 1: 0, 2: 0}))
        line.send(ApiKey.API_VERSIONS, 0)
    for _ in range(8):
        assert len((await line.receive()).responses[0].partitions) == 3
        assert (await line.receive()).error_code == 0
    assert not serving.node.files._pinned


async def test_a_client_that_goes_away_in_the_middle_leaves_nothing_open(serving: Serving) -> None:
    await filled(serving)
    lines = [await serving.line(receive_bytes=1_000) for _ in range(20)]
    for line in lines:
        if (sock := line.writer.get_extra_info("socket")) is not None:
            sock.setsockopt(1, 8, 4096)  # SOL_SOCKET, SO_RCVBUF
        line.send(ApiKey.FETCH, 12, **wish({0: 0, 1: 0, 2: 0}))
        line.send(ApiKey.FETCH, 12, **wish({0: 0, 1: 0, 2: 0}))
    await until_async(lambda: serving.node.reply_room.bytes_taken > 0 and serving.node.metrics.requests["FETCH"] >= 20)
    for line in lines:
        line.writer.transport.abort()
    await until_async(lambda: len(serving.node.connections) <= 1)
    assert not serving.node.files._pinned
    assert serving.node.reply_room.bytes_taken == 0


async def test_what_is_cold_is_streamed_from_the_disk(serving: Serving) -> None:
    sent = await filled(serving, 1)
    await serving.stop()
    await serving.open()
    disk = serving.env.disk
    disk.read_now = lambda file, position, size: None  # type: ignore[method-assign]
    line = await serving.line()
    offset, found = 0, []
    while offset < BATCHES:
        answer = await line.ask(ApiKey.FETCH, 12, **wish({0: offset}))
        found += [record.value for record in records_in(answer.responses[0].partitions[0].records)]
        offset = len(found)
    assert found == sent[0]


@pytest.mark.invariant("log.checksum-verified")
async def test_rot_in_the_middle_of_a_long_reply_is_told_when_the_client_asks_again(serving: Serving) -> None:
    sent = await filled(serving, 1)
    (segment,) = serving.directory.glob("topics/*/0/*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 3] ^= 1
    segment.write_bytes(content)
    offset, found, code = 0, [], ErrorCode.NONE
    for _ in range(40):
        line = await serving.line()
        line.send(ApiKey.FETCH, 12, **wish({0: offset}))
        frame = await line.receive_frame()
        if frame is None:
            continue  # Broken off.
        line.close()
        line = await serving.line()
        answer = await line.ask(ApiKey.FETCH, 12, **wish({0: offset}))
        row = answer.responses[0].partitions[0]
        code = row.error_code
        if code:
            break
        found += [record.value for record in records_in(row.records)]
        offset = len(found)
    assert code == ErrorCode.CORRUPT_MESSAGE
    assert found == sent[0][: len(found)]
    assert len(found) == pytest.approx(BATCHES // 3, abs=2)
