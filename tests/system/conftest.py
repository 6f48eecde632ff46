"""Doors that the system tests share."""

import sys
from pathlib import Path

# `from tests.system...` works from any working directory, also where pytest was not started as a module.
ROOT = str(Path(__file__).parents[2])
if ROOT not in sys.path:
    sys.path.insert(0, ROOT)
