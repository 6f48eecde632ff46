"""The straight way of a produce request decides nothing that the long way would decide otherwise."""

import random
import struct
from typing import Any

import pytest
from crc32c import crc32c
from serving import Line, VirtualServing, produce_body, rows_of
from tiers import pick

from penstock.wire.api_keys import ApiKey
from penstock.wire.batches import Record, encode_batch
from penstock.wire.compression import Codec

VIRTUAL_TIME = True

NOW_MS = 1_800_000_000_000

TOPICS: dict[str, dict[str, Any]] = {
    "plain": {},
    "small": {"max_message_bytes": 300},
    "compacted": {"cleanup_policy": "compact"},
    "strict": {"message_timestamp_before_max_ms": 1_000, "message_timestamp_after_max_ms": 1_000},
    "stamped": {"message_timestamp_type": "LogAppendTime"},
    "careful": {"min_insync_replicas": 2},
    "careless": {"flush": "os"},
}


class Chaos:
    """Requests with one batch, most of them proper, the others wrong in one way."""

    def __init__(self, seed: int, now_ms: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = now_ms
        self.sequences: dict[tuple[str, int], int] = {}

    def batch(self, topic: str) -> bytes:
        rng = self.rng
        producer = rng.choice([-1, -1, 5, 6])
        sequence = self.sequences.get((topic, producer), 0) + rng.choice([0, 0, 0, 0, 1, -1])
        records = [
            Record(
                key=rng.choice([b"key", b"key", None]),
                value=rng.choice([None, b"", rng.randbytes(rng.randrange(200))]),
                headers=rng.choice([(), (("name", b"value"), ("null", None))]),
                timestamp_ms=self.now_ms + rng.choice([0, 0, 0, 500, -10_000, 7_200_000]),
            )
            for _ in range(rng.randrange(1, 5))
        ]
        known = (
            {} if producer < 0 else {"producer_id": producer, "producer_epoch": rng.choice([0, 0, 0, 1]), "base_sequence": max(0, sequence)}
        )
        made = bytearray(encode_batch(records, codec=rng.choice([Codec.NONE] * 6 + list(Codec)), **known))
        if producer >= 0 and sequence >= 0:
            self.sequences[topic, producer] = sequence + len(records)
        return self.spoiled(made) if rng.random() < 0.4 else bytes(made)

    def spoiled(self, made: bytearray) -> bytes:
        rng = self.rng
        match rng.randrange(9):
            case 0:
                made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)  # Rot: mostly a wrong checksum.
            case 1:
                return bytes(made[: rng.randrange(len(made))])
            case 2:
                return bytes(made) + rng.choice([b"\0", bytes(made)])
            case 3:
                made[16] = rng.choice([0, 1, 3])
            case 4:
                struct.pack_into(">q", made, 0, rng.choice([1, -1]))
            case 5:
                struct.pack_into(">h", made, 21, rng.choice([0x08, 0x10, 0x20, 0x40, 0x05, 0x100]))
                self._seal(made)
            case 6:
                struct.pack_into(">i", made, rng.choice([23, 57]), rng.choice([0, -1, 2, 99]))
                self._seal(made)
            case 7:
                struct.pack_into(">q", made, rng.choice([27, 35]), rng.choice([0, -1, self.now_ms, 1 << 62]))
                self._seal(made)
            case _:
                if len(made) > 61:
                    made[rng.randrange(61, len(made))] ^= 1 << rng.randrange(8)
                    self._seal(made)  # A right checksum around records that may not parse.
        return bytes(made)

    @staticmethod
    def _seal(made: bytearray) -> None:
        made[17:21] = crc32c(bytes(made[21:])).to_bytes(4, "big")

    def request(self, ids: dict[str, bytes]) -> tuple[int, dict[str, Any]]:
        rng = self.rng
        version = rng.randrange(3, 14)
        name = rng.choice([*TOPICS, "plain", "plain", "missing"])
        topic: str | bytes = ids.get(name, bytes(15) + b"\7") if version >= 13 else name
        partition = rng.choice([0, 0, 0, 0, 1, -1])
        body = produce_body({topic: {partition: self.batch(name)}}, acks=rng.choice([-1, -1, 1, 2]), timeout_ms=rng.choice([5_000, 0, -1]))
        if rng.random() < 0.05:
            body["transactional_id"] = "t"
        return version, body


def told(answer: Any) -> list[Any]:
    """The rows of a reply, without what differs between two nodes: topic ids and the time of append."""
    rows = [row for topic in answer.responses for row in topic.partition_responses]
    return [
        (
            row.index, row.error_code, row.base_offset, getattr(row, "log_start_offset", None), getattr(row, "error_message", None),
            [(error.batch_index, error.batch_index_error_message) for error in getattr(row, "record_errors", ())],
            row.log_append_time is None,
        )
        for row in rows
    ]  # fmt: skip


async def prepared(line: Line) -> dict[str, bytes]:
    return {name: await line.create(name, **configs) for name, configs in TOPICS.items()}


@pytest.mark.repeats
@pytest.mark.parametrize("seed", range(pick(test=1, slow=3)))
async def test_both_ways_answer_the_same_and_store_the_same(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    answers, contents = [], []
    for is_straight in (True, False):
        with monkeypatch.context() as patched:
            if not is_straight:
                patched.setattr("penstock.broker.apis.produce_single", lambda node, connection, frame: False)
            here = VirtualServing()
            try:
                node = await here.open()
                here.env.wall_stopped_ms = NOW_MS
                line = await here.line()
                ids = await prepared(line)
                chaos = Chaos(seed, NOW_MS)
                said = []
                for _ in range(400):
                    version, body = chaos.request(ids)
                    said.append(told(await line.ask(ApiKey.PRODUCE, version, **body)))
                answers.append(said)
                contents.append({name: rows_of(await line.fetch(name))[name, 0].records for name in TOPICS if name != "stamped"})
                counted = node.metrics
                answers.append([counted.batches_in, counted.batches_refused, counted.records_in, counted.bytes_in, counted.duplicates_in])
            finally:
                await here.close()
    assert answers[0] == answers[2]
    assert contents[0] == contents[1]
    assert answers[1] == answers[3], "counted alike"
    codes = {row[1] for said in answers[0] for row in said}
    assert len(codes) >= 10, f"too tame: {sorted(codes)}"
