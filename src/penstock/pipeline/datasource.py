"""The format "penstock" as Spark sees it: `spark.read.format("penstock")`, `readStream`, `write` and `writeStream`.

Spark finds it by itself through the module `pyspark_penstock`; `spark.dataSource.register(PenstockSource)` does the same by hand.
The halves are imported when they are needed: a worker that reads has no use for what writes.
"""

import gc
import os

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from penstock.pipeline.options import Options, WrongOption

NAME = "penstock"


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from penstock.pipeline.source.schema import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> "DataSourceReader":
        from penstock.pipeline.source.batch import BatchReader
        from penstock.pipeline.source.table import LATEST_BY_KEY, TableReader

        if Options(self.options).flag(LATEST_BY_KEY, False):
            return TableReader(dict(self.options), schema)
        return BatchReader(dict(self.options), schema)

    def streamReader(self, schema: StructType) -> "DataSourceStreamReader":
        from penstock.pipeline.source.stream import StreamReader
        from penstock.pipeline.source.table import LATEST_BY_KEY

        if Options(self.options).flag(LATEST_BY_KEY, False):
            raise WrongOption(f"{LATEST_BY_KEY} was set on a stream", "read a batch, spark.read, and join the stream with it")
        return StreamReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.sink.writer import BatchWriter

        return BatchWriter(dict(self.options), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.pipeline.sink.writer import StreamWriter

        return StreamWriter(dict(self.options), schema, overwrite=overwrite)


def settle_in_worker() -> None:
    """Takes what was imported out of the garbage collector's sight, in Spark's workers only.

    Spark's daemon collects all garbage after each task in each worker; looking at every imported object again took most of a small batch.
    """
    if os.environ.get("SPARK_PYTHON_RUNTIME") == "PYTHON_WORKER":
        gc.collect()
        gc.freeze()


settle_in_worker()
