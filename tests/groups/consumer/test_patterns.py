"""Patterns that members bring: which are taken, that none of them can keep a node busy, and what they stand for as names come and go."""

import subprocess
import sys

import pytest
from groups.consumer.company import NONE, Company

from penstock import patterns
from penstock.errors import ErrorCode, Refusal
from penstock.groups.consumer import matches
from penstock.groups.consumer.matches import Matches
from penstock.patterns import pattern_of

LONGEST = "a" * 249  # That a topic's name may be.
TAKEN = ["a", "^logs-.*$", "(a|b)c", "[a-z]+[.][0-9]{1,3}", "(?i)abc", "(a+)+$", "(.*a){20}", "a*b*c*d*", "(?P<x>a)", "\\pL+", "a" * 1_000]
REFUSED = {
    "(": "missing )",
    "[": "missing ]",
    "a**": "bad repetition operator: **",
    "(a)\\1": "invalid escape sequence: \\1",
    "(?=a)a": "invalid perl operator: (?=",
    "(?<!b)a": "invalid perl operator: (?<!",
    "a{1001}": "invalid repetition size",
    "\\pL{500}": "pattern too large",
    "\ud800": "half a character",
    "a" * 1_001: "may have 1000 characters, this one has 1001",
}
BACKTRACKING = ["^" + "a{0,10}" * 20 + "b", "(a*)*b", "(a|aa)+b", "(a|a)*b", "a*" * 100 + "b"]


@pytest.mark.parametrize("regex", TAKEN)
def test_patterns_that_are_taken(regex: str) -> None:
    pattern_of(regex)


@pytest.mark.parametrize(("regex", "reason"), REFUSED.items())
def test_what_is_no_pattern_of_re2_or_too_large_is_refused_with_its_reason(regex: str, reason: str) -> None:
    with pytest.raises(Refusal) as refused:
        pattern_of(regex)
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert reason in refused.value.reason


@pytest.mark.parametrize("regex", BACKTRACKING)
def test_a_pattern_that_would_send_python_backtracking_for_years_is_just_held_against_the_name(regex: str) -> None:
    assert Matches([LONGEST, "ab"]).found(regex) == ("ab",)


def test_a_member_with_such_a_pattern_joins_and_its_group_goes_on() -> None:
    company = Company({LONGEST: 1, "aab": 2})
    member = company.member("m", regex=BACKTRACKING[0])
    assert member.beat() is NONE
    assert len(member.has) == 2
    company.make("aaab", 1)
    assert member.beat() is NONE
    assert len(member.has) == 3


def test_a_name_matches_as_a_whole_and_lines_are_nothing_special() -> None:
    assert Matches(["ab", "abc", "xab"]).found("ab") == ("ab",)
    assert Matches(["ab", "abc"]).found("^ab$|c") == ("ab",)
    assert pattern_of("é.").matches("éa") and not pattern_of("a$").matches("a\n")


def test_each_name_is_held_against_a_pattern_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(patterns.Pattern, "matches", lambda self, name: asked.append(name) or name.startswith("a"))
    known = Matches(["b", "a2"])
    assert known.found("a.*") == ("a2",)
    known.renew(["b", "a2", "a1"])
    assert known.found("a.*") == ("a1", "a2")
    known.renew(["b", "a1"])
    assert known.found("a.*") == ("a1",)
    known.renew(["a2", "a1"])
    assert known.found("a.*") == ("a1", "a2")
    assert asked == ["b", "a2", "a1"]


def test_names_are_looked_at_in_pieces() -> None:
    known = Matches([f"a{number}" for number in range(5)])
    assert [known.look("a[13]", 2) for _ in range(4)] == [False, False, True, True]
    assert known.found("a[13]") == ("a1", "a3")


def test_few_patterns_are_remembered_and_names_that_are_gone_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Matches(["a1"])
    monkeypatch.setattr(matches, "PATTERNS_MAX", 150)
    for number in range(400):
        assert known.found(f"a{number}") == (("a1",) if number == 1 else ())
    assert (len(known._looked), len(known._answers)) == (150, 100)
    assert known.found("a1") == ("a1",)
    for number in range(5_000):
        known.renew([f"a{number}"])
    assert len(known._in_order) == len(known._seen) <= 1_003
    assert known.found("a.*") == ("a4999",)


def test_a_stored_pattern_that_is_no_longer_taken_stands_for_nothing() -> None:
    assert Matches(["a"]).found("a++") == ()


def test_a_node_that_sees_no_pattern_does_not_load_the_engine() -> None:
    program = "import sys, penstock.server.process, penstock.broker.node; print('re2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout == "False\n"
