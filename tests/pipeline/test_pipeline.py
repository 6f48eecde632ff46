"""What a pipeline may be made of; everything else is refused by name when it is written down, long before Spark starts."""

import re

import pytest

from penstock.pipeline import FromFrame, FromTopic, Job, JobOption, Pipeline, PipelineComplaint, Stage, ToFormat, ToTopic
from penstock.pipeline.stage import unchanged
from penstock.pipeline.topics import Wanted, topics_written


def stage(name: str = "a", **changes: object) -> Stage:
    return Stage(**({"name": name, "source": FromTopic("raw"), "step": unchanged, "sink": ToTopic("out")} | changes))


@pytest.mark.parametrize(("make", "problem"), [
    (lambda: Pipeline("p", []), "the pipeline 'p' has no stages"),
    (lambda: Pipeline("a/b", [stage()]), "'a/b' cannot name a pipeline"),
    (lambda: Pipeline("..", [stage()]), "'..' cannot name a pipeline"),
    (lambda: Pipeline("p", [stage("a.b")]), "'a.b' cannot name a stage"),
    (lambda: Pipeline("p", [stage(), stage()]), "two stages 'a'"),
    (lambda: Pipeline("p", [stage(sink=ToTopic("raw"))]), "stage 'a' writes the topic that it reads"),
    (lambda: Pipeline("p", [stage(source=FromTopic("x, raw"), sink=ToTopic("raw"))]), "stage 'a' writes the topic that it reads"),
    (lambda: Pipeline("p", [stage(sink=ToFormat("noop"), dead_letters="dead")]), "has dead letters but writes no topic"),
    (lambda: Job("j", "nothing"), "either stages to build or something to run"),
])  # fmt: skip
def test_what_cannot_work_is_refused(make, problem: str) -> None:
    with pytest.raises(PipelineComplaint, match=re.escape(problem)) as refused:
        make()
    assert refused.value.advice


def test_groups_and_topics_follow_from_the_names() -> None:
    whole = Pipeline(
        "shop",
        [
            stage("first", sink=ToTopic("mid", 3, {"retention.ms": "1"}), dead_letters="dead"),
            stage("second", source=FromTopic("mid"), sink=ToTopic("end"), dead_letters="dead"),
            stage("third", source=FromFrame(lambda context: None), sink=ToFormat("noop")),
        ],
    )
    assert [whole.group(each) for each in whole.stages] == ["shop.first", "shop.second", "shop.third"]
    assert topics_written(whole) == {"mid": Wanted(3, {"retention.ms": "1"}), "dead": Wanted(1), "end": Wanted()}
    again = whole.renamed("other")
    assert (again.group(again.stages[0]), again.stages) == ("other.first", whole.stages) and whole.renamed("shop") is whole


def test_a_job_fills_in_its_defaults_and_refuses_what_it_does_not_know() -> None:
    job = Job(
        "j", "does", (JobOption("topic", "where from"), JobOption("rows", "how many", "10")), build=lambda options: Pipeline("p", [stage()])
    )
    assert job.filled({"topic": "t"}) == {"topic": "t", "rows": "10"}
    assert job.filled({"topic": "t", "rows": "7"})["rows"] == "7"
    with pytest.raises(PipelineComplaint, match="needs the option 'topic': where from"):
        job.filled({})
    with pytest.raises(PipelineComplaint, match="has no option 'topc'"):
        job.filled({"topc": "t"})
