"""`penstock serve` as an operator meets it: the ready line, signals, refusals with a reason, the HTTP port."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.running import PENSTOCK, Started, clean_environment, penstock, started
from system import harness
from waiting import PATIENCE_S

READY = re.compile(r"penstock ready kafka=(\S+):(\d+) http=(\S+) data=(.+) node=(\d+)\n")


@contextmanager
def serving(data_dir: Path, *arguments: str) -> Iterator[tuple[Started, re.Match[str]]]:
    command = ["serve", "--data-dir", str(data_dir), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", *arguments]
    with started(*command, errors=data_dir.with_name("errors.txt")) as node:
        line = node.out.readline()
        ready = READY.fullmatch(line)
        assert ready is not None, line or node.err()
        yield node, ready


def get(address: str, path: str, method: str = "GET") -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://{address}{path}", method=method), timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()


def test_a_process_says_in_one_line_that_it_is_ready_and_where(tmp_path: Path):
    command = [*PENSTOCK, "serve", "--data-dir", str(tmp_path / "data"), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=clean_environment()) as process:
        assert process.stdout is not None
        ready = READY.fullmatch(process.stdout.readline())
        process.terminate()
        assert process.stdout.read() == ""
    assert process.returncode == 0
    assert ready is not None and shlex.split(ready[4]) == [str(tmp_path / "data")]


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_one_ready_line_tells_where_it_is(tmp_path: Path, loop: str):
    with serving(tmp_path / "data", "--loop", loop, "--node-id", "7") as (node, ready):
        assert shlex.split(ready[4]) == [str(tmp_path / "data")]
        assert ready[5] == "7"
        with socket.create_connection((ready[1], int(ready[2])), timeout=PATIENCE_S):
            pass
        node.process.send_signal(signal.SIGTERM)
        assert node.end().out == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals):
    with serving(tmp_path / "data") as (node, _):
        node.process.send_signal(number)
        code, _, said = node.end()
    assert code == 0, said
    assert "Traceback" not in said


def test_it_starts_again_on_its_directory_and_nowhere_else(tmp_path: Path):
    with serving(tmp_path / "data") as (node, _):
        node.process.send_signal(signal.SIGTERM)
        assert node.end().code == 0
    with serving(tmp_path / "data"):
        pass
    other = penstock("serve", "--data-dir", str(tmp_path / "data"), "--node-id", "2", "--kafka", "127.0.0.1:0", "--http", "off")
    assert other.code == 1
    assert "belongs to node 1" in other.err


def test_health_readiness_and_metrics_are_served(node: harness.Node):
    address = f"127.0.0.1:{node.http_port}"
    assert get(address, "/health") == (200, '{"status":"alive"}')
    assert get(address, "/ready") == (200, '{"status":"ready"}')
    status, text = get(address, "/metrics")
    assert status == 200
    names = {line.split()[0].partition("{")[0] for line in text.splitlines() if not line.startswith("#")}
    assert {"penstock_records_in_total", "penstock_ready", "process_resident_memory_bytes", "penstock_build_info"} <= names
    assert all(f"# TYPE {name} " in text for name in names)


def test_unknown_paths_and_methods_get_an_error_that_says_so(node: harness.Node):
    address = f"127.0.0.1:{node.http_port}"
    status, text = get(address, "/helath")
    assert (status, json.loads(text)["error"]) == (404, "not_found")
    assert "/health" in json.loads(text)["message"]
    status, text = get(address, "/ready", "DELETE")
    assert (status, json.loads(text)["error"]) == (405, "method_not_allowed")


def test_the_limit_on_open_files_is_raised(node: harness.Node):
    line = next(line for line in Path(f"/proc/{node.process.pid}/limits").read_text().splitlines() if line.startswith("Max open files"))
    soft, hard = line.split()[3:5]
    assert soft == hard


def test_listening_everywhere_needs_an_advertised_address(tmp_path: Path):
    ended = penstock("serve", "--data-dir", str(tmp_path), "--kafka", "0.0.0.0:9092")
    assert ended.code == 2
    assert ended.err == (
        "penstock: --kafka 0.0.0.0:9092 listens on every interface, so clients cannot be told where to connect\n"
        "  name the address that clients can reach: --advertise HOST:9092\n"
    )


def test_clients_are_told_the_advertised_address(tmp_path: Path):
    from confluent_kafka.admin import AdminClient

    with serving(tmp_path / "data", "--advertise", "localhost:19092") as (_, ready):
        listed = AdminClient({"bootstrap.servers": f"127.0.0.1:{ready[2]}"}).list_topics(timeout=PATIENCE_S)
        assert [(broker.host, broker.port) for broker in listed.brokers.values()] == [("localhost", 19092)]


def test_a_taken_port_is_told_without_a_traceback(tmp_path: Path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        for flags in (["--kafka", f"127.0.0.1:{port}", "--http", "off"], ["--kafka", "127.0.0.1:0", "--http", f"127.0.0.1:{port}"]):
            ended = penstock("serve", "--data-dir", str(tmp_path / "data"), *flags)
            assert ended.code == 1
            assert f"penstock: cannot listen on 127.0.0.1:{port}: the address is taken" in ended.err
            assert "Traceback" not in ended.err


def test_a_directory_that_is_in_use_is_refused(node: harness.Node):
    ended = penstock("serve", "--data-dir", str(node.data_directory), "--kafka", "127.0.0.1:0", "--http", "off")
    assert ended.code == 1
    assert "another process uses this data directory" in ended.err
    assert node.is_alive()


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    ended = penstock("serve", "--data-dir", str(tmp_path / "file" / "data"), "--kafka", "127.0.0.1:0", "--http", "off")
    assert (ended.code, "Traceback" in ended.err) == (1, False)
    assert "cannot be used" in ended.err


def test_a_misspelt_setting_is_refused(tmp_path: Path):
    ended = penstock("serve", "--data-dir", str(tmp_path), "--set", "num.partition=3")
    assert ended.code == 2
    assert ended.err == "penstock: there is no setting num.partition\n  did you mean num.partitions?\n"


@pytest.mark.invariant("node.checks-always-on")
def test_it_does_not_run_without_its_checks(tmp_path: Path):
    command = [sys.executable, "-O", "-m", "penstock", "serve", "--data-dir", str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert ended.returncode == 1
    assert "does not run under python -O" in ended.stderr
    assert not os.path.exists(tmp_path / "data")
