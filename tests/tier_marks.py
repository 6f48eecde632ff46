"""What the marks of collected tests must say about tiers: each test that is not in `make test` names what stays there.

- `slow(stays="tests/….py::test_…")` names a test of the tier `test` that shows the same, class included, without parameters or with them.
- `soak(stays=…)` does, too; or `soak(only_here="why")` says why nothing shorter shows it. Parameters need neither where others of the same
  test are in the tier `test`.
- `skip` and `skipif` give a reason that begins with `needs NAME: ` or `only `, whether it skips here or not. `xfail` is not used. (What
  calls `pytest.skip` is looked at when it does: conftest.py.)

pytest knows the marks, however they are spelt. An id is looked up where its whole file was collected (conftest.py); `make check` collects
everything.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from machine import PROBES

REASON = re.compile(rf"only |needs ({'|'.join(PROBES)}): ")


def problems_of(tiers: Mapping[pytest.Item, str], is_whole: Callable[[str], bool]) -> Iterator[str]:
    """`tiers` are all items that were collected; `is_whole` tells of a file, by its path, whether all its tests are among them."""
    staying = {name for item, tier in tiers.items() if tier == "test" for name in (item.nodeid, base(item.nodeid))}
    told: set[str] = set()
    for item in tiers:
        for mark in item.iter_markers():
            if mark.name == "xfail" or (mark.name in ("skip", "skipif") and not REASON.match(reason_of(mark))):
                told.add(f"{base(item.nodeid)}: {mark.name} must be a skip with a reason: `needs NAME: …`, or `only …`")
    yield from sorted(told)
    for item, tier in tiers.items():
        if tier not in ("slow", "soak") or (tier == "soak" and base(item.nodeid) in staying):
            continue
        marker = item.get_closest_marker(tier)
        assert marker is not None
        problem = problem_of(tier, marker.args, marker.kwargs, staying, is_whole)
        if problem and (line := f"{base(item.nodeid)}: {problem}") not in told:
            told.add(line)
            yield line


def problem_of(tier: str, args: Iterable[Any], kwargs: Mapping[str, Any], staying: set[str], is_whole: Callable[[str], bool]) -> str:
    match list(args), list(kwargs.items()):
        case [], [("stays", str() as stays)]:
            if is_whole(stays.partition("::")[0]) and stays not in staying:
                return f"{stays} is no test of `make test`: correct the id, class included, or name another"
            return ""
        case [], [("only_here", str() as why)] if tier == "soak" and why:
            return ""
    also = ', or soak(only_here="why")' if tier == "soak" else ""
    return f'write {tier}(stays="tests/….py::test_…") with a test that stays in `make test`{also}'


def reason_of(marker: pytest.Mark) -> str:
    return str(marker.kwargs.get("reason", marker.args[0] if marker.name == "skip" and marker.args else ""))


def base(nodeid: str) -> str:
    """Returns the id of a test without parameters."""
    return nodeid.partition("[")[0]
