"""The format "penstock-lake" as Spark sees it: `write` and `writeStream`. The tables are read as what they are, Parquet or Delta.

Spark finds it by itself through the module `pyspark_penstock_lake`; `spark.dataSource.register(LakeSink)` does the same by hand.
What it takes to write is imported when something is written (sink.py, which also lists the options).
"""

from pyspark.sql.datasource import DataSource, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructType

from penstock.pipeline.complaints import PipelineComplaint

NAME = "penstock-lake"


class LakeSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.lake.sink import LakeBatchWriter

        if overwrite:
            raise PipelineComplaint("a table of the lake is only added to", "write with mode('append'), or into another path")
        return LakeBatchWriter(dict(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.pipeline.lake.sink import LakeStreamWriter

        return LakeStreamWriter(dict(self.options), schema)
