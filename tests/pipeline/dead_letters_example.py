"""Findings on dead letters as a busy shop would have them, for tests of the report."""

from penstock.pipeline.dead_letters.findings import Findings, KindRow, WindowRow, WorkerRow, queue_findings

START = 1_767_268_800
WINDOW_S = 60
TIMEOUT, BROKEN = "order # timed out after # s", "<script>alert(1)</script>"


def kind(queue: str, name: str, letters: int, *, example: str = "") -> KindRow:
    return KindRow(queue, name, letters, 2, 3.0, START * 1000, (START + 600) * 1000, example, "00000000-0000-8000-8000-000000000001")


def findings(*, strangers: int = 0, listed: int = 0) -> Findings:
    kinds = [kind("emails", TIMEOUT, 40, example="order 4711 timed out after 30 s"), kind("emails", BROKEN, 9)]
    kinds += [kind("bills", f"odd thing {chr(97 + number)}", number + 1) for number in range(26)]
    windows = [WindowRow("emails", TIMEOUT, START + 60 * number, 4) for number in range(10) if number != 5]
    windows += [WindowRow("emails", TIMEOUT, START + 600, 4), WindowRow("emails", BROKEN, START, 9)]
    windows += [WindowRow("bills", row.kind, START, row.letters) for row in kinds if row.queue == "bills"]
    workers = [WorkerRow("emails", "host-1", 120, 49, 2, 30_000.0, 31_000.0), WorkerRow("emails", "<b>host-2</b>", 7, 7, 1, 20.0, 90.0)]
    return Findings("broker:9092", START + 700.0, ["dead"], WINDOW_S, queue_findings(WINDOW_S, kinds, windows, workers), strangers, listed)
