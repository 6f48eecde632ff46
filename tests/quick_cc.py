"""A C compiler that does not optimize: what it builds works the same, and is built in a fraction of the time."""

from pathlib import Path

COMPILED = {"_records", "_requests", "_sieve", "_columns", "_rows", "_messages", "_posts", "_many", "_flush_threads"}  # What it builds.


def quick_cc(directory: Path) -> str:
    """Its path, for CC."""
    script = directory / "quick-cc"
    script.write_text('#!/bin/sh\nexec cc "$@" -O0\n')
    script.chmod(0o755)
    return str(script)
