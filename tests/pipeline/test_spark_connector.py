"""Spark's own Kafka connector, format("kafka"), against a node: it reads and writes as with Apache Kafka, and our rows are its rows."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from apache_kafka import connector_jars
from pipeline_topics import Topics
from spark_home import byte_compiled_home

pytestmark = [pytest.mark.needs("spark"), pytest.mark.soak(only_here="the only test of Spark's own connector, which is downloaded")]

ROWS = 2_000
SECONDS_MAX = 240


@pytest.mark.timeout(SECONDS_MAX + 30)
def test_sparks_own_connector_reads_and_writes_a_node_and_sees_the_same_rows(topics: Topics, tmp_path: Path) -> None:
    jars = ",".join(map(str, connector_jars()))
    for name in ("connector-in", "connector-copy", "connector-streamed"):
        topics.create(name, partitions=2)
    rows = ((b"k%d" % (n % 50), b"value-%d" % n if n % 7 else None) for n in range(ROWS))
    topics.write("connector-in", rows, headers=[("from", b"test")])
    topics.write_in_transaction("connector-in", [(b"gone", b"aborted")] * 10, ends="abort")
    program = Path(__file__).with_name("connector_program.py")
    with byte_compiled_home(tmp_path):
        command = [sys.executable, str(program), topics.bootstrap, str(tmp_path / "checkpoint"), jars]
        played = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert played.returncode == 0, played.stderr[-3_000:]
    seen = json.loads(played.stdout.splitlines()[-1])
    theirs, ours = seen["schemas"]
    assert ours == theirs
    theirs, ours = seen["rows"]
    assert ours == theirs, "count and checksum of all eight columns"
    assert ours[0] == ROWS
    assert seen["copies"] == [ROWS, ROWS]
