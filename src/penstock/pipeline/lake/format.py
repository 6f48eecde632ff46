"""The format "penstock-lake" as Spark sees it: `write` and `writeStream` of any frame, and `readStream` of an archive.

Other reads need no format of ours: the tables are Parquet or Delta.
Spark finds it by itself through the module `pyspark_penstock_lake`; `spark.dataSource.register(LakeSink)` does the same by hand.
What it takes is imported when it is needed (sink.py and reading.py, which also list the options).
"""

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, DataSourceStreamWriter, DataSourceWriter
from pyspark.sql.types import StructField, StructType

from penstock.pipeline.complaints import PipelineComplaint

NAME = "penstock-lake"


class LakeSink(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        from penstock.pipeline.source.schema import COLUMNS

        return StructType([StructField(name, kind) for name, kind in COLUMNS.items()])

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from penstock.pipeline.lake.reading import ArchiveReader

        return ArchiveReader(dict(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from penstock.pipeline.lake.sink import LakeBatchWriter

        if overwrite:
            raise PipelineComplaint("a table of the lake is only added to", "write with mode('append'), or into another path")
        return LakeBatchWriter(dict(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from penstock.pipeline.lake.sink import LakeStreamWriter

        return LakeStreamWriter(dict(self.options), schema)
