"""The programs of examples/delivery do what they say: crashed in the middle and started again, they lose, double, or do neither."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from announced import needs_announced
from cli.running import clean_environment, penstock, succeed
from compatibility.transaction_scenarios import committed
from confluent_kafka import OFFSET_INVALID
from waiting import PATIENCE_S, until

EXAMPLES = Path(__file__).parents[2] / "examples" / "delivery"
PEER = os.environ.get("PENSTOCK_PEER")
COUNT = 10
IDLE_SECONDS = "10" if PEER else "1"  # Apache Kafka makes a new group wait three seconds for more members.
CRASHED = 1
# What librdkafka says of its own accord while the broker aborts what the first life left open.
WAITS_FOR_AN_ABORT = re.compile(r"GETPID .* another concurrent operation on the same transaction was ongoing: retrying$")


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """A broker with ten orders and no bill, whatever it had before."""
    address: str = PEER or request.getfixturevalue("node").bootstrap
    for topic in ("orders", "bills"):
        penstock("topics", "delete", topic, "--yes", "--bootstrap", address)
        succeed("topics", "create", topic, "--bootstrap", address)
    assert run("write_orders.py", address, str(COUNT)) == (0, f"{COUNT} orders are written\n")
    return address


def run(name: str, *arguments: str) -> tuple[int, str]:
    command = [sys.executable, str(EXAMPLES / name), *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, env=clean_environment(), check=False)
    assert [line for line in ended.stderr.splitlines() if not WAITS_FOR_AN_ABORT.match(line)] == []
    return ended.returncode, ended.stdout


def crash(name: str, bootstrap: str, *arguments: str) -> None:
    """Runs it until it dies at order-4."""
    assert run(name, bootstrap, *arguments, "order-4", str(PATIENCE_S))[0] == CRASHED


def run_again(name: str, bootstrap: str, *arguments: str, has_read: Callable[[str], bool] = bool) -> str:
    """Has it do the rest; what it printed.

    A life ends when nothing has come for a while, which may be too short to join the group: where one read nothing there is another.
    """
    told = ""

    def live_again() -> bool:
        nonlocal told
        code, told = run(name, bootstrap, *arguments, "", IDLE_SECONDS)
        assert code == 0
        return has_read(told)

    until(live_again)
    return told


def offset_of(group: str, bootstrap: str) -> int:
    """How far the group has come for sure; below 0 where it has committed nothing."""
    return committed(bootstrap, group, "orders")


def billed(file: Path) -> list[int]:
    return [int(line.split(":")[0].removeprefix("order-")) for line in file.read_text().splitlines()]


def orders_billed(bootstrap: str, *only: str) -> list[int]:
    bills = succeed("consume", "bills", *only, "--bootstrap", bootstrap).splitlines()
    return [int(json.loads(bill)["order"].removeprefix("order-")) for bill in bills]


def test_at_most_once_loses_the_rest_of_what_it_had_committed(bootstrap: str, tmp_path: Path):
    bills = tmp_path / "bills.txt"
    crash("at_most_once.py", bootstrap, str(bills))
    assert (billed(bills), offset_of("at-most-once", bootstrap)) == ([0, 1, 2, 3], COUNT)
    one_more = {"id": f"order-{COUNT}", "drink": "tea", "cups": 1}
    succeed("produce", "orders", "--bootstrap", bootstrap, given=f"{json.dumps(one_more)}\n")
    run_again("at_most_once.py", bootstrap, str(bills), has_read=lambda _: COUNT in billed(bills))
    assert (billed(bills), offset_of("at-most-once", bootstrap)) == ([0, 1, 2, 3, COUNT], COUNT + 1)


def test_at_least_once_repeats_what_it_had_not_committed(bootstrap: str, tmp_path: Path):
    bills = tmp_path / "bills.txt"
    crash("at_least_once.py", bootstrap, str(bills))
    assert (billed(bills), offset_of("at-least-once", bootstrap)) == ([0, 1, 2, 3], OFFSET_INVALID)
    run_again("at_least_once.py", bootstrap, str(bills), has_read=lambda _: len(billed(bills)) > 4)
    assert (billed(bills), offset_of("at-least-once", bootstrap)) == ([0, 1, 2, 3, *range(COUNT)], COUNT)


def test_exactly_once_does_neither(bootstrap: str):
    needs_announced(bootstrap, "transactions")
    crash("exactly_once.py", bootstrap)
    assert (orders_billed(bootstrap, "--committed"), offset_of("exactly-once", bootstrap)) == ([], OFFSET_INVALID)
    told = run_again("exactly_once.py", bootstrap, has_read=lambda told: told != "0 orders are billed\n")
    assert told == f"{COUNT} orders are billed\n"
    assert (orders_billed(bootstrap, "--committed"), offset_of("exactly-once", bootstrap)) == (list(range(COUNT)), COUNT)
    assert orders_billed(bootstrap) == [0, 1, 2, 3, *range(COUNT)], "the first life wrote, and its bills are aborted"


def test_an_idempotent_consumer_takes_each_order_in_once(bootstrap: str, tmp_path: Path):
    bills = tmp_path / "bills.sqlite"
    crash("idempotent_consumer.py", bootstrap, str(bills))
    assert (sums_of(bills)[0], offset_of("idempotent", bootstrap)) == (5, OFFSET_INVALID)
    told = run_again("idempotent_consumer.py", bootstrap, str(bills))
    expected = [f"order-{number} {'was billed before' if number <= 4 else 'is billed'}" for number in range(COUNT)]
    assert told.splitlines() == expected
    assert (sums_of(bills), offset_of("idempotent", bootstrap)) == ((COUNT, 250 * 23, 250 * 23), COUNT)


def sums_of(bills: Path) -> tuple[int, int, int]:
    """How many bills there are, what they come to, and the takings."""
    with closing(sqlite3.connect(bills)) as database:
        (row,) = database.execute("SELECT count(*), sum(cents), (SELECT sum(cents) FROM takings) FROM bills")
    return row[0], row[1], row[2]


def test_every_example_is_run_here():
    names = {"write_orders.py", "at_most_once.py", "at_least_once.py", "exactly_once.py", "idempotent_consumer.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == names
