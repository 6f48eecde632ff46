"""`dead-letters` on Spark: its steps on a small table; and on a real node, where messages fail, the job tells, and its list sends back."""

import json
from datetime import UTC, datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import until

from penstock.queues import headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.testing.brokers import Broker

pytestmark = [pytest.mark.needs("spark"), pytest.mark.spark]

RECORD = "topic string, partition int, offset long, timestamp timestamp, headers array<struct<key: string, value: binary>>"
NOON_MS = 1_767_268_800_000
UUID = "0192f0a1-7c3e-8000-8000-00000000abcd"

Header = tuple[str, bytes | None]


def letter(id: str, reason: str, failed_ms: int, *who: str, queue: str = "emails") -> list[Header]:
    tried = [{"taken": failed_ms - 200, "ended": failed_ms - 100, "who": each, "reason": reason} for each in who]
    return [
        ("penstock.source", queue.encode()), ("penstock.id", id.encode()), ("penstock.reason", reason.encode()),
        ("penstock.failed-at", b"%d" % failed_ms), ("penstock.attempts", json.dumps({"count": len(who), "failures": tried}).encode()),
    ]  # fmt: skip


def test_letters_are_counted_by_kind_window_and_worker_and_chosen_once(spark: "SparkSession") -> None:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as F

    from penstock.pipeline.steps import dead_letters as steps

    assert (steps.SOURCE, steps.REASON, steps.FAILED_AT, steps.ID, steps.ATTEMPTS) == (
        headers.SOURCE, headers.REASON, headers.FAILED_AT, headers.ID, headers.ATTEMPTS,
    )  # fmt: skip
    rows: list[list[Header] | None] = [
        letter("1", f"order {UUID} timed out after 30.5 s", NOON_MS, "a", "b"),
        letter("2", f"order {UUID.replace('a', 'b')} timed  out after 7 s", NOON_MS + 59_000, "b"),
        letter("1", "order 0xBEEF timed out after 8 s", NOON_MS + 61_000, "b"),  # Sent back, and failed again.
        letter("3", "", NOON_MS + 61_000, queue="bills"),
        [*letter("4", "no such user deadbeef42", NOON_MS, "é"), ("mine", b"1"), ("mine", b"2"), ("penstock.id", b"5")],
        [("penstock.source", b"\xff\xfe"), ("penstock.failed-at", b"soon"), ("penstock.attempts", b"{")],
        [("penstock.source", None)],
        [],
        None,
    ]
    at = datetime.fromtimestamp(NOON_MS / 1000 + 3_600, UTC)
    records = spark.createDataFrame([("dead", 0, offset, at, told) for offset, told in enumerate(rows)], RECORD)
    found = steps.letters(records).cache()

    kinds = {(row.queue, row.kind): row for row in steps.by_kind(found).collect()}
    timeout = kinds["emails", "order <id> timed out after # s"]
    assert (timeout.letters, timeout.workers, timeout.attempts, timeout.example) == (3, 1, 4 / 3, "order 0xBEEF timed out after 8 s")
    assert (timeout.first_ms, timeout.last_ms, timeout.example_id) == (NOON_MS, NOON_MS + 61_000, "1")
    assert kinds["emails", "no such user <id>"].example_id == "5", "of two headers the last one counts"
    assert kinds["bills", steps.NO_REASON].attempts == 0
    strange = kinds["\ufffd\ufffd", steps.NO_REASON]
    assert strange.first_ms == NOON_MS + 3_600_000, "without a time of its own, the record's"
    assert len(kinds) == 4

    windows = {
        (row.queue, row.start - NOON_MS // 1000): row.letters for row in steps.by_window(found, 60).where("kind like '%timed%'").collect()
    }
    assert windows == {("emails", 0): 2, ("emails", 60): 1}
    workers = {row.worker: (row.failures, row.letters, row.kinds, row.held_p50_ms) for row in steps.by_worker(found).collect()}
    assert workers == {"a": (1, 1, 1, 100), "b": (3, 3, 1, 100), "é": (1, 1, 1, 100)}

    choices: dict[str, dict[str, Any]] = {
        "all": {}, "queue": {"queue": "bills"}, "reason": {"reason": "7 s"}, "kind": {"kind": "<id> timed out"}, "worker": {"worker": "a"},
        "after": {"after_ms": NOON_MS + 61_000}, "before": {"before_ms": NOON_MS + 1},
    }  # fmt: skip
    tagged = [steps.redrivable(found, **choice).select(F.lit(name).alias("name"), "id") for name, choice in choices.items()]
    chosen: dict[str, list[str]] = {}
    for name, id in sorted(reduce(DataFrame.union, tagged).collect()):
        chosen.setdefault(name, []).append(id)
    assert chosen == {
        "all": ["1", "2", "3", "5"], "queue": ["3"], "reason": ["2"], "kind": ["1", "2"], "worker": ["1"], "after": ["1", "3"],
        "before": ["1", "5"],
    }, "each id once, and what has none cannot be named"  # fmt: skip


def test_what_failed_is_told_listed_and_sent_back(
    spark: "SparkSession", node: "Broker", tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from penstock.cli.root import run
    from penstock.pipeline.jobs.dead_letters import JOB
    from penstock.pipeline.pipeline import BatchContext

    dead, work = node.queue(), node.queue(deliveries=1)
    work.configure(dead_letters=dead.name, backoff=0)
    ids = work.send_many([b"order %d" % number for number in range(30)])
    for message in work.receive(30):
        number = int(message.body.split()[1])
        message.reject(f"customer {number} is unknown" if number % 3 else f"timeout after {number} s")
    until(lambda: dead.counts().ready == 30, lambda: f"30 dead letters: {dead.counts()}")
    dead.send("written by hand")

    report, listing = tmp_path / "report.html", tmp_path / "redrive.txt"
    said: list[str] = []
    told = {"queues": dead.name, "report": str(report), "redrive": str(listing), "kind": "timeout", "source": work.name}
    assert JOB.run is not None
    JOB.run(BatchContext(spark, node.bootstrap, JOB.filled(told), str(tmp_path), said.append, lambda name, number: None, lambda: False))

    assert f"{work.name}: 30 dead letters, 20 of them: customer # is unknown" in said
    html = report.read_text()
    for words in ("customer # is unknown", "timeout after # s", "66.7%", "1 other records lie there", "10 of them are on the list"):
        assert words in html, words

    monkeypatch.setenv("PENSTOCK_URL", node.http_url)
    assert run(["queues", "redrive", dead.name, "--ids-from", str(listing)]) == 0
    assert capfd.readouterr().out == f"10 dead letters moved\n  10 to {work.name}\n"
    again = work.receive(30)
    assert sorted(message.id for message in again) == sorted(ids[::3])
    work.ack_many(again)
    assert dead.counts().ready == 21
