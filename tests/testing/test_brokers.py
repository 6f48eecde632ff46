"""A test's broker: real, quick to have, its own, and gone afterwards whatever happens to the test."""

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.client import Consumer, Producer
from penstock.testing import Broker, BrokerFailed, async_broker, broker

SECONDS_MAX = 30.0


def write(node: Broker, topic: str, value: bytes) -> None:
    with Producer(node.bootstrap) as producer:
        producer.send(topic=topic, value=value).result(SECONDS_MAX)


def read(node: Broker, topic: str) -> list[bytes | None]:
    with Consumer(topics=[topic], bootstrap=node.bootstrap) as consumer:
        return [message.value for message in consumer.poll(timeout=SECONDS_MAX)]


def is_alive(pid: int) -> bool:
    """A zombie that waits for its parent is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until_gone(pid: int, directory: Path) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while is_alive(pid) or directory.exists():
        assert time.monotonic() < deadline, f"process {pid}: {is_alive(pid)}, directory: {directory.exists()}"
        time.sleep(0.02)


def test_it_stores_and_serves_records_and_leaves_nothing_behind():
    with broker() as node:
        topic = node.create_topic()
        write(node, topic, b"v")
        assert read(node, topic) == [b"v"]
        pid, directory = node.pid, node.directory
        assert directory is not None and directory.exists()
    assert not is_alive(pid)
    assert not directory.exists()


def test_two_of_them_know_nothing_of_each_other():
    with broker() as one, broker() as two:
        assert one.bootstrap != two.bootstrap
        write(one, "same-name", b"one")
        write(two, "same-name", b"two")
        assert (read(one, "same-name"), read(two, "same-name")) == ([b"one"], [b"two"])


def test_a_directory_of_ones_own_is_kept_for_another_broker(tmp_path: Path):
    with broker(directory=tmp_path / "data") as node:
        write(node, "t", b"v")
    with broker(directory=tmp_path / "data") as node:
        assert read(node, "t") == [b"v"]


def test_settings_go_by_their_names_with_underscores():
    with broker(num_partitions=4, topic_max_message_bytes=1_234, auto_create_topics_enable=True, flush="os") as node:
        write(node, "made-by-itself", b"v")
        with Consumer(topics=["made-by-itself"], bootstrap=node.bootstrap) as consumer:
            consumer.poll(timeout=SECONDS_MAX)
            assert len(consumer.assignment()) == 4


def test_an_unknown_setting_is_refused_with_the_nearest_one():
    with pytest.raises(TypeError, match="there is no setting 'num_partition'; did you mean 'num_partitions'"):
        broker(num_partition=4)
    with broker() as node, pytest.raises(TypeError, match="there is no topic setting 'retention'; did you mean 'retention_ms'"):
        node.create_topic(retention=4)


def test_an_impossible_value_is_told_with_what_the_node_said():
    with pytest.raises(BrokerFailed, match=r"num\.partitions must lie between 1 and 10000, not 0"):
        unable = broker(num_partitions=0)
        unable.start()
    assert unable.directory is not None and not unable.directory.exists()
    with pytest.raises(BrokerFailed, match="must be one of ack, interval, os"):
        broker(flush="sometimes").start()


def test_a_topic_that_cannot_be_made_is_told_with_what_to_do():
    with broker() as node:
        assert node.create_topic("once") == "once"
        with pytest.raises(BrokerFailed, match="choose another name"):
            node.create_topic("once")
        with pytest.raises(BrokerFailed, match="letters, digits"):
            node.create_topic("not a name")
    with pytest.raises(BrokerFailed, match="not running"):
        node.create_topic()


def test_many_threads_may_make_topics():
    with broker() as node, ThreadPoolExecutor(8) as threads:
        names = list(threads.map(lambda _: node.create_topic(), range(40)))
        assert len(set(names)) == 40


def test_a_directory_in_use_is_told(tmp_path: Path):
    with broker(directory=tmp_path), pytest.raises(BrokerFailed, match="another process uses this data directory"):
        broker(directory=tmp_path).start()


def test_the_environment_is_not_listened_to(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PENSTOCK_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("PENSTOCK_NO_SUCH_THING", "1")
    with broker() as node:
        assert not node.bootstrap.endswith(":1")


def test_a_file_in_the_working_directory_does_not_get_into_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "logging.py").write_text("raise RuntimeError('not yours')")
    monkeypatch.chdir(tmp_path)
    with broker() as node:
        write(node, "t", b"v")


def test_stopping_twice_is_stopping_once():
    node = broker().start()
    node.stop()
    node.stop()
    with pytest.raises(BrokerFailed, match="started once"):
        node.start()


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


@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), signal.SIGKILL)", "1 / 0"])
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
fork = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,), daemon=True)
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
        running.wait(SECONDS_MAX)
        words.seek(0)
        return pid, Path(directory), fork, words.read().decode()


def end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("hooks", ["", HIDDEN])
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


def test_it_works_inside_a_running_loop():
    async def scenario() -> None:
        async with async_broker(num_partitions=2) as node:
            topic = await node.create_topic(partitions=3, retention_ms=1_000)
            await asyncio.to_thread(write, node, topic, b"v")
            assert await asyncio.to_thread(read, node, topic) == [b"v"]
            assert is_alive(node.pid)
        assert not is_alive(node.pid)
        with broker() as plain:
            plain.create_topic()

    asyncio.run(scenario())


def test_a_loop_runs_on_while_one_starts():
    async def scenario() -> int:
        turns = 0
        starting = asyncio.create_task(async_broker().start())
        while not starting.done():
            await asyncio.sleep(0.001)
            turns += 1
        await (await starting).stop()
        return turns

    assert asyncio.run(scenario()) > 10


def test_cancelled_while_it_starts_it_leaves_nothing_running():
    async def scenario() -> int:
        node = async_broker()
        starting = asyncio.create_task(node.start())
        await asyncio.sleep(0.05)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        return node.pid

    assert not is_alive(asyncio.run(scenario()))


def test_what_it_says_can_be_read():
    with broker() as node:
        assert "Traceback" not in node.said()
    assert "SIGTERM: stopping" in node.said()


def test_it_has_an_http_port_and_makes_queues_for_the_asking():
    with broker() as node:
        first, second = node.queue(lease=5), node.queue()
        assert first.name != second.name
        first.send("hello")
        (message,) = first.receive(1)
        message.ack()
        assert second.receive(1, wait=0) == []


def test_the_one_for_asyncio_makes_queues_for_asyncio():
    async def scenario() -> None:
        async with async_broker() as node, await node.queue() as queue:
            await queue.send("hello")
            async for message in queue.messages(idle=SECONDS_MAX):
                async with message:
                    assert message.text == "hello"
                break

    asyncio.run(scenario())
