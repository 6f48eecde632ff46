"""One run's figures, printed as they come and written as JSON and Markdown at the end."""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.figures import Figures, Measure
from benchmarks.machine import SMALL_VALUES, described, header, is_in_memory
from benchmarks.steps import BROKER_CPU, CPU_A_ROW, GENERATOR_CPU, Pairs
from benchmarks.subjects import ROOT, LoadFailed


class Report:
    def __init__(self, title: str, data_dir: Path, measured: str = SMALL_VALUES) -> None:
        self.title = title
        self.run = described(data_dir, measured)
        self.figures = Figures()
        self.shares = Figures()  # CPU of both sides: was the generator the limit?
        self.sections: list[str] = []
        self.failures: list[str] = []

    def take(self, subject: str, pairs: Pairs) -> None:
        """Runs a step to its end. A step that fails is told of and costs only its own figures."""
        try:
            for measure, value in pairs:
                self._add(subject, measure, value)
        except (LoadFailed, OSError, RuntimeError) as error:
            self.failures.append(f"{subject}: {error}")
            print(f"  {subject}: FAILED {error}", file=sys.stderr, flush=True)

    def _add(self, subject: str, measure: Measure, value: float) -> None:
        if measure.unit in (GENERATOR_CPU, BROKER_CPU) or measure.unit.startswith(CPU_A_ROW):
            self.shares.add(subject, measure, value)
            return
        self.figures.add(subject, measure, value)
        print(f"  {subject}: {measure} {value:,.3f}", file=sys.stderr, flush=True)

    def markdown(self) -> str:
        lines = [header(self.title, self.run), *self.sections]
        if self.shares.subjects():
            lines += ["", "CPU, to see that the generator was not the limit:", "", self.shares.table()]
        if self.failures:
            lines += ["", "Not measured:", "", *(f"- {failure}" for failure in self.failures)]
        return "\n".join(lines) + "\n"

    def write(self, arguments: argparse.Namespace) -> None:
        print(self.markdown())
        if arguments.markdown:
            Path(arguments.markdown).write_text(self.markdown())
        if arguments.json:
            content = {"run": self.run, "figures": self.figures.as_json() + self.shares.as_json(), "failures": self.failures}
            Path(arguments.json).write_text(json.dumps(content, indent=1) + "\n")


def arguments_of(description: str | None, extra: Sequence[tuple[str, dict[str, object]]] = ()) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data-dir", type=Path, help="a directory on a real disk (default: a temporary one in .cache/)")
    parser.add_argument("--quick", action="store_true", help="a smoke test of a minute: its figures mean little")
    parser.add_argument("--json", help="write every figure of every round here")
    parser.add_argument("--markdown", help="write the tables here")
    for name, options in extra:
        parser.add_argument(name, **options)  # type: ignore[arg-type]
    return parser.parse_args()


@contextmanager
def working_directory(wanted: Path | None) -> Iterator[Path]:
    """Emptied at the end. Not in /tmp, which is memory on many machines."""
    parent = wanted or ROOT / ".cache"
    parent.mkdir(parents=True, exist_ok=True)
    if is_in_memory(parent):
        print(f"{parent} is in memory: flushes cost nothing there, and the figures mean nothing", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent, ignore_cleanup_errors=True) as directory:
        yield Path(directory)
