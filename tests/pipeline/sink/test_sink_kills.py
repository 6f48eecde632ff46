"""The sink's protocol cut off between every two of its steps, by processes that really end, and what the next start makes of it."""

import pytest
from pipeline.sink.conftest import MakeQuery
from pipeline.sink.small_spark import Killed, all_values, batches_of

from penstock.pipeline.sink.steps import Step

BEFORE_THE_COMMIT = [Step.RUN_TAKEN, Step.NAMED, Step.HALF_STAGED, Step.STAGED, Step.CHECKED]
AFTER_THE_COMMIT = [Step.COMMITTED, Step.HALF_ENDED, Step.ENDED]


@pytest.mark.parametrize("step", BEFORE_THE_COMMIT + AFTER_THE_COMMIT, ids=lambda step: step.value)
def test_every_row_counts_once_wherever_the_query_is_killed(query: MakeQuery, topic: str, step: Step) -> None:
    batches = batches_of(3)
    writing = query()
    killed_in = 0 if step is Step.RUN_TAKEN else 1
    with pytest.raises(Killed):
        writing.start(batches, exit_at=step, in_batch=killed_in)
    if step in BEFORE_THE_COMMIT:
        assert writing.values(topic) == all_values(batches[:killed_in]), "rows of a batch that was not committed are seen"
    query().start(batches)
    assert writing.values(topic) == all_values(batches)
    assert writing.held_back(topic) == 0, "a transaction was left open"
