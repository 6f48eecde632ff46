"""Values as fields: JSON taken apart, and what cannot be taken apart made a dead letter with its reason.

A row is never dropped here. One that is wrong keeps its columns and gets a `reason`; the stage sends it to the dead letters.
"""

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from penstock.pipeline.stage import ORIGIN, REASON

_BROKEN = "_broken"
NO_VALUE = "the record has no value"
NOT_JSON = "the value is not JSON, or a field has another type"


def parsed_json(frame: DataFrame, schema: T.StructType, *, into: str = "parsed", column: str = "value") -> DataFrame:
    """Adds the struct `into`, and a `reason` where the value is not what the schema says. An earlier reason stays."""
    with_broken = T.StructType([*schema.fields, T.StructField(_BROKEN, T.StringType())])
    told = frame.withColumn(into, F.from_json(F.col(column).cast("string"), with_broken, {"columnNameOfCorruptRecord": _BROKEN}))
    wrong = F.when(F.col(column).isNull(), NO_VALUE).when(F.col(f"{into}.{_BROKEN}").isNotNull(), NOT_JSON)
    fields = F.when(wrong.isNull(), F.struct(*(F.col(f"{into}.{name}").alias(name) for name in schema.fieldNames())))
    reasoned = told.withColumn(REASON, _first(told, wrong))
    return reasoned.withColumn(into, fields)


def checked(frame: DataFrame, rules: Mapping[str, Column]) -> DataFrame:
    """Adds the reason of the first rule that does not hold (or cannot be judged), in their order. An earlier reason stays."""
    wrong = F.lit(None).cast("string")
    for reason, holds in reversed(list(rules.items())):
        wrong = F.when(~F.coalesce(holds, F.lit(False)), reason).otherwise(wrong)
    return frame.withColumn(REASON, _first(frame, wrong))


def with_origin(frame: DataFrame) -> DataFrame:
    """Adds where a record comes from, for the headers of a dead letter."""
    return frame.withColumn(ORIGIN, F.struct("topic", "partition", "offset"))


def _first(frame: DataFrame, wrong: Column) -> Column:
    return F.coalesce(F.col(REASON), wrong) if REASON in frame.columns else wrong
