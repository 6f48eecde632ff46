"""What a job may ask of the source, and how it is told that something is wrong: by the option's name, with what is allowed."""

import pytest

pytest.importorskip("pyspark", reason="needs spark: pyspark is not installed")

from penstock.peers.offsets import EARLIEST, LATEST
from penstock.pipeline.options import WrongOption
from penstock.pipeline.source.bounds import AtOffsets, AtTimestamp, AtTimestamps, Committed, Everywhere
from penstock.pipeline.source.options import OPTIONS, SourceOptions, ValueFormat, read_options
from penstock.pipeline.source.subscription import Assigned, Named, Pattern
from penstock.vocabulary import TopicPartition

CONTACT = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
NEEDED = CONTACT | {"subscribe": "orders"}


def read(is_stream: bool = False, **given: str) -> SourceOptions:
    return read_options(NEEDED | {name.replace("__", "."): value for name, value in given.items()}, is_stream=is_stream)


def test_a_job_that_says_nothing_more_reads_everything_that_is_committed() -> None:
    batch, stream = read(), read(is_stream=True)
    assert (batch.start, batch.end) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert stream.start == Everywhere(LATEST)
    assert batch.fetching.is_committed_only and batch.fails_on_data_loss and batch.group is None
    assert batch.splitting.is_even and not stream.splitting.is_even, "tasks of a stream keep a partition's order unless asked otherwise"
    assert batch.value_format is ValueFormat.ANY


def test_names_are_taken_in_any_case() -> None:
    given = read_options(CONTACT | {"SUBSCRIBE": "a , b,", "MaxOffsetsPerTrigger": "7", "KAFKA.GROUP.ID": "g"}, is_stream=True)
    assert given.subscription == Named(("a", "b"))
    assert (given.admission.offsets_max, given.group) == (7, "g")


def test_topics_are_chosen_in_three_ways() -> None:
    assert read_options(CONTACT | {"subscribePattern": "orders-.*"}, is_stream=False).subscription == Pattern("orders-.*")
    assigned = read_options(CONTACT | {"assign": '{"b": [1, 0], "a": [2]}'}, is_stream=False).subscription
    assert assigned == Assigned((TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1)))


def test_bounds_have_the_forms_and_the_order_of_sparks_kafka_source() -> None:
    zero = TopicPartition("orders", 0)
    assert read(startingOffsets="Earliest").start == Everywhere(EARLIEST)
    assert read(startingOffsets='{"orders": {"0": 5}}').start == AtOffsets({zero: 5})
    assert read(is_stream=True, startingOffsets='{"orders": {"0": -1}}').start == AtOffsets({zero: LATEST})
    assert read(startingOffsets='{"orders": {"0": 5}, "topic ids": {"orders": "AAAA"}}').start == AtOffsets({zero: 5})
    assert read(startingOffsets="earliest", startingOffsetsByTimestamp='{"orders": {"0": 9}}').start == AtTimestamps({zero: 9})
    assert read(startingTimestamp="7", startingOffsetsByTimestamp='{"orders": {"0": 9}}').start == AtTimestamp(7)
    assert read(endingTimestamp="8", endingOffsets="latest").end == AtTimestamp(8)
    assert read(endingOffsetsByTimestamp='{"orders": {"0": 9}}').end == AtTimestamps({zero: 9})
    assert read(endingOffsets='{"orders": {"0": -1}}').end == AtOffsets({zero: LATEST})
    assert read(startingOffsets="committed", groupId="billing").start == Committed("billing")


def test_every_other_option_arrives() -> None:
    given = read(
        is_stream=True, minOffsetsPerTrigger="10", maxOffsetsPerTrigger="20", maxTriggerDelay="5m", minPartitions="4",
        maxRecordsPerPartition="9", failOnDataLoss="FALSE", groupIdPrefix="team", fetchOffset__numRetries="5",
        fetchOffset__retryIntervalMs="20", kafkaConsumer__pollTimeoutMs="30000", partition__metadata__cache__ttl__ms="700",
        kafka__isolation__level="read_uncommitted",
        kafka__max__partition__fetch__bytes="1000", kafka__fetch__max__wait__ms="50", kafka__fetch__min__bytes="3", deadLetterTopic="dead",
        valueFormat="json", splitSkewed="true", offsetsWithTopicIds="false", startingOffsetsByTimestampStrategy="latest",
        kafka__session__timeout__ms="45000",
    )  # fmt: skip
    assert (given.admission.offsets_min, given.admission.offsets_max, given.admission.delay_s) == (10, 20, 300.0)
    assert (given.splitting.partitions_min, given.splitting.records_max, given.splitting.is_even) == (4, 9, True)
    assert not given.fails_on_data_loss and given.contact.client_id == "team"
    assert (given.lookup_tries, given.lookup_pause_s, given.metadata_age_s) == (5, 0.02, 0.7)
    fetching = given.fetching
    assert not fetching.is_committed_only and (fetching.bytes_max, fetching.wait_ms, fetching.bytes_min) == (1000, 50, 3)
    assert fetching.patience_s == 30.0
    assert (given.dead_letter_topic, given.value_format, given.has_topic_ids) == ("dead", ValueFormat.JSON, False)
    assert given.begins_at_latest_without_match


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "subscribe and assign were set together"),
        ({"subscribe": " , "}, "name topics"),
        ({"subscribePattern": "("}, "write a regular expression"),
        ({"assign": "orders"}, "write it like"),
        ({"assign": '{"orders": ["0"]}'}, "write it like"),
        ({"subscribe": "a", "startingOffsets": "sooner"}, "write earliest, latest, committed"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "begins at the latest offset would always be empty"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -1}}'}, "for a-0 in a batch query"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"zero": 1}}'}, "partition 'zero' of 'a'"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "-3 for partition '0'"),
        ({"subscribe": "a", "startingOffsets": "committed"}, "name it in groupId"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "ends at the earliest offset would always be empty"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 9}}', "endingOffsets": '{"a": {"0": 5}}'}, "a-0 would begin at 9 and end at 5"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 9}}', "endingOffsets": '{"a": {"1": 9}}'}, "name the same partitions"),
        ({"subscribe": "a", "startingTimestamp": "yesterday"}, "milliseconds since 1970"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "guess"}, "write error or latest"),
        ({"subscribe": "a", "minPartitions": "0"}, "minPartitions is 0"),
        ({"subscribe": "a", "maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition is -1"),
        ({"subscribe": "a", "minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "more than maxOffsetsPerTrigger"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "not a duration"),
        ({"subscribe": "a", "failOnDataLoss": "perhaps"}, "write true or false"),
        ({"subscribe": "a", "valueFormat": "xml"}, "write any or utf8 or json"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"subscribe": "a", "groupId": "one", "kafka.group.id": "two"}, "name one group"),
        ({"subscribe": "a", "kafka.security.protocol": "SSL"}, "plain text only"),
        ({"subscribe": "a", "kafka.sasl.jaas.config": "x"}, "signs in nowhere"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "set startingOffsets to earliest or latest"),
        ({"subscribe": "a", "kafka.value.deserializer": "x"}, "values come as bytes"),
        ({"subscribe": "a", "kafka.enable.auto.commit": "true"}, "groupId"),
        ({"subscribe": "a", "kafka.interceptor.classes": "x"}, "nothing may change a record"),
        ({"subscribe": "a", "kafka.isolation.level": "serializable"}, "write read_committed or read_uncommitted"),
        ({"subscribe": "a", "kafka.compression.type": "zstd"}, "does not know the setting kafka.compression.type"),
        ({"subscribe": "a", "startingTimestamp": "9" * 23}, "startingTimestamp is '9{23}'\n.*up to 9223372036854775807"),
        ({"subscribe": "a", "endingTimestamp": str(1 << 63)}, "endingTimestamp is '9223372036854775808'"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": 99999999999999999999999}}'}, "has 9{23} for partition '0' of 'a'"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 99999999999999999999999}}'}, "has 9{23} for partition '0' of 'a'"),
        ({}, "set one of subscribe, subscribePattern and assign"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_in_words(given: dict[str, str], words: str) -> None:
    with pytest.raises(WrongOption, match=words):
        read_options(CONTACT | given, is_stream=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(WrongOption, match=f"{name} was set on a stream"):
        read_options(NEEDED | {name: "1"}, is_stream=True)


def test_an_option_of_somebody_else_is_let_pass() -> None:
    """Spark hands over what it makes of tables and paths."""
    assert read_options(NEEDED | {"path": "/x", "serialization.format": "1"}, is_stream=False).subscription == Named(("orders",))


def test_no_option_is_taken_for_a_misspelled_one() -> None:
    for name in OPTIONS:
        try:
            read_options(CONTACT | {name: "1"}, is_stream=False)
        except WrongOption as wrong:
            assert "did you mean" not in str(wrong), name
