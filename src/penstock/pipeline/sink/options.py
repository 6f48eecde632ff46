"""The options of the sink, read and refused by name. Those of the connection are read by `brokers.contact`.

| option | default | meaning |
|---|---|---|
| `topic` | the column `topic` | where every row goes, whatever its column says |
| `deliver` | exactly-once | or at-least-once: no transactions, no ledger; a batch that is tried again is written again |
| `sinkId` | the query's id | a name of one's own, which a deleted checkpoint does not change |
| `batchId` | none | with `sinkId`, for `df.write`: the number of this write; one that was committed is not written again |
| `transactionTimeoutMs` | 600000 | how long a batch may take, and an orphan hold readers back |
| `onNewCheckpoint` | fail | with `sinkId`: fail, skip or append where batches begin anew (runs.py) |
| `lostBatch` | fail | fail, rewrite or skip a batch that was aborted in part after it was committed (ending.py) |
| `ledgerTopic` | __penstock_sink | where commits are recorded |
| `includeTimestamp` | false | whether the column `timestamp` is written; otherwise records have the time at which they are |
| `kafka.compression.type`, `kafka.batch.size` | none, 262144 | of the batches |
| `kafka.delivery.timeout.ms`, `kafka.max.block.ms` | 120000, 60000 | for one batch; for the topic to be found |
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.pipeline.brokers import BOOTSTRAP, CONTACT_SETTINGS, REFUSED_SETTINGS, contact
from penstock.pipeline.options import KAFKA, Options, WrongOption
from penstock.pipeline.sink.names import SINK_ID
from penstock.wire.compression import Codec

LEDGER_TOPIC = "__penstock_sink"
BATCH_BYTES = 256 << 10  # Large enough that a header of 61 bytes and a flush are nothing beside it, well below what every broker takes.
TRANSACTION_TIMEOUT_MS = 600_000  # Kafka's brokers allow 15 minutes unless told otherwise.
LINGER_IGNORED = "linger.ms"  # Batches are cut from rows that are there: nothing waits for company.

OPTIONS = (
    "topic", "deliver", "sinkId", "batchId", "transactionTimeoutMs", "onNewCheckpoint", "lostBatch", "ledgerTopic", "includeTimestamp",
    BOOTSTRAP,
)  # fmt: skip
PRODUCER_SETTINGS = ("compression.type", "batch.size", "delivery.timeout.ms", "max.block.ms", "acks", "enable.idempotence", LINGER_IGNORED)
_ELSEWHERE = {
    "transactional.id": "leave it out: the sink names its transactions itself; sinkId pins the name",
    "transaction.timeout.ms": "use transactionTimeoutMs",
    "key.serializer": "leave it out: keys are written as the column's bytes",
    "value.serializer": "leave it out: values are written as the column's bytes",
}


class Deliver(Enum):
    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


class NewCheckpoint(Enum):
    FAIL = "fail"
    SKIP = "skip"
    APPEND = "append"


class LostBatch(Enum):
    FAIL = "fail"
    REWRITE = "rewrite"
    SKIP = "skip"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    topic: str | None = None
    deliver: Deliver = Deliver.EXACTLY_ONCE
    sink_id: str | None = None
    batch_id: int | None = None
    transaction_timeout_ms: int = TRANSACTION_TIMEOUT_MS
    new_checkpoint: NewCheckpoint = NewCheckpoint.FAIL
    lost_batch: LostBatch = LostBatch.FAIL
    ledger_topic: str = LEDGER_TOPIC
    includes_timestamp: bool = False
    codec: Codec = Codec.NONE
    batch_bytes: int = BATCH_BYTES
    delivery_s: float = 120.0
    max_block_s: float = 60.0


def sink_options(options: Mapping[str, str], *, is_stream: bool) -> SinkOptions:
    given = Options(options)
    contact(options)  # Refuses what is wrong about it before any task starts.
    given.refuse_strangers({*CONTACT_SETTINGS, *PRODUCER_SETTINGS}, of_whom="the sink", elsewhere=REFUSED_SETTINGS | _ELSEWHERE)
    given.refuse_misspelled(OPTIONS, of_whom="the sink")
    if given.choice(KAFKA + "acks", "all", ("all", "-1", "1", "0")) not in ("all", "-1"):
        raise WrongOption("kafka.acks is not all", "leave it out: what is not acknowledged by all replicas cannot count exactly once")
    if not given.flag(KAFKA + "enable.idempotence", True):
        raise WrongOption("kafka.enable.idempotence is false", "leave it out: without it a retry is stored twice")
    read = SinkOptions(
        topic=_filled(given, "topic"),
        deliver=Deliver(given.choice("deliver", Deliver.EXACTLY_ONCE.value, [one.value for one in Deliver])),
        sink_id=_filled(given, "sinkId"),
        batch_id=given.whole("batchId", None),
        transaction_timeout_ms=given.whole("transactionTimeoutMs", TRANSACTION_TIMEOUT_MS, low=1_000, high=(1 << 31) - 1),
        new_checkpoint=NewCheckpoint(given.choice("onNewCheckpoint", "fail", [one.value for one in NewCheckpoint])),
        lost_batch=LostBatch(given.choice("lostBatch", "fail", [one.value for one in LostBatch])),
        ledger_topic=_filled(given, "ledgerTopic") or LEDGER_TOPIC,
        includes_timestamp=given.flag("includeTimestamp", False),
        codec=Codec[given.choice(KAFKA + "compression.type", "none", [codec.name.lower() for codec in Codec]).upper()],
        batch_bytes=given.whole(KAFKA + "batch.size", BATCH_BYTES, low=1_024, high=64 << 20),
        delivery_s=given.whole(KAFKA + "delivery.timeout.ms", 120_000, low=1) / 1_000,
        max_block_s=given.whole(KAFKA + "max.block.ms", 60_000, low=1) / 1_000,
    )
    _check_names(read, is_stream=is_stream)
    return read


def _filled(given: Options, name: str) -> str | None:
    """Spark hands an empty text through; none of these means anything by it."""
    text = given.text(name, None)
    if text is not None and not text.strip():
        raise WrongOption(f"{name} is empty", "write a name, or leave the option out")
    return text


def _check_names(read: SinkOptions, *, is_stream: bool) -> None:
    if read.sink_id is not None and not SINK_ID.fullmatch(read.sink_id):
        raise WrongOption(f"sinkId is {read.sink_id!r}", "write up to 200 letters, digits, dots, dashes and underscores")
    if is_stream and read.batch_id is not None:
        raise WrongOption("batchId is of no use to a streaming query, which counts its batches itself", "leave it out")
    if not is_stream and (read.sink_id is None) != (read.batch_id is None):
        raise WrongOption(
            "a batch write takes sinkId and batchId together or neither: together they say which write this is, so that it counts once "
            "however often it is tried",
            "add the other, for example the epoch that foreachBatch gives, or leave both out",
        )
