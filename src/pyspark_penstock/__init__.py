"""Lets Spark find the format "penstock" by itself: it looks for modules named `pyspark_*` and for their `DefaultSource`.

Nothing needs to be registered where this module is on the driver's Python path. Everything about it stands in `penstock.pipeline`.
"""

from penstock.pipeline.datasource import PenstockSource as DefaultSource

__all__ = ["DefaultSource"]
