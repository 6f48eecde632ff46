"""Spark's daemon of Python workers, which imports what they need before it forks them: else each of them does, for half a second of CPU.

    python -m warm_daemon pyspark.worker
"""

import sys
from importlib import import_module

if sys.argv[1:] == ["pyspark.worker"]:  # The other daemons fork once or twice.
    for name in (
        "pandas",  # By Arrow, for some conversions.
        "pyarrow.compute",
        "pyspark_penstock",
        "penstock.pipeline.source.batch",
        "penstock.pipeline.source.stream",
        "penstock.pipeline.source.table",
        "penstock.pipeline.sink.writer",
        "penstock.pipeline.lake.reading",
        "penstock.pipeline.lake.sink",
    ):
        import_module(name)

from pyspark.daemon import manager

if __name__ == "__main__":
    manager()
