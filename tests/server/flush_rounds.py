"""What the tests of flush rounds share: files with something to flush, and one round. Not here: claims."""

import asyncio

import pytest
import uvloop

loops = pytest.mark.parametrize("new_loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


def files_with_bytes(disk, count):
    disk.mkdir("d")
    files = [disk.open(f"d/{number}", create=True) for number in range(count)]
    for file in files:
        disk.append(file, [b"dirty"])
    return files


def flush(disk, files, directories=(), new_loop=asyncio.new_event_loop):
    async def wait():
        return await disk.sync(files, directories)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(wait())
