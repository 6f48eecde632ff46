"""The programs of examples/delivery do what they say: crashed in the middle and started again, they lose, double, or do neither."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from announced import needs_announced
from cli.running import clean_environment, penstock, succeed
from system import harness
from waiting import PATIENCE_S, until

EXAMPLES = Path(__file__).parents[2] / "examples" / "delivery"
PEER = os.environ.get("PENSTOCK_PEER")
COUNT = 10
IDLE_SECONDS = "10" if PEER else "1"  # Apache Kafka makes a new group wait three seconds for more members.
CRASHED = 1
# What librdkafka says of its own accord while the broker aborts what the first life left open.
WAITS_FOR_AN_ABORT = re.compile(r"GETPID .* another concurrent operation on the same transaction was ongoing: retrying$")


@pytest.fixture(scope="module")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker that has not seen these topics, or is made to forget them."""
    if PEER:
        return PEER
    node: harness.Node = request.getfixturevalue("node")
    return node.bootstrap


@pytest.fixture(scope="module", autouse=True)
def orders(bootstrap: str) -> None:
    for topic in ("orders", "bills"):
        if PEER:
            penstock("topics", "delete", topic, "--yes", "--bootstrap", bootstrap)
        succeed("topics", "create", topic, "--bootstrap", bootstrap)
    assert run("write_orders.py", bootstrap, str(COUNT)) == (0, f"{COUNT} orders are written\n")


def run(name: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert [line for line in ended.stderr.splitlines() if not WAITS_FOR_AN_ABORT.match(line)] == []
    return ended.returncode, ended.stdout


def crash_and_run_again(name: str, bootstrap: str, *arguments: str, has_read: Callable[[str], bool] = bool) -> str:
    """Dies at order-4, and does the rest. What the second life printed.

    A life ends when nothing has come for a while, which may be too short to join the group: where the second one read nothing there is
    another.
    """
    assert run(name, bootstrap, *arguments, "order-4", str(PATIENCE_S))[0] == CRASHED
    told = ""

    def live_again() -> bool:
        nonlocal told
        code, told = run(name, bootstrap, *arguments, "", IDLE_SECONDS)
        assert code == 0
        return has_read(told)

    until(live_again)
    return told


def billed(file: Path) -> list[int]:
    return [int(line.split(":")[0].removeprefix("order-")) for line in file.read_text().splitlines()]


def orders_billed(bootstrap: str, *only: str) -> list[int]:
    bills = succeed("consume", "bills", *only, "--bootstrap", bootstrap).splitlines()
    return [int(json.loads(bill)["order"].removeprefix("order-")) for bill in bills]


def test_at_most_once_loses_the_rest_of_what_it_had_committed(bootstrap: str, tmp_path: Path):
    crash_and_run_again("at_most_once.py", bootstrap, str(tmp_path / "bills.txt"), has_read=lambda told: told == "")
    assert billed(tmp_path / "bills.txt") == [0, 1, 2, 3]


def test_at_least_once_repeats_what_it_had_not_committed(bootstrap: str, tmp_path: Path):
    bills = tmp_path / "bills.txt"
    crash_and_run_again("at_least_once.py", bootstrap, str(bills), has_read=lambda _: len(billed(bills)) > 4)
    assert billed(bills) == [0, 1, 2, 3, *range(COUNT)]


def test_exactly_once_does_neither(bootstrap: str):
    needs_announced(bootstrap, "transactions")
    told = crash_and_run_again("exactly_once.py", bootstrap, has_read=lambda told: told != "0 orders are billed\n")
    assert told == f"{COUNT} orders are billed\n"
    assert orders_billed(bootstrap, "--committed") == list(range(COUNT))
    assert orders_billed(bootstrap) == [0, 1, 2, 3, *range(COUNT)], "the first life wrote, and its bills are aborted"


def test_an_idempotent_consumer_takes_each_order_in_once(bootstrap: str, tmp_path: Path):
    told = crash_and_run_again("idempotent_consumer.py", bootstrap, str(tmp_path / "bills.sqlite"))
    expected = [f"order-{number} {'was billed before' if number <= 4 else 'is billed'}" for number in range(COUNT)]
    assert told.splitlines() == expected
    with sqlite3.connect(tmp_path / "bills.sqlite") as database:
        assert database.execute("SELECT count(*), sum(cents) FROM bills").fetchone() == (COUNT, 250 * 23)
        assert database.execute("SELECT sum(cents) FROM takings").fetchone() == (250 * 23,)
    database.close()


def test_every_example_is_run_here():
    names = {"write_orders.py", "at_most_once.py", "at_least_once.py", "exactly_once.py", "idempotent_consumer.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == names
