"""`traffic` on a real node: what went through a topic, what its groups had committed meanwhile, and the page that tells it."""

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock.pipeline.examples.writing import create_topic, write
from penstock.wire.murmur2 import partition_of_key

if TYPE_CHECKING:
    from pipeline_topics import Topics
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.needs("spark"), pytest.mark.spark]

TOPIC, SAMPLES, GROUP = "traffic-seen", "traffic-seen.samples", "traffic-billing"
PARTITIONS = 3
HEAVY = 6_000


def test_the_report_of_a_topic_tells_rate_lag_latency_and_the_heavy_key(spark: "SparkSession", topics: "Topics", tmp_path: Path) -> None:
    from penstock.pipeline.jobs.traffic import JOB
    from penstock.pipeline.pipeline import BatchContext

    now_ms = time.time_ns() // 1_000_000
    create_topic(topics.bootstrap, TOPIC, partitions=PARTITIONS)
    written = [(b"k-%d" % (n % 900), b'{"n": %d}' % n, now_ms - 60_000 + n * 10) for n in range(3_000)]
    written += [(b"giant", b"{}", now_ms - 45_000 + n) for n in range(HEAVY)]  # All in six seconds: a spike, too.
    write(topics.bootstrap, TOPIC, written)
    ends = topics.ends(TOPIC)
    commit(topics.bootstrap, {partition: 10 for partition in ends})

    def committed_in_time() -> bool:
        """The group reads on to the end after the first look, and the last look comes after that."""
        samples = [json.loads(value or b"") for value in topics.values(SAMPLES)]
        if len(samples) == PARTITIONS:
            commit(topics.bootstrap, ends)
        return any(sample["committed"] == sample["end"] for sample in samples)

    said: list[str] = []
    report = tmp_path / "report.html"
    looks = {"samples": SAMPLES, "groups": GROUP, "watch": "60s", "every": "100ms"}
    options = JOB.filled({"topics": TOPIC, "report": str(report), "window": "2s", "keys": "5"} | looks)
    assert JOB.run is not None
    JOB.run(BatchContext(spark, topics.bootstrap, options, str(tmp_path), said.append, lambda name, number: None, committed_in_time))

    html = report.read_text()
    giant = partition_of_key(b"giant", PARTITIONS)
    assert f"{TOPIC}: {len(written)} records" in said[-2]
    assert "salt the heavy keys ('giant' as" in said[-2]
    assert f'<code>giant</code></td><td class="n">{HEAVY}</td><td class="n">66.7%</td>' in html
    assert f'<td class="n">{giant}</td>' in html
    assert '<td class="n">spike</td>' in html
    assert f"at the last look: {GROUP} 0." in html
    assert f"until {GROUP} has committed it" in html
    assert sorted(topics.committed(GROUP, TOPIC).values()) == sorted(ends.values()), "it only looks"


def commit(bootstrap: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        consumer.commit(offsets=[TopicPartition(TOPIC, partition, offset) for partition, offset in offsets.items()], asynchronous=False)
    finally:
        consumer.close()
