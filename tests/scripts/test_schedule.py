"""Which worker takes which file."""

from schedule import choose, durations

SPARK, COMPUTES, WAITS, SHORT = "tests/pipeline/test_steps.py", "tests/a.py", "tests/b.py", "tests/c.py"
FILES = [SHORT, WAITS, COMPUTES, SPARK]


def test_each_worker_takes_the_longest_file_of_its_kind_and_only_the_first_those_on_spark(monkeypatch):
    measured = {SPARK: (1.0, 0.1), COMPUTES: (20.0, 19.0), WAITS: (10.0, 1.0), SHORT: (1.0, 0.0)}
    monkeypatch.setattr(durations(), "files", measured)
    assert [choose(FILES, rank) for rank in range(4)] == [SPARK, COMPUTES, WAITS, WAITS]
    assert choose([SHORT, WAITS], 1) == WAITS, "without a file that computes it takes one that waits"
    assert choose([SPARK], 1) is None
    assert choose([SHORT, WAITS, COMPUTES], 0) == COMPUTES


def test_a_file_that_was_never_measured_begins_before_those_known_to_be_short(monkeypatch):
    monkeypatch.setattr(durations(), "files", {SHORT: (1.0, 0.0)})
    assert choose([SHORT, "tests/new.py"], 2) == "tests/new.py"
