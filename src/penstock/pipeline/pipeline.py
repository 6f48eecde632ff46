"""A pipeline: a name and its stages, in the order in which data goes through them. What cannot work is refused before anything starts."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.complaints import PipelineComplaint
from penstock.pipeline.stage import Stage, ToTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")  # It names directories, groups and queries.


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str
    stages: tuple[Stage, ...]
    summary: str = ""

    def __init__(self, name: str, stages: Iterable[Stage], summary: str = "") -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "stages", tuple(stages))
        object.__setattr__(self, "summary", summary)
        self._check()

    def group(self, stage: Stage) -> str:
        """The consumer group to which the stage commits its progress, which is its query's name too."""
        return f"{self.name}.{stage.name}"

    def renamed(self, name: str) -> "Pipeline":
        """The same stages with groups and checkpoints of another name; the topics stay."""
        return self if name == self.name else Pipeline(name, self.stages, self.summary)

    def _check(self) -> None:
        if not self.stages:
            raise PipelineComplaint(f"the pipeline {self.name!r} has no stages", "give it at least one Stage")
        for what, name in [("pipeline", self.name), *(("stage", stage.name) for stage in self.stages)]:
            if not NAME.fullmatch(name):
                raise PipelineComplaint(
                    f"{name!r} cannot name a {what}", "use 1 to 100 letters, digits, '-' and '_', a letter or digit first"
                )
        twice = [name for name, count in Counter(stage.name for stage in self.stages).items() if count > 1]
        if twice:
            raise PipelineComplaint(
                f"the pipeline {self.name!r} has two stages {twice[0]!r}", "a checkpoint belongs to one stage: name them apart"
            )
        for stage in self.stages:
            if stage.dead_letters is not None and not isinstance(stage.sink, ToTopic):
                raise PipelineComplaint(
                    f"stage {stage.name!r} has dead letters but writes no topic", "bury them in a stage before, which writes a topic"
                )
            if isinstance(stage.sink, ToTopic) and stage.sink.topic in stage.topics_read():
                raise PipelineComplaint(f"stage {stage.name!r} writes the topic that it reads", "give it a topic of its own to write")


@dataclass(frozen=True, slots=True)
class JobOption:
    """What a job may be told: `penstock pipeline run orders --set window=5m`. Without a default it must be given."""

    name: str
    help: str
    default: str | None = None


@dataclass(frozen=True, slots=True)
class BatchContext:
    """What a job that runs once is given."""

    spark: "SparkSession"
    bootstrap: str
    options: Mapping[str, str]
    checkpoint: str  # A directory of its own, where it may keep how far it came.
    say: Callable[[str], None]  # A line of progress for whoever watches.
    count: Callable[[str, float], None]  # Adds to a number by name, which `status` and the metrics show: count("rows", 1000).
    is_stopping: Callable[[], bool]  # Whether it was asked to stop; what is written so far must be whole then.


@dataclass(frozen=True, slots=True)
class Job:
    """A pipeline with options that somebody can run by name: `build` makes its stages, or `run` does it all at once."""

    name: str
    summary: str
    options: tuple[JobOption, ...] = ()
    build: Callable[[Mapping[str, str]], Pipeline] | None = None
    run: Callable[[BatchContext], None] | None = None

    def __post_init__(self) -> None:
        if (self.build is None) == (self.run is None):
            raise PipelineComplaint(
                f"the job {self.name!r} must have either stages to build or something to run", "give it build=… or run=…"
            )

    def filled(self, given: Mapping[str, str]) -> dict[str, str]:
        """The options with the defaults of those not given. Refuses what is missing and what nobody knows."""
        known = {option.name: option for option in self.options}
        for name in given:
            if name not in known:
                allowed = ", ".join(known) or "none"
                raise PipelineComplaint(f"the job {self.name!r} has no option {name!r}", f"it takes: {allowed}")
        missing = [option for option in self.options if option.default is None and option.name not in given]
        if missing:
            raise PipelineComplaint(
                f"the job {self.name!r} needs the option {missing[0].name!r}: {missing[0].help}", f"add --set {missing[0].name}=…"
            )
        return {name: given.get(name, option.default or "") for name, option in known.items()}
