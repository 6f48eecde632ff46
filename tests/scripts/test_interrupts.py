"""Ctrl-C and SIGTERM come to all processes of a test: they end some, and not those that its teardown needs."""

import subprocess
import sys
from pathlib import Path

import pytest
from system.harness import Node
from system.lazy_disk import LazyDisk, power_cut
from system.lazy_tree import Cut
from waiting import PATIENCE_S

pytestmark = pytest.mark.paired

TESTS = Path(__file__).parents[1]

PROGRAM = """
import signal, socket, sys

sys.path.insert(0, {tests!r})
from warm import serve

serve(socket.socket(fileno=int(sys.argv[1])))
print("begun", flush=True)
if len(sys.argv) > 1:
    signal.pause()
"""
INTERRUPTED = """
import os, signal, sys

sys.path.insert(0, {tests!r})
from warm import Warm

signal.signal(signal.SIGINT, lambda *_: None)
signal.signal(signal.SIGTERM, lambda *_: None)

def start(*arguments):
    reading, writing = os.pipe()
    fork = server.start(arguments, [0, writing, 2], os.environ, ".")
    os.close(writing)
    os.read(reading, 1)
    return fork

server = Warm({program!r})
for number in (signal.SIGINT, signal.SIGTERM):
    fork = start("waits")
    os.killpg(0, number)
    print(fork.wait())
print(start().wait())
start("waits")
os.kill(os.getpid(), signal.SIGKILL)
"""


DISK = """
import os, signal, sys
from pathlib import Path

sys.path.insert(0, {tests!r})
from system.lazy_disk import LazyDisk

signal.signal(signal.SIGINT, lambda *_: None)
signal.signal(signal.SIGTERM, lambda *_: None)
with LazyDisk(Path({mountpoint!r})) as disk:
    os.killpg(0, signal.SIGINT)
    os.killpg(0, signal.SIGTERM)
    disk.path.joinpath("file").write_text("it is there")
    print(disk.path.joinpath("file").read_text())
"""


def run_and_interrupt(script: str) -> tuple[bytes, str]:
    """Returns what it prints to its standard output and error, when all processes that have those have ended."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", script], stdout=pipe, stderr=pipe, start_new_session=True) as process:
        out, errors = process.communicate(timeout=PATIENCE_S)
    return out, errors.decode()


def test_an_interrupt_ends_the_forks_and_not_the_process_that_tells_how_they_ended(tmp_path: Path):
    """The last fork has the standard error, and ends with the process that asked for it."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.format(tests=str(TESTS)))
    out, errors = run_and_interrupt(INTERRUPTED.format(tests=str(TESTS), program=str(program)))
    assert out.split() == [b"-2", b"-15", b"0"], errors


@pytest.mark.needs("fuse")
def test_the_disk_of_an_interrupted_test_stays_until_it_is_closed(tmp_path: Path):
    out, errors = run_and_interrupt(DISK.format(tests=str(TESTS), mountpoint=str(tmp_path)))
    assert out == b"it is there\n", errors


@pytest.mark.needs("fuse")
def test_a_power_cut_that_is_interrupted_leaves_no_dead_disk_on_which_the_node_would_hang(tmp_path: Path):
    with LazyDisk(tmp_path / "disk") as disk:

        def interrupt() -> bool:
            disk.cut()
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            power_cut(Node(disk.path / "data"), disk, Cut.DROP, seed=0, at_write=1, or_when=interrupt)
        assert not disk.is_cut()
