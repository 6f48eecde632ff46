"""What `orders` and `traffic` are told, read as it was meant or refused by name."""

import pytest

from penstock.pipeline.options import WrongOption
from penstock.pipeline.traffic.wishes import wishes

pytestmark = pytest.mark.needs("spark")  # A job's file names Spark's types.


def test_a_report_is_read_from_its_options() -> None:
    from penstock.pipeline.jobs.traffic import JOB

    plain = wishes(JOB.filled({"topics": "a, b,"}))
    assert (plain.topics, plain.window_s, plain.last_s, plain.expected_rate) == (["a", "b"], None, None, None)
    assert (plain.watch_s, plain.every_s, plain.groups, plain.keys) == (0, 1, [], 20)
    told = {"window": "5m", "last": "1h", "expected": "2.5", "watch": "60s", "every": "500ms", "groups": "g", "keys": "3"}
    full = wishes(JOB.filled({"topics": "a"} | told))
    assert (full.window_s, full.last_s, full.expected_rate) == (300, 3600, 2.5)
    assert (full.watch_s, full.every_s, full.groups, full.keys) == (60, 0.5, ["g"], 3)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"topics": " , "}, "no topic was named"),
        ({"watch": "60"}, "watch is '60', without a unit\n  write 60s"),
        ({"last": "yesterday"}, "last is 'yesterday', not a duration"),
        ({"window": "500ms"}, "window is '500ms'\n  write whole seconds"),
        ({"expected": "many"}, "expected is 'many', not a number"),
        ({"expected": "0"}, "expected is '0'\n  write a number above 0"),
        ({"report": "/no/dir/x.html"}, "report is '/no/dir/x.html', and there is no directory /no/dir\n  make the directory"),
        ({"report": "/"}, "report is '/', which cannot be written"),
        ({"keys": "0"}, "keys is 0\n  write a whole number from 1 on"),
    ],
)
def test_a_report_that_cannot_be_made_is_refused(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(WrongOption) as refused:
        wishes({"topics": "a"} | wrong)
    assert words in str(refused.value)


@pytest.mark.parametrize(("name", "value"), [("partitions", "two"), ("partitions", "0"), ("rows", "-1")])
def test_orders_refuses_numbers_that_are_none(name: str, value: str) -> None:
    from penstock.pipeline.jobs.orders import JOB

    assert JOB.build is not None
    with pytest.raises(WrongOption, match=name):
        JOB.build(JOB.filled({name: value}))
