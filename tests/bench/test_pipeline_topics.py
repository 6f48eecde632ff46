"""What the pipeline's benchmark stands on: topics with exactly the rows asked for, and loops that notice when some are missing."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from benchmarks.pipeline_spark import descendants
from benchmarks.pipeline_topics import Place, consume, fill, produce
from benchmarks.subjects import LoadFailed
from system.harness import Node


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    with Node(tmp_path_factory.mktemp("bench") / "data") as node:
        yield Place("node", SimpleNamespace(port=node.kafka_port), {"flush": "os"})


def test_a_topic_has_exactly_the_rows_that_were_asked_for(place):
    with place.filled(partitions=2, rows=3_002, value_bytes=100) as topic:
        assert consume(place.bootstrap, topic, 2, 3_002) == (3_002, 300_200)
        fill(place, topic, partitions=2, rows=10, value_bytes=7)
        assert consume(place.bootstrap, topic, 2, 3_012) == (3_012, 300_270)
    with pytest.raises(ValueError, match="same number"):
        fill(place, topic, partitions=2, rows=3, value_bytes=7)


def test_rows_that_are_missing_are_noticed(place):
    with place.filled(partitions=1, rows=100, value_bytes=10) as topic, pytest.raises(LoadFailed, match="100 of 101 rows"):
        consume(place.bootstrap, topic, 1, 101)


def test_the_producer_loop_writes_every_row(place):
    with place.topic(2) as topic:
        produce(place.bootstrap, topic, [(b"a", b"12345"), (b"b", b"1")], 5_001)
        assert consume(place.bootstrap, topic, 2, 5_001) == (5_001, 2_501 * 5 + 2_500)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only on Linux")
def test_the_processes_below_a_process_are_found():
    with subprocess.Popen(["sh", "-c", "cat; true"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdin.write(b"are you there?\n")
        process.stdin.flush()
        process.stdout.readline()  # `cat` runs, below the shell.
        found = descendants(process.pid)
        process.stdin.close()
    assert len(found) == 1
    assert process.pid not in found
