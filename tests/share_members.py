"""Members of share groups, as plain as the protocol has them: each on a line of its own, doing what the test says when it says so.

Not here: claims about what a node should answer.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from members import coordinated
from serving import Line, Serving

from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import decode_records, read_header

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4

Said = Sequence[tuple[int, int, Sequence[int]]]  # First offset, last offset, types.


class ShareMember:
    """One member that fetches from some partitions of one topic, and what it was given."""

    def __init__(self, line: Line, topic_id: bytes, member_id: str = "me", group: str = "g", partitions: Sequence[int] = (0,)) -> None:
        self.line = line
        self.topic_id = topic_id
        self.names = {"group_id": group, "member_id": member_id}
        self.partitions = partitions
        self.epoch = 0

    def send(
        self, acks: Mapping[int, Said] | None = None, *, wait_ms: int = 0, records_max: int = 100, version: int = 2, **said: Any
    ) -> None:
        said_of = acks or {}
        places = dict.fromkeys([*(() if self.epoch else self.partitions), *said_of])
        rows = [{"partition_index": each, "acknowledgement_batches": _batches(said_of.get(each, ()))} for each in places]
        details: dict[str, Any] = {
            "max_wait_ms": wait_ms, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": records_max, "batch_size": records_max,
            "share_session_epoch": self.epoch, "topics": [{"topic_id": self.topic_id, "partitions": rows}] if rows else [],
        }  # fmt: skip
        self.line.send(ApiKey.SHARE_FETCH, version, **(self.names | details | said))

    async def receive(self) -> Any:
        answer = await self.line.receive()
        if answer.error_code == 0:
            self.epoch += 1
        return answer

    async def fetch(self, acks: Mapping[int, Said] | None = None, **said: Any) -> Any:
        self.send(acks, **said)
        return await self.receive()

    async def take(self, acks: Mapping[int, Said] | None = None, **said: Any) -> dict[int, tuple[bytes, int]]:
        """What a fetch gives of partition 0: by offset, the value and how often it was delivered."""
        answer = await self.fetch(acks, **said)
        assert answer.error_code == 0, answer.error_message
        found: dict[int, tuple[bytes, int]] = {}
        for row in (row for topic in answer.responses for row in topic.partitions):
            assert (row.error_code, row.acknowledge_error_code) == (0, 0), (row.error_message, row.acknowledge_error_message)
            found |= acquired(row)
        return found

    async def acknowledge(self, acks: Mapping[int, Said], *, version: int = 2, **said: Any) -> Any:
        """The reply's rows, by partition."""
        rows = [{"partition_index": each, "acknowledgement_batches": _batches(ranges)} for each, ranges in acks.items()]
        details = {"share_session_epoch": self.epoch, "topics": [{"topic_id": self.topic_id, "partitions": rows}] if rows else []}
        answer = await self.line.ask(ApiKey.SHARE_ACKNOWLEDGE, version, **(self.names | details | said))
        if answer.error_code == 0:
            self.epoch += 1
        return answer

    async def outcomes(self, *said: tuple[int, int, Sequence[int]], **details: Any) -> int:
        """The error of partition 0."""
        answer = await self.acknowledge({0: said}, **details)
        assert answer.error_code == 0, answer.error_message
        return int(answer.responses[0].partitions[0].error_code)


def acquired(row: Any) -> dict[int, tuple[bytes, int]]:
    values = dict(_records(bytes(row.records or b"")))
    found = {}
    for each in row.acquired_records:
        for offset in range(each.first_offset, each.last_offset + 1):
            found[offset] = (values[offset], each.delivery_count)
    return found


async def opened(
    serving: Serving, topic: str = "t", partitions: int = 1, *, reset: str = "earliest", is_known: bool = True, **changes: Any
) -> tuple[Line, bytes]:
    """A node with a topic, on which the group g begins where it is told to, should anybody fetch for it."""
    await serving.open(offsets_topic_num_partitions=4, **changes)
    line = await serving.line()
    topic_id = await line.create(topic, partitions)
    await configure(line, "g", {"share.auto.offset.reset": reset})
    if is_known:
        await known(line, topic)
    return line, topic_id


async def known(line: Line, *topics: str, group: str = "g") -> None:
    """Has somebody join the group to read these topics, and leave it: from now on members can be played that only fetch."""
    await coordinated(line, group)
    beat = {"group_id": group, "member_id": "the first"}
    joined = await line.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **beat, member_epoch=0, subscribed_topic_names=list(topics))
    assert joined.error_code == 0, joined.error_message
    assert (await line.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **beat, member_epoch=-1)).error_code == 0


async def configure(line: Line, group: str, configs: Mapping[str, str]) -> None:
    wish = {
        "resource_type": 32,
        "resource_name": group,
        "configs": [{"name": name, "config_operation": 0, "value": value} for name, value in configs.items()],
    }
    answer = await line.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[wish], validate_only=False)
    assert answer.responses[0].error_code == 0, answer.responses[0].error_message


def _batches(said: Said) -> list[dict[str, Any]]:
    return [{"first_offset": first, "last_offset": last, "acknowledge_types": list(types)} for first, last, types in said]


def _records(content: bytes) -> list[tuple[int, bytes]]:
    found, at = [], 0
    while at < len(content):
        header = read_header(content, at)
        found += [(record.offset, record.value or b"") for record in decode_records(content[at : at + header.size], bytes_max=1 << 24)]
        at += header.size
    return found
