"""Plays Spark's own Kafka connector against a broker, beside format("penstock"), in a session that is started with its jars.

    python connector_program.py BOOTSTRAP CHECKPOINT JAR,JAR,…

Prints one JSON object with what it saw.
"""

import json
import sys
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from penstock.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE, COPY, STREAMED = "connector-in", "connector-copy", "connector-streamed"


def main(bootstrap: str, checkpoint: str, jars: str) -> None:
    java = "-Xss8m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    settings = {"spark.jars": jars, "spark.driver.memory": "1g", "spark.log.level": "ERROR", "spark.driver.extraJavaOptions": java}
    spark = session("connector", master="local[2]", settings=settings | {"spark.sql.session.timeZone": "UTC"})

    def read(form: str, topic: str) -> "DataFrame":
        reader = _options(spark.read.format(form), bootstrap).option("subscribe", topic).option("includeHeaders", "true")
        frame: DataFrame = reader.load()
        return frame

    theirs, ours = read("kafka", SOURCE), read("penstock", SOURCE)
    seen = {
        "schemas": [theirs.schema.simpleString(), ours.schema.simpleString()],
        "rows": [_digest(theirs), _digest(ours)],
    }
    theirs.select("key", "value", "headers").write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", COPY).save()
    streaming = _options(spark.readStream.format("kafka"), bootstrap).option("subscribe", SOURCE).load()
    writer = streaming.select("key", "value").writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    query = writer.option("topic", STREAMED).option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    query.awaitTermination()
    seen["copies"] = [read("penstock", COPY).count(), read("penstock", STREAMED).count()]
    print(json.dumps(seen))
    spark.stop()


def _options(reader: Any, bootstrap: str) -> Any:
    told = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest", "kafka.isolation.level": "read_committed"}
    return reader.options(**told)


def _digest(frame: "DataFrame") -> list[object]:
    """The same for two frames only where all their rows are the same."""
    rows = frame.select(F.xxhash64(*(F.col(name) if name != "headers" else F.to_json("headers") for name in frame.columns)).alias("row"))
    return list(rows.agg(F.count("*"), F.bit_xor("row")).collect()[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
