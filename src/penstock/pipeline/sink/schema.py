"""Which columns a frame must have to be written, checked on the driver before any task starts, in the words of Spark's own Kafka sink."""

from collections.abc import Sequence

from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampNTZType, TimestampType

from penstock.pipeline.options import WrongOption
from penstock.pipeline.sink.options import SinkOptions

_TEXT = (StringType, BinaryType)
_COLUMNS: dict[str, Sequence[type[DataType]]] = {
    "value": _TEXT, "key": _TEXT, "topic": (StringType,), "partition": (IntegerType,),
}  # fmt: skip
_HEADERS = "array<struct<key:string,value:binary>>"


def check_schema(schema: StructType, options: SinkOptions) -> None:
    fields = {field.name.lower(): field.dataType for field in schema.fields}
    if "value" not in fields:
        raise WrongOption(
            f"the frame has no column value, only {', '.join(schema.names) or 'none'}", "select or name one as value: string or binary"
        )
    if options.topic is None and "topic" not in fields:
        raise WrongOption("it is not said where rows go", "set the option topic, or give the frame a column topic")
    for name, allowed in _COLUMNS.items():
        if name in fields and not isinstance(fields[name], tuple(allowed)):
            raise _wrong(name, fields[name], " or ".join(kind.typeName() for kind in allowed))
    if "headers" in fields and not _is_headers(fields["headers"]):
        raise _wrong("headers", fields["headers"], _HEADERS)
    if options.includes_timestamp and not isinstance(fields.get("timestamp"), TimestampType | TimestampNTZType):
        raise WrongOption(
            "includeTimestamp is true, and the frame has no column timestamp of that type", "add one, or leave the option out"
        )


def _wrong(name: str, found: DataType, allowed: str) -> WrongOption:
    return WrongOption(f"the column {name} is of type {found.simpleString()}", f"cast it to {allowed}")


def _is_headers(found: DataType) -> bool:
    if not isinstance(found, ArrayType) or not isinstance(found.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in found.elementType.fields}
    return set(fields) == {"key", "value"} and isinstance(fields["key"], StringType) and isinstance(fields["value"], BinaryType)
