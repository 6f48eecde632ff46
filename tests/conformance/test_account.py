"""The stage for foreign clients must be trusted before its table is: it notices what a player leaves out, and what it only seems to do."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from conformance.__main__ import meet
from conformance.account import Outcome, Row, as_page, as_table, count_line
from conformance.claims import claim, outcome
from conformance.players import OURS, Say
from conformance.workshop import need
from waiting import PATIENCE_S


class Pretender:
    """Says of every feature what it was told to say, and sends one record that is not compressed."""

    name = "pretender"

    def __init__(self, features: tuple[str, ...], says: tuple[Say, ...]) -> None:
        self.features = features
        self._says = says

    def obtain(self) -> str:
        return "1.0"

    def play(self, bootstrap: str, prefix: str) -> Iterator[Say]:
        producer = Producer({"bootstrap.servers": bootstrap})
        for codec in ("none", "gzip"):
            producer.produce(f"{prefix}codec.{codec}", b"as it is")
        assert producer.flush(PATIENCE_S) == 0
        yield from self._says


class Absent(Pretender):
    def obtain(self) -> str:
        need("a-tool-that-nobody-has")
        raise AssertionError("it was found")


def outcomes(player: Pretender) -> dict[str, tuple[Outcome, str]]:
    return {row.feature: (row.outcome, row.why) for row in meet(player)}


def test_a_player_that_says_nothing_of_a_feature_has_failed_it() -> None:
    assert outcomes(Pretender(("delete topic", "delete group"), (("delete topic", "ok"),))) == {
        "delete topic": (Outcome.OK, ""),
        "delete group": (Outcome.FAILED, "it never came to this"),
        OURS: (Outcome.OK, ""),
    }


def test_a_client_that_only_seems_to_compress_is_noticed() -> None:
    told = outcomes(Pretender(("no codec", "gzip"), (("no codec", "ok"), ("gzip", "ok"))))
    assert told["no codec"] == (Outcome.OK, "")
    assert told["gzip"] == (Outcome.FAILED, "stored as none")


def test_what_could_not_be_had_is_named_with_its_reason() -> None:
    (row,) = meet(Absent(("gzip",), ()))
    assert (row.outcome, row.why) == (Outcome.NOT_TO_BE_HAD, "this machine has no a-tool-that-nobody-has")


def test_a_claim_that_does_not_hold_is_the_outcome() -> None:
    assert outcome(lambda: claim(True, "it is there")) == "ok"
    assert outcome(lambda: claim(False, "it is\n there")) == "not so: it is there"


@pytest.fixture
def rows() -> list[Row]:
    return [
        Row("one", "1.0", "gzip", Outcome.OK),
        Row("one", "1.0", "static member", Outcome.FAILED, "it was fenced"),
        Row("two", "2.0", "gzip", Outcome.OK),
        Row("three", "–", "all", Outcome.NOT_TO_BE_HAD, "no network"),
    ]


def test_the_table_has_a_line_for_each_row_and_closes_with_the_counts(rows: list[Row]) -> None:
    assert as_table(rows).splitlines()[1] == "one    1.0  static member  failed: it was fenced"
    assert count_line(rows) == "2 passed, 1 failed, 1 skipped"


def test_the_page_shows_features_by_tool_and_names_what_went_wrong(rows: list[Row]) -> None:
    page = as_page(rows, "abc1234")
    assert "| feature | one | two |" in page
    assert "| gzip | ok | ok |" in page
    assert "| static member | failed | – |" in page
    assert "- one, static member: failed: it was fenced" in page
    assert "- three, all: not to be had: no network" in page
