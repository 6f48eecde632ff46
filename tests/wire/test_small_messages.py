"""ListOffsets, Metadata and ApiVersions against kio, every version."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiers import pick

from penstock.vocabulary import NO_TOPIC_ID
from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.api_versions import write_api_versions_response, write_unsupported_api_versions_response
from penstock.wire.frames import read_request_header
from penstock.wire.list_offsets import OffsetFound, OffsetWish, read_list_offsets_request, write_list_offsets_response
from penstock.wire.metadata import PartitionDescription, TopicWish, encode_topic, read_metadata_request, write_metadata_response

few = settings(max_examples=pick(test=12, slow=50))  # Each version is a test of its own.
names = st.text(min_size=1, max_size=200)
ids = st.binary(min_size=16, max_size=16)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
codes = st.sampled_from([0, 1, 3, 5, 6, 100])
nodes = st.lists(int32, max_size=4)


def request_frame(api_key, version, body):
    frame = schemas.write_request(api_key, version, 7, None, body)[4:]
    return frame, read_request_header(frame).body_at


@pytest.mark.repeats
@pytest.mark.parametrize("version", range(1, 12))
@few
@given(
    topics=st.lists(st.tuples(names, st.lists(st.builds(OffsetWish, int32, int32, int64), max_size=4)), max_size=3),
    head=st.tuples(int32, int32),
)
def test_a_list_offsets_request_reads_as_it_was_written(version, topics, head):
    replica_id, timeout_ms = head
    body = {
        "replica_id": replica_id,
        "isolation_level": 1,
        "timeout_ms": timeout_ms,
        "topics": [{"name": name, "partitions": list(map(wish_body, wishes))} for name, wishes in topics],
    }
    request = read_list_offsets_request(*request_frame(ApiKey.LIST_OFFSETS, version, body), version)
    assert request.replica_id == replica_id
    assert request.isolation_level == (1 if version >= 2 else 0)
    assert request.timeout_ms == (timeout_ms if version >= 10 else -1)
    assert request.topics == [(name, [w if version >= 4 else w._replace(leader_epoch=-1) for w in wishes]) for name, wishes in topics]


def wish_body(wish):
    return {"partition_index": wish.partition, "current_leader_epoch": wish.leader_epoch, "timestamp": wish.timestamp}


@pytest.mark.repeats
@pytest.mark.parametrize("version", range(1, 12))
@few
@given(
    topics=st.lists(st.tuples(names, st.lists(st.builds(OffsetFound, int32, codes, int64, int64, int32), max_size=4)), max_size=3),
    throttle_ms=int32,
)
def test_a_list_offsets_reply_reads_as_it_was_written(oracle_reply, version, topics, throttle_ms):
    wire = write_list_offsets_response(version, 9, topics, throttle_ms=throttle_ms)
    rows = ("partition_index", "error_code", "timestamp", "offset", "leader_epoch")
    expected = {
        "throttle_time_ms": throttle_ms,
        "topics": [
            {"name": name, "partitions": [dict(zip(rows, found, strict=True)) for found in partitions]} for name, partitions in topics
        ],
    }
    assert oracle_reply(ApiKey.LIST_OFFSETS, version, wire) == (9, schemas.build_response(ApiKey.LIST_OFFSETS, version, expected))


@pytest.mark.repeats
@pytest.mark.parametrize("version", range(14))
@few
@given(topics=st.none() | st.lists(st.builds(TopicWish, names, ids), max_size=4), creation=st.booleans())
def test_a_metadata_request_reads_as_it_was_written(version, topics, creation):
    if version == 0 and topics is None:
        topics = []
    body = {
        "topics": None if topics is None else [{"name": topic.name, "topic_id": topic.topic_id} for topic in topics],
        "allow_auto_topic_creation": creation,
        "include_cluster_authorized_operations": True,
        "include_topic_authorized_operations": True,
    }
    request = read_metadata_request(*request_frame(ApiKey.METADATA, version, body), version)
    if version == 0 and topics == []:
        assert request.topics is None, "in version 0 an empty list asks for all"
    elif topics is None:
        assert request.topics is None
    else:
        assert request.topics == [topic if version >= 10 else TopicWish(topic.name, NO_TOPIC_ID) for topic in topics]
    assert request.allow_auto_creation is (creation if version >= 4 else True)
    assert request.with_cluster_operations is (8 <= version <= 10)
    assert request.with_topic_operations is (version >= 8)


descriptions = st.builds(PartitionDescription, codes, int32, int32, int32, nodes, nodes, nodes)
topic_fields = ("error_code", "name", "topic_id", "is_internal", "partitions", "authorized_operations")
topic_descriptions = st.tuples(codes, st.none() | names, ids, st.booleans(), st.lists(descriptions, max_size=4), int32)
brokers = st.lists(st.tuples(int32, names, int32, st.none() | names), max_size=4)


@pytest.mark.repeats
@pytest.mark.parametrize("version", range(14))
@few
@given(
    topics=st.lists(topic_descriptions, max_size=3), brokers=brokers, cluster_id=st.none() | names, numbers=st.tuples(int32, int32, int32)
)
def test_a_metadata_reply_reads_as_it_was_written(oracle_reply, version, *, topics, brokers, cluster_id, numbers):
    controller_id, throttle_ms, operations = numbers
    described = [dict(zip(topic_fields, topic, strict=True)) for topic in topics]
    wire = write_metadata_response(
        version,
        9,
        brokers=brokers,
        cluster_id=cluster_id,
        controller_id=controller_id,
        topic_pieces=[encode_topic(version, **topic) for topic in described],
        throttle_ms=throttle_ms,
        cluster_authorized_operations=operations,
        error_code=3,
    )
    expected = {
        "throttle_time_ms": throttle_ms,
        "brokers": [{"node_id": node, "host": host, "port": port, "rack": rack} for node, host, port, rack in brokers],
        "cluster_id": cluster_id,
        "controller_id": controller_id,
        "topics": [expected_topic(version, topic) for topic in described],
        "cluster_authorized_operations": operations,
        "error_code": 3,
    }
    assert oracle_reply(ApiKey.METADATA, version, wire) == (9, schemas.build_response(ApiKey.METADATA, version, expected))


def expected_topic(version, topic):
    partition_fields = ("error_code", "partition_index", "leader_id", "leader_epoch", "replica_nodes", "isr_nodes", "offline_replicas")
    return {
        **topic,
        "name": topic["name"] if version >= 12 else topic["name"] or "",
        "partitions": [dict(zip(partition_fields, row, strict=True)) for row in topic["partitions"]],
        "topic_authorized_operations": topic["authorized_operations"],
    }


apis = st.lists(st.tuples(int16, int16, int16), max_size=60)
features = st.lists(st.tuples(names, int16, int16), max_size=3)


@pytest.mark.repeats
@pytest.mark.parametrize("version", range(5))
@few
@given(apis=apis, throttle_ms=int32, supported=features, finalized=features, epoch=st.integers(-1, 2**40))
def test_an_api_versions_reply_reads_as_it_was_written(oracle_reply, version, *, apis, throttle_ms, supported, finalized, epoch):
    wire = write_api_versions_response(
        version,
        9,
        apis,
        throttle_ms=throttle_ms,
        supported_features=supported,
        finalized_features=finalized,
        finalized_features_epoch=epoch,
    )
    expected = {
        "api_keys": [{"api_key": key, "min_version": lowest, "max_version": highest} for key, lowest, highest in apis],
        "throttle_time_ms": throttle_ms,
        "supported_features": [{"name": name, "min_version": lowest, "max_version": highest} for name, lowest, highest in supported],
        "finalized_features": [{"name": name, "min_version_level": low, "max_version_level": high} for name, low, high in finalized],
        "finalized_features_epoch": epoch,
    }
    assert oracle_reply(ApiKey.API_VERSIONS, version, wire) == (9, schemas.build_response(ApiKey.API_VERSIONS, version, expected))


def test_an_unknown_version_is_answered_in_version_0(oracle_reply):
    wire = write_unsupported_api_versions_response(9, [(18, 0, 4)])
    correlation_id, reply = oracle_reply(ApiKey.API_VERSIONS, 0, wire)
    assert (correlation_id, int(reply.error_code)) == (9, 35)
    assert [(row.api_key, row.min_version, row.max_version) for row in reply.api_keys] == [(18, 0, 4)]


def test_a_metadata_request_as_librdkafka_sends_it_is_read():
    """Recorded from 2.16.0, asking for all topics in version 13: three bytes too many."""
    assert read_metadata_request(bytes.fromhex("00000000010000"), 0, 13).topics is None
