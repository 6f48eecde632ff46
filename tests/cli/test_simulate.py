"""`penstock simulate`: a world told, and many judged. Most commands run in this process, which has the simulator loaded."""

import pytest
from cli.running import succeed
from tiers import pick

from penstock.cli.root import run

ELSEWHERE = {"PYTHONHASHSEED": "1"}  # A process of its own, in which strings have other hashes.


@pytest.mark.repeats
@pytest.mark.parametrize("number", [34, 4, 12, 28][: pick(test=1, slow=4)])
def test_a_seed_tells_the_same_story_in_every_process(number: int, capsys: pytest.CaptureFixture[str]):
    command = ["simulate", "--seed", str(number)]
    assert run(command) == 0
    told = capsys.readouterr().out
    assert told == succeed(*command, environment=ELSEWHERE)
    assert told.splitlines()[-1].startswith(f"seed {number}  trace ")


def test_many_seeds_end_with_one_verdict(capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", "--seeds", "2", "--first", "9"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("2 worlds in ")
    assert last.endswith("every promise was kept")


@pytest.mark.repeats
@pytest.mark.parametrize("number", [19, 11, 30][: pick(test=1, slow=3)])
def test_a_seed_of_a_cluster_tells_the_same_story_in_every_process(number: int, capsys: pytest.CaptureFixture[str]):
    command = ["simulate", "--cluster", "--seed", str(number)]
    assert run(command) == 0
    told = capsys.readouterr().out
    assert told == succeed(*command, environment=ELSEWHERE)
    assert told.splitlines()[-1].endswith("every promise was kept")


@pytest.mark.parametrize("arguments", [[], ["--seed", "1", "--seeds", "2"]])
def test_one_or_many_must_be_said(arguments: list[str], capsys: pytest.CaptureFixture[str]):
    assert run(["simulate", *arguments]) == 2
    assert "either --seed N" in capsys.readouterr().err
