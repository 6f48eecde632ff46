"""How far a pipeline is: what its queries told, added up, as lines for a terminal and as JSON for whoever asks later.

Pure: Spark's progress comes in as the JSON that it is. Rates and batch times are those of the last batch, the other numbers count since
the pipeline was started. Lag is how many offsets stood between the end of the last batch and the end of its topics when it was planned.
Not here: who listens to Spark (listening) and where the JSON is kept (state).
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.pipeline.source.offsets import BESIDE_OFFSETS

STARTING, RUNNING, DONE, STOPPED, FAILED = "starting", "running", "done", "stopped", "failed"


@dataclass(slots=True)
class StageProgress:
    name: str
    state: str = STARTING
    batches: int = 0
    rows_in: int = 0
    rows_out: int = 0
    dead_letters: int = 0
    rows_per_second: float = 0.0
    batch_ms: int = 0
    lag: int | None = None  # None where the source does not tell.
    failure: str = ""

    def absorb(self, told: Mapping[str, Any]) -> None:
        """One batch, as Spark's progress tells of it. Spark also tells, from time to time, that there was none."""
        rows = int(told.get("numInputRows") or 0)
        spent_ms: Mapping[str, int] = told.get("durationMs") or {}
        self.state = RUNNING if self.state == STARTING else self.state
        self.lag = lag_of(told.get("sources") or ())
        if "addBatch" not in spent_ms:
            self.rows_per_second = 0.0
            return
        counts = (told.get("observedMetrics") or {}).get("penstock") or {}
        self.batches += 1
        self.rows_in += rows
        self.rows_out += int(counts.get("rows") or 0)
        self.dead_letters += int(counts.get("dead_letters") or 0)
        self.rows_per_second = float(told.get("processedRowsPerSecond") or 0.0)
        self.batch_ms = int(spent_ms.get("triggerExecution") or 0)


@dataclass(slots=True)
class PipelineProgress:
    name: str
    stages: dict[str, StageProgress]
    state: str = RUNNING
    counts: dict[str, float] = field(default_factory=dict)  # What a job that runs once counts.
    started_ms: int = 0
    at_ms: int = 0

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> "PipelineProgress":
        stages = {name: StageProgress(**stage) for name, stage in told["stages"].items()}
        return cls(told["name"], stages, told["state"], dict(told["counts"]), told["started_ms"], told["at_ms"])


def lag_of(sources: Iterable[Mapping[str, Any]]) -> int | None:
    """Over all partitions of all sources that tell their offsets as Kafka's do."""
    lags = [_lag(_offsets(source.get("endOffset")), _offsets(source.get("latestOffset"))) for source in sources]
    known = [lag for lag in lags if lag is not None]
    return sum(known) if known else None


def stage_line(stage: StageProgress, *, width: int = 0) -> str:
    """One stage in one line."""
    parts = [
        f"{stage.name:{width}}",
        f"{stage.state:8}",
        f"{stage.rows_per_second:>11,.0f} rows/s",
        f"lag {'-' if stage.lag is None else format(stage.lag, ','):>9}",
        f"batch {stage.batches:>5,} in {stage.batch_ms:>6,} ms",
        f"{stage.rows_in:>12,} in {stage.rows_out:>12,} out",
        f"{stage.dead_letters:,} dead" if stage.dead_letters else "",
    ]
    return "  ".join(filter(None, parts))


def lines(progress: PipelineProgress) -> list[str]:
    width = max((len(name) for name in progress.stages), default=0)
    counts = [f"{name} {value:,.0f}" for name, value in progress.counts.items()]
    return [stage_line(stage, width=width) for stage in progress.stages.values()] + counts


def _lag(end: Mapping[str, Any] | None, latest: Mapping[str, Any] | None) -> int | None:
    if end is None or latest is None:
        return None
    return sum(
        max(0, int(offset) - int((end.get(topic) or {}).get(partition, 0)))
        for topic, partitions in latest.items()
        if topic not in BESIDE_OFFSETS
        for partition, offset in partitions.items()
    )


def _offsets(told: object) -> Mapping[str, Any] | None:
    """Offsets are JSON in JSON, or a text of it, as the version of Spark likes. Other sources have other ones."""
    if isinstance(told, str):
        try:
            told = json.loads(told)
        except ValueError:
            return None
    if not isinstance(told, Mapping) or not told or not all(isinstance(each, Mapping) for each in told.values()):
        return None
    return told
