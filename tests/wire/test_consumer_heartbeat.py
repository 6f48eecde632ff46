"""The short way for heartbeats reads and writes the very bytes that the schemas do."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import schemas
from penstock.wire.api_keys import ApiKey
from penstock.wire.consumer_heartbeat import QuietHeartbeat, read_quiet_heartbeat, write_quiet_answer
from penstock.wire.frames import read_request_header

HEARTBEAT = ApiKey.CONSUMER_GROUP_HEARTBEAT
names = st.text(st.characters(codec="utf-8"), max_size=40)
ints = st.integers(-(2**31), 2**31 - 1)
versions = st.sampled_from([0, 1])


def quiet(version: int, **said: Any) -> tuple[QuietHeartbeat | None, Any]:
    """As the short way reads it, and as the schemas do."""
    body = {"group_id": "g", "member_id": "m", "member_epoch": 3, "topic_partitions": None} | said
    frame = schemas.write_request(HEARTBEAT, version, 7, "client", body)[4:]
    at = read_request_header(memoryview(frame)).body_at
    return read_quiet_heartbeat(version, memoryview(frame), at), schemas.read_request(HEARTBEAT, version, frame, at)


@given(versions, names, names, ints, st.none() | names)
def test_what_is_read_is_what_was_said(version: int, group: str, member_id: str, epoch: int, instance_id: str | None) -> None:
    found, told = quiet(version, group_id=group, member_id=member_id, member_epoch=epoch, instance_id=instance_id)
    if found is None:
        assert max(len(text.encode()) for text in (group, member_id, instance_id or "")) >= 127
    else:
        assert tuple(found) == (told.group_id, told.member_id, told.member_epoch, told.instance_id)


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize(
    "said",
    [
        {"rack_id": "r"}, {"rebalance_timeout_ms": 0}, {"subscribed_topic_names": ["t"]}, {"subscribed_topic_names": []},
        {"server_assignor": "range"}, {"topic_partitions": []}, {"group_id": "g" * 127}, {"member_id": "m" * 127},
    ],
)  # fmt: skip
def test_whoever_says_more_is_read_the_long_way(version: int, said: dict[str, Any]) -> None:
    assert quiet(version, **said)[0] is None
    assert quiet(1, subscribed_topic_regex="")[0] is None


@pytest.mark.parametrize("version", [0, 1])
def test_whatever_is_cut_off_is_read_the_long_way(version: int) -> None:
    body = {"group_id": "g", "member_id": "m", "member_epoch": 3, "topic_partitions": None}
    whole = schemas.write_request(HEARTBEAT, version, 7, None, body)[4:]
    at = read_request_header(memoryview(whole)).body_at
    assert read_quiet_heartbeat(version, whole, at) == QuietHeartbeat("g", "m", 3, None)
    assert [end for end in range(at, len(whole)) if read_quiet_heartbeat(version, whole[:end], at) is not None] == []


@given(versions, st.binary(max_size=60))
def test_whatever_bytes_come_nothing_is_raised(version: int, body: bytes) -> None:
    assert read_quiet_heartbeat(version, body, 0) is None or body


@given(versions, ints, names, ints, st.integers(0, 2**31 - 1))
def test_the_answer_is_that_of_the_schemas(version: int, correlation_id: int, member_id: str, epoch: int, interval_ms: int) -> None:
    body = {"member_id": member_id, "member_epoch": epoch, "heartbeat_interval_ms": interval_ms, "assignment": None}
    answer = write_quiet_answer(correlation_id, member_id, epoch, interval_ms)
    assert answer == schemas.write_response(HEARTBEAT, version, correlation_id, body) or len(member_id.encode()) >= 127
