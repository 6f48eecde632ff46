"""`penstock simulate`: a world told, and many judged."""

from cli.running import penstock, succeed


def test_a_seed_tells_the_same_story_in_every_process():
    first, second = (succeed("simulate", "--seed", "4", environment={"PYTHONHASHSEED": seed}) for seed in ("1", "2"))
    assert first == second
    assert first.splitlines()[-1].startswith("seed 4  trace ")


def test_many_seeds_end_with_one_verdict():
    last = succeed("simulate", "--seeds", "2", "--first", "10").splitlines()[-1]
    assert last.startswith("2 worlds in ")
    assert last.endswith("every promise was kept")


def test_a_seed_of_a_cluster_tells_the_same_story_in_every_process():
    first, second = (succeed("simulate", "--cluster", "--seed", "11", environment={"PYTHONHASHSEED": seed}) for seed in ("1", "2"))
    assert first == second
    assert first.splitlines()[-1].endswith("every promise was kept")


def test_one_or_many_must_be_said():
    for arguments in ([], ["--seed", "1", "--seeds", "2"]):
        ended = penstock("simulate", *arguments)
        assert (ended.code, "either --seed N" in ended.err) == (2, True)
