"""The data pipeline on Spark: topics as frames, frames as topics, and jobs made of both.

    frame = spark.readStream.format("penstock").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

| file | what lives there |
|---|---|
| `datasource` | the format "penstock" as Spark sees it |
| `source/` | topics read, in batches or as a stream |
| `sink/` | frames written to topics, exactly once |
| `session` | a Spark session with every setting that measurements asked for |
| `brokers` `options` `complaints` | the blocking door to brokers; options read and refused; refusals in words |

Rules: Spark and Arrow are imported below this package only, so that everything else of Penstock runs without them. Brokers are reached by
Kafka's protocol alone, through `peers/`. Nothing here knows a node.
"""

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.session import session

__all__ = ["PipelineComplaint", "session"]
