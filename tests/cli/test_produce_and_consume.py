"""`penstock produce` and `penstock consume` against a real node."""

import json
import shlex
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.running import PENSTOCK, clean_environment, penstock, started, succeed
from system import harness
from waiting import until


@pytest.fixture
def topic(node: harness.Node, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:80]
    succeed("topics", "create", name, "--partitions", "3", "--bootstrap", node.bootstrap)
    return name


@pytest.fixture
def write(node: harness.Node, topic: str) -> Callable[..., str]:
    return lambda *arguments, given="": succeed("produce", topic, *arguments, "--bootstrap", node.bootstrap, given=given)


@pytest.fixture
def read(node: harness.Node, topic: str) -> Callable[..., str]:
    return lambda *arguments: succeed("consume", topic, *arguments, "--bootstrap", node.bootstrap)


def test_lines_come_back_as_values(write, read):
    assert "3 records written" in write(given="one\ntwo\nthree\n")
    assert sorted(read().splitlines()) == ["one", "three", "two"]


def test_the_last_line_needs_no_end(write, read):
    write(given="one\ntwo")
    assert sorted(read().splitlines()) == ["one", "two"]


def test_a_key_keeps_its_records_in_one_partition_and_in_order(write, read):
    lines = "".join(f"k{number % 5}:v{number}\n" for number in range(50))
    places = [json.loads(line) for line in write("--key-separator", ":", "--json", given=lines).splitlines()]
    assert len(places) == 50
    assert all(places[number]["partition"] == places[number % 5]["partition"] for number in range(50))
    records = [json.loads(line) for line in read("--json").splitlines()]
    of_first = [record["value"] for record in records if record["key"] == "k0"]
    assert of_first == [f"v{number}" for number in range(0, 50, 5)]


def test_headers_key_and_timestamp_are_kept(write, read):
    write("--value", "v", "--key", "k", "--header", "a=1", "--header", "b=x=y", "--timestamp", "1700000000123")
    (record,) = [json.loads(line) for line in read("--json").splitlines()]
    assert (record["key"], record["value"], record["timestamp_ms"]) == ("k", "v", 1700000000123)
    assert record["headers"] == [["a", "1"], ["b", "x=y"]]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_comes_back(codec: str, write, read):
    write("--compression", codec, "--partition", "0", given="a\n" * 200)
    assert read() == "a\n" * 200


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_kind_of_acknowledgement_delivers(acks: str, write, read):
    write("--acks", acks, "--partition", "1", given="a\nb\n")
    found = read() if acks != "0" else until(read)  # Without an acknowledgement they may still be on their way.
    assert found == "a\nb\n"


def test_reading_can_begin_at_an_offset_a_time_and_the_ends(write, read):
    for number in range(5):
        write("--partition", "0", "--value", f"v{number}", "--timestamp", str(1_700_000_000_000 + number * 1000))
    assert read("--partition", "0", "--from", "3").split() == ["v3", "v4"]
    assert read("--partition", "0", "--from", "@1700000002000").split() == ["v2", "v3", "v4"]
    assert read("--partition", "0", "--from", "2023-11-14T22:13:23Z").split() == ["v3", "v4"]
    assert read("--from", "latest") == ""
    assert read("--partition", "0", "--max", "2").split() == ["v0", "v1"]


def test_the_format_decides_what_is_printed(write, read):
    write("--partition", "2", "--key", "k", "--value", "v", "--timestamp", "0")
    assert read("--format", r"{partition}/{offset}\t{key}={value} {time}") == "2/0\tk=v 1970-01-01T00:00:00.000+00:00\n"


def test_bytes_that_are_not_text_pass_through(write, read, node: harness.Node, topic: str, tmp_path: Path):
    write("--partition", "0", given=b"\xff\x00\xfe\n")
    with started("consume", topic, "--bootstrap", node.bootstrap, errors=tmp_path / "errors") as raw:
        assert raw.out.buffer.read() == b"\xff\x00\xfe\n"
    assert json.loads(read("--json"))["value"] == {"hex": "ff00fe"}


def test_following_prints_what_comes_later_until_it_is_interrupted(write, node: harness.Node, topic: str, tmp_path: Path):
    command = ["consume", topic, "--from", "earliest", "--follow", "--bootstrap", node.bootstrap]
    write("--value", "before")
    with started(*command, errors=tmp_path / "errors") as follower:
        assert follower.out.readline() == "before\n"
        write("--value", "after")
        assert follower.out.readline() == "after\n"
        follower.process.send_signal(signal.SIGINT)
        assert follower.end() == (130, "", "")


def test_typed_lines_are_sent_as_they_come(node: harness.Node, topic: str, tmp_path: Path):
    """A pipe that stays open must not hold its lines back."""
    with started("produce", topic, "--json", "--bootstrap", node.bootstrap, errors=tmp_path / "errors") as producer:
        producer.given.write("first\n")
        producer.given.flush()
        assert json.loads(succeed("consume", topic, "--follow", "--max", "1", "--json", "--bootstrap", node.bootstrap))["value"] == "first"


def test_a_reader_that_goes_away_is_no_failure(write, node: harness.Node, topic: str):
    write(given="x" * 100 + "\n" + ("y" * 100 + "\n") * 20_000)  # More than a pipe holds.
    command = f"{shlex.join(PENSTOCK)} consume {topic} --bootstrap {node.bootstrap} | head -n 1"
    ended = subprocess.run(["bash", "-o", "pipefail", "-c", command], capture_output=True, text=True, env=clean_environment(), check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_cannot_be_done_is_said_in_a_sentence(node: harness.Node, topic: str):
    where = ["--bootstrap", node.bootstrap]
    cases = [
        (["consume", topic, "--partition", "9"], 1, "has no partition 9"),
        (["consume", "nowhere"], 1, "there is no topic 'nowhere'"),
        (["consume", topic, "--from", "yesterday"], 2, "neither earliest, latest"),
        (["consume", topic, "--format", "{ofset}"], 2, "--format knows no {ofset}"),
        (["consume", topic, "--from", "99", "--partition", "0"], 1, "99"),
        (["produce", topic, "--partition", "9", "--value", "v"], 1, "no partition 9"),
        (["produce", topic, "--key", "k", "--key-separator", ":"], 2, "exclude each other"),
        (["produce", topic, "--header", "novalue", "--value", "v"], 2, "must be NAME=VALUE"),
    ]
    for arguments, code, sentence in cases:
        ended = penstock(*arguments, *where)
        assert (ended.code, "Traceback" in ended.err) == (code, False), (arguments, ended.err)
        assert sentence in ended.err


def test_a_line_without_the_separator_is_told(node: harness.Node, topic: str):
    ended = penstock("produce", topic, "--key-separator", ":", "--bootstrap", node.bootstrap, given="novalue\n")
    assert (ended.code, "has no ':'" in ended.err) == (1, True)


def test_a_record_that_is_too_large_is_refused_with_the_setting_to_change(node: harness.Node):
    where = ["--bootstrap", node.bootstrap]
    succeed("topics", "create", "small", "--config", "max.message.bytes=1000", *where)
    ended = penstock("produce", "small", *where, given="x" * 5000)
    assert (ended.code, "max.message.bytes" in ended.err) == (1, True)
