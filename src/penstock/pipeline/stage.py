"""What a pipeline is made of: stages, where they read, what they do, where they write. Plain values, nothing runs here.

    Stage("validated", FromTopic("orders.raw"), validate, ToTopic("orders.valid", partitions=2), dead_letters="orders.dead")

A stage is one streaming query with a checkpoint and a consumer group of its own, both named after it. Its step is a pure function from
frame to frame; it is given the columns of the source (key, value, topic, partition, offset, timestamp, timestampType) and, where the
stage writes to a topic, gives back `value` and, where it has them, `key` and `headers`. Other columns are not written: a step that lets
the source's own `topic` and `partition` through does not send its rows back to where they came from.

Dead letters: where the frame that a step gives back has a column `reason`, rows in which it is not null go to the topic `dead_letters`
instead, as they are, with the reason and where they come from as headers. They are written in the same transaction as the rest.
Not here: how a stage is run (running), and what the ends become in Spark (ends).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REASON = "reason"  # The column that makes a row a dead letter.
ORIGIN = "origin"  # Optional beside it: a struct of topic, partition and offset, which steps.origin() makes.


@dataclass(frozen=True, slots=True)
class Context:
    """What a step, a source or a sink may ask for beside its frame."""

    spark: "SparkSession"
    bootstrap: str
    pipeline: str
    stage: str
    options: Mapping[str, str]  # Those of the job, with its defaults.
    checkpoint: str  # The directory of this stage's checkpoint.


Step = Callable[["DataFrame", Context], "DataFrame"]


def unchanged(frame: "DataFrame", context: Context) -> "DataFrame":
    return frame


@dataclass(frozen=True, slots=True)
class FromTopic:
    """Reads one topic, or several with commas between; progress is committed to the stage's group."""

    topic: str
    starting: str = "earliest"
    options: Mapping[str, str] = field(default_factory=dict)  # Of the source, as format("penstock") takes them.


@dataclass(frozen=True, slots=True)
class FromFrame:
    """Reads whatever streaming frame this builds."""

    build: Callable[[Context], "DataFrame"]


@dataclass(frozen=True, slots=True)
class ToTopic:
    """Writes a topic, exactly once. It is created where it is missing, with so many partitions (the broker's default without a number)."""

    topic: str
    partitions: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)  # Of the topic, where it is created.
    output_mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)  # Of the sink.
    topic_column: str | None = None  # Names another topic for a row, where it is not null; that topic must be there.
    partition_column: str | None = None  # Names the partition, where it is not null; else the key decides.


@dataclass(frozen=True, slots=True)
class ToFormat:
    """Writes by any sink that Spark knows, such as parquet."""

    format: str
    options: Mapping[str, str] = field(default_factory=dict)
    output_mode: str = "append"
    partition_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToBatches:
    """Hands each micro-batch to a function, which may see the same batch id again after a failure and must then do nothing new."""

    write: Callable[["DataFrame", int, Context], None]
    output_mode: str = "append"


Source = FromTopic | FromFrame
Sink = ToTopic | ToFormat | ToBatches


@dataclass(frozen=True, slots=True)
class Stage:
    name: str
    source: Source
    step: Step
    sink: Sink
    dead_letters: str | None = None  # A topic; created where it is missing.
    trigger: str | None = None  # As Spark writes intervals ("1 second"); None leaves it to whoever runs the pipeline.

    def topics_read(self) -> list[str]:
        return [name.strip() for name in self.source.topic.split(",")] if isinstance(self.source, FromTopic) else []
