"""A test's broker: real, quick to have, its own, and gone afterwards whatever happens to the test.

Most of what these tests cost is starting nodes. Those whose subject is not the start or the end of a node share `node` and `stopped`.
"""

import asyncio
import errno
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from waiting import NEVER_S, PATIENCE_S, until, until_async

from penstock.client import Consumer, Producer
from penstock.testing import Broker, BrokerFailed, async_broker, broker


def write(node: Broker, topic: str, value: bytes) -> None:
    with Producer(node.bootstrap) as producer:
        producer.send(topic=topic, value=value).result(PATIENCE_S)


def read(node: Broker, topic: str) -> list[bytes | None]:
    with Consumer(topics=[topic], bootstrap=node.bootstrap) as consumer:
        return [message.value for message in consumer.poll(timeout=PATIENCE_S)]


def is_alive(pid: int) -> bool:
    """A zombie that waits for its parent is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # The latter when it ends between opening and reading.
        return False


def until_gone(pid: int, directory: Path) -> None:
    until(
        lambda: not is_alive(pid) and not directory.exists(),
        lambda: f"process {pid} is alive: {is_alive(pid)}, directory exists: {directory.exists()}",
    )


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A node with settings of its own that was started among variables and files which are none of its business."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "logging.py").write_text("raise RuntimeError('not yours')")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PENSTOCK_KAFKA", "127.0.0.1:1")
        patch.setenv("PENSTOCK_NO_SUCH_THING", "1")
        patch.chdir(elsewhere)
        running = broker(num_partitions=4, topic_max_message_bytes=1_234, auto_create_topics_enable=True, flush="os").start()
    yield running
    running.stop()


@dataclass(frozen=True)
class Stopped:
    broker: Broker
    directory: Path
    was_there: bool  # Whether the directory was, while the node ran.
    read: list[bytes | None]


@pytest.fixture(scope="module")
def stopped() -> Stopped:
    """Another one, started by `start()`, used, and stopped by `stop()`."""
    running = broker().start()
    try:
        write(running, "same-name", b"two")
        assert running.directory is not None
        return Stopped(running, running.directory, running.directory.exists(), read(running, "same-name"))
    finally:
        running.stop()


def test_it_stores_and_serves_records(node: Broker):
    topic = node.create_topic()
    write(node, topic, b"v")
    assert read(node, topic) == [b"v"]


def test_it_leaves_nothing_behind(stopped: Stopped):
    assert stopped.was_there
    assert not is_alive(stopped.broker.pid)
    assert not stopped.directory.exists()


def test_two_of_them_know_nothing_of_each_other(node: Broker, stopped: Stopped):
    """They ran at the same time."""
    assert node.bootstrap != stopped.broker.bootstrap
    write(node, "same-name", b"one")
    assert (read(node, "same-name"), stopped.read) == ([b"one"], [b"two"])


def test_a_directory_of_ones_own_is_kept_for_another_broker(tmp_path: Path):
    with broker(directory=tmp_path / "data") as node:
        write(node, "t", b"v")
    with broker(directory=tmp_path / "data") as node:
        assert read(node, "t") == [b"v"]


def test_settings_go_by_their_names_with_underscores(node: Broker):
    write(node, "made-by-itself", b"v")
    with Consumer(topics=["made-by-itself"], bootstrap=node.bootstrap) as consumer:
        consumer.poll(timeout=PATIENCE_S)
        assert len(consumer.assignment()) == 4


def test_an_unknown_setting_is_refused_with_the_nearest_one(node: Broker):
    with pytest.raises(TypeError, match="there is no setting 'num_partition'; did you mean 'num_partitions'"):
        broker(num_partition=4)
    with pytest.raises(TypeError, match="there is no topic setting 'retention'; did you mean 'retention_ms'"):
        node.create_topic(retention=4)


ANOTHER_VALUE = pytest.mark.slow(stays="tests/testing/test_brokers.py::test_an_impossible_value_is_told_with_what_the_node_said")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"num_partitions": 0}, r"num\.partitions must lie between 1 and 10000, not 0"),
        pytest.param({"flush": "sometimes"}, "must be one of ack, interval, os", marks=ANOTHER_VALUE),
    ],
)
def test_an_impossible_value_is_told_with_what_the_node_said(settings: dict[str, object], words: str):
    unable = broker(**settings)
    with pytest.raises(BrokerFailed, match=words):
        unable.start()
    assert unable.directory is not None and not unable.directory.exists()


def test_a_topic_that_cannot_be_made_is_told_with_what_to_do(node: Broker, stopped: Stopped):
    assert node.create_topic("once") == "once"
    with pytest.raises(BrokerFailed, match="choose another name"):
        node.create_topic("once")
    with pytest.raises(BrokerFailed, match="letters, digits"):
        node.create_topic("not a name")
    with pytest.raises(BrokerFailed, match="not running"):
        stopped.broker.create_topic()


def test_many_threads_may_make_topics(node: Broker):
    with ThreadPoolExecutor(8) as threads:
        names = list(threads.map(lambda _: node.create_topic(), range(40)))
    assert len(set(names)) == 40


def test_a_directory_in_use_is_told(node: Broker):
    with pytest.raises(BrokerFailed, match="another process uses this data directory"):
        broker(directory=node.directory).start()


def test_the_environment_is_not_listened_to(node: Broker):
    assert not node.bootstrap.endswith(":1")


def test_a_file_in_the_working_directory_does_not_get_into_it(node: Broker):
    """Its logging.py would have kept the node from starting."""
    assert is_alive(node.pid)
    assert "not yours" not in node.said()


def test_stopping_twice_is_stopping_once(stopped: Stopped):
    stopped.broker.stop()
    with pytest.raises(BrokerFailed, match="started once"):
        stopped.broker.start()


def test_a_node_that_was_killed_is_told_unless_the_test_has_its_own_story():
    node = broker().start()
    os.kill(node.pid, signal.SIGKILL)
    with pytest.raises(BrokerFailed, match="ended with code -9"):
        node.stop()
    assert node.directory is not None and not node.directory.exists()
    with pytest.raises(ZeroDivisionError), broker() as node:
        os.kill(node.pid, signal.SIGKILL)
        raise ZeroDivisionError


def test_one_that_is_forgotten_goes_away():
    node = broker().start()
    pid, directory = node.pid, node.directory
    assert directory is not None
    del node
    gc.collect()
    until_gone(pid, directory)


FORGETFUL = """
import json, os, signal, sys
from penstock.testing import broker
node = broker().start()
print(json.dumps([node.pid, str(node.directory)]), flush=True)
{end}
"""
ANOTHER_END = pytest.mark.slow(stays="tests/testing/test_brokers.py::test_it_ends_with_the_process_that_started_it")
KILLED = pytest.mark.slow(stays="tests/testing/test_brokers.py::test_a_fork_of_the_test_does_not_keep_it_alive")


@pytest.mark.parametrize(
    "end",
    [
        "",
        pytest.param("1 / 0", marks=ANOTHER_END),
        pytest.param("os._exit(0)", marks=KILLED),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", marks=KILLED),
    ],
)
def test_it_ends_with_the_process_that_started_it(end: str):
    script = FORGETFUL.format(end=end)
    ended = subprocess.run([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
    pid, directory = json.loads(ended.stdout)
    until_gone(pid, Path(directory))


FORKING = """
import json, multiprocessing, os, signal, sys, time
{hooks}
from penstock.testing import broker
node = broker().start()
fork = multiprocessing.get_context("fork").Process(target=signal.pause, daemon=True)
fork.start()
print(json.dumps([node.pid, str(node.directory), fork.pid]), flush=True)
{end}
"""
HIDDEN = "os.register_at_fork = lambda **hooks: None"  # As if something else than Python had forked: the pipe is held open.


def forked(hooks: str, end: str) -> tuple[int, Path, int, str]:
    """The node, its directory, the fork, and the script's last words."""
    command = [sys.executable, "-c", FORKING.format(hooks=hooks, end=end)]
    with tempfile.TemporaryFile() as words, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=words) as running:
        assert running.stdout is not None
        pid, directory, fork = json.loads(running.stdout.readline())
        running.wait(PATIENCE_S)
        words.seek(0)
        return pid, Path(directory), fork, words.read().decode()


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


# A fork that lets go of the pipe holds up less than a hidden one, which has it open.
LETS_GO = pytest.mark.slow(stays="tests/testing/test_brokers.py::test_a_fork_of_the_test_does_not_hold_up_its_end")


@pytest.mark.parametrize("hooks", [HIDDEN, pytest.param("", marks=LETS_GO)])
def test_a_fork_of_the_test_does_not_hold_up_its_end(hooks: str):
    pid, directory, fork, words = forked(hooks, "node.stop(); os._exit(0)")
    try:
        assert words == "", "it had to be killed"
        assert is_alive(fork), "so it held nothing"
        assert not is_alive(pid) and not directory.exists()
    finally:
        end(fork)


@pytest.mark.parametrize("hooks", ["", HIDDEN])
def test_a_fork_of_the_test_does_not_keep_it_alive(hooks: str):
    pid, directory, fork, _ = forked(hooks, "os.kill(os.getpid(), signal.SIGKILL)")
    try:
        until_gone(pid, directory)
        assert is_alive(fork), "so it held nothing"
    finally:
        end(fork)


def test_a_fork_that_ends_does_not_take_it_along():
    script = """
import os, sys
from penstock.testing import broker
with broker() as node:
    child = os.fork()
    if child == 0:
        del node
        sys.exit(0)  # With all that an interpreter does at its end.
    assert os.waitpid(child, 0)[1] == 0
    assert node.directory.exists(), "the fork removed the directory"
    node.create_topic()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


class Gate:
    """Holds up Python processes that are started meanwhile, in their first moment, until the test lets them go on."""

    def __init__(self, directory: Path) -> None:
        self._pipe = directory / "gate"
        os.mkfifo(self._pipe)
        (directory / "sitecustomize.py").write_text(f"open({str(self._pipe)!r}).read()\n")
        self._held = -1

    def holds(self) -> bool:
        """Whether a process waits here."""
        if self._held < 0:
            try:
                self._held = os.open(self._pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError as failure:
                assert failure.errno == errno.ENXIO, failure
        return self._held >= 0

    def let_go(self) -> None:
        os.close(self._held)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Gate:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return Gate(tmp_path)


def test_it_starts_and_works_inside_a_running_loop_and_does_not_hold_it_up(gate: Gate):
    async def scenario() -> None:
        node = async_broker(num_partitions=2)
        starting = asyncio.create_task(node.start())
        await until_async(lambda: starting.done() or gate.holds())
        assert not starting.done(), "the loop runs on meanwhile"
        gate.let_go()
        await starting
        try:
            topic = await node.create_topic(partitions=3, retention_ms=1_000)
            await asyncio.to_thread(write, node, topic, b"v")
            assert await asyncio.to_thread(read, node, topic) == [b"v"]
            async with await node.queue() as queue:
                await queue.send("hello")
                async for message in queue.messages(idle=PATIENCE_S):
                    async with message:
                        assert message.text == "hello"
                    break
            assert is_alive(node.pid)
        finally:
            await node.stop()
        assert not is_alive(node.pid)

    asyncio.run(scenario())


def test_cancelled_while_it_starts_it_leaves_nothing_running(gate: Gate):
    async def scenario() -> int:
        node = async_broker()
        starting = asyncio.create_task(node.start())
        await until_async(gate.holds)
        starting.cancel()
        gate.let_go()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return node.pid

    assert not is_alive(asyncio.run(scenario()))


def test_both_work_in_a_with_inside_a_running_loop():
    async def scenario() -> None:
        async with async_broker() as node:
            await node.create_topic()
            assert is_alive(node.pid)
        assert not is_alive(node.pid)
        with broker() as plain:
            plain.create_topic()

    asyncio.run(scenario())


def test_what_it_says_can_be_read(node: Broker, stopped: Stopped):
    assert "Traceback" not in node.said()
    assert "SIGTERM: stopping" in stopped.broker.said()


def test_it_has_an_http_port_and_makes_queues_for_the_asking(node: Broker):
    first, second = node.queue(lease=NEVER_S), node.queue()
    assert first.name != second.name
    first.send("hello")
    (message,) = first.receive(1)
    message.ack()
    assert second.receive(1, wait=0) == []
