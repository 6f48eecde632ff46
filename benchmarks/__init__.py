"""Benchmarks: one file per question. Run them from the project's root with `python -m benchmarks.<name>`."""
