"""How the process ends when something in it breaks."""

import subprocess
import sys

import pytest
from waiting import PATIENCE_S

from penstock.peers.connection import Address
from penstock.server.complaints import CannotStart
from penstock.server.listeners import address_of, bind
from penstock.server.process import fit_into_limit
from penstock.settings import NodeSettings

# One process for each case, forked from one that has imported everything: it prints how each ended.
BREAKING = """
import asyncio, os, sys
from penstock.errors import BrokenPromise
from penstock.server import logs, process

def breaks():
    raise BrokenPromise("an offset went backwards")

def divides():
    1 / 0

async def main(callback):
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(process.note_failure)
    loop.call_soon(callback)
    for _ in range(3):
        await asyncio.sleep(0)
    print("still here")

for loop, callback in (("asyncio", breaks), ("uvloop", breaks), ("auto", divides)):
    if os.fork() == 0:
        os.dup2(os.open(f"{loop}.out", os.O_WRONLY | os.O_CREAT), 1)
        os.dup2(os.open(f"{loop}.err", os.O_WRONLY | os.O_CREAT), 2)
        logs.begin("info")
        with asyncio.Runner(loop_factory=process.loop_factory(loop)) as runner:
            runner.run(main(callback))
        sys.exit()
    print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)  # Else the next fork would print it again.
"""


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """By loop: the exit code of the process, its output and its errors."""
    directory = tmp_path_factory.mktemp("ends")
    script = [sys.executable, "-c", BREAKING]
    codes = subprocess.run(script, cwd=directory, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout.split()
    return {
        loop: (int(code), (directory / f"{loop}.out").read_text(), (directory / f"{loop}.err").read_text())
        for loop, code in zip(("asyncio", "uvloop", "auto"), codes, strict=True)
    }


def test_a_broken_promise_in_a_callback_ends_the_process_at_once(ends):
    for loop in ("asyncio", "uvloop"):
        code, output, errors = ends[loop]
        assert (code, output) == (3, "")
        assert "an offset went backwards" in errors


def test_any_other_failure_in_a_callback_is_told_and_the_process_goes_on(ends):
    code, output, errors = ends["auto"]
    assert (code, output) == (0, "still here\n")
    assert "ZeroDivisionError" in errors


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
