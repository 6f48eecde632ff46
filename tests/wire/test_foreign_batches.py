"""Batches that other people's code built: their records read right here, and ours read right there."""

import socket

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from confluent_kafka import Producer
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from waiting import PATIENCE_MS, PATIENCE_S, until

from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import HEADER_BYTES, Record, crc_is_right, decode_records, encode_batch, read_header, read_magic
from penstock.wire.compression import Codec, decompress
from penstock.wire.records import TIMESTAMP_HIGHEST, TIMESTAMP_LOWEST, RecordFault, check_records, scan_batches

MEGABYTE = 1 << 20
RECORDS = [
    Record(b"key", b"value" * 20, (("name", b"content"), ("none", None)), 1_700_000_000_000),
    Record(None, b"no key" * 20, (), 1_700_000_000_500),
    Record(b"tombstone", None, (), 1_699_999_999_000),
    Record(b"", b"", (("", b""),), 1_700_000_000_001),
    *[Record(b"k%d" % number, b"v" * number, (), 1_700_000_000_000 + number) for number in range(100)],
]


def build_with(builder_class, codec):
    builder = builder_class(
        magic=2, compression_type=codec, is_transactional=0, producer_id=7, producer_epoch=1, base_sequence=5, batch_size=MEGABYTE
    )
    for offset, record in enumerate(RECORDS):
        assert builder.append(offset, timestamp=record.timestamp_ms, key=record.key, value=record.value, headers=list(record.headers))
    return bytes(builder.build())


def assert_a_good_batch(batch):
    """All that a broker asks of a batch before it is appended."""
    header = read_header(batch)
    assert (read_magic(batch), header.size) == (2, len(batch))
    assert crc_is_right(batch, 0, len(batch))
    assert scan_batches(batch, first_offset=0, end_offset_max=1000, bytes_max=0)[:3] == (len(batch), header.end_offset, 1)
    payload = decompress(Codec(header.codec), memoryview(batch)[HEADER_BYTES:], MEGABYTE)
    verdict = check_records(
        payload,
        header.record_count,
        base_timestamp=header.base_timestamp,
        timestamp_min=TIMESTAMP_LOWEST,
        timestamp_max=TIMESTAMP_HIGHEST,
        keys_required=False,
    )
    assert (verdict.fault_index, verdict.fault, verdict.max_timestamp) == (-1, RecordFault.NONE, header.max_timestamp)
    return header


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("builder_class", [KafkaPythonBuilder, AiokafkaBuilder], ids=["kafka-python", "aiokafka"])
def test_batches_of_python_clients_read_right(builder_class, codec):
    batch = build_with(builder_class, codec)
    header = assert_a_good_batch(batch)
    assert (header.codec, header.producer_id, header.producer_epoch, header.base_sequence) == (codec, 7, 1, 5)
    assert (header.record_count, header.last_offset_delta, header.max_timestamp) == (len(RECORDS), len(RECORDS) - 1, 1_700_000_000_500)
    assert decode_records(batch, bytes_max=MEGABYTE) == [record._replace(offset=offset) for offset, record in enumerate(RECORDS)]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("reader_class", [KafkaPythonRecords, AiokafkaRecords], ids=["kafka-python", "aiokafka"])
def test_our_batches_read_right_in_python_clients(reader_class, codec):
    batch = reader_class(bytes(encode_batch(RECORDS, base_offset=1000, codec=codec))).next_batch()
    assert batch.validate_crc()
    read = [(r.key, r.value, tuple(r.headers), r.timestamp, r.offset) for r in batch]
    assert read == [tuple(record._replace(offset=1000 + delta)) for delta, record in enumerate(RECORDS)]


@pytest.mark.parametrize("magic", [0, 1])
def test_messages_of_older_formats_are_recognised(magic):
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=0, batch_size=MEGABYTE)
    builder.append(0, timestamp=None if magic == 0 else 5, key=b"k", value=b"v")
    assert read_magic(bytes(builder.build())) == magic


@pytest.fixture(scope="module")
def mock_cluster():
    """librdkafka's own broker for tests, in this process: what its producer sends can be fetched from it."""
    producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": 1})
    broker = next(iter(producer.list_topics(timeout=PATIENCE_S).brokers.values()))
    yield f"{broker.host}:{broker.port}"
    producer.flush(PATIENCE_S)


@pytest.mark.parametrize("codec", Codec)
def test_batches_of_librdkafka_read_right(mock_cluster, codec):
    topic = f"packed-{codec.name.lower()}"
    producer = Producer(
        {
            "bootstrap.servers": mock_cluster,
            "compression.type": codec.name.lower(),
            "linger.ms": PATIENCE_MS,  # All in one batch: `flush` waits for no more.
            "enable.idempotence": codec == Codec.LZ4,
        }
    )
    chosen = [record for record in RECORDS if record.headers != (("", b""),)]
    for record in chosen:
        producer.produce(topic, record.value, record.key, partition=0, timestamp=record.timestamp_ms, headers=list(record.headers))
    assert producer.flush(PATIENCE_S) == 0
    batches = fetch_batches(mock_cluster, topic, len(chosen))
    assert codec in [assert_a_good_batch(batch).codec for batch in batches]  # A small batch that packing would not shrink goes as it is.
    read = [record for batch in batches for record in decode_records(batch, bytes_max=MEGABYTE)]
    assert read == [record._replace(offset=offset) for offset, record in enumerate(chosen)]


def fetch_batches(address, topic, end_offset):
    """All batches up to the offset: a producer may cut where it likes."""
    batches = []
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection, connection.makefile("rb") as stream:

        def has_all():
            offset = read_header(batches[-1]).end_offset if batches else 0
            batches.extend(cut(fetch(connection, stream, topic, offset)))
            return batches and read_header(batches[-1]).end_offset >= end_offset

        until(has_all, lambda: f"all is stored: {len(batches)} batches are")
    return batches


def fetch(connection, stream, topic, offset):
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": MEGABYTE}
    body = {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": MEGABYTE, "topics": [{"topic": topic, "partitions": [partition]}]}
    connection.sendall(schemas.write_request(ApiKey.FETCH, 11, 1, "tests", body))
    _, reply = schemas.read_response(ApiKey.FETCH, 11, stream.read(int.from_bytes(stream.read(4), "big")))
    return reply.responses[0].partitions[0].records or b""


def cut(stored):
    while stored:
        size = read_header(stored).size
        yield stored[:size]
        stored = stored[size:]
