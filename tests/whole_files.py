"""Lets each worker of pytest-xdist collect only the files that it runs.

xdist has every worker collect every test before the first one runs: four times ten thousand tests, and the imports of all files. Files are
dealt out whole here (schedule.py), so a worker needs to know no more than their names. It collects two items for each file:

- `Tests` collects the file and runs its tests, each with its own report.
- `End` does nothing. xdist starts an item only when it knows which one comes after it; without a second item a worker would have to be
  given its next file before it began with this one.

xdist's worker holds each report against the item that it was told to run, so a test stands in the place of its file while it runs.
A file that ends its worker is not begun again: it would end the next worker, too.
Not here: runs without workers, and those that name a test or choose by `-k` or `-m`. They collect as pytest does.
"""

import gc
from itertools import zip_longest
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from schedule import END, Schedule
from xdist.workermanage import WorkerController


def may_be_used(config: pytest.Config) -> bool:
    if not hasattr(config, "workerinput") or config.getoption("keyword") or config.getoption("markexpr"):
        return False
    return not any("::" in argument for argument in config.args)


class WholeFile(pytest.File):
    def collect(self) -> list[pytest.Item]:
        return [Tests.from_parent(self, name="tests", nodeid=self.nodeid), End.from_parent(self, name="end", nodeid=self.nodeid + END)]


class Part(pytest.Item):
    def runtest(self) -> None:
        """Does nothing: the plugin runs the tests."""

    def reportinfo(self) -> tuple[Path, None, str]:
        assert self.parent is not None
        return self.path, None, self.parent.nodeid


class Tests(Part):
    """All tests of a file; has the id of the file."""


class End(Part):
    """The end of a file."""


class OneTry(Schedule):
    """Deals out each file once; xdist would give what a dead worker has left to the next one, with what killed it."""

    def remove_node(self, node: WorkerController) -> str | None:
        for unit in self.assigned_work[node].values():
            begun = next((nodeid for nodeid, is_done in unit.items() if not is_done), None)
            if begun is not None:
                unit.update(dict.fromkeys(unit, True))
                super().remove_node(node)
                return begun
        return super().remove_node(node)


class WholeFiles:
    """A plugin of a worker."""

    def pytest_pycollect_makemodule(self, module_path: Path, parent: pytest.Collector) -> WholeFile:
        return WholeFile.from_parent(parent, path=module_path)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        match item:
            case Tests():
                item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
                self._run_all(item, nextitem)
            case End():  # What is torn down with the last file, or before the next one, is torn down now.
                for report in runtestprotocol(item, log=False, nextitem=nextitem):
                    if report.failed:
                        item.ihook.pytest_runtest_logreport(report=report)
            case _:
                return None
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def _run_all(self, file: Tests, end: pytest.Item | None) -> None:
        session = file.session
        place = session.items.index(file)
        tests = collect(file)  # Empty where all tests of the file belong to another tier.
        try:
            for test, following in zip_longest(tests, tests[1:], fillvalue=end):
                session.items[place] = test
                test.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
                if session.shouldfail or session.shouldstop:
                    break
        finally:
            session.items[place] = file


def collect(file: Tests) -> list[pytest.Item]:
    """Returns the tests of a file that belong to this run."""
    assert file.parent is not None and file.parent.parent is not None
    module = pytest.Module.from_parent(file.parent.parent, path=file.path)
    tests = list(file.session.genitems(module))
    file.config.hook.pytest_collection_modifyitems(session=file.session, config=file.config, items=tests)
    gc.collect()
    gc.freeze()  # The collector need not look again and again at what stays until the file is done.
    return tests
