"""The foreign clients' stage is a package at the project's root, which pytest does not look in by itself."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
