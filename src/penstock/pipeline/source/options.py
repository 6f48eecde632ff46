"""What a job may ask of the source, with the names and the meaning that Spark's Kafka source gave them, and what is new here.

Settings of Kafka's clients (`kafka.*`) are carried out where the nodes' own client knows them; those that concern only how a consumer is
run (group membership, buffers) mean nothing here and are let pass; everything else is refused by name.
An option that is no option, but nearly one, is refused too: Spark would ignore it, and read from another place than was meant.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.pipeline.brokers import CONTACT_SETTINGS, REFUSED_SETTINGS, Contact, contact
from penstock.pipeline.options import KAFKA, Options, WrongOption
from penstock.pipeline.source.bounds import TO_LATEST, Bound, check_order, read_end, read_partitions, read_start
from penstock.pipeline.source.subscription import Assigned, Named, Pattern, Subscription

FETCH_BYTES = 4 << 20  # Larger answers gained nothing, and two of them lie in a worker's memory at a time.
TRIGGER_DELAY_S = 15 * 60.0  # As Spark's Kafka source.
READ_PATIENCE_S = 120.0  # As Spark's network time-out, which its Kafka source waits for.

OPTIONS = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingOffsetsByTimestamp", "startingTimestamp", "endingOffsets",
    "endingOffsetsByTimestamp", "endingTimestamp", "startingOffsetsByTimestampStrategy", "maxOffsetsPerTrigger", "minOffsetsPerTrigger",
    "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "failOnDataLoss", "includeHeaders", "groupIdPrefix",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs", "partition.metadata.cache.ttl.ms",
    "bootstrap.servers", "groupId", "splitSkewed", "deadLetterTopic", "valueFormat", "offsetsWithTopicIds", "latestByKey",
)  # fmt: skip
READ_SETTINGS = ("isolation.level", "group.id", "fetch.max.bytes", "max.partition.fetch.bytes", "fetch.max.wait.ms", "fetch.min.bytes")
# What only says how a consumer is run: there is none, and what is read does not depend on it.
IDLE_SETTINGS = (
    "session.timeout.ms", "heartbeat.interval.ms", "max.poll.records", "max.poll.interval.ms", "receive.buffer.bytes", "send.buffer.bytes",
    "connections.max.idle.ms", "reconnect.backoff.ms", "reconnect.backoff.max.ms", "client.rack", "client.dns.lookup", "group.instance.id",
    "partition.assignment.strategy", "socket.connection.setup.timeout.max.ms", "check.crcs",
)  # fmt: skip
_INSTEAD = REFUSED_SETTINGS | {
    "auto.offset.reset": "set startingOffsets to earliest or latest: it holds for a new query, and a restarted one reads on where it was",
    "key.deserializer": "leave it out: keys come as bytes; cast them in the frame",
    "value.deserializer": "leave it out: values come as bytes; cast them in the frame",
    "enable.auto.commit": "leave it out: a query's progress is committed to the group that groupId names",
    "interceptor.classes": "leave it out: nothing may change a record on its way",
}
_ENDS = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")


class ValueFormat(Enum):
    """What every value must be; one that is not is a dead letter. A value that is null is fine."""

    ANY = "any"
    UTF8 = "utf8"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Admission:
    """How much one micro-batch takes."""

    offsets_max: int | None
    offsets_min: int | None
    delay_s: float  # After this long a batch is made of whatever there is.


@dataclass(frozen=True, slots=True)
class Splitting:
    """Into how many tasks the ranges are cut."""

    partitions_min: int | None
    records_max: int | None
    is_even: bool  # Whether a partition with far more than its share is read by several tasks unasked.


@dataclass(frozen=True, slots=True)
class Fetching:
    is_committed_only: bool
    bytes_max: int
    bytes_min: int
    wait_ms: int
    patience_s: float  # How long a task may get nothing before it fails.


@dataclass(frozen=True, slots=True)
class SourceOptions:
    contact: Contact
    subscription: Subscription
    start: Bound
    end: Bound
    begins_at_latest_without_match: bool  # Where no record is as young as the timestamp to begin at; otherwise that is refused.
    admission: Admission
    splitting: Splitting
    fetching: Fetching
    fails_on_data_loss: bool
    group: str | None
    dead_letter_topic: str | None
    value_format: ValueFormat
    lookup_tries: int
    lookup_pause_s: float
    metadata_age_s: float  # For how long a stream believes what it knows of partitions.
    has_topic_ids: bool


def read_options(given: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    """Raises `WrongOption` for the first that is wrong."""
    options = Options(given)
    options.refuse_strangers((*CONTACT_SETTINGS, *READ_SETTINGS, *IDLE_SETTINGS), of_whom="the source", elsewhere=_INSTEAD)
    options.refuse_misspelled(OPTIONS, of_whom="the source")
    group = _group(options)
    start = read_start(options, group=group, is_stream=is_stream)
    end = TO_LATEST if is_stream else read_end(options)
    check_order(start, end)
    if is_stream:
        _refuse_ends(options)
    strategy = options.choice("startingOffsetsByTimestampStrategy", "error", ("error", "latest"))
    return SourceOptions(
        contact=contact(_with_client_id(given, options)),
        subscription=_subscription(options),
        start=start,
        end=end,
        begins_at_latest_without_match=strategy == "latest",
        admission=_admission(options),
        splitting=_splitting(options, is_stream),
        fetching=_fetching(options),
        fails_on_data_loss=options.flag("failOnDataLoss", True),
        group=group,
        dead_letter_topic=options.text("deadLetterTopic", None),
        value_format=ValueFormat(options.choice("valueFormat", "any", tuple(each.value for each in ValueFormat))),
        lookup_tries=options.whole("fetchOffset.numRetries", 3, low=1),
        lookup_pause_s=options.whole("fetchOffset.retryIntervalMs", 1_000) / 1_000,
        metadata_age_s=max(0, options.whole("partition.metadata.cache.ttl.ms", -1, low=-1)) / 1_000,
        has_topic_ids=options.flag("offsetsWithTopicIds", True),
    )


def _refuse_ends(options: Options) -> None:
    for name in _ENDS:
        if name in options:
            raise WrongOption(f"{name} was set on a stream, which has no end", "leave it out, or read a batch: spark.read")


def _group(options: Options) -> str | None:
    own, kafkas = options.text("groupId", None), options.text(KAFKA + "group.id", None)
    if own is not None and kafkas is not None and own != kafkas:
        raise WrongOption(f"groupId is {own!r} and kafka.group.id is {kafkas!r}", "name one group")
    return own or kafkas


def _with_client_id(given: Mapping[str, str], options: Options) -> Mapping[str, str]:
    """No group is joined, so that `groupIdPrefix` has no group to name; brokers see it as the client's id."""
    prefix = options.text("groupIdPrefix", None)
    if prefix is None or KAFKA + "client.id" in options:
        return given
    return {**given, KAFKA + "client.id": prefix}


def _subscription(options: Options) -> Subscription:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
    if len(ways) != 1:
        problem = "nothing says which topics to read" if not ways else f"{' and '.join(ways)} were set together"
        raise WrongOption(problem, "set one of subscribe, subscribePattern and assign")
    text = options.text(ways[0], "")
    match ways[0]:
        case "subscribe":
            names = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
            if not names:
                raise WrongOption(f"subscribe is {text!r}", "name topics, with commas between them")
            return Named(names)
        case "subscribePattern":
            try:
                re.compile(text.strip())
            except re.error as wrong:
                raise WrongOption(f"subscribePattern is {text!r}: {wrong}", "write a regular expression") from None
            if not text.strip():
                raise WrongOption("subscribePattern is empty", "write a regular expression, for example orders-.*")
            dead_letters = options.text("deadLetterTopic", None)
            return Pattern(text.strip(), frozenset() if dead_letters is None else frozenset({dead_letters}))
        case _:
            return Assigned(tuple(read_partitions("assign", text)))


def _admission(options: Options) -> Admission:
    offsets_max = options.whole("maxOffsetsPerTrigger", None, low=1)
    offsets_min = options.whole("minOffsetsPerTrigger", None, low=1)
    if offsets_max is not None and offsets_min is not None and offsets_min > offsets_max:
        problem = f"minOffsetsPerTrigger is {offsets_min}, more than maxOffsetsPerTrigger, which is {offsets_max}"
        raise WrongOption(problem, "let the first be at most the second")
    return Admission(offsets_max, offsets_min, options.seconds("maxTriggerDelay", TRIGGER_DELAY_S))


def _splitting(options: Options, is_stream: bool) -> Splitting:
    return Splitting(
        options.whole("minPartitions", None, low=1),
        options.whole("maxRecordsPerPartition", None, low=1),
        options.flag("splitSkewed", not is_stream),
    )


def _fetching(options: Options) -> Fetching:
    isolation = options.choice(KAFKA + "isolation.level", "read_committed", ("read_committed", "read_uncommitted"))
    fetch = options.whole(KAFKA + "fetch.max.bytes", FETCH_BYTES, low=1, high=1 << 30)
    partition = options.whole(KAFKA + "max.partition.fetch.bytes", fetch, low=1, high=1 << 30)
    return Fetching(
        isolation == "read_committed",
        min(fetch, partition),
        options.whole(KAFKA + "fetch.min.bytes", 1, high=1 << 30),
        options.whole(KAFKA + "fetch.max.wait.ms", 500, high=60_000),
        options.whole("kafkaConsumer.pollTimeoutMs", int(READ_PATIENCE_S * 1_000), low=1) / 1_000,
    )
