"""What only a real machine shows: other processes' locks, a whole life on files and sockets of the system, and work that takes time.

Everything else about a node is shown in virtual time, by the other modules of this folder.
"""

import asyncio
import sys

import pytest
from serving import Serving, batch, produce_body, records_in, rows_of
from waiting import until_async

from penstock.broker.identity import WrongDirectory
from penstock.wire.api_keys import ApiKey
from penstock.wire.compression import Codec

BOTH_LOOPS = True

HOLD_THE_LOCK = """
import sys
from penstock.server.disk import RealDisk
assert RealDisk(sys.argv[1]).lock("lock")
print("held", flush=True)
sys.stdin.read()
"""


async def test_a_directory_that_another_process_uses_is_refused(serving: Serving) -> None:
    pipe = asyncio.subprocess.PIPE
    holder = await asyncio.create_subprocess_exec(sys.executable, "-c", HOLD_THE_LOCK, str(serving.directory), stdin=pipe, stdout=pipe)
    assert holder.stdout is not None
    assert await holder.stdout.readline() == b"held\n"
    with pytest.raises(WrongDirectory, match="another process uses this data directory"):
        await serving.open()
    serving.env.shut()
    holder.kill()
    await holder.wait()
    await serving.open()  # The lock went with its process.


@pytest.mark.parametrize("is_clean", [True, False])
async def test_what_was_acknowledged_is_in_the_files_of_the_next_life(serving: Serving, is_clean: bool) -> None:
    await serving.open()
    line = await serving.line()
    await line.create("a", 2)
    assert (await line.produce("a", b"one", b"two", partition=1)).error_code == 0
    await (serving.stop() if is_clean else serving.crash())
    assert (serving.directory / "node" / "clean-shutdown").exists() == is_clean
    await serving.open()
    line = await serving.line()
    row = rows_of(await line.fetch("a", {1: 0}))["a", 1]
    assert [record.value for record in records_in(row.records)] == [b"one", b"two"]


async def test_others_are_served_while_a_long_request_is_looked_at(serving: Serving) -> None:
    """A thousand batches of a few hundred bytes that unpack to a megabyte each hold the loop for a good part of a second together.

    Work takes no time in virtual time, where other tests count the turns (test_long_work.py): only here is the bound what it is for users.
    """
    await serving.open()
    line, other = await serving.line(), await serving.line()
    await line.create("a", partitions=20)
    bomb, metrics = batch(bytes(1_000_000), codec=Codec.GZIP), serving.node.metrics
    request = produce_body({"a": dict.fromkeys(range(20), bomb)})
    request["topic_data"][0]["partition_data"] *= 50
    line.send(ApiKey.PRODUCE, 9, **request)
    await until_async(lambda: metrics.requests["PRODUCE"] == 1, every_s=0)
    answered = 0
    while metrics.batches_in < 20 * 50:
        await other.ask(ApiKey.API_VERSIONS, 0)
        answered += 1
    assert answered >= 2, "others are served before all batches are looked at and appended"
    assert {row.error_code for row in (await line.receive()).responses[0].partition_responses} == {0}
