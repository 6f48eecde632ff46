"""What a produced batch must be before it may be appended. Nothing is stored of one that is refused.

The checks and their codes are Kafka's, in Kafka's order: shape, size, checksum, header, then the records inside. A batch with a right
checksum around records that don't parse would poison every reader of the partition, so the records are walked too, compressed or not.
Unpacking is bounded twice: up to a mebibyte is done at once, more only away from the event loop (`examine_large`), never past the bound.
"""

from typing import NamedTuple

from penstock.errors import ErrorCode, MalformedInput, Refusal
from penstock.partition.record_faults import record_faults
from penstock.settings import MIB, TopicConfig
from penstock.vocabulary import Buffer
from penstock.wire.batches import HEADER_BYTES, MAGIC, BatchHeader, crc_is_right, read_header, read_magic
from penstock.wire.compression import Codec, TooLarge, decompress
from penstock.wire.records import TIMESTAMP_HIGHEST, TIMESTAMP_LOWEST, RecordFault, RecordsVerdict, check_records

UNPACKED_AT_ONCE_MAX = MIB  # About a millisecond of work for the slowest codec.
FIRST_PRODUCE_VERSION_WITH_ZSTD = 7

_FAULTS = {
    RecordFault.MALFORMED: (ErrorCode.INVALID_RECORD, "the record does not parse"),
    RecordFault.OFFSET_DELTA: (ErrorCode.INVALID_RECORD, "offset deltas must be 0, 1, 2 …"),
    RecordFault.KEY_MISSING: (ErrorCode.INVALID_RECORD, "a compacted topic takes only records with a key"),
    RecordFault.TIMESTAMP: (ErrorCode.INVALID_TIMESTAMP, "the timestamp is outside of what the topic allows"),
}


class InvalidRecord(Refusal):
    """Some records spoil their batch; clients that ask for it (Produce 8 and later) are told which, and why."""

    def __init__(self, code: ErrorCode, records: list[tuple[int, str]]) -> None:
        (first, reason), *others = records
        super().__init__(code, f"record {first}: {reason}" + (f", and {len(others)} more" if others else ""))
        self.records = records


class PayloadRules(NamedTuple):
    """What the records inside must keep to; plain values, so that they can travel to another thread."""

    timestamp_min: int
    timestamp_max: int
    keys_required: bool


class PlainRules(NamedTuple):
    """What lets a plain batch in without another look (`is_plain_batch`); times are counted from now."""

    bytes_max: int
    before_ms: int
    after_ms: int
    keys_required: bool


def plain_rules(config: TopicConfig) -> PlainRules | None:
    """None where every batch needs another look: its time must be stamped."""
    if config.message_timestamp_type == "LogAppendTime":
        return None
    before_ms, after_ms = config.message_timestamp_before_max_ms, config.message_timestamp_after_max_ms
    return PlainRules(config.max_message_bytes, before_ms, after_ms, config.is_compacted)


def payload_rules(config: TopicConfig, wall_ms: int) -> PayloadRules:
    if config.message_timestamp_type == "LogAppendTime":
        return PayloadRules(TIMESTAMP_LOWEST, TIMESTAMP_HIGHEST, config.is_compacted)
    return PayloadRules(
        max(TIMESTAMP_LOWEST, wall_ms - config.message_timestamp_before_max_ms),
        min(TIMESTAMP_HIGHEST, wall_ms + config.message_timestamp_after_max_ms),
        config.is_compacted,
    )


def examine_header(batch: Buffer, config: TopicConfig, produce_version: int, *, names_transaction: bool = False) -> BatchHeader:
    """The header of the one batch that these bytes are; or the reason why they cannot be taken.

    `names_transaction`: the request has a transactional id. Only then may a batch be part of a transaction.
    """
    if len(batch) < HEADER_BYTES:
        raise _shape_refusal(batch)
    header = read_header(batch)
    if header.magic != MAGIC:
        raise _shape_refusal(batch)
    if header.size != len(batch):
        if header.size < HEADER_BYTES or header.size > len(batch):
            raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"the batch says it has {header.size} bytes, {len(batch)} came")
        raise Refusal(ErrorCode.INVALID_RECORD, "a partition takes exactly one batch per request")
    if len(batch) > config.max_message_bytes:
        raise Refusal(
            ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {len(batch)} bytes, the topic takes {config.max_message_bytes} (max.message.bytes)"
        )
    if not crc_is_right(batch, 0, len(batch)):
        raise Refusal(ErrorCode.CORRUPT_MESSAGE, "the checksum does not match the bytes")
    _check_fields(header, produce_version, names_transaction)
    return header


def _check_fields(header: BatchHeader, produce_version: int, names_transaction: bool) -> None:
    if header.base_offset != 0:
        raise Refusal(ErrorCode.INVALID_RECORD, f"a producer's batch begins at offset 0, not {header.base_offset}")
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise Refusal(ErrorCode.INVALID_RECORD, f"{header.record_count} records do not fit a last offset of {header.last_offset_delta}")
    if header.attributes & 0x30:  # transactional or control
        if header.is_control:
            raise Refusal(ErrorCode.INVALID_RECORD, "control batches are written by brokers only")
        if not names_transaction:
            reason = "a batch of a transaction comes with its transactional id"
            raise Refusal(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, reason)
        if header.producer_id < 0:
            raise Refusal(ErrorCode.INVALID_RECORD, "a batch of a transaction needs a producer id")
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise Refusal(ErrorCode.INVALID_RECORD, "a batch with a producer id needs its epoch and sequence")
    if header.codec > Codec.ZSTD:
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no codec {header.codec}")
    if header.codec == Codec.ZSTD and produce_version < FIRST_PRODUCE_VERSION_WITH_ZSTD:
        raise Refusal(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or later")


def examine_records(batch: Buffer, header: BatchHeader, rules: PayloadRules) -> RecordsVerdict | None:
    """Walks the records of a batch whose header is good. None: it unpacks to so much that it belongs off the loop (`examine_large`)."""
    payload: Buffer = memoryview(batch)[HEADER_BYTES:]
    if header.codec:
        try:
            payload = decompress(Codec(header.codec), payload, UNPACKED_AT_ONCE_MAX)
        except TooLarge:
            return None
        except MalformedInput as wrong:
            raise Refusal(ErrorCode.CORRUPT_MESSAGE, f"the batch cannot be unpacked: {wrong}") from None
    return _checked(payload, header, rules)


def examine_large(batch: bytes, header: BatchHeader, rules: PayloadRules, bytes_max: int) -> RecordsVerdict | Refusal:
    """As `examine_records`, for a thread: a refusal comes back as a value."""
    try:
        payload = decompress(Codec(header.codec), memoryview(batch)[HEADER_BYTES:], bytes_max)
        return _checked(payload, header, rules)
    except TooLarge:
        return Refusal(ErrorCode.MESSAGE_TOO_LARGE, f"the batch unpacks to more than {bytes_max} bytes (decompressed.batch.bytes.max)")
    except MalformedInput as wrong:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"the batch cannot be unpacked: {wrong}")
    except Refusal as refusal:
        return refusal


def _checked(payload: Buffer, header: BatchHeader, rules: PayloadRules) -> RecordsVerdict:
    times = {"base_timestamp": header.base_timestamp, "timestamp_min": rules.timestamp_min, "timestamp_max": rules.timestamp_max}
    verdict = check_records(payload, header.record_count, **times, keys_required=rules.keys_required)
    if verdict.fault:
        faults = [(verdict.fault_index, RecordFault(verdict.fault))]
        if verdict.fault in (RecordFault.KEY_MISSING, RecordFault.TIMESTAMP):
            faults = record_faults(payload, header.record_count, **times, keys_required=rules.keys_required) or faults
        raise _spoiled(faults)
    return verdict


def _spoiled(faults: list[tuple[int, RecordFault]]) -> InvalidRecord:
    """A bad time gives the batch its code, whatever else is wrong, as at Kafka."""
    codes = [_FAULTS[fault][0] for _, fault in faults]
    code = ErrorCode.INVALID_TIMESTAMP if ErrorCode.INVALID_TIMESTAMP in codes else codes[0]
    return InvalidRecord(code, [(index, _FAULTS[fault][1]) for index, fault in faults])


def _shape_refusal(batch: Buffer) -> Refusal:
    if len(batch) == 0:
        return Refusal(ErrorCode.INVALID_RECORD, "a partition takes exactly one batch per request, none came")
    try:
        magic = read_magic(batch)
    except MalformedInput:
        return Refusal(ErrorCode.CORRUPT_MESSAGE, f"{len(batch)} bytes are too few for a batch")
    if magic < MAGIC:
        return Refusal(
            ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
            f"message format {magic} is from before Kafka 0.11; this node takes format 2: use a client that sends Produce 3 or later",
        )
    return Refusal(ErrorCode.CORRUPT_MESSAGE, f"there is no message format {magic}, or the batch is cut off")
