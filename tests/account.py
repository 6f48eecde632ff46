"""What a run of the suite shows while it runs, and what it hands to scripts/suite.py when it is over.

While tests run there is one line with the time, the counts and the files at work; a failed test is named at once, its report comes at the
end, with the last of what was printed meanwhile, because client libraries may print hundreds of lines. On a terminal the line is redrawn,
elsewhere it is printed anew from time to time.
"""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from schedule import END, file_of

REDRAWN_S, REPEATED_S = 0.2, 30.0
SHOWN_FILES = 3
A_MOMENT_S = 0.2  # Tests that take longer are listed one by one: `make test-fast` leaves them out.
SECTION_LINES = 60  # Of what was captured of a test, for each stream and phase.
LAST_WORDS = 200  # Lines of standard error that are shown of a worker that dies: Python tells there what each of its threads did.


class Account:
    """A plugin of the process that hands out the tests."""

    def __init__(self, directory: Path, *, out: Any = None) -> None:
        self._file, self._errors = directory / "account.json", directory / "errors.txt"
        self._out = out or sys.__stdout__
        self._is_terminal = self._out.isatty()
        self._began = self._shown = time.monotonic()
        self._files: set[str] = set()
        self._unfinished: set[str] = set()  # What was dealt out and has not ended: tests, and of whole files the two parts.
        self._running: dict[str, str] = {}  # Files at work, and the test of each that runs; the file while it is imported.
        self._deaths = self._errors_shown = 0
        self._counts: Counter[str] = Counter()
        self._skips: Counter[str] = Counter()
        self._failures: list[str] = []
        self._seconds: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        workers = session.config.pluginmanager.getplugin("terminaldistreporter")
        if workers is not None:
            workers.write_line = lambda text: None  # Twice "bringing up nodes..." and nothing else.

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._is_to_run(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._is_to_run([item.nodeid for item in session.items])

    def _is_to_run(self, ids: list[str]) -> None:
        if not self._files:  # Each worker says the same, and so does one that replaces another later.
            self._files, self._unfinished = {file_of(nodeid) for nodeid in ids}, set(ids)
            self._show()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        shorten_sections(report)
        if report.failed:
            self._failed(report.nodeid)
        elif report.skipped:  # A file that cannot be imported here.
            self._skipped(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Keeps pytest from printing a letter for each test; what it counts stays the same."""
        if report.failed:
            return ("failed" if report.when == "call" else "error"), "", ""
        if report.skipped:
            return "skipped", "", ""
        return ("passed" if report.when == "call" else ""), "", ""

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[file_of(nodeid)] = nodeid
        self._show()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if nodeid in self._unfinished:  # A test of a whole file is not.
            self._unfinished.remove(nodeid)
            self._running.pop(file_of(nodeid), None)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, error: object) -> None:
        if error and error != "keyboard-interrupt":
            self._deaths += 1
            errors = self._errors.read_text(errors="replace").splitlines()
            said, self._errors_shown = errors[self._errors_shown :][-LAST_WORDS:], len(errors)
            self._line("\n".join(["a worker died; workers wrote last to their standard error:", *said]), is_last=True)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: pytest.TestReport) -> None:
        """Has the report name the test that ended a worker; xdist names what it dealt out, which is a file."""
        file = file_of(crashitem)
        report.nodeid = self._running.pop(file, file)
        report.location, report.when = (file, None, report.nodeid), "call"
        report.longrepr = "its worker died, and what comes after it in the file did not run; see above for what was written last"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        shorten_sections(report)
        report.nodeid = report.nodeid.removesuffix(END)
        file = file_of(report.nodeid)
        self._seconds[file] += report.duration
        self._tests[report.nodeid] += report.duration
        if report.failed:
            self._failed(report.nodeid)
        elif report.skipped:
            self._skipped(report)
        elif report.when == "call":
            self._counts["passed"] += 1
        if report.when == "teardown":
            self._cpu[file] += sum(float(value) for name, value in report.user_properties if name == "cpu")
            self._show()

    def pytest_sessionfinish(self) -> None:
        if self._is_terminal:
            self._out.write("\r\x1b[K")
        files = {file: [round(seconds, 1), round(self._cpu[file], 1)] for file, seconds in self._seconds.items()}
        tests = {nodeid: round(seconds, 2) for nodeid, seconds in self._tests.items() if seconds > A_MOMENT_S}
        told = {
            "counts": {kind: self._counts[kind] for kind in ("passed", "failed", "skipped")}, "skips": self._skips.most_common(),
            "failures": self._failures, "deaths": self._deaths, "unfinished": sorted(self._unfinished_files()),
            "file_count": len(self._files), "files": files, "tests": tests,
        }  # fmt: skip
        self._file.write_text(json.dumps(told))

    def _unfinished_files(self) -> set[str]:
        return {file_of(nodeid) for nodeid in self._unfinished}

    def _skipped(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        self._counts["skipped"] += 1
        self._skips[skip_reason(report)] += 1

    def _failed(self, nodeid: str) -> None:
        self._counts["failed"] += 1
        if nodeid not in self._failures:
            self._failures.append(nodeid)
            self._line(f"failed: {nodeid}", is_last=True)

    def _show(self) -> None:
        now = time.monotonic()
        if now - self._shown >= (REDRAWN_S if self._is_terminal else REPEATED_S):
            self._shown = now
            minutes, seconds = divmod(int(now - self._began), 60)
            done = self._counts["passed"] + self._counts["skipped"] + self._counts["failed"]
            failed = f", {self._counts['failed']} failed" if self._counts["failed"] else ""
            names = [file.removeprefix("tests/").removesuffix(".py") for file in self._running][:SHOWN_FILES]
            files = len(self._files) - len(self._unfinished_files())
            self._line(f"{minutes:2}:{seconds:02}  {done:,} tests, {files} of {len(self._files)} files{failed}  {' '.join(names)}")

    def _line(self, text: str, *, is_last: bool = False) -> None:
        if self._is_terminal:
            self._out.write(f"\r\x1b[K{text[:118]}" if not is_last else f"\r\x1b[K{text}\n")
        else:
            self._out.write(f"{text}\n")
        self._out.flush()


def shorten_sections(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Leaves the last lines of each section; a test that runs alone, without this plugin, shows all."""
    for place, (title, text) in enumerate(report.sections):
        lines = text.splitlines(keepends=True)
        if len(lines) > SECTION_LINES:
            left_out = f"({len(lines) - SECTION_LINES} lines before these are left out; the test alone shows them)\n"
            report.sections[place] = (title, "".join([left_out, *lines[-SECTION_LINES:]]))


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return text.removeprefix("Skipped: ")
