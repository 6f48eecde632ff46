"""What does it cost a node to keep groups of the new protocol alive? By default 1,000 members of 100 groups, a connection for each.

All join, share one topic and settle; then every member sends the heartbeat of one for whom nothing has changed, each at its own moment of
the interval that the node told. The figure is the CPU time of the node's process over wall time. A tenth of a core is the promise.
A heartbeat that is refused, or that says anything new, gives no figure: then it was not at rest that was measured.
"""

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.machine import described, header
from benchmarks.processes import Broker
from benchmarks.subjects import penstock
from benchmarks.tables import table
from penstock.wire.api_keys import ApiKey
from penstock.wire.schemas import read_response, write_request

TOPIC = "load"
PARTITIONS = 20
SETTLING_ROUNDS = 10
PROMISED_CORES = 0.1


class Line:
    """One connection: a request, then its answer."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, port: int) -> "Line":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def exchange(self, frame: bytes) -> bytes:
        self._writer.write(frame)
        return await self._reader.readexactly(int.from_bytes(await self._reader.readexactly(4), "big"))

    async def ask(self, api: ApiKey, version: int, **body: Any) -> Any:
        return read_response(api, version, await self.exchange(write_request(api, version, 1, "bench", body)))[1]

    def close(self) -> None:
        self._writer.close()


class Member:
    def __init__(self, line: Line, group: str, member_id: str) -> None:
        self.line = line
        self.names = {"group_id": group, "member_id": member_id}
        self.epoch = 0
        self.owned: list[dict[str, Any]] = []
        self.slowest_s = 0.0

    async def join(self) -> None:
        await self.beat(subscribed_topic_names=[TOPIC], rebalance_timeout_ms=60_000)

    async def beat(self, **said: Any) -> bool:
        """True: it was told something new."""
        answer = await self.line.ask(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, member_epoch=self.epoch, topic_partitions=self.owned, **(self.names | said)
        )
        if answer.error_code != 0:
            raise SystemExit(f"a heartbeat was refused: {answer.error_code} {answer.error_message}")
        before, self.epoch = self.epoch, answer.member_epoch
        if answer.assignment is not None:
            rows = answer.assignment.topic_partitions
            self.owned = [{"topic_id": row.topic_id.bytes, "partitions": row.partitions} for row in rows]
        return before != self.epoch or answer.assignment is not None

    async def stay(self, first_s: float, interval_s: float, ends_at: float) -> int:
        """Sends the heartbeat of a member at rest until the end; how many it sent."""
        frame = write_request(
            ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, 1, "bench", {**self.names, "member_epoch": self.epoch, "topic_partitions": None}
        )
        sent, due = 0, time.perf_counter() + first_s
        while due < ends_at:
            await asyncio.sleep(due - time.perf_counter())
            began = time.perf_counter()
            answer = read_response(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, await self.line.exchange(frame))[1]
            self.slowest_s = max(self.slowest_s, time.perf_counter() - began)
            if (answer.error_code, answer.member_epoch, answer.assignment) != (0, self.epoch, None):
                raise SystemExit(f"a member was not at rest: {answer}")
            sent, due = sent + 1, due + interval_s
        return sent


async def prepared(port: int, groups: int, members: int) -> list[Member]:
    admin = await Line.open(port)
    topic = {"name": TOPIC, "num_partitions": PARTITIONS, "replication_factor": 1, "assignments": [], "configs": []}
    await admin.ask(ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000, validate_only=False)
    while (await admin.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g0"])).coordinators[0].error_code != 0:
        await asyncio.sleep(0.1)
    admin.close()
    crowd = [Member(await Line.open(port), f"g{at % groups}", f"member-{at}") for at in range(members)]
    for member in crowd:
        await member.join()
    for _ in range(SETTLING_ROUNDS):
        await asyncio.sleep(1.1)  # Longer than the interval between two assignments.
        if not any([await member.beat() for member in crowd]):
            return crowd
    raise SystemExit("the groups don't settle")


async def measured(broker: Broker, groups: int, members: int, seconds: float, interval_s: float) -> dict[str, float]:
    crowd = await prepared(broker.port, groups, members)
    if sum(len(row["partitions"]) for member in crowd for row in member.owned) != groups * PARTITIONS:
        raise SystemExit("not everything is shared out")
    began, cpu_before = time.perf_counter(), broker.cpu_s()
    ends_at = began + seconds
    sent = await asyncio.gather(*(member.stay(interval_s * at / members, interval_s, ends_at) for at, member in enumerate(crowd)))
    await asyncio.sleep(max(0.0, ends_at - time.perf_counter()))
    took_s, cpu_s = time.perf_counter() - began, broker.cpu_s() - cpu_before
    for member in crowd:
        member.line.close()
    return {
        "heartbeats/s": sum(sent) / took_s, "cores": cpu_s / took_s, "µs CPU each": cpu_s / sum(sent) * 1e6,
        "slowest ms": max(member.slowest_s for member in crowd) * 1e3,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--groups", type=int, default=100)
    parser.add_argument("--members", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--interval-s", type=float, default=5.0, help="as group.consumer.heartbeat.interval.ms has it by default")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="consumer-heartbeats-"))
    print(header("Heartbeats of consumer groups", described(directory, "CPU of a node that keeps the members of many groups alive")))
    try:
        with Broker(penstock(directory / "data")) as broker:
            found = asyncio.run(measured(broker, options.groups, options.members, options.seconds, options.interval_s))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    row = [f"{options.members} of {options.groups}", *(f"{found[name]:.3g}" for name in found)]
    print(table(["members of groups", *found], [row]))
    if found["cores"] > PROMISED_CORES:
        raise SystemExit(f"{found['cores']:.3f} cores are more than the {PROMISED_CORES} that are promised")


if __name__ == "__main__":
    main()
