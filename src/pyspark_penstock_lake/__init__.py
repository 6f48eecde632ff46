"""Lets Spark find the format "penstock-lake" by itself, as `pyspark_penstock` does for "penstock": one module for each format."""

from penstock.pipeline.lake.format import LakeSink as DefaultSource

__all__ = ["DefaultSource"]
