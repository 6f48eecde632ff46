"""How long a test measures: a moment, and longer only where a busy machine got no answer in it."""

from benchmarks.load.fetching import FetchLoad
from benchmarks.load.pipeline import Outcome, Timing
from benchmarks.load.producing import ProduceLoad

A_MOMENT = Timing(0.05, 0.1)
LONGER = (Timing(0.05, 1.0), Timing(0.05, 10.0), Timing(0.05, 60.0))


def measured(load: FetchLoad | ProduceLoad, host: str, port: int) -> Outcome:
    for timing in (A_MOMENT, *LONGER):
        outcome = load.run(host, port, timing)
        if outcome.requests:
            return outcome
    raise AssertionError("nothing was answered in a minute")
