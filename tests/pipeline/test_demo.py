"""The demo as `make demo` plays it, with its pipeline. The suite plays each half by itself; this is the long version."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.soak(only_here="what `make demo` prints; `make test` has each of its parts")]

DEMO = Path(__file__).parents[2] / "examples" / "demo.py"


def test_the_demo_ends_with_revenue_and_dead_letters() -> None:
    ended = subprocess.run([sys.executable, str(DEMO)], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "orders that count came through once" in ended.stdout and "stopped cleanly (exit code 0)" in ended.stdout
