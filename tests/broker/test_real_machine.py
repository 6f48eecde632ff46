"""What only a real machine shows: the locks of other processes, and a whole life on files and sockets of the system.

Everything else about a node is shown in virtual time, by the other modules of this folder.
"""

import asyncio
import sys

import pytest
from serving import Serving, records_in, rows_of

from penstock.broker.identity import WrongDirectory

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
