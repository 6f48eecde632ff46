"""What a benchmark prints can be kept as a result file: its header has the fields that scripts/results.py demands."""

import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import pytest
from benchmarks.figures import Measure
from benchmarks.report import Report

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="only in a git checkout: elsewhere no commit is known")
def test_the_output_of_a_benchmark_is_a_result_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = Report("A title", tmp_path, "what is measured")
    report.figures.add("ours", Measure("acknowledged, p50", "ms"), 1.0)
    report.sections += [report.figures.table()]
    report.write(Namespace(markdown=None, json=None))
    name = f"{report.run['date'][:10]}-title.md"
    (tmp_path / name).write_text(capsys.readouterr().out)
    (tmp_path / "README.md").write_text(f"[a title]({name})")
    ended = subprocess.run([sys.executable, ROOT / "scripts" / "results.py", tmp_path], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
