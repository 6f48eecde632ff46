"""What a run of the suite shows while it runs, and what it hands to scripts/suite.py when it is over.

While tests run there is one line with the time, the counts and the files at work; a failed test is named at once, its report comes at the
end, with the last of what was printed meanwhile, because client libraries may print hundreds of lines; of very many failures the first ones
only. On a terminal the line is redrawn, elsewhere it is printed anew from time to time, whether or not a test ends meanwhile.
"""

import json
import os
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from schedule import END, file_of

REDRAWN_S, REPEATED_S = 0.2, 30.0
SHOWN_FILES = 3
REPORTS_MAX = 40  # Of failures, in full: one broken function may fail a thousand tests.
A_MOMENT_S = 0.2  # Tests that take longer are listed one by one: `make test-fast` leaves them out.
SECTION_LINES = 60  # Of what was captured of a test, for each stream and phase.
LAST_WORDS = 200  # Lines of standard error that are shown of a worker that dies: Python tells there what each of its threads did.


class Account:
    """A plugin of the process that hands out the tests."""

    def __init__(self, directory: Path, *, out: Any = None) -> None:
        self._file, self._errors = directory / "account.json", directory / "errors.txt"
        self._out = out or sys.__stdout__
        self._is_terminal = self._out.isatty()
        self._began = time.monotonic()
        self._files: set[str] = set()
        self._unfinished: set[str] = set()  # What was dealt out and has not ended: tests, and of whole files the two parts.
        self._running: dict[str, str] = {}  # Files at work, and the test of each that runs; the file while it is imported.
        self._deaths = self._errors_shown = 0
        self._outcomes: dict[str, str] = {}  # Of each test; what fails in its teardown has failed.
        self._skips: Counter[str] = Counter()
        self._failures: list[str] = []
        self._seconds: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        self._tests: Counter[str] = Counter()
        self._writing = threading.Lock()
        self._has_ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        workers = session.config.pluginmanager.getplugin("terminaldistreporter")
        if workers is not None:  # They say "bringing up nodes..." several times and nothing else.
            workers.write_line = workers.rewrite = lambda *_: None
        self._ticker.start()

    def _tick(self) -> None:
        while not self._has_ended.wait(REDRAWN_S if self._is_terminal else REPEATED_S):
            self._show()

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._is_to_run(ids)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._is_to_run([item.nodeid for item in session.items])

    def _is_to_run(self, ids: list[str]) -> None:
        if not self._files:  # Each worker says the same, and so does one that replaces another later.
            self._files, self._unfinished = {file_of(nodeid) for nodeid in ids}, set(ids)

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
            self._outcomes[report.nodeid] = "passed"
        if report.when == "teardown":
            self._cpu[file] += sum(float(value) for name, value in report.user_properties if name == "cpu")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self._has_ended.set()
        self._ticker.join()
        if self._is_terminal:
            self._out.write("\r\x1b[K")
        self._leave_out_reports(session)
        files = {file: [round(seconds, 1), round(self._cpu[file], 1)] for file, seconds in self._seconds.items()}
        tests = {nodeid: round(seconds, 2) for nodeid, seconds in self._tests.items() if seconds > A_MOMENT_S}
        told = {
            "counts": self._counts(), "skips": self._skips.most_common(), "failures": self._failures, "deaths": self._deaths,
            "running": sorted(self._running.values()), "unfinished": sorted(self._unfinished_files()),
            "file_count": len(self._files), "files": files, "tests": tests,
        }  # fmt: skip
        self._file.write_text(json.dumps(told))

    @staticmethod
    def _leave_out_reports(session: pytest.Session) -> None:
        """pytest prints what its terminal has noted, when this is over."""
        terminal = session.config.pluginmanager.getplugin("terminalreporter")
        room = REPORTS_MAX
        for kind in ("error", "failed"):
            reports = terminal.stats.get(kind, [])
            del reports[room:]
            room -= len(reports)

    def _counts(self) -> dict[str, int]:
        counts = Counter(self._outcomes.values())
        return {kind: counts[kind] for kind in ("passed", "failed", "skipped")}

    def _unfinished_files(self) -> set[str]:
        return {file_of(nodeid) for nodeid in self._unfinished}

    def _skipped(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        self._outcomes.setdefault(report.nodeid, "skipped")
        self._skips[skip_reason(report)] += 1

    def _failed(self, nodeid: str) -> None:
        self._outcomes[nodeid] = "failed"
        if nodeid not in self._failures:
            self._failures.append(nodeid)
            self._line(f"failed: {nodeid}", is_last=True)

    def _show(self) -> None:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        done = len(self._outcomes)
        failed = f", {len(self._failures)} failed" if self._failures else ""
        names = [file.removeprefix("tests/").removesuffix(".py") for file in list(self._running)][:SHOWN_FILES]
        files = len(self._files) - len({file_of(nodeid) for nodeid in list(self._unfinished)})
        self._line(f"{minutes:2}:{seconds:02}  {done:,} tests, {files} of {len(self._files)} files{failed}  {' '.join(names)}")

    def _line(self, text: str, *, is_last: bool = False) -> None:
        with self._writing:
            if self._is_terminal:
                self._out.write(f"\r\x1b[K{text[: self._columns()]}" if not is_last else f"\r\x1b[K{text}\n")
            else:
                self._out.write(f"{text}\n")
            self._out.flush()

    def _columns(self) -> int:
        """One less than the terminal has: a line that fills it would be redrawn below itself."""
        return os.get_terminal_size(self._out.fileno()).columns - 1


def shorten_sections(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Leaves the last lines of each section; a test that runs alone, without this plugin, shows all."""
    for place, (title, text) in enumerate(report.sections):
        lines = text.splitlines(keepends=True)
        if len(lines) > SECTION_LINES:
            left_out = f"({len(lines) - SECTION_LINES} lines before these are left out; the test alone shows them)\n"
            report.sections[place] = (title, "".join([left_out, *lines[-SECTION_LINES:]]))


def skip_reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    if hasattr(report, "wasxfail"):
        return f"expected to fail: {report.wasxfail.removeprefix('reason: ') or 'without a reason'}"
    where = report.longrepr
    text = where[2] if isinstance(where, tuple) else str(where)
    return text.removeprefix("Skipped: ")
