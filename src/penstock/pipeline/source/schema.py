"""The columns of a topic, as Spark's Kafka source names them.

A job may ask for any of them in any order (`.schema("value binary, offset long")`); what nobody asks for is not taken out of the records.
"""

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.pipeline.options import Options, WrongOption
from penstock.wire.columns import Wanted

HEADERS_TYPE = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": HEADERS_TYPE,
}
_WANTED = {
    "key": Wanted.KEY,
    "value": Wanted.VALUE,
    "headers": Wanted.HEADERS,
    "offset": Wanted.OFFSET,
    "timestamp": Wanted.TIMESTAMP,
    "timestampType": Wanted.TIMESTAMP_TYPE,
}


def schema_of(options: Mapping[str, str]) -> StructType:
    """All columns; the headers only with `includeHeaders`."""
    has_headers = Options(options).flag("includeHeaders", False)
    return StructType([StructField(name, kind) for name, kind in COLUMNS.items() if has_headers or name != "headers"])


def check_schema(schema: StructType) -> None:
    """Refuses columns that a topic does not have, and types that they do not have."""
    for field in schema.fields:
        kind = COLUMNS.get(field.name)
        if kind is None:
            raise WrongOption(f"a topic has no column {field.name!r}", f"choose from {', '.join(COLUMNS)}")
        if field.dataType.simpleString() != kind.simpleString():
            problem = f"the column {field.name!r} is {kind.simpleString()}, not {field.dataType.simpleString()}"
            raise WrongOption(problem, "read it as it is, and cast it in the frame")


def wanted(schema: StructType) -> Wanted:
    """What must be taken out of the records for these columns. Topic and partition are known without."""
    flags = Wanted(0)
    for name in schema.fieldNames():
        flags |= _WANTED.get(name, Wanted(0))
    return flags
