"""The data pipeline on Spark: topics as frames, frames as topics, and jobs made of both.

    frame = spark.readStream.format("penstock").option("kafka.bootstrap.servers", "localhost:9092").option("subscribe", "orders").load()

| file | what lives there |
|---|---|
| `datasource` | the format "penstock" as Spark sees it |
| `source/` | topics read, in batches or as a stream |
| `sink/` | frames written to topics, exactly once |
| `session` | a Spark session with every setting that measurements asked for |
| `stage` `pipeline` | what a pipeline is made of: plain values |
| `ends` `running` `progress` `state` | how a pipeline is run: its ends in Spark, its queries, what they tell, who runs it |
| `steps/` | functions from frame to frame that jobs share |
| `jobs/` | the jobs that ship, one file each |
| `brokers` `options` `complaints` | the blocking door to brokers; options read and refused; refusals in words |

Rules: Spark and Arrow are imported below this package only, so that everything else of Penstock runs without them. Brokers are reached by
Kafka's protocol alone, through `peers/`. Nothing here knows a node.
"""

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.pipeline import BatchContext, Job, JobOption, Pipeline
from penstock.pipeline.session import session
from penstock.pipeline.stage import Context, FromFrame, FromTopic, Stage, ToBatches, ToFormat, ToTopic

__all__ = [
    "session",
    "Pipeline", "Stage", "FromTopic", "FromFrame", "ToTopic", "ToFormat", "ToBatches", "Context",
    "Job", "JobOption", "BatchContext",
    "PipelineComplaint",
]  # fmt: skip
