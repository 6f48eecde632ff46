"""How the process ends when something in it breaks."""

import subprocess
import sys

import pytest

from penstock.peers.connection import Address
from penstock.server.complaints import CannotStart
from penstock.server.listeners import address_of, bind
from penstock.server.process import fit_into_limit
from penstock.settings import NodeSettings

BREAKING = """
import asyncio
from penstock.errors import BrokenPromise
from penstock.server import logs, process

def breaks():
    raise BrokenPromise("an offset went backwards")

async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(process.note_failure)
    loop.call_soon({callback})
    await asyncio.sleep(0.2)
    print("still here")

logs.begin("info")
with asyncio.Runner(loop_factory=process.loop_factory("{loop}")) as runner:
    runner.run(main())
"""


def end_of(loop: str, callback: str) -> "subprocess.CompletedProcess[str]":
    script = BREAKING.format(loop=loop, callback=callback)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=False)


def test_a_broken_promise_in_a_callback_ends_the_process_at_once():
    for loop in ("asyncio", "uvloop"):
        ended = end_of(loop, "breaks")
        assert (ended.returncode, ended.stdout) == (3, "")
        assert "an offset went backwards" in ended.stderr


def test_any_other_failure_in_a_callback_is_told_and_the_process_goes_on():
    ended = end_of("auto", "lambda: 1 / 0")
    assert (ended.returncode, ended.stdout) == (0, "still here\n")
    assert "ZeroDivisionError" in ended.stderr


def test_clients_never_take_the_last_file_handle():
    for limit in (256, 1_024, 65_536, 1_048_576):
        fitted = fit_into_limit(NodeSettings(), limit)
        assert fitted.connections_max > 0
        assert fitted.connections_max + fitted.open_files_max + 64 < limit
    assert fit_into_limit(NodeSettings(), 1_048_576) == NodeSettings()


def test_a_process_that_may_open_too_few_files_says_so():
    with pytest.raises(CannotStart, match="may open 100 files"):
        fit_into_limit(NodeSettings(), 100)


def test_an_address_is_had_by_one_from_when_it_is_taken():
    with bind(Address("127.0.0.1", 0)) as first, pytest.raises(CannotStart, match="the address is taken"):
        bind(address_of(first))
