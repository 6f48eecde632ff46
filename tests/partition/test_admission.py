"""What a produced batch must be, and the code that says why it is not."""

import struct

import pytest

from penstock.errors import ErrorCode, Refusal
from penstock.partition.admission import InvalidRecord, examine_header, examine_large, examine_records, payload_rules
from penstock.partition.record_faults import WALKED_MAX
from penstock.settings import TopicConfig
from penstock.wire.batches import Record, encode_batch, read_header, set_max_timestamp
from penstock.wire.compression import Codec
from penstock.wire.records import crc32c

pytestmark = pytest.mark.invariant("log.checksum-verified")

NOW = 1_700_000_000_000
CONFIG = TopicConfig()


def batch(count: int = 2, *, key: bytes | None = b"k", timestamp_ms: int = NOW, codec: int = 0, size: int = 10) -> bytearray:
    return encode_batch([Record(key=key, value=b"v" * size, timestamp_ms=timestamp_ms)] * count, codec=codec)


def with_field(made: bytearray, at: int, layout: str, value: int) -> bytearray:
    """The batch with one header field changed and its checksum put right."""
    struct.pack_into(layout, made, at, value)
    struct.pack_into(">I", made, 17, crc32c(made, 21, len(made)))
    return made


def examine(made: bytearray, config: TopicConfig = CONFIG, version: int = 9) -> None:
    header = examine_header(made, config, version)
    assert examine_records(made, header, payload_rules(config, NOW)) is not None


def code_of(made: bytearray, config: TopicConfig = CONFIG, version: int = 9) -> ErrorCode:
    with pytest.raises(Refusal) as refused:
        examine(made, config, version)
    assert refused.value.reason
    return refused.value.code


@pytest.mark.parametrize("codec", range(5))
def test_a_good_batch_of_each_codec_is_admitted(codec: int) -> None:
    examine(batch(codec=codec))


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda b: b[:0], ErrorCode.INVALID_RECORD),
        (lambda b: b[:10], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:60], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b[:-1], ErrorCode.CORRUPT_MESSAGE),
        (lambda b: b + b, ErrorCode.INVALID_RECORD),
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: with_field(b, 0, ">q", 5), ErrorCode.INVALID_RECORD),
        (lambda b: with_field(b, 57, ">i", 3), ErrorCode.INVALID_RECORD),
        (lambda b: with_field(with_field(b, 57, ">i", 3), 23, ">i", 2), ErrorCode.INVALID_RECORD),
        (lambda b: with_field(with_field(b, 57, ">i", 0), 23, ">i", -1), ErrorCode.INVALID_RECORD),
        (lambda b: with_field(b, 21, ">h", 0x20), ErrorCode.INVALID_RECORD),
        (lambda b: with_field(b, 21, ">h", 0x10), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        (lambda b: with_field(b, 21, ">h", 5), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (lambda b: with_field(b, 21, ">h", 1), ErrorCode.CORRUPT_MESSAGE),
        (lambda b: with_field(b, 43, ">q", 7), ErrorCode.INVALID_RECORD),
        (lambda b: b[:16] + b"\1" + b[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (lambda b: b[:16] + b"\0" + b[17:], ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (lambda b: b[:16] + b"\3" + b[17:], ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_each_kind_of_bad_batch_gets_its_code(spoil, code: ErrorCode) -> None:  # type: ignore[no-untyped-def]
    assert code_of(bytearray(spoil(batch()))) is code


def test_a_batch_over_the_topics_bound_is_too_large() -> None:
    assert code_of(batch(size=500), CONFIG.with_overrides({"max.message.bytes": "400"})) is ErrorCode.MESSAGE_TOO_LARGE


def test_zstd_needs_produce_7() -> None:
    assert code_of(batch(codec=4), version=6) is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_a_compacted_topic_takes_only_records_with_a_key() -> None:
    compacted = CONFIG.with_overrides({"cleanup.policy": "compact"})
    examine(batch(), compacted)
    assert code_of(batch(key=None), compacted) is ErrorCode.INVALID_RECORD


def test_the_record_that_spoils_a_batch_is_named() -> None:
    records = [Record(value=b"a", timestamp_ms=NOW), Record(value=b"b", timestamp_ms=NOW + 2 * 3_600_000)]
    with pytest.raises(InvalidRecord) as refused:
        examine(encode_batch(records))
    assert ([index for index, _ in refused.value.records], refused.value.code) == ([1], ErrorCode.INVALID_TIMESTAMP)


@pytest.mark.parametrize("codec", list(Codec))
def test_every_record_that_spoils_a_batch_is_named(codec: Codec) -> None:
    """A client that is told of one alone gives all records of the batch the same blame."""
    compacted = CONFIG.with_overrides({"cleanup.policy": "compact"})
    records = [Record(key=None if number % 10 == 0 else b"k", value=b"v", timestamp_ms=NOW) for number in range(100)]
    with pytest.raises(InvalidRecord) as refused:
        examine(encode_batch(records, codec=codec), compacted)
    assert refused.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in refused.value.records] == list(range(0, 100, 10))
    assert "and 9 more" in refused.value.reason


def test_a_bad_time_gives_the_batch_its_code_whatever_else_is_wrong() -> None:
    compacted = CONFIG.with_overrides({"cleanup.policy": "compact"})
    late = NOW + 2 * 3_600_000
    records = [Record(key=None, value=b"v", timestamp_ms=late), Record(key=b"k", value=b"v", timestamp_ms=late)]
    with pytest.raises(InvalidRecord) as refused:
        examine(encode_batch(records), compacted)
    assert refused.value.code is ErrorCode.INVALID_TIMESTAMP
    assert ["key" in reason for _, reason in refused.value.records] == [True, False]


def test_a_fault_far_inside_is_named_alone() -> None:
    """Naming is bounded: nobody makes the node walk a hundred thousand bad records in Python."""
    compacted = CONFIG.with_overrides({"cleanup.policy": "compact"})
    records = [Record(key=b"k", value=b"v", timestamp_ms=NOW)] * WALKED_MAX + [Record(key=None, value=b"v", timestamp_ms=NOW)] * 2
    with pytest.raises(InvalidRecord) as refused:
        examine(encode_batch(records), compacted)
    assert [index for index, _ in refused.value.records] == [WALKED_MAX]


def test_the_future_does_not_matter_where_the_node_stamps_the_time() -> None:
    examine(batch(timestamp_ms=NOW + 10**12), CONFIG.with_overrides({"message.timestamp.type": "LogAppendTime"}))


def test_a_header_that_lies_about_its_highest_timestamp_is_found_out() -> None:
    made = batch()
    set_max_timestamp(made, NOW + 99)
    verdict = examine_records(made, read_header(made), payload_rules(CONFIG, NOW))
    assert verdict is not None
    assert verdict.max_timestamp == NOW


@pytest.mark.parametrize("codec", range(1, 5))
def test_a_bomb_is_left_to_a_thread_and_refused_there_at_the_bound(codec: int) -> None:
    made = batch(1, size=8 << 20, codec=codec)
    header = read_header(made)
    rules = payload_rules(CONFIG, NOW)
    assert examine_records(made, header, rules) is None
    verdict = examine_large(bytes(made), header, rules, 4 << 20)
    assert isinstance(verdict, Refusal)
    assert verdict.code is ErrorCode.MESSAGE_TOO_LARGE
    assert not isinstance(examine_large(bytes(made), header, rules, 16 << 20), Refusal)
