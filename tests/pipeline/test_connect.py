"""Source and sink over Spark Connect: the client is a process without a JVM, the server is started inside of the shared session."""

import json
import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

CLIENT = """
import json, sys
from penstock.pipeline import session

address, bootstrap, raw, out, checkpoint = sys.argv[1:]
spark = session(remote=address)
where = {"kafka.bootstrap.servers": bootstrap}
batch = spark.read.format("penstock").options(**where, subscribe=raw).load()
read = [[row.key.decode(), row.offset] for row in batch.orderBy("offset").collect()]
stream = spark.readStream.format("penstock").options(**where, subscribe=raw, startingOffsets="earliest").load()
writer = stream.select("key", "value").writeStream.format("penstock").options(**where, topic=out, checkpointLocation=checkpoint)
query = writer.trigger(availableNow=True).start()
query.awaitTermination()
rows = spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch")
print(json.dumps({"read": read, "kind": type(spark).__module__, "failure": str(query.exception()), "rows": rows}))
"""


def test_source_and_sink_work_for_a_client_without_a_jvm(spark, node, topics, checkpoint) -> None:
    service = spark._jvm.org.apache.spark.sql.connect.service.SparkConnectService
    raw, out = topics.create(partitions=1), topics.create()
    topics.write_values(raw, 3)
    service.start(spark._jsc.sc())
    try:
        address = f"sc://127.0.0.1:{spark.conf.get('spark.connect.grpc.binding.port')}"
        told = subprocess.run(
            [sys.executable, "-c", CLIENT, address, node.bootstrap, raw, out, checkpoint], capture_output=True, text=True, check=False
        )
        assert told.returncode == 0, told.stderr
    finally:
        service.stop(spark._jvm.scala.Option.empty(), spark._jvm.scala.Option.empty())
    answer = json.loads(told.stdout.splitlines()[-1])
    assert answer["kind"].startswith("pyspark.sql.connect")
    assert answer["read"] == [["k0", 0], ["k1", 1], ["k2", 2]] and answer["failure"] == "None"
    assert answer["rows"] == "1024", "what can be set while a session runs is set"
    assert topics.values(out) == [b"0", b"1", b"2"]
